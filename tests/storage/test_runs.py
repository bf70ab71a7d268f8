"""A run's units: complete or absent, the same bytes for the same rows, whatever the ids."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprobe.errors import StorageError, UsageError
from storage.lock import process_start
from storage.runs import RunStore, Unit, part_path
from storage.schemas import ORDER, SCHEMAS, UNIQUE
from tests.storage.rows import commit_verdicts, episode, item, new_run, unscored, verdict

UNIT = Unit("recover", "rag", "u1")
ROWS = [verdict("rag", "u1", "skill_memory", f"d{i}", score=i / 4) for i in range(5)]


@pytest.fixture(params=["local", "memory", "s3"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    if request.param == "s3":
        return new_run(request.getfixturevalue("bucket").url("some runs/run"))
    where = tmp_path / "run" if request.param == "local" else f"memory://{uuid.uuid4().hex}/run"
    return new_run(where)


def test_a_unit_is_complete_only_with_its_fingerprint_and_all_its_parts(run: RunStore) -> None:
    assert not run.is_complete(UNIT, "f")
    run.commit(UNIT, "f", {"verdicts": ROWS, "slot_fills": []})
    assert run.is_complete(UNIT, "f")
    assert not run.is_complete(UNIT, "other inputs")
    assert [row["score"] for row in run.read("verdicts", system="rag", user="u1")] == [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
    ]
    assert run.scan("verdicts").schema.equals(SCHEMAS["verdicts"])
    run.files.remove(part_path("verdicts", UNIT))
    assert not run.is_complete(UNIT, "f")


def test_a_truncated_or_changed_part_is_found(run: RunStore) -> None:
    run.commit(UNIT, "f", {"verdicts": ROWS})
    path = part_path("verdicts", UNIT)
    data = run.files.read(path)
    assert run.verify(UNIT) == []
    run.files.write(path, data[:-1] + b"\0")
    assert run.verify(UNIT) == [path]
    run.files.write(path, data[:-20])
    assert not run.is_complete(UNIT, "f")
    with pytest.raises(StorageError, match="cannot be read"):
        run.read("verdicts")


def test_a_part_that_nobody_can_read_is_made_again(run: RunStore) -> None:
    run.commit(UNIT, "f", {"verdicts": ROWS})
    (path,) = run.parts("verdicts")
    size = len(run.files.read(path))
    run.files.write(path, b"x" * size)
    # An object store answers for its own content.
    assert run.is_complete(UNIT, "f") is (run.path is None)
    run.files.write(f"units/{UNIT.slug}.json", b"{}")
    assert not run.is_complete(UNIT, "f")
    assert run.units() == []
    run.commit(UNIT, "f", {"verdicts": ROWS})
    assert run.is_complete(UNIT, "f")
    assert len(run.read("verdicts")) == len(ROWS)


def test_a_crash_between_parts_and_marker_leaves_the_unit_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case resume-partial-ids: what was under way is not taken for done."""
    run = new_run(tmp_path / "run")
    run.commit(UNIT, "f", {"verdicts": ROWS})
    write = run.files.write

    def dies_at_the_marker(path: str, data: bytes) -> None:
        if path.startswith("units/"):
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(run.files, "write", dies_at_the_marker)
    with pytest.raises(KeyboardInterrupt):
        run.commit(UNIT, "g", {"verdicts": ROWS[:2]})
    again = RunStore.open(tmp_path / "run")
    assert not again.is_complete(UNIT, "f")
    assert not again.is_complete(UNIT, "g")
    again.commit(UNIT, "g", {"verdicts": ROWS[:2]})
    assert again.is_complete(UNIT, "g")
    assert len(again.read("verdicts")) == 2


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path / "run")
    run.commit(UNIT, "f", {"verdicts": ROWS})
    path = tmp_path / "run" / part_path("verdicts", UNIT)
    before = path.read_bytes()

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StorageError, match="No space left"):
        run.files.write(part_path("verdicts", UNIT), b"new")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_equal_rows_make_equal_bytes_in_any_order(tmp_path: Path) -> None:
    rows = [*ROWS, verdict("rag", "u1", "skill_memory", "d0", access_mode="retrieve", k=5)]
    shuffled = rows.copy()
    random.Random(1).shuffle(shuffled)
    one, two = new_run(tmp_path / "one", "one"), new_run(tmp_path / "two", "two")
    one.commit(UNIT, "f", {"verdicts": rows})
    two.commit(UNIT, "f", {"verdicts": [dict(reversed(row.items())) for row in shuffled]})
    for path in (part_path("verdicts", UNIT), f"units/{UNIT.slug}.json"):
        assert one.files.read(path) == two.files.read(path)


