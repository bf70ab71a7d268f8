"""Runs in the public layout: an import comes out as it went in, an own run goes in again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import StorageError, UsageError
from storage.exporters.layout import CARRIED
from storage.exporters.recovery_release import export_release, safe_path
from storage.importers.layout import find_root
from storage.importers.recovery_release import import_release
from storage.runs import RunStore, Unit
from storage.schemas import SCHEMAS
from tests.importers.release import change, load, make_release
from tests.importers.support import imported, rows
from tests.importers.test_real_release import FOLDER, unpacked
from tests.report.make_run import Row, make_run


def there(root: Path) -> dict[str, Path]:
    return {str(p.relative_to(root)): p for p in root.rglob("*.json") if p.is_file()}


def assert_the_same_json(root: Path, out: Path) -> None:
    """Every JSON file of a release is in the export, with the same bytes."""
    before, after = there(root), there(out)
    assert before.keys() == after.keys() - {"memprobe/export.json"}
    for path, file in before.items():
        assert after[path].read_bytes() == file.read_bytes(), path


def test_import_export_gives_the_same_files(tmp_path: Path) -> None:
    root = make_release(tmp_path)
    run, _ = imported(tmp_path, tmp_path / "pub")
    found = export_release(run, tmp_path / "out")
    assert_the_same_json(root, tmp_path / "out")
    assert (found.files, found.same, found.other, found.missing) == (
        len(there(root)), len(there(root)), (), (),
    )  # fmt: skip
    listed = load(tmp_path / "out/memprobe/export.json")
    assert listed["files"].keys() == there(root).keys()
    assert listed["systems"] == run.manifest.origin.runs  # type: ignore[union-attr]
    assert str(tmp_path) not in json.dumps(listed)


def test_another_layout_of_the_same_json_is_the_same_json(tmp_path: Path) -> None:
    root = make_release(tmp_path, ("user_001",))
    path = "memory/mem0_pooled_50/user_001/memories.json"
    value = load(root / path)
    value["extra"] = {"$": 1, "big": 10**20, "none": None, "float": 1.0}
    (root / path).write_text(json.dumps(value, indent="\t") + "\n\n", encoding="utf-8")
    run, _ = imported(tmp_path, tmp_path / "pub")
    found = export_release(run, tmp_path / "out")
    assert found.other == (path,)
    assert load(tmp_path / "out" / path) == value
    assert load(tmp_path / "out/memprobe/export.json")["not_the_imported_bytes"] == [path]


def test_a_damaged_release_comes_out_with_its_damage(tmp_path: Path) -> None:
    root = make_release(tmp_path)
    (root / "output/amem_pooled_50/recon_judge/user_001.json").write_bytes(b'{"details": [')
    (root / "history/amem_pooled_50/user_001/episode_1.json").write_bytes(b"")
    (root / "memory/amem_pooled_50/user_002/memories.json").unlink()
    change(root / "output/amem_pooled_50/attribution/user_002.json", lambda d: d["details"].pop())
    run, found = imported(tmp_path, tmp_path / "pub")
    assert found.lost
    export_release(run, tmp_path / "out")
    assert_the_same_json(root, tmp_path / "out")


def test_what_was_added_to_an_import_stands_beside_it(tmp_path: Path) -> None:
    from tasks.score import score_run

    root = make_release(tmp_path, ("user_001",))
    run, _ = imported(tmp_path, tmp_path / "pub")
    score_run(run)
    (verdict, *_) = rows(run, "verdicts", system="amem", access_mode="dump_all")
    again = {**verdict, "layer": "second", "score": 0.25, "judge_model": "m"}
    run.commit(Unit("rejudge", "amem", "user_001", "second"), "x", {"verdicts": [again]})
    (hit, *_) = rows(run, "retrievals", system="amem")
    more = {**hit, "rank": 6, "content": "found anew"}
    run.commit(Unit("again", "amem", "user_001", "more"), "x", {"retrievals": [more]})
    found = export_release(run, tmp_path / "out")
    assert_the_same_json(root, tmp_path / "out")
    assert found.rest == {
        "footprints": len(run.read("footprints")),
        "metrics": len(run.read("metrics")),
        "retrievals": 1,
        "verdicts": 1,
    }
    lines = [json.loads(line) for line in (tmp_path / "out/memprobe/rest.jsonl").open()]
    (kept,) = [line["row"] for line in lines if line["table"] == "verdicts"]
    assert kept == {name: value for name, value in again.items() if value is not None}


def test_a_value_that_was_changed_since_is_exported_as_it_is_now(tmp_path: Path) -> None:
    make_release(tmp_path, ("user_001",))
    run, _ = imported(tmp_path, tmp_path / "pub")
    at = {"system": "amem", "user": "user_001"}
    tables = {name: run.read(name, **at) for name in ("slot_fills", "verdicts", "retrievals")}
    tables["verdicts"][0]["judge_reason"] = "Seen again."
    run.commit(Unit("recover", *at.values()), "x", tables)
    found = export_release(run, tmp_path / "out")
    assert len(found.other) == 2
    path = "output/amem_pooled_50/recon_judge/user_001.json"
    assert path in found.other
    assert "Seen again." in (tmp_path / "out" / path).read_text(encoding="utf-8")


def own(folder: Path, **more: Any) -> RunStore:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        for number, row in enumerate(rows):
            if table == "verdicts" and number == 3:
                row.update(status="unscored", score=None, reason="timeout", detail="slow")
            if table == "attributions" and number == 3:
                row.update(status="unscored", label="harness_failure", reason="timeout")
            if table == "preference_scores" and number < 10:
                row.update(status="scored", reason=None, score=1 + number % 5, judge_reason="so")
        return rows

    return make_run(folder, edit=edit, **{"ks": (1, 5), **more})


def test_a_run_of_our_own_goes_in_again(tmp_path: Path) -> None:
    run = own(tmp_path / "own")
    found = export_release(run, tmp_path / "out")
    assert (found.same, found.other, found.renamed) == (None, (), {})
    where = str(tmp_path / "again")
    import_release(tmp_path / "out", where, "again", None, lambda *_: None)
    again = RunStore.open(where)
    assert set(again.manifest.system_names) == set(run.manifest.config.systems)

    def kept(store: RunStore, table: str, scored: bool = True) -> list[tuple[Any, ...]]:
        columns = sorted(CARRIED[table])
        out = []
        for row in store.read(table):
            if row.get("k") not in (None, 5) or (scored and row.get("status") == "unscored"):
                continue
            if table == "retrievals" and not row["item_id"]:
                continue
            out.append(tuple(row[name] for name in columns))
        return sorted(out, key=repr)

    for table in ("targets", "tasks", "oracle_verdicts", "episodes", "turns", "verdicts",
                  "preference_scores", "memory_items", "retrievals"):  # fmt: skip
        assert kept(run, table), table
        assert kept(again, table) == kept(run, table), table
    # What was not measured is no zero: it is missing there, and stands in the rest.
    gone = rows(again, "verdicts", status="unscored")
    assert len(gone) == len(rows(run, "verdicts", status="unscored")) == 6
    assert all(row["score"] is None for row in gone)
    labels = [(r["system"], r["dimension"], r["label"]) for r in run.read("attributions")
              if r["k"] in (None, 5) and r["status"] == "scored"]  # fmt: skip
    found_labels = [(r["system"], r["dimension"], r["label"]) for r in again.read("attributions")
                    if r["status"] == "scored"]  # fmt: skip
    assert sorted(found_labels) == sorted(labels)


def test_layout_and_rest_together_hold_every_value_of_an_own_run(tmp_path: Path) -> None:
    run = own(tmp_path / "own", users=1)
    found = export_release(run, tmp_path / "out")
    rest: dict[str, list[dict[str, Any]]] = {}
    for line in (tmp_path / "out/memprobe/rest.jsonl").open(encoding="utf-8"):
        one = json.loads(line)
        rest.setdefault(one["table"], []).append(one["row"])
    assert {table: len(of) for table, of in rest.items()} == found.rest
    keys = load(tmp_path / "out/memprobe/export.json")["keys"]
    for table in SCHEMAS:
        left = rest.get(table, [])
        names = keys.get(table, [])
        by_key = {tuple(row.get(n) for n in names): row for row in left}
        whole = 0
        for row in run.read(table):
            present = {name: value for name, value in row.items() if value is not None}
            if present in left:
                whole += 1
                continue
            assert table in CARRIED, table
            beside = by_key.get(tuple(row[n] for n in names), {})
            missing = {
                name for name, value in present.items()
                if name not in CARRIED[table] and name not in beside and value not in ("", "[]")
            }  # fmt: skip
            assert not missing, (table, missing)
        assert whole == len(left) or table in CARRIED
    texts = {json.loads(line)["row"].get("k") for line in
             (tmp_path / "out/memprobe/rest.jsonl").open() if '"verdicts"' in line}  # fmt: skip
    assert 1 in texts


def test_ids_from_outside_are_no_paths(tmp_path: Path) -> None:
    run = own(tmp_path / "own", users=["../../evil", "a b:c"], systems=("nomem", "rag"))
    found = export_release(run, tmp_path / "deep" / "out")
    assert set(found.renamed) == {"../../evil", "a b:c"}
    assert {p.name for p in tmp_path.iterdir()} == {"own", "deep"}
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"out"}
    where = str(tmp_path / "again")
    import_release(tmp_path / "deep" / "out", where, "again", None, lambda *_: None)
    again = RunStore.open(where)
    assert {row["user_id"] for row in again.read("verdicts")} == {"../../evil", "a b:c"}
    # Files that name no user but by their path would be some other user's.
    assert found.rest["memory_items"] == len(run.read("memory_items")) > 0


@pytest.mark.parametrize(
    "path", ["", "/etc/x", "../x", "a/../b", "a//b", "a\\b", "C:/x", "a\0b", "."]
)
def test_paths_that_climb_are_refused(path: str) -> None:
    with pytest.raises(StorageError):
        safe_path(path)


def test_a_forged_path_in_a_run_is_not_written(tmp_path: Path) -> None:
    make_release(tmp_path, ("user_001",))
    run, _ = imported(tmp_path, tmp_path / "pub")
    extras = [r for r in run.read("extras", variant="") if r["user_id"] is None]
    extras[0]["path"] = "../../evil.json"
    issues = run.read("import_issues")
    run.commit(Unit("import"), "x", {"extras": extras, "import_issues": issues})
    with pytest.raises(StorageError, match="no path"):
        export_release(run, tmp_path / "a" / "out")
    assert not list(tmp_path.rglob("evil.json"))


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    run = own(tmp_path / "own", users=1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        export_release(run, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "archive",
    [
        "release_users_001_003.tar.zst",
        pytest.param("release_users_001_040.tar.zst", marks=pytest.mark.heavy),
    ],
)
def test_the_public_release_comes_out_as_it_went_in(archive: str, tmp_path: Path) -> None:
    if FOLDER is None:
        pytest.skip("the public release is not at hand")
    source = unpacked(archive, tmp_path / "release")
    run, found = imported(source, tmp_path / "pub")
    assert found.lost == 0
    exported = export_release(run, tmp_path / "out")
    assert_the_same_json(find_root(source), tmp_path / "out")
    assert exported.other == exported.missing == ()
    assert exported.same == exported.files > 1000
