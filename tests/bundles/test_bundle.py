"""Bundles: complete, the same bytes again, clean, and checked to the last row."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import UsageError
from storage.catalog import query
from storage.manifest import RunStatus
from storage.runs import RunStore
from tasks.bundle import scrub, write_bundle
from tasks.score import score_run
from tasks.verify import verify_bundle
from tests.bundles.support import (
    Files,
    Row,
    adapt_list,
    adapt_markers,
    adapt_rows,
    edit_part,
    find,
    pack,
    unpack,
)
from tests.cli.conftest import Invoke
from tests.report.make_run import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return make_run(tmp_path_factory.mktemp("bundled") / "made", users=2, systems=("nomem", "rag"))


@pytest.fixture(scope="module")
def bundle(run: RunStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "made.zip"
    write_bundle(run, path)
    return path


@pytest.fixture
def files(bundle: Path) -> Files:
    return unpack(bundle)


def problems(tmp_path: Path, files: Files) -> list[str]:
    return list(verify_bundle(pack(tmp_path / "changed.zip", files)).problems)


def test_a_whole_bundle_is_as_stated(run: RunStore, bundle: Path, files: Files) -> None:
    found = verify_bundle(bundle)
    assert (found.ok, found.run, found.files) == (True, "made", len(files))
    assert found.rows == len(run.read("verdicts")) + len(run.read("attributions")) == 2 * 2 * 93
    assert found.metrics == len(run.read("metrics")) > 20
    parts = {p.relative_to(run.path).as_posix() for p in run.path.rglob("*.parquet")}  # type: ignore
    assert parts <= files.keys()
    assert files.keys() - parts == {"bundle.json", "manifest.json", "rows.jsonl"} | {
        name for name in files if name.startswith("units/")
    }
    listed = json.loads(files["bundle.json"])
    assert listed["versions"]["memprobe"]
    assert listed["schema_version"] == 1


def test_the_same_run_gives_the_same_bytes(run: RunStore, bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "made"
    shutil.copytree(run.path, copy)  # type: ignore[arg-type]
    again = write_bundle(RunStore.open(copy), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    assert len(again.sha256) == 64
    folder = write_bundle(run, tmp_path / "folder")
    assert folder.sha256 == ""
    there = {
        p.relative_to(tmp_path / "folder").as_posix(): p.read_bytes()
        for p in (tmp_path / "folder").rglob("*") if p.is_file()
    }  # fmt: skip
    assert there == unpack(bundle)
    assert verify_bundle(tmp_path / "folder").ok


def test_a_bundle_is_a_run(run: RunStore, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "folder")
    store = RunStore.open(tmp_path / "folder")
    sql = "select system, access_mode, b_mean, b_lo from recovery_summary order by all"
    assert query(store, sql).rows == query(run, sql).rows
    assert all(state.complete for state in store.units())


def test_nothing_is_written_over(run: RunStore, bundle: Path, tmp_path: Path) -> None:
    before = bundle.read_bytes()
    with pytest.raises(UsageError, match="there already"):
        write_bundle(run, bundle)
    (tmp_path / "x").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        write_bundle(run, tmp_path)
    assert bundle.read_bytes() == before


def test_missing_and_stale_metrics_are_computed_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "made", users=1, systems=("rag",), score=False)
    found = write_bundle(run, tmp_path / "a.zip")
    assert "the metrics of layer base were computed" in found.notes
    assert verify_bundle(tmp_path / "a.zip").ok
    run.update_manifest(status=RunStatus.INTERRUPTED)
    assert any("interrupted" in note for note in write_bundle(run, tmp_path / "b.zip").notes)


def test_keys_and_folders_of_a_machine_stay_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "q7w8e9r0t1y2u3")

    def edit(table: str, rows: list[Row]) -> list[Row]:
        for row in rows[:1]:
            if table == "verdicts":
                row.update(status="unscored", score=None, reason="provider_error")
                row["detail"] = "401 for q7w8e9r0t1y2u3 in /home/ada/lab/my.py, sk-abcdefgh12345"
            if table == "attributions":
                row.update(status="unscored", label="harness_failure", reason="provider_error")
            if table == "turns":
                row["user_text"] = "I keep it in /home/ada/lab/notes."
        return rows

    options = {"memt": {"prompts": "/home/ada/lab/prompts", "url": "http://me:pw12@host:1/v1/x"}}
    run = make_run(
        tmp_path / "made", users=1, systems=("rag", "/home/ada/lab/my.py:Mine"), edit=edit,
        dataset="/home/ada/lab/users", system_options=options,
    )  # fmt: skip
    found = write_bundle(run, tmp_path / "a.zip")
    assert any("were taken out of" in note for note in found.notes)
    for name, data in unpack(tmp_path / "a.zip").items():
        assert b"q7w8e9r0t1y2u3" not in data, name
        if name.endswith((".json", ".jsonl")) and not name.startswith("units/"):
            assert b"/home/ada" not in data or name == "rows.jsonl", name
            assert b"pw12" not in data, name
    assert verify_bundle(tmp_path / "a.zip").ok
    folder = tmp_path / "folder"
    write_bundle(run, folder)
    details = query(RunStore.open(folder), "select detail from verdicts where detail is not null")
    assert details.rows[0] == ("401 for [redacted] in [path]/my.py, [redacted]",)
    # What a user said is evidence and stands as it is.
    said = query(RunStore.open(folder), "select count(*) from turns where user_text like '%/home%'")
    assert said.rows[0][0] > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ada/x.py:Mine", "[path]/x.py:Mine"),
        ("sqlite:////home/ada/l.sqlite", "[path]/l.sqlite"),
        ("file:///home/ada/x", "[path]/x"),
        (r"C:\Users\ada\x.py", "[path]/x.py"),
        ("~/lab/x.py", "[path]/x.py"),
        ("examples/my_memory.py:MyMemory", "examples/my_memory.py:MyMemory"),
        ("openai/gpt-5.4-mini", "openai/gpt-5.4-mini"),
        ("https://host.example/a/b/c", "https://host.example/a/b/c"),
        ("3/4 and/or 5/6", "3/4 and/or 5/6"),
    ],
)
def test_what_a_path_of_a_machine_is(text: str, expected: str) -> None:
    assert scrub(text) == expected


def first_verdict(rows: list[Row]) -> None:
    rows[0]["score"] = 0.25 if rows[0]["score"] != 0.25 else 0.5


def test_a_changed_verdict_is_named(files: Files, tmp_path: Path) -> None:
    name = find(files, "verdicts", "rag", "user_001")
    edit_part(files, name, first_verdict)
    found = problems(tmp_path, files)
    assert any(line.startswith(f"{name}: not the stated") for line in found)
    assert any("verdicts rag user_001 dump_all" in line and "not the row" in line for line in found)
    assert any("the verdicts give" in line for line in found)


@pytest.mark.parametrize("adapted", ["list", "markers", "rows"])
def test_a_changed_verdict_is_found_when_the_hashes_were_adapted(
    adapted: str, files: Files, tmp_path: Path
) -> None:
    edit_part(files, find(files, "verdicts", "rag", "user_001"), first_verdict)
    if adapted in ("markers", "rows"):
        adapt_markers(files)
    if adapted == "rows":
        adapt_rows(files)
    adapt_list(files)
    found = problems(tmp_path, files)
    b = [line for line in found if line.startswith("metrics B rag dump_all: value")]
    assert len(b) == 1
    assert "is stored, the verdicts give" in b[0]
    # Even then its attribution names it.
    assert any("verdicts rag user_001" in x and "its attribution was made for" in x for x in found)
    assert not any("not the stated" in line for line in found)


def test_a_changed_figure_is_named(files: Files, tmp_path: Path) -> None:
    name = find(files, "metrics")

    def better(rows: list[Row]) -> None:
        row = next(r for r in rows if (r["system"], r["metric"]) == ("rag", "D") or
                   (r["system"], r["metric"], r["category"]) == ("rag", "B", None))  # fmt: skip
        row["value"] = 0.99

    edit_part(files, name, better)
    adapt_markers(files)
    adapt_rows(files)
    adapt_list(files)
    (line,) = problems(tmp_path, files)
    assert "value 0.99 is stored" in line


@pytest.mark.parametrize("table", ["verdicts", "attributions", "metrics"])
def test_a_dropped_row_is_named(table: str, files: Files, tmp_path: Path) -> None:
    name = find(files, table)
    gone: list[Row] = []
    edit_part(files, name, lambda rows: gone.append(rows.pop(0)))
    found = problems(tmp_path, files)
    assert any(line.startswith(f"{table} ") and line.endswith(": missing") for line in found)
    assert any(name in line and "rows," in line for line in found)
    adapt_markers(files)
    adapt_list(files)
    found = problems(tmp_path, files)
    assert any(line.startswith(f"{table} ") and line.endswith(": missing") for line in found)


def test_an_added_row_and_a_row_twice_are_named(files: Files, tmp_path: Path) -> None:
    name = find(files, "verdicts", "rag", "user_001")
    edit_part(files, name, lambda rows: rows.append({**rows[0], "dimension": "made_up"}))
    edit_part(files, name, lambda rows: rows.append(dict(rows[1])))
    adapt_markers(files)
    adapt_list(files)
    found = problems(tmp_path, files)
    assert any("made_up: not in rows.jsonl" in line for line in found)
    assert any(line.endswith(": there twice") for line in found)


def test_a_row_of_another_table_is_seen_by_its_file(files: Files, tmp_path: Path) -> None:
    name = find(files, "turns", "rag", "user_001")
    edit_part(files, name, lambda rows: rows.pop())
    adapt_list(files)
    found = problems(tmp_path, files)
    assert [line.split(":")[0] for line in found] == [name, name]


def test_dropped_added_and_replaced_files_are_named(files: Files, tmp_path: Path) -> None:
    gone = files.pop(find(files, "memory_items", "rag"))
    files["artifacts/memory_items/part-more.parquet"] = gone
    name = find(files, "episodes", "rag")
    files[name] = b"x" * len(files[name])
    found = problems(tmp_path, files)
    assert any("artifacts/memory_items/part-more.parquet: not in the list" in x for x in found)
    assert any(x.startswith("artifacts/memory_items/") and x.endswith(": missing") for x in found)
    assert any(x == f"{name}: not the stated content" for x in found)
    assert any(x.startswith(name) and "no Parquet" in x for x in found)


def test_a_manifest_of_another_seed_is_seen(files: Files, tmp_path: Path) -> None:
    manifest = json.loads(files["manifest.json"])
    manifest["config"]["seed"] = 99
    files["manifest.json"] = json.dumps(manifest).encode()
    adapt_list(files)
    found = problems(tmp_path, files)
    assert any(line.startswith("bundle.json: seed is 7") for line in found)


def test_another_run_name_is_seen(files: Files, tmp_path: Path) -> None:
    facts = json.loads(files["bundle.json"])
    facts["run"] = "someone-else"
    files["bundle.json"] = json.dumps(facts).encode()
    assert any(
        x.startswith("bundle.json: run is 'someone-else'") for x in problems(tmp_path, files)
    )


def test_layers_are_checked_too(tmp_path: Path) -> None:
    from storage.runs import Unit

    run = make_run(tmp_path / "made", users=2, systems=("rag",))
    for user in ("user_000", "user_001"):
        rows = [{**row, "layer": "second", "score": 0.5} for row in run.read("verdicts", user=user,
                system="rag")]  # fmt: skip
        run.commit(Unit("rejudge", "rag", user, "second"), "x", {"verdicts": rows})
    score_run(run, "second")
    write_bundle(run, tmp_path / "a.zip")
    assert verify_bundle(tmp_path / "a.zip").ok
    files = unpack(tmp_path / "a.zip")
    edit_part(files, find(files, "verdicts", "user_001", "second"), first_verdict)
    adapt_markers(files)
    adapt_rows(files)
    adapt_list(files)
    assert any("metrics B rag dump_all layer second" in x for x in problems(tmp_path, files))


def test_the_commands_call_no_one(
    invoke: Invoke, run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    where = str(run.path)
    facts = json.loads(invoke("bundle", where, "--out", "a.zip", "--json").stdout)
    assert facts["sha256"]
    result = invoke("verify", "a.zip")
    assert result.exit_code == 0
    assert "as stated" in result.stdout
    files = unpack(tmp_path / "a.zip")
    edit_part(files, find(files, "verdicts", "rag", "user_001"), first_verdict)
    adapt_list(files)
    pack(tmp_path / "b.zip", files)
    result = invoke("verify", "b.zip")
    assert result.exit_code == 1
    assert "differs: metrics B rag dump_all" in result.stdout
    assert json.loads(invoke("verify", "b.zip", "--json").stdout)["ok"] is False
    assert invoke("verify", "nothing.zip").exit_code == 2
    exported = invoke("export", where, "--out", "out", "--json")
    assert exported.exit_code == 0
    assert json.loads(exported.stdout)["files"] > 100
    assert invoke("export", where, "--out", "out").exit_code == 2


def test_an_unpacked_bundle_that_was_read_is_as_stated(run: RunStore, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b")
    assert query(RunStore.open(str(tmp_path / "b")), "select count(*) from verdicts").rows
    (tmp_path / "b/report").mkdir(exist_ok=True)
    (tmp_path / "b/report/index.html").write_text("<p>")
    assert list(verify_bundle(tmp_path / "b").problems) == []
    (tmp_path / "b/other.txt").write_text("x")
    assert list(verify_bundle(tmp_path / "b").problems) == ["other.txt: not in the list"]