def test_ids_from_outside_never_leave_the_run_and_never_collide(tmp_path: Path) -> None:
    """Cases userid-hyphen-uuid and windows-path-sep: escaped in paths, kept in columns."""
    run = new_run(tmp_path / "home" / "run")
    ids = ["../../etc", "a/b", "a_b", "A_b", "C:\\x", "a b", "..", "a__b", "é", "a\ud83d", "-"]
    for user in ids:
        run.commit(
            Unit("recover", "sys/1", user), "f", {"verdicts": [verdict("sys/1", user, "c", "d")]}
        )
    inside = set(tmp_path.rglob("*.parquet"))
    assert len(inside) == len(ids)
    assert all((tmp_path / "home" / "run") in p.parents for p in inside)
    assert all(not set(p.name) & set(':\\ "') for p in tmp_path.rglob("*"))
    for user in ids[:9]:
        assert [r["user_id"] for r in run.read("verdicts", system="sys/1", user=user)] == [user]


@given(st.lists(st.tuples(*[st.text(alphabet="ab_/-", max_size=4)] * 3), unique=True, max_size=20))
def test_unit_slugs_are_distinct_and_safe(units: list[tuple[str, str, str]]) -> None:
    slugs = [Unit("s", system, user, variant).slug for system, user, variant in units]
    assert len(set(slugs)) == len(units)
    assert all(set(s) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for s in slugs)


