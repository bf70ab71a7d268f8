"""A published paradigms suite as a run: every record in its table, every damage named."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import UsageError
from storage.importers.paradigms_release import ImportedSuite, import_suite
from storage.manifest import RunStatus
from storage.runs import RunStore
from tasks.bundle import write_bundle
from tasks.paradigms.inputs import stored_suite
from tasks.paradigms.score import score_paradigms
from tasks.verify import verify_bundle
from tests.importers.paradigms_release import (
    EPISODES,
    IDS,
    NEW,
    OLD,
    REPORT,
    SPECS,
    change_line,
    make_suite,
    report,
)
from tests.importers.release import change, load, write
from tests.importers.support import rows

Edit = Callable[[Any], object]
SYSTEMS = ("judge", "full_context", "naive_rag", "mem0")


def imported(root: Path, where: Path, suite: str | None = None) -> tuple[RunStore, ImportedSuite]:
    found = import_suite(root, str(where), where.name, suite, lambda *_: None)
    return RunStore.open(where), found


def said(found: ImportedSuite, severity: str) -> list[str]:
    return [
        f"{i['path']} | {i['field']} | {i['problem']} | {i['done']}"
        for i in found.issues
        if i["severity"] == severity
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunStore, ImportedSuite]:
    folder = tmp_path_factory.mktemp("whole")
    root = make_suite(folder)
    return root, *imported(root, folder / "runs" / "pub")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def test_a_whole_suite_loses_nothing(whole: tuple[Path, RunStore, ImportedSuite]) -> None:
    _, _, found = whole
    assert said(found, "lost") == []
    assert (found.suite, found.episodes, found.systems) == ("suite9", IDS, SYSTEMS)
    assert found.reports == (REPORT,)
    n = len(IDS)
    assert found.rows["specs"] == n
    assert found.rows["probes"] == 4 * n
    assert found.rows["sessions"] == 4 + 4 + 5 + 4
    assert found.rows["answers"] == 4 * n * len(SYSTEMS)
    # Two scorers and the published verdict for each answer.
    assert found.rows["probe_verdicts"] == 3 * found.rows["answers"]
    # Two texts for each store of mem0, every session for the two that keep sessions.
    assert found.rows["memory_items"] == 2 * n + 2 * found.rows["sessions"]
    assert found.rows["retrievals"] == 2 * 4 * n
    assert (found.agreed, found.compared) == (63, 63)


def test_the_gold_side(whole: tuple[Path, RunStore, ImportedSuite]) -> None:
    _, run, _ = whole
    (first,) = [r for r in rows(run, "probes", user_id="PILOT-14A") if r["probe_index"] == 3]
    assert (first["probe_type"], first["structured_temporal"], first["split"]) == (
        "temporal", True, True,
    )  # fmt: skip
    (legacy,) = rows(run, "probes", user_id="PILOT-01A", probe_type="temporal")
    assert (legacy["structured_temporal"], legacy["split"]) == (False, False)
    assert {r["probe_type"] for r in run.read("probes")} == {
        "current_value", "previous_value", "change", "temporal", "conflict_value", "source",
    }  # fmt: skip
    times = [r["event_time"] for r in rows(run, "sessions", user_id="PILOT-01A")]
    assert times == sorted(set(times))
    assert times[0].startswith("2026-01-01")


def test_the_run_can_be_read_again_by_the_stages(
    whole: tuple[Path, RunStore, ImportedSuite],
) -> None:
    _, run, _ = whole
    suite = stored_suite(run)
    assert {e.id for e in suite.episodes} == set(IDS)
    split = suite.episode("PILOT-14A")
    assert split.spec.gold.temporal is not None
    assert split.spec.split
    assert (split.spec.initial_value, split.spec.new_value) == (OLD, NEW)


def test_three_verdicts_stand_side_by_side(
    whole: tuple[Path, RunStore, ImportedSuite],
) -> None:
    _, run, _ = whole

    def of(episode: str, probe: str, layer: str, scorer: str) -> Any:
        at = {"system": "mem0", "user_id": episode, "probe_type": probe}
        (row,) = rows(run, "probe_verdicts", **at, layer=layer, scorer=scorer)
        return row

    for layer, scorer, match in (
        ("published", "paper", "correct"),
        ("base", "paper", "correct"),
        ("base", "strict", "incorrect"),
    ):
        assert of("PILOT-01A", "temporal", layer, scorer)["match"] == match
    assert of("PILOT-01B", "conflict_value", "published", "paper")["match"] == "partial"
    assert of("PILOT-01B", "conflict_value", "base", "strict")["match"] == "incorrect"
    # An older row has its parts in the reason's text, a newer one beside it.
    parts = json.loads(of("PILOT-01B", "conflict_value", "published", "paper")["parts_json"])
    assert parts == {"value": True, "source": False, "status": False, "applicability": True}
    parts = json.loads(of("PILOT-02B", "conflict_value", "published", "paper")["parts_json"])
    assert parts["status"] is False


def test_a_failed_call_is_no_verdict(whole: tuple[Path, RunStore, ImportedSuite]) -> None:
    _, run, _ = whole
    at = {"system": "mem0", "user_id": "PILOT-02B", "probe_type": "source"}
    found = rows(run, "probe_verdicts", **at)
    assert len(found) == 3
    assert {(r["match"], r["status"], r["reason"]) for r in found} == {
        (None, "unscored", "provider_error")
    }
    (answer,) = rows(run, "answers", **at)
    assert answer["answer_json"] is None
    assert "AuthenticationError" in answer["detail"]


def test_ingests_memories_and_retrievals(whole: tuple[Path, RunStore, ImportedSuite]) -> None:
    _, run, found = whole
    good = rows(run, "ingests", system="mem0", user_id="PILOT-01A")
    assert [r["session_index"] for r in good] == [1, 2, 3, 4]
    assert {r["status"] for r in good} == {"scored"}
    (bad,) = rows(run, "ingests", system="mem0", user_id="PILOT-02B")
    assert (bad["session_index"], bad["reason"]) == (0, "adapter_error")
    assert "2 of 4 sessions failed" in bad["detail"]
    items = rows(run, "memory_items", system="mem0", user_id="PILOT-01A")
    assert [(r["seq"], r["content"]) for r in items] == [
        (0, f"Swims at {OLD}."), (1, "Likes “warm” water."),
    ]  # fmt: skip
    kept = rows(run, "memory_items", system="full_context", user_id="PILOT-01A")
    said_in = rows(run, "sessions", user_id="PILOT-01A")
    assert len(kept) == len(said_in)
    assert kept[0]["content"].startswith(f"User: {OLD}")
    assert json.loads(kept[0]["fields_json"]) == {"session_id": "s0001"}
    sizes = {r["system"]: r["n_items"] for r in rows(run, "answers", user_id="PILOT-01A")}
    assert sizes == {"judge": None, "full_context": 4, "naive_rag": 2, "mem0": 2}
    shown = rows(run, "retrievals", system="naive_rag", user_id="PILOT-01A", dimension="change")
    assert [(r["rank"], r["item_id"], r["category"]) for r in shown] == [
        (1, "s0001", "interference"), (2, "s0003", "interference"),
    ]  # fmt: skip
    assert OLD in shown[0]["content"]
    notes = said(found, "note")
    assert any("no time" in note for note in notes)
    assert any("taken from the reason's text" in note for note in notes)


def test_the_manifest_says_what_the_run_is(whole: tuple[Path, RunStore, ImportedSuite]) -> None:
    _, run, _ = whole
    manifest = run.manifest
    assert manifest.status is RunStatus.COMPLETE
    assert (manifest.config.suite, manifest.protocol) == ("paradigms", "paper")
    assert manifest.config.model == "gemini-3-flash-preview"
    assert manifest.origin is not None
    assert "2609.30558" in manifest.origin.source
    assert manifest.origin.runs["mem0"] == f"mem0_full of {REPORT}"
    assert manifest.stored_layer("published") == "published"
    assert manifest.stored_layer("rescored") == "base"
    assert len(manifest.dataset_digest) == 64
    card = manifest.systems["naive_rag"]
    assert (card.probe_access, card.probe_k) == ("retrieve", 5)


def test_every_record_is_in_extras_as_it_was(
    whole: tuple[Path, RunStore, ImportedSuite],
) -> None:
    root, run, _ = whole
    kept = run.read("extras")
    lines = [r for r in kept if r["path"] == EPISODES]
    raw = (root / EPISODES).read_text(encoding="utf-8").splitlines()
    assert [json.loads(r["template_json"]) for r in lines] == [json.loads(x) for x in raw]
    again: dict[str, Any] = {}
    of_report = [r for r in kept if r["path"] == REPORT]
    for row in of_report[1:]:
        again |= json.loads(row["template_json"])
    head = json.loads(of_report[0]["template_json"])
    again |= head["rest"]
    assert {key: again[key] for key in head["keys"]} == load(root / REPORT)
    others = {r["path"] for r in kept if r["kind"] == "whole"}
    assert others == {SPECS, "data/suite9/value_pairs.json"}


def test_its_bundle_is_as_stated_and_says_what_was_not_made_again(
    whole: tuple[Path, RunStore, ImportedSuite], tmp_path: Path
) -> None:
    write_bundle(whole[1], tmp_path / "out")
    found = verify_bundle(tmp_path / "out")
    assert found.problems == ()
    assert any("publication's gold" in note for note in found.notes)


def test_figures_are_computed_of_it(root: Path, tmp_path: Path) -> None:
    run, _ = imported(root, tmp_path / "runs" / "pub")
    score_paradigms(run)
    found = rows(
        run, "probe_metrics", system="mem0", metric="accuracy", group_kind="", scorer="paper"
    )
    assert [(r["n"], r["n_errors"]) for r in found] == [(15, 1)]
    assert found[0]["value"] == pytest.approx(13 / 15)


def line(number: int, edit: Edit) -> Callable[[Path], None]:
    return lambda root: change_line(root, number, edit)


def in_report(edit: Edit) -> Callable[[Path], None]:
    return lambda root: change(root / REPORT, edit)


def answer(episode: str, place: int, edit: Edit) -> Callable[[Path], None]:
    return in_report(lambda d: edit(d["mem0_full"][episode]["answers"][place]))


def break_line(number: int, text: bytes) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        path = root / EPISODES
        lines = path.read_bytes().split(b"\n")
        lines[number - 1] = text
        path.write_bytes(b"\n".join(lines))

    return edit


A, F = "PILOT-01A", "mem0_full.PILOT-01A"
DAMAGE: dict[str, tuple[Callable[[Path], None], str, str, str]] = {
    "a line cut short": (break_line(2, b'{"episode_id": "PILOT-01B", '), EPISODES, "line 2",
                         "not valid JSON"),
    "a line of other bytes": (break_line(2, b'{"x": "\xff"}'), EPISODES, "line 2", "not UTF-8"),
    "a line that is deep": (break_line(2, b"[" * 90_000), EPISODES, "line 2", "nested too deeply"),
    "a line that is a list": (break_line(2, b"[1]"), EPISODES, "line 2", "no object"),
    "an episode without id": (line(2, lambda e: e.pop("episode_id")), EPISODES, "line 2",
                              "no episode_id"),
    "an episode twice": (line(2, lambda e: e.update(episode_id=A)), EPISODES, "line 2",
                         "a second episode PILOT-01A"),
    "a session without dialogue": (line(1, lambda e: e["sessions"][1].pop("dialogue")), EPISODES,
                                   "line 1, sessions[1].dialogue", "0 of 0 messages"),
    "a message without text": (line(1, lambda e: e["sessions"][0]["dialogue"][0].pop("content")),
                               EPISODES, "line 1, sessions[0].dialogue", "1 of 2 messages"),
    "a probe of another type": (line(1, lambda e: e["probes"][0].update(probe_type="mood")),
                                EPISODES, "line 1, probes[0]", "'mood' is no probe type"),
    "a probe twice": (line(1, lambda e: e["probes"][1].update(probe_type="current_value")),
                      EPISODES, "line 1, probes[1]", "a second current_value"),
    "a probe without gold": (line(1, lambda e: e["probes"][0].update(gold_answer=None)), EPISODES,
                             "line 1, probes[0].gold_answer", "no gold answer"),
    "an answer missing": (in_report(lambda d: d["mem0_full"][A]["answers"].pop()), REPORT, F,
                          "no answer to temporal"),
    "answers are no list": (in_report(lambda d: d["mem0_full"][A].update(answers={})), REPORT, F,
                            "no list of answers"),
    "an answer twice": (in_report(lambda d: d["mem0_full"][A]["answers"].append(
        d["mem0_full"][A]["answers"][0])), REPORT, f"{F}.answers[4]", "a second answer"),
    "an answer nobody asked for": (answer(A, 0, lambda a: a.update(probe_type="source")), REPORT,
                                   f"{F}.answers[0]", "source is not asked"),
    "an answer that is null": (answer(A, 0, lambda a: a.update(predicted=None)), REPORT,
                               f"{F}.answers[0].predicted", "no text"),
    "a verdict of its own": (answer(A, 0, lambda a: a.update(match="splendid")), REPORT,
                             f"{F}.answers[0].match", "'splendid' is no verdict"),
    "an episode missing": (in_report(lambda d: d["mem0_full"].pop(A)), REPORT, "mem0_full",
                           "nothing of 1 of 4 episodes: PILOT-01A"),
    "an episode of another suite": (in_report(lambda d: d["mem0_full"].update(X=[])), REPORT,
                                    "mem0_full.X", "no episode of the suite"),
    "an error count that is none": (
        in_report(lambda d: d["mem0_full"][A].update(ingest_errors="?")), REPORT,
        f"{F}.ingest_errors", "no count"),
    "a session that is not there": (in_report(lambda d: d["naive_rag"][A][0].update(
        retrieved_indices=[0, 99])), REPORT, "naive_rag.PILOT-01A.answers[0].retrieved_indices",
        "99 is no session"),
    "a memory without text": (in_report(lambda d: d["stored_memories"][A].append({"n": 1})), REPORT,
                              "stored memories of PILOT-01A[2]", "no text"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_and_costs_no_more_than_itself(
    root: Path, tmp_path: Path, kind: str
) -> None:
    damage, path, field, problem = DAMAGE[kind]
    damage(root)
    run, found = imported(root, tmp_path / "pub")
    lost = said(found, "lost")
    assert any(p.startswith(f"{path} | {field} | ") and problem in p for p in lost), found.issues
    verdicts = run.read("probe_verdicts")
    assert all((r["match"] in (None, "skip")) == (r["status"] == "unscored") for r in verdicts)
    other = [r for r in verdicts if r["user_id"] == "PILOT-14A" and r["status"] == "scored"]
    assert len(other) == 4 * 3 * len(SYSTEMS)
    kept = [r for r in run.read("extras") if r["path"] == EPISODES]
    assert [r["place"] for r in kept] == [1, 2, 3, 4]


def test_a_broken_line_is_kept_byte_for_byte(root: Path, tmp_path: Path) -> None:
    bad = b'{"episode_id": "PILOT-01B", \xff'
    break_line(2, bad)(root)
    run, _ = imported(root, tmp_path / "pub")
    (row,) = rows(run, "extras", kind="raw_line")
    assert base64.b64decode(json.loads(row["template_json"])) == bad


def test_a_missing_record_is_unscored_and_never_a_zero(root: Path, tmp_path: Path) -> None:
    change(root / REPORT, lambda d: d["mem0_full"].pop("PILOT-01A"))
    run, _ = imported(root, tmp_path / "pub")
    found = rows(run, "probe_verdicts", system="mem0", user_id="PILOT-01A")
    assert len(found) == 12
    assert {(r["match"], r["status"]) for r in found} == {(None, "unscored")}


def test_a_cached_gold_of_an_older_spec_is_told(root: Path, tmp_path: Path) -> None:
    older = 'Changed from "Harrow Baths" to "Quayside Pool". Trigger: rumours. Reason: none.'

    def edit(document: Any) -> None:
        temporal = document["mem0_full"]["PILOT-14A"]["answers"][2]
        temporal |= {"gold": older, "match": "partial", "reason": "older"}

    change(root / REPORT, edit)
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0
    assert (found.agreed, found.compared) == (62, 63)
    notes = said(found, "note")
    where = f"{REPORT} | mem0_full.PILOT-14A.answers[2]"
    assert any(n.startswith(f"{where}.gold | gold of an older spec") for n in notes)
    assert any(
        n.startswith(f"{where}.match | published partial, the paper scorer says correct: an older")
        for n in notes
    )
    at = {"system": "mem0", "user_id": "PILOT-14A", "probe_type": "temporal", "scorer": "paper"}
    assert {r["layer"]: r["match"] for r in rows(run, "probe_verdicts", **at)} == {
        "base": "correct", "published": "partial",
    }  # fmt: skip


def test_a_second_report_of_a_system_is_another_system(root: Path, tmp_path: Path) -> None:
    more = {"mem0_full": report()["mem0_full"]}
    write(root / "results/suite9/reports/baselines_report_mem0_qwen3.json", more)
    run, found = imported(root, tmp_path / "pub")
    assert found.systems == (*SYSTEMS, "mem0@mem0_qwen3")
    assert rows(run, "memory_items", system="mem0@mem0_qwen3") == []
    assert len(rows(run, "probe_verdicts", system="mem0@mem0_qwen3")) == 4 * 4 * 3


def test_without_specs_those_of_the_episodes_count(root: Path, tmp_path: Path) -> None:
    whole, _ = imported(root, tmp_path / "whole")
    (root / SPECS).unlink()
    run, found = imported(root, tmp_path / "pub")
    assert found.lost == 0
    assert any(SPECS in n and "is missing" in n for n in said(found, "note"))
    assert run.read("probe_verdicts") == whole.read("probe_verdicts")


def test_one_of_several_suites_is_chosen(root: Path, tmp_path: Path) -> None:
    text = (root / EPISODES).read_text(encoding="utf-8")
    other = root / "data/suite8/episodes.jsonl"
    other.parent.mkdir()
    other.write_text(text.replace("PILOT-", "G8-"), encoding="utf-8")
    with pytest.raises(UsageError, match="suites suite8, suite9; choose one with --suite"):
        imported(root, tmp_path / "pub")
    with pytest.raises(UsageError, match="no suite 'suite7'"):
        imported(root, tmp_path / "pub", "suite7")
    _, found = imported(root, tmp_path / "pub", "suite9")
    assert (found.suite, found.lost) == ("suite9", 0)


def test_what_is_no_suite_is_a_usage_error(root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"no episodes\.jsonl"):
        imported(empty, tmp_path / "pub")
    with pytest.raises(UsageError, match="no such folder"):
        imported(tmp_path / "nothing", tmp_path / "pub")
    (root / EPISODES).write_text("{\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"no episode that can be used: .*line 1"):
        imported(root, tmp_path / "pub")
    assert not (tmp_path / "pub").exists()


def test_ids_from_outside_are_no_paths(root: Path, tmp_path: Path) -> None:
    for name in (EPISODES, SPECS, REPORT):
        path = root / name
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("PILOT-01A", "../../up"), encoding="utf-8")
    run, found = imported(root, tmp_path / "runs" / "pub")
    assert "../../up" in found.episodes
    assert len(rows(run, "probe_verdicts", user_id="../../up")) == 4 * 3 * len(SYSTEMS)
    assert {p.name for p in tmp_path.iterdir()} == {"release", "runs"}
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"pub"}


def test_a_finished_import_is_not_written_over(root: Path, tmp_path: Path) -> None:
    imported(root, tmp_path / "pub")
    with pytest.raises(UsageError, match="holds a run already"):
        imported(root, tmp_path / "pub")
