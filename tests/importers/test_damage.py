"""Every kind of damage: the import ends, names it, and the rest is right."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.importers import source
from storage.importers.rebuild import rebuild
from storage.runs import RunStore
from tests.importers.release import TARGETS, change, load, make_release, write
from tests.importers.support import assert_nothing_lost, imported, problems, rows

HISTORY = "history/amem_pooled_50/user_001/episode_2.json"
MEMORY = "memory/mem0_pooled_50/user_001/memories.json"
VERDICTS = "output/amem_pooled_50/recon_judge/user_001.json"
BLAME = "output/amem_pooled_50/attribution/user_001.json"
ORACLE = "output/_task_design_oracle/user_001.json"
TASKS = "benchmark_data/CustomTasksPooledFinal/user_001.json"
BANK = "Deeppersona/data/user_memory_banks_pooled_final.json"
PREFS = "pref_judge/amem_pooled_50/user_001/episode_2.json"

Spoil = Callable[[bytes], bytes]
UNUSABLE: dict[str, tuple[Spoil, str]] = {
    "truncated": (lambda b: b[: len(b) // 2].decode("utf-8", "ignore").encode(), "not valid JSON"),
    "empty": (lambda _: b"", "empty"),
    "blank": (lambda _: b" \n", "empty"),
    "not utf-8": (lambda b: b[:40] + b"\xff\xfe" + b[40:], "not UTF-8 at byte 40"),
    "not json": (lambda _: b"<html>", "not valid JSON"),
    "deep": (lambda _: b"[" * 5000 + b"]" * 5000, "nested"),
    "deeper than allowed": (lambda _: b'{"a":' * 200 + b"1" + b"}" * 200, "nested"),
    "a huge number": (lambda _: b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_release(tmp_path)


def lost_lines(found: Any) -> list[str]:
    return problems(found, "lost")


@pytest.mark.parametrize(
    ("path", "kind"),
    [(path, kind) for path in (HISTORY, MEMORY, VERDICTS, BLAME, BANK) for kind in UNUSABLE]
    + [(path, kind) for path in (ORACLE, TASKS, PREFS) for kind in ("truncated", "empty")],
)
def test_a_file_that_cannot_be_used(root: Path, tmp_path: Path, path: str, kind: str) -> None:
    spoil, said = UNUSABLE[kind]
    before = (root / path).read_bytes()
    (root / path).write_bytes(spoil(before))
    run, found = imported(root, tmp_path / "pub")
    assert found.lost
    assert any(p.startswith(f"{path} |") and said in p for p in lost_lines(found)), found.issues
    assert {r["path"] for r in run.read("import_issues")} >= {path}
    # Its text is kept, and every other file is whole.
    assert_nothing_lost(run, root)
    assert len(rows(run, "verdicts", user_id="user_002", status="scored")) == 9 * len(TARGETS)
    check_user_one(run, path)


def check_user_one(run: RunStore, path: str) -> None:
    """What the loss of one file leaves of the user."""
    at = {"user_id": "user_001", "system": "amem"}
    n = len(TARGETS)
    verdicts = rows(run, "verdicts", **at, access_mode="dump_all")
    episodes = rows(run, "episodes", **at)
    assert len(verdicts) == n
    assert all(r["status"] == "scored" for r in verdicts)
    if path == HISTORY:
        (episode,) = [r for r in episodes if r["status"] == "unscored"]
        assert (episode["episode"], episode["reason"]) == (2, "dataset_error")
        assert episode["n_turns"] == 0
    elif path == MEMORY:
        assert rows(run, "memory_items", user_id="user_001", system="mem0") == []
    elif path == BLAME:
        blame = rows(run, "attributions", **at, access_mode="dump_all")
        assert {(r["label"], r["status"]) for r in blame} == {("harness_failure", "unscored")}
    elif path == ORACLE:
        found = rows(run, "oracle_verdicts", user_id="user_001")
        assert [r["status"] for r in found] == ["unscored"] * n
    elif path in (TASKS, BANK):
        assert len(rows(run, "targets", user_id="user_001")) == n
        assert len(episodes) == n
    elif path == PREFS:
        scores = rows(run, "turn_scores", **at, episode=2)
        assert scores
        assert all(r["score"] == 4.5 for r in scores)


def test_verdicts_are_taken_from_the_attribution_file_which_repeats_them(
    root: Path, tmp_path: Path
) -> None:
    want = {d["dimension"]: d["score"] for d in load(root / VERDICTS)["details"]}
    (root / VERDICTS).write_bytes(b"{")
    run, found = imported(root, tmp_path / "pub")
    got = rows(run, "verdicts", system="amem", user_id="user_001", access_mode="dump_all")
    assert {r["dimension"]: r["score"] for r in got} == want
    assert any("recon_judge has no usable file" in p for p in problems(found, "note"))


def test_verdicts_that_are_nowhere_are_unscored(root: Path, tmp_path: Path) -> None:
    for path in (VERDICTS, BLAME):
        (root / path).unlink()
    run, found = imported(root, tmp_path / "pub")
    for path, table in ((VERDICTS, "verdicts"), (BLAME, "attributions")):
        assert any(p.startswith(f"{path} |") and "missing" in p for p in lost_lines(found))
        got = rows(run, table, system="amem", user_id="user_001", access_mode="dump_all")
        assert [r["status"] for r in got] == ["unscored"] * len(TARGETS)
        assert all(r["score"] is None for r in got)


@pytest.mark.parametrize("path", [HISTORY, MEMORY, ORACLE, TASKS])
def test_a_file_that_is_missing(root: Path, tmp_path: Path, path: str) -> None:
    (root / path).unlink()
    run, found = imported(root, tmp_path / "pub")
    assert any(p.startswith(f"{path} |") for p in lost_lines(found))
    assert_nothing_lost(run, root)


@pytest.mark.parametrize(
    "folder",
    ["history/amem_pooled_50", "memory/amem_pooled_50", "output/amem_pooled_50_retrieve",
     "output/amem_pooled_50/attribution", "benchmark_data", "output/_task_design_oracle",
     "Deeppersona"],
)  # fmt: skip
def test_a_folder_that_is_missing(root: Path, tmp_path: Path, folder: str) -> None:
    (root / folder).rename(tmp_path / "away")
    run, found = imported(root, tmp_path / "pub")
    assert any(folder.split("/")[-1] in p for p in lost_lines(found)), found.issues
    assert_nothing_lost(run, root)
    assert len(rows(run, "verdicts", system="mem0", status="scored")) == 4 * len(TARGETS)


def test_renamed_files_count_for_whom_they_name(root: Path, tmp_path: Path) -> None:
    whole, _ = imported(root, tmp_path / "whole")
    moved = {
        VERDICTS: "output/amem_pooled_50/recon_judge/copy of one.json",
        HISTORY: "history/amem_pooled_50/user_001/second.json",
        MEMORY: "memory/mem0_pooled_50/user_001/dump.json",
        TASKS: "benchmark_data/CustomTasksPooledFinal/first.json",
    }
    for old, new in moved.items():
        (root / old).rename(root / new)
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0, found.issues
    for new in moved.values():
        assert any(p.startswith(f"{new} |") for p in problems(found, "note")), new
    for table in ("verdicts", "episodes", "turns", "memory_items", "tasks"):
        assert run.read(table) == whole.read(table)
    assert_nothing_lost(run, root)


def test_swapped_and_reordered_records_find_their_places(root: Path, tmp_path: Path) -> None:
    whole, _ = imported(root, tmp_path / "whole")
    folder = root / "history/amem_pooled_50/user_001"
    for one, other in (("episode_1", "swap"), ("episode_3", "episode_1"), ("swap", "episode_3")):
        (folder / f"{one}.json").rename(folder / f"{other}.json")
    for path in (VERDICTS, BLAME):
        change(root / path, lambda d: d["details"].reverse())
    change(root / BANK, lambda d: d["users"].reverse())
    change(root / HISTORY, lambda d: d["turns"].reverse())
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0
    assert sum("its task is that of episode" in p for p in problems(found)) == 2
    tables = ("verdicts", "attributions", "episodes", "turns", "targets", "slot_fills")
    for table in tables:
        assert run.read(table) == whole.read(table), table
    assert_nothing_lost(run, root)


Edit = Callable[[Any], Any]
FIELDS: dict[str, tuple[str, Edit, str, str]] = {
    "score off the scale": (
        VERDICTS, lambda d: d["details"][0].update(score=0.6),
        "details[0].score", "0.6 is not on the scale"),
    "score as text": (
        VERDICTS, lambda d: d["details"][0].update(score="0.75"),
        "details[0].score", "'0.75' is not on the scale"),
    "score true": (
        VERDICTS, lambda d: d["details"][0].update(score=True), "details[0].score", "True"),
    "score absent": (
        VERDICTS, lambda d: d["details"][0].pop("score"), "details[0].score", "None"),
    "score not a number": (
        VERDICTS, lambda d: d["details"][0].update(score=float("nan")),
        "details[0].score", "nan"),
    "unknown dimension": (
        VERDICTS, lambda d: d["details"][0].update(dimension="new_thing"),
        "details[0].dimension", "is no target"),
    "unknown category": (
        VERDICTS, lambda d: d["details"][0].update(category="feelings"),
        "details[0].dimension", "feelings/soldering_skill is no target"),
    "the same dimension twice": (
        VERDICTS, lambda d: d["details"].append(d["details"][0]),
        f"details[{len(TARGETS)}]", "twice"),
    "a detail that is a number": (
        VERDICTS, lambda d: d["details"].__setitem__(0, 5), "details[0]", "no category"),
    "details null": (VERDICTS, lambda d: d.update(details=None), "details", "no list"),
    "label null": (
        VERDICTS, lambda d: d["details"][0].update(predicted=None),
        "details[0].predicted", "no text"),
    "unknown attribution": (
        BLAME, lambda d: d["details"][0]["attribution"].update(category="gremlins"),
        "details[0].attribution.category", "'gremlins' is no label"),
    "attribution gone": (
        BLAME, lambda d: d["details"][0].pop("attribution"),
        "details[0].attribution.category", "None"),
    "end reason": (
        HISTORY, lambda d: d.update(end_reason="bored"), "end_reason", "'bored' is unknown"),
    "no turns": (HISTORY, lambda d: d.update(turns=[]), "turns", "no turns"),
    "turn number twice": (
        HISTORY, lambda d: d["turns"].append(d["turns"][0]), "].turn", "twice"),
    "turn number absent": (
        HISTORY, lambda d: d["turns"][0].pop("turn"), "turns[0].turn", "no turn number"),
    "turn score off the scale": (
        HISTORY, lambda d: d["turns"][0]["preference_evaluator"].update(score=7),
        "turns[0].preference_evaluator.score", "7 is off the scale"),
    "a reply that is null": (
        HISTORY, lambda d: d["turns"][0].update(agent_response=None),
        "turns[0].agent_response", "no text"),
    "a task of nobody": (
        HISTORY, lambda d: d.update(task="Whose is this?"), "task", "no task of the user"),
    "another user inside": (
        MEMORY, lambda d: d.update(user_id="user_002"), "user_id", "'user_002' in a file of"),
    "memory without text": (
        MEMORY, lambda d: d["memories"][0].update(content=None),
        "memories[0].content", "no text"),
    "memories are an object": (
        MEMORY, lambda d: d.update(memories={}), "memories", "no list"),
    "fewer memories than stated": (
        MEMORY, lambda d: d["memories"].pop(), "num_memories", "7 stated, 6 there"),
    "oracle says maybe": (
        ORACLE, lambda d: d["moss_knowledge"].update(can_invite="maybe"),
        "moss_knowledge.can_invite", "not true or false"),
    "oracle of another dimension": (
        ORACLE, lambda d: d.update(other={"can_invite": True}), "other", "no target"),
    "oracle leaves one out": (
        ORACLE, lambda d: d.pop("moss_knowledge"), "moss_knowledge", "no verdict"),
    "a task without text": (TASKS, lambda d: d["tasks"][0].pop("task"), "tasks[0]", "no task"),
    "a task of no target": (
        TASKS, lambda d: d["tasks"][0].update(target_dimension="x"),
        "tasks[0].target_dimension", "skill_memory/x is no target"),
    "a user twice in the bank": (
        BANK, lambda d: d["users"].append(d["users"][0]), "users[2]", "a second entry"),
    "a category of the bank": (
        BANK, lambda d: d["users"][0]["memory_bank"].update(feelings=[]),
        "users[0].memory_bank.feelings", "unknown category"),
    "a preference off the scale": (
        PREFS, lambda d: d["turns"][0]["per_pref"][0].update(score=6),
        "turns[0].per_pref[0].score", "6 is no 1 to 5"),
    "a preference judge that failed": (
        PREFS, lambda d: d["turns"][0].update(per_pref=[{"raw_output": "?"}]),
        "turns[0].per_pref[0].idx", "no index"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FIELDS)
def test_a_field_that_is_wrong(root: Path, tmp_path: Path, kind: str) -> None:
    path, edit, field, said = FIELDS[kind]
    change(root / path, edit)
    run, found = imported(root, tmp_path / "pub")
    lines = lost_lines(found)
    assert any(f"{path} |" in p and field in p and said in p for p in lines), found.issues
    assert_nothing_lost(run, root)
    assert len(rows(run, "verdicts", user_id="user_002", status="scored")) == 9 * len(TARGETS)


@pytest.mark.parametrize("score", [0.6, "0.75", True, None, -1, 1e400])
def test_an_off_scale_score_is_no_score(root: Path, tmp_path: Path, score: Any) -> None:
    change(root / VERDICTS, lambda d: d["details"][3].update(score=score))
    run, _ = imported(root, tmp_path / "pub")
    at = {"system": "amem", "user_id": "user_001", "access_mode": "dump_all"}
    (row,) = rows(run, "verdicts", **at, status="unscored")
    assert (row["score"], row["reason"]) == (None, "invalid_output")
    (blame,) = rows(run, "attributions", **at, status="unscored")
    assert blame["label"] == "harness_failure"


def test_a_user_who_is_not_in_the_bank_is_unscored(root: Path, tmp_path: Path) -> None:
    change(root / BANK, lambda d: d["users"].pop())
    run, found = imported(root, tmp_path / "pub")
    assert found.users == ("user_001", "user_002")
    assert any("user_002 is not in the bank" in p for p in lost_lines(found))
    for table in ("verdicts", "episodes", "turn_scores", "oracle_verdicts", "attributions"):
        got = rows(run, table, user_id="user_002")
        assert got
        assert {r["status"] for r in got} == {"unscored"}, table
    assert_nothing_lost(run, root)


def test_merged_reports_are_kept_and_never_used(root: Path, tmp_path: Path) -> None:
    plain, _ = imported(root, tmp_path / "plain")
    write(root / "output/amem_pooled_50/amem_1_merged.json", {"num_users": 1, "per_user": []})
    write(root / "output/amem_pooled_50/amem_2_merged.json", {"num_users": 2, "per_user": []})
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0
    notes = [p for p in problems(found) if "merged" in p]
    assert ["partial" in note for note in notes] == [True, False]
    assert run.read("verdicts") == plain.read("verdicts")
    assert_nothing_lost(run, root)


def test_links_out_of_the_release_are_refused(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"num_memories": 1, "memories": [{"content": "hidden"}]}))
    (root / MEMORY).unlink()
    (root / MEMORY).symlink_to(secret)
    (root / "history/loop").symlink_to(root / "history", target_is_directory=True)
    (root / "output/away").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(root / "memory/pipe.json")
    run, found = imported(root, tmp_path / "pub")
    refused = [p for p in lost_lines(found) if "leaves the release" in p or "no regular" in p]
    assert {p.split(" |")[0] for p in refused} == {MEMORY, "output/away", "memory/pipe.json"}
    assert rows(run, "memory_items", system="mem0", user_id="user_001") == []
    assert not any("hidden" in row["template_json"] for row in run.read("extras"))


def test_a_link_within_the_release_is_followed(root: Path, tmp_path: Path) -> None:
    kept = root / "kept.txt"
    (root / MEMORY).rename(kept)
    (root / MEMORY).symlink_to(kept)
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0
    assert len(rows(run, "memory_items", system="mem0", user_id="user_001")) == 7


def test_ids_and_names_from_outside_are_no_paths(tmp_path: Path) -> None:
    name = ".. evil:<b>"
    root = make_release(tmp_path, ("user_001", name))
    run, found = imported(root, tmp_path / "runs" / "pub")
    assert name in found.users
    assert len(rows(run, "verdicts", user_id=name, status="scored")) == 9 * len(TARGETS)
    assert_nothing_lost(run, root)
    outside = {p.name for p in tmp_path.iterdir()}
    assert outside == {"release", "runs"}
    assert not [p for p in (tmp_path / "runs").rglob("*") if "evil:" in p.name]


def test_a_user_id_in_the_bank_that_climbs(root: Path, tmp_path: Path) -> None:
    change(root / BANK, lambda d: d["users"][0].update(user_id="../../../user_001"))
    _, found = imported(root, tmp_path / "runs" / "pub")
    assert "../../../user_001" in found.users
    assert {p.name for p in tmp_path.iterdir()} == {"release", "runs"}
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"pub"}


def test_odd_texts_come_back_as_they_were(root: Path, tmp_path: Path) -> None:
    def odd(d: Any) -> None:
        d["memories"][0]["content"] = "half of \ud83d and a nul \0"
        d["memories"][1]["$"] = ["literal", {"$": 1}]
        d["memories"][2] = {"content": "content first", "id": "m2", "n": -0.0, "big": 10**30}
        d["more"] = {"$": ["memory_items", "content", 1]}

    change_raw(root / MEMORY, odd)
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0
    back = next(f for f in rebuild(run) if f.path == MEMORY)
    assert back.data is not None
    assert back.data.decode("utf-8", "surrogatepass") == json.dumps(
        load(root / MEMORY), ensure_ascii=False, indent=2
    )


def change_raw(path: Path, edit: Edit) -> None:
    """As `change`, with escapes, so that half a pair can be written."""
    value = load(path)
    edit(value)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def test_a_key_that_is_there_twice_is_reported_with_what_was_dropped(
    root: Path, tmp_path: Path
) -> None:
    text = (root / MEMORY).read_text(encoding="utf-8")
    (root / MEMORY).write_text(text.replace("{", '{\n  "num_memories": 99,', 1), encoding="utf-8")
    _, found = imported(root, tmp_path / "pub")
    (issue,) = [i for i in found.issues if "twice" in i["problem"]]
    assert (issue["path"], issue["field"]) == (MEMORY, "num_memories")
    assert "99" in issue["done"]


def test_a_file_that_is_too_large_is_not_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = max(p.stat().st_size for p in root.rglob("*.json"))
    monkeypatch.setattr(source, "MAX_BYTES", size)
    (root / MEMORY).write_bytes(b" " * (size + 1))
    _, found = imported(root, tmp_path / "pub")
    assert any(MEMORY in p and "bytes, more than" in p for p in lost_lines(found))


def test_many_issues_are_counted_beyond_the_bound(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_ISSUES", 3)
    for path in (root / "history/amem_pooled_50").rglob("*.json"):
        path.write_bytes(b"{")
    _, found = imported(root, tmp_path / "pub")
    assert len(found.issues) == 4
    assert "more issues" in found.issues[-1]["problem"]
    assert found.lost == 4


def test_files_of_another_kind_are_counted(root: Path, tmp_path: Path) -> None:
    (root / "agents").mkdir()
    for n in range(3):
        (root / "agents" / f"a{n}.py").write_text("x", encoding="utf-8")
    write(root / "history/amem_pooled_50_retrieve/user_001/episode_1.json", {"user_id": "user_001"})
    run, found = imported(root, tmp_path / "pub")
    assert any("3 files in agents" in p for p in problems(found, "note"))
    # The dialogue was there after all, so the step did read one.
    amem = [r for r in run.read("attributions") if r["system"] == "amem"]
    assert not any(r["detail"] for r in amem)


def test_a_run_that_the_paper_does_not_know(root: Path, tmp_path: Path) -> None:
    for path in sorted(root.glob("*/mem0_pooled_50*")):
        path.rename(path.with_name(path.name.replace("mem0_", "graphmem_")))
    run, found = imported(root, tmp_path / "pub")
    assert found.systems == ("nomem", "amem", "longctx_full", "memt", "graphmem")
    assert any("graphmem_pooled_50" in p for p in problems(found, "note"))
    assert len(rows(run, "verdicts", system="graphmem", status="scored")) == 4 * len(TARGETS)