def test_the_slug_of_plain_names_is_plain() -> None:
    assert Unit("recover", "longctx_full", "user_003").slug == "recover__longctx_full__user_003"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "row 1: unknown column colour"),
        ({"layer": None}, "row 1, column layer: a value is required"),
        ({"score": float("nan")}, "row 1, column score: nan is no value"),
        ({"score": float("inf")}, "row 1, column score: inf"),
        ({"score": True}, "row 1, column score: a number is needed"),
        ({"epoch": 1.5}, "row 1, column epoch: a whole number"),
        ({"epoch": 2**40}, "verdicts"),
        ({"label": 3}, "row 1, column label: text is needed"),
        ({"status": "failed"}, "row 1, column status: status is 'failed'"),
        ({"status": "unscored", "score": None}, "needs a reason"),
        ({"status": "unscored", "reason": "timeout"}, "an error is never a score"),
        ({"status": "unscored", "score": None, "reason": "bad luck"}, "reason 'bad luck'"),
        ({"score": None}, "a scored row needs a score"),
        ({"dimension": "d0"}, "two rows for system='rag'"),
        ({"system": "other"}, "rows of 'other' in unit"),
    ],
)
def test_a_row_that_breaks_its_schema_is_named_and_nothing_is_written(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    run = new_run(tmp_path / "run")
    with pytest.raises(StorageError, match="verdicts") as caught:
        run.commit(UNIT, "f", {"verdicts": [ROWS[0], {**ROWS[1], **change}]})
    assert message in str(caught.value)
    assert run.parts("verdicts") == []
    assert run.units() == []


def test_judge_nan_is_null_with_a_status(tmp_path: Path) -> None:
    """Case judge-nan: an unscored value is NULL in Parquet and its status says so."""
    run = new_run(tmp_path / "run")
    run.commit(UNIT, "f", {"verdicts": [ROWS[0], unscored(ROWS[1], "invalid_output")]})
    column = run.scan("verdicts").column("score")
    assert column.null_count == 1
    assert not any(v != v for v in column.to_pylist() if v is not None)
    assert run.scan("verdicts").column("status").to_pylist() == ["scored", "unscored"]


def test_lone_surrogates_and_other_scripts_survive_storage(run: RunStore) -> None:
    """Cases lone-surrogate, rtl-cjk-language and emoji-cp1252."""
    texts = ["broken \ud83d tail", "אני גר בחיפה", "她住在北京", "likes tea 😊"]
    rows = [item("rag", "u1", seq, text) for seq, text in enumerate(texts)]
    run.commit(Unit("rollout", "rag", "u1"), "f", {"memory_items": rows})
    found = [row["content"] for row in run.read("memory_items", system="rag", user="u1")]
    assert found == ["broken \ufffd tail", *texts[1:]]


def test_replacing_a_unit_removes_what_it_no_longer_has(run: RunStore) -> None:
    run.commit(UNIT, "f", {"verdicts": ROWS, "slot_fills": []})
    run.commit(UNIT, "g", {"verdicts": ROWS[:1]})
    assert run.parts("slot_fills") == []
    assert len(run.read("verdicts")) == 1


def test_variants_and_stages_lie_beside_each_other(run: RunStore) -> None:
    commit_verdicts(run, [ROWS[0]])
    commit_verdicts(run, [{**ROWS[0], "layer": "strict2"}], variant="strict2")
    assert len(run.read("verdicts")) == 2
    assert [r["layer"] for r in run.read("verdicts", variant="strict2")] == ["strict2"]
    assert [r["layer"] for r in run.read("verdicts", variant="")] == ["base"]
    latency = {"system": "rag", "user_id": "u1", "epoch": 1, "phase": "write", "latency_s": 0.1}
    run.commit(Unit("rollout", "rag", "u1"), "f", {"operations": [latency]})
    run.commit(Unit("search", "rag", "u1"), "f", {"operations": [{**latency, "phase": "search"}]})
    assert sorted(r["phase"] for r in run.read("operations")) == ["search", "write"]
    with pytest.raises(StorageError, match="belongs to unit recover__rag__u1"):
        run.commit(Unit("rejudge", "rag", "u1"), "f", {"verdicts": [ROWS[0]]})


def test_reset_and_units(run: RunStore) -> None:
    (run.work_dir(UNIT) / "state").write_text("half way")
    state = run.units()[0]
    assert (state.unit, state.complete) == (UNIT, False)
    run.commit(UNIT, "f", {"verdicts": ROWS})
    state = run.units()[0]
    assert (state.unit, state.rows, state.complete) == (UNIT, {"verdicts": 5}, True)
    run.reset(UNIT)
    assert run.units() == []
    assert run.parts("verdicts") == []


def test_a_store_is_picklable_and_listed(run: RunStore) -> None:
    run.commit(UNIT, "f", {"verdicts": ROWS})
    copy = pickle.loads(pickle.dumps(run))
    assert copy.is_complete(UNIT, "f")
    home = run.location.rsplit("/", 1)[0]
    assert [r.name for r in RunStore.list(home)] == ["t1"]


def test_create_and_open_say_what_is_wrong(run: RunStore) -> None:
    with pytest.raises(UsageError, match="holds a run already"):
        RunStore.create(run.location, run.manifest)
    with pytest.raises(UsageError, match="no run at"):
        RunStore.open(run.location + "-not")


def test_the_manifest_is_updated_and_its_version_is_checked(run: RunStore) -> None:
    run.update_manifest(status="running", dropped_params={"openai/x": ["temperature"]})
    found = RunStore.open(run.location).manifest
    assert found.status.value == "running"
    assert found.dropped_params == {"openai/x": ("temperature",)}
    assert {"python", "memprobe", "duckdb", "pyarrow", "numpy"} <= set(found.versions)
    with pytest.raises(StorageError, match="no field colour"):
        run.update_manifest(colour="red")
    with pytest.raises(StorageError, match="status"):
        run.update_manifest(status="perhaps")
    raw = json.loads(run.files.read("manifest.json"))
    for version, word in ((99, "a newer"), (0, "an older")):
        run.files.write("manifest.json", json.dumps({**raw, "schema_version": version}).encode())
        with pytest.raises(StorageError, match=word):
            RunStore.open(run.location)
    run.files.write("manifest.json", b"{")
    with pytest.raises(StorageError, match="not valid JSON"):
        RunStore.open(run.location)


def test_a_model_that_judges_itself_is_recorded(tmp_path: Path) -> None:
    """Case judge-self-grading."""
    assert new_run(tmp_path / "a", model="openai/x").manifest.self_judged
    other = new_run(tmp_path / "b", model="openai/x", model_roles={"judge": "openai/y"})
    assert not other.manifest.self_judged
    embedded = new_run(tmp_path / "c").manifest
    assert embedded.embedded
    assert not embedded.self_judged


def test_the_lock_is_refused_while_its_owner_lives(run: RunStore) -> None:
    with run.lock(), pytest.raises(UsageError, match=f"process {os.getpid()}"), run.lock():
        pass
    with run.lock():
        assert run.files.size("lock") is not None
    assert run.files.size("lock") is None


def test_the_lock_of_a_dead_process_is_taken_over(run: RunStore) -> None:
    """Case started-after-oom: a run whose owner is gone can go on."""
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    with run.lock():
        mine = json.loads(run.files.read("lock"))
    dead = {**mine, "pid": int(child.stdout), "started": "1"}
    run.files.write("lock", json.dumps(dead).encode())
    with run.lock():
        assert json.loads(run.files.read("lock"))["pid"] == os.getpid()
    recycled = {**mine, "started": "long ago"}
    run.files.write("lock", json.dumps(recycled).encode())
    with run.lock():
        assert json.loads(run.files.read("lock"))["started"] == process_start(os.getpid())
    run.files.write("lock", b"not json")
    with run.lock():
        pass


def test_every_key_and_order_is_of_the_tables_columns() -> None:
    assert set(ORDER) == set(SCHEMAS)
    for table, columns in (*ORDER.items(), *UNIQUE.items()):
        assert set(columns) <= set(SCHEMAS[table].names), table


def test_a_part_written_here_is_plain_parquet(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.commit(Unit("rollout", "rag", "u1"), "f", {"episodes": [episode("rag", "u1", 1)]})
    table = pq.read_table(tmp_path / "run" / run.parts("episodes")[0], partitioning=None)
    assert isinstance(table, pa.Table)
    assert table.schema.remove_metadata().equals(SCHEMAS["episodes"])
