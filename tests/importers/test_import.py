"""A release that is whole: every record in its table, every byte in the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memprobe.errors import UsageError
from storage.catalog import query
from storage.importers.rebuild import rebuild
from storage.importers.recovery_release import Imported
from storage.manifest import RunStatus
from storage.runs import RunStore
from tests.importers.release import RUNS, TARGETS, change, load, make_release
from tests.importers.support import assert_nothing_lost, imported, problems, rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunStore, Imported]:
    folder = tmp_path_factory.mktemp("whole")
    root = make_release(folder)
    return root, *imported(folder, folder / "runs" / "pub")


def test_a_whole_release_has_no_issue_and_loses_nothing(
    whole: tuple[Path, RunStore, Imported],
) -> None:
    root, run, found = whole
    assert problems(found) == []
    assert (found.users, found.systems) == (("user_001", "user_002"), tuple(RUNS))
    assert_nothing_lost(run, root)


def test_counts_are_those_of_the_files(whole: tuple[Path, RunStore, Imported]) -> None:
    root, run, found = whole
    n = len(TARGETS)
    assert found.rows["targets"] == found.rows["tasks"] == 2 * n
    assert found.rows["verdicts"] == found.rows["attributions"] == 2 * n * 9
    assert found.rows["retrievals"] == 2 * n * 4 * 5
    turns = sum(len(load(p)["turns"]) for p in root.glob("history/*/*/*.json"))
    assert found.rows["turns"] == found.rows["turn_scores"] == turns
    assert found.rows["preference_scores"] == 2 * turns
    assert found.n_files == sum(p.is_file() for p in root.rglob("*"))
    for table, count in found.rows.items():
        assert len(run.read(table)) == count


def test_values_stand_where_the_files_have_them(whole: tuple[Path, RunStore, Imported]) -> None:
    root, run, _ = whole
    at = {"system": "amem", "user_id": "user_001"}
    for mode, suffix in (("dump_all", ""), ("retrieve", "_retrieve")):
        file = load(root / f"output/amem_pooled_50{suffix}/attribution/user_001.json")
        for detail in file["details"]:
            here = {**at, "access_mode": mode, "dimension": detail["dimension"]}
            (verdict,) = rows(run, "verdicts", **here)
            (blame,) = rows(run, "attributions", **here)
            assert (verdict["score"], verdict["label"]) == (detail["score"], detail["predicted"])
            assert verdict["layer"] == "base"
            assert verdict["k"] == (5 if suffix else None)
            assert blame["label"] == detail["attribution"]["category"]
            assert blame["episode"] == detail["attribution"].get("ep_index")
    kept = rows(run, "memory_items", **at, seq=0)[0]
    assert (kept["item_id"], kept["chars"]) == ("a0", len(kept["content"]))
    assert json.loads(kept["fields_json"])["timestamp"] == "202601020304"
    assert kept["event_time"] is None


def test_items_without_an_id_get_the_one_that_a_retrieval_refers_to(
    whole: tuple[Path, RunStore, Imported],
) -> None:
    _, run, _ = whole
    held = {r["item_id"]: r["content"] for r in rows(run, "memory_items", system="longctx_full")}
    found = rows(run, "retrievals", system="longctx_full")
    assert found
    assert all(held[r["item_id"]] == r["content"] for r in found)


def test_what_was_never_measured_keeps_its_score_and_can_be_told(
    whole: tuple[Path, RunStore, Imported],
) -> None:
    _, run, _ = whole
    marked = rows(run, "verdicts", reason="store_overflow")
    assert len(marked) == len(TARGETS)
    assert {(r["system"], r["user_id"], r["access_mode"]) for r in marked} == {
        ("memt", "user_002", "dump_all")
    }
    assert all((r["status"], r["score"]) == ("scored", 0.0) for r in marked)
    empty = [r for r in run.read("attributions") if r["detail"]]
    assert empty
    assert {r["access_mode"] for r in empty} == {"retrieve"}
    assert all(r["status"] == "scored" and r["disclosed"] is not None for r in empty)


def test_the_manifest_says_what_the_run_is(whole: tuple[Path, RunStore, Imported]) -> None:
    _, run, _ = whole
    manifest = run.manifest
    assert manifest.status is RunStatus.COMPLETE
    assert manifest.protocol == "paper"
    assert manifest.origin is not None
    assert manifest.origin.runs == RUNS
    assert manifest.stored_layer("published") == "base"
    assert "CC BY 4.0" in (manifest.note or "")
    assert not manifest.systems["nomem"].retrieve
    assert len(manifest.dataset_digest) == 64


def test_the_views_read_an_imported_run(whole: tuple[Path, RunStore, Imported]) -> None:
    _, run, _ = whole
    found = query(run, "select * from recovery_summary").dicts()
    assert len(found) == 9
    assert all(row["n_scored"] == row["n_total"] == 2 * len(TARGETS) for row in found)
    assert all(row["d_mean"] == pytest.approx(4.5) for row in found)


def test_without_single_preferences_d_comes_from_the_turns(tmp_path: Path) -> None:
    root = make_release(tmp_path, with_preferences=False)
    run, found = imported(tmp_path, tmp_path / "pub")
    assert found.lost == 0
    assert [p for p in problems(found) if "pref_judge/amem_pooled_50" in p]
    assert run.read("preference_scores") == []
    summary = query(run, "select system, d_mean from recovery_summary").dicts()
    assert all(row["d_mean"] == pytest.approx(4.5) for row in summary)
    assert_nothing_lost(run, root)


def test_two_imports_of_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    make_release(tmp_path, ("user_001",))
    homes = [tmp_path / "one" / "pub", tmp_path / "two" / "pub"]
    for home in homes:
        imported(tmp_path / "release", home)
    parts = [
        {p.relative_to(home): p.read_bytes() for p in home.rglob("*.parquet")} for home in homes
    ]
    assert parts[0]
    assert parts[0] == parts[1]


def test_some_users(tmp_path: Path) -> None:
    root = make_release(tmp_path, ("user_001", "user_002", "user_003"))
    run, found = imported(root, tmp_path / "one", ("user_002",))
    assert found.users == ("user_002",)
    assert {r["user_id"] for r in run.read("verdicts")} == {"user_002"}
    bank = next(f for f in rebuild(run) if f.path.startswith("Deeppersona"))
    assert bank.data is not None
    assert [u["user_id"] for u in json.loads(bank.data)["users"]] == ["user_002"]
    assert imported(root, tmp_path / "first", 2)[1].users == ("user_001", "user_002")
    with pytest.raises(UsageError, match="no user user_009"):
        imported(root, tmp_path / "none", ("user_009",))
    assert not (tmp_path / "none").exists()


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    root = make_release(tmp_path, ("user_001",))
    run, first = imported(root, tmp_path / "pub")
    with pytest.raises(UsageError, match="another --run"):
        imported(root, tmp_path / "pub")
    # An import that broke off is done again from the start.
    run.update_manifest(status=RunStatus.RUNNING)
    change(root / "output/amem_pooled_50/recon_judge/user_001.json", lambda d: d.update(more=1))
    again, second = imported(root, tmp_path / "pub")
    assert second.rows == first.rows
    assert_nothing_lost(again, root)


def test_where_a_release_lies(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        imported(tmp_path / "nowhere", tmp_path / "pub")
    with pytest.raises(UsageError, match="no release"):
        imported(tmp_path, tmp_path / "pub")
    make_release(tmp_path / "a" / "b", ("user_001",))
    assert imported(tmp_path, tmp_path / "pub")[1].users == ("user_001",)
    make_release(tmp_path / "c", ("user_001",))
    with pytest.raises(UsageError, match="2 releases"):
        imported(tmp_path, tmp_path / "pub2")
