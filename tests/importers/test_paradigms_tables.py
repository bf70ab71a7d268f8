"""`memprobe tables --paper paradigms`: figures by hand on a small import, changes with reasons."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from memprobe.paradigms.suite import load_suite
from storage.importers.paradigms_release import import_suite
from storage.runs import RunStore
from tasks import paper_tables
from tasks.paper_figures import PaperFigures, leaves
from tasks.paradigms import changes
from tasks.paradigms import tables as paradigms
from tests.cli.conftest import Invoke
from tests.cli.conftest import invoke as invoke
from tests.importers.paradigms_release import (
    EPISODES,
    IDS,
    REPORT,
    change_line,
    make_suite,
    report,
)
from tests.importers.release import change, write
from tests.importers.release import make_release as make_recovery


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    folder = tmp_path_factory.mktemp("tables")
    import_suite(make_suite(folder), str(folder / "pub"), "pub", None, lambda *_: None)
    return RunStore.open(folder / "pub")


@pytest.fixture(scope="module")
def figures(store: RunStore) -> PaperFigures:
    return paradigms.paradigm_figures(store, *paradigms.front(store))


def cell(figures: PaperFigures, table: str, row: str, column: str) -> tuple[Any, int, int]:
    found = figures.tables[table][row][column]
    value = None if found.value is None else round(found.value, 6)
    return value, found.n, found.total


def test_the_published_verdicts_stand_in_front(store: RunStore, figures: PaperFigures) -> None:
    assert paradigms.front(store) == ("published", "paper")
    assert figures.users == tuple(sorted(IDS))
    assert set(figures.tables) == {
        "overall", "plasticity", "stability", "fidelity", "probe", "paradigm", "split",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "column", "wanted"),
    [
        # mem0: of 16 probes one failed, one value is wrong, one conflict is partial.
        ("overall", "accuracy", (round(100 * 13 / 15, 6), 15, 16)),
        ("overall", "plasticity", (87.5, 8, 8)),
        ("overall", "stability", (round(100 * 6 / 7, 6), 7, 8)),
        ("overall", "under_update", (12.5, 8, 8)),
        ("overall", "over_update", (round(100 / 7, 6), 7, 8)),
        ("overall", "sp_balance", (round(200 * (7 / 8 * 6 / 7) / (7 / 8 + 6 / 7), 6), 15, 16)),
        ("overall", "delta_fc", (round(100 * (1 - 13 / 15), 6), 15, 16)),
        ("overall", "rag_norm", (round(100 * 13 / 15, 6), 15, 16)),
        ("plasticity", "interference", (75.0, 4, 4)),
        ("plasticity", "misinformation", (100.0, 4, 4)),
        ("plasticity", "consolidation", (None, 0, 0)),
        ("stability", "interference", (75.0, 4, 4)),
        ("stability", "misinformation", (100.0, 3, 4)),
        ("fidelity", "historical", (100.0, 2, 2)),
        # Source probes (one failed) and the status part of two conflicts, both wrong.
        ("fidelity", "source_fidelity", (round(100 / 3, 6), 3, 4)),
        ("fidelity", "temporal", (100.0, 2, 2)),
        ("fidelity", "partial", (round(100 / 15, 6), 15, 16)),
        ("probe", "current_value", (75.0, 4, 4)),
        ("probe", "change", (100.0, 4, 4)),
        ("probe", "conflict_value", (50.0, 2, 2)),
        ("probe", "source", (100.0, 1, 2)),
        ("paradigm", "interference", (75.0, 8, 8)),
        ("paradigm", "misinformation", (100.0, 7, 8)),
        ("split", "split", (100.0, 4, 4)),
        ("split", "non_split", (round(100 * 9 / 11, 6), 11, 12)),
        ("split", "split_delta", (round(100 * 2 / 11, 6), 15, 16)),
    ],
)
def test_a_figure_by_hand(
    figures: PaperFigures, table: str, column: str, wanted: tuple[Any, int, int]
) -> None:
    assert cell(figures, table, "mem0", column) == wanted


def test_a_missing_cell_has_its_reason(store: RunStore, figures: PaperFigures) -> None:
    text = paper_tables.to_text(paradigms.layout(figures, "published verdicts"))
    assert "Accuracy and balance, % (published verdicts)" in text
    assert "86.7 [15/16]" in text
    assert "no such probe: every row, Consolidation; every row, Reconsolidation" in text
    full = figures.tables["overall"]["full_context"]
    assert (full["delta_fc"].value, full["rag_norm"].value) == (0, 100)


def test_verdicts_that_a_scorer_turns_have_a_reason(store: RunStore) -> None:
    rescored, strict = changes.comparisons(store)
    assert (rescored.first, rescored.second) == ("published verdicts", "paper scorer")
    assert (rescored.compared, rescored.changes) == (64, ())
    assert strict.compared == 64
    turned = {(c.row, c.episode, c.probe_type): c for c in strict.changes}
    keys = turned[("mem0", "PILOT-01A", "temporal")]
    assert (keys.before, keys.after) == ("correct", "incorrect")
    other = turned[("mem0", "PILOT-01B", "conflict_value")]
    assert (other.before, other.after) == ("partial", "incorrect")
    assert all(c.reason for c in strict.changes)
    counted = changes.groups(strict)
    assert sum(g.n for g in counted) == len(strict.changes)
    text = changes.to_text([rescored, strict])
    assert "Verdicts changed from published verdicts to paper scorer: 0 of 64" in text
    assert f"from paper scorer to strict scorer: {len(strict.changes)} of 64" in text
    rows = list(csv.DictReader(io.StringIO(changes.to_csv([strict]))))
    assert len(rows) == len(strict.changes)
    assert {r["after"] for r in rows if r["probe_type"] == "temporal"} == {"incorrect"}


def test_a_verdict_that_is_scored_anew_otherwise_is_listed(tmp_path: Path) -> None:
    root = make_suite(tmp_path)
    change(
        root / REPORT, lambda d: d["mem0_full"]["PILOT-01A"]["answers"][1].update(match="partial")
    )
    import_suite(root, str(tmp_path / "pub"), "pub", None, lambda *_: None)
    (rescored, _) = changes.comparisons(RunStore.open(tmp_path / "pub"))
    (one,) = rescored.changes
    assert (one.probe_type, one.before, one.after) == ("previous_value", "partial", "correct")


def test_a_second_report_is_held_against_its_own_full_context(tmp_path: Path) -> None:
    root = make_suite(tmp_path)
    other = report()
    other["full_context"] = {name: found["answers"] for name, found in other["mem0_full"].items()}
    write(root / "results/suite9/reports/baselines_report_mini.json", other)
    import_suite(root, str(tmp_path / "pub"), "pub", None, lambda *_: None)
    found = paradigms.paradigm_figures(RunStore.open(tmp_path / "pub"), "published", "paper")
    row = found.tables["overall"]
    assert row["mem0@mini"]["accuracy"].value == row["full_context@mini"]["accuracy"].value
    assert row["mem0@mini"]["delta_fc"].value == 0
    assert row["mem0"]["delta_fc"].value == pytest.approx(100 * (1 - 13 / 15))


def test_from_the_command_line(tmp_path: Path, invoke: Invoke) -> None:
    make_suite(tmp_path)
    done = invoke("import", "paradigms-release", "release", "--run", "pub", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["agreed"], facts["compared"], facts["lost"]) == (63, 63, 0)
    shown = invoke("tables", "pub", "--json", "--protocol", "strict")
    assert shown.exit_code == 0, shown.output
    got = json.loads(shown.stdout)
    assert set(got["corrections"]["tables"]) == {"paper", "strict"}
    assert got["corrections"]["changes"][1]["changes"]
    expected = {
        "users": list(IDS),
        "overall": {"mem0": {"accuracy": 86.7, "plasticity": 87.5}},
        "split": {"mem0": {"split_delta": "18.2"}},
    }
    path = tmp_path / "expected.json"
    path.write_text(json.dumps(expected), encoding="utf-8")
    same = invoke("tables", "pub", "--paper", "paradigms", "--expect", str(path))
    assert same.exit_code == 0, same.output
    assert "3 of 3 values as expected" in same.stderr
    expected["overall"]["mem0"]["accuracy"] = 86.8  # type: ignore[index]
    path.write_text(json.dumps(expected), encoding="utf-8")
    differs = invoke("tables", "pub", "--expect", str(path))
    assert differs.exit_code == 1
    assert "overall, mem0, accuracy: got 86.7 [15], want 86.8" in differs.stderr


def test_another_reader_over_an_import(tmp_path: Path, invoke: Invoke) -> None:
    root = make_suite(tmp_path)
    change(root / REPORT, lambda d: d.pop("stored_memories"))
    assert invoke("import", "paradigms-release", "release", "--run", "pub").exit_code == 0
    reader = ("--model-role", "reader=embedded/reader")
    done = invoke("reread", "pub", "--layer", "emb", *reader)
    assert done.exit_code in (0, 1), done.output
    store = RunStore.open(tmp_path / "runs/pub")
    read = [r for r in store.read("probe_verdicts") if r["layer"] == "emb"]
    told = {(r["system"], r["status"], r["detail"]) for r in read}
    lacking = "what the store held is not recorded"
    assert told == {
        ("full_context", "scored", None),
        ("naive_rag", "scored", None),
        ("judge", "unscored", lacking),
        # A store whose content is not published is not an empty one.
        ("mem0", "unscored", lacking),
    }


def test_published_episodes_are_extracted_as_a_suite_of_files(
    tmp_path: Path, invoke: Invoke
) -> None:
    root = make_suite(tmp_path)
    assert invoke("import", "paradigms-release", "release", "--run", "pub").exit_code == 0
    done = invoke("suite", "extract", "pub", "--out", "files")
    assert done.exit_code == 0, done.output
    assert "files: 4 of 4 episodes of suite9" in done.stdout
    suite = load_suite(tmp_path / "files")
    assert {e.id for e in suite.episodes} == set(IDS)
    probes = {p.probe_type: p.gold_answer for p in suite.episode("PILOT-01A").probes}
    assert probes["current_value"] == "Quayside Pool"
    again = invoke("suite", "extract", "pub", "--out", "files")
    assert again.exit_code == 2
    assert "has files already" in again.stderr
    change_line(root, 1, lambda e: e["sessions"][0]["dialogue"][0].update(role="narrator"))
    assert invoke("import", "paradigms-release", "release", "--run", "odd").exit_code == 1
    part = invoke("suite", "extract", "odd", "--out", "part")
    assert part.exit_code == 1
    assert "part: 3 of 4 episodes" in part.stdout


def test_formats_hold_every_figure(store: RunStore, figures: PaperFigures) -> None:
    rows = list(csv.DictReader(io.StringIO(paper_tables.to_csv(figures))))
    assert len(rows) == len(leaves(figures.tables))
    tex = paper_tables.to_latex(paradigms.layout(figures, "x"))
    assert tex.count(r"\begin{tabular}") == 7
    assert r"SP balance" in tex


def test_damage_exits_with_one_and_names_the_line(tmp_path: Path, invoke: Invoke) -> None:
    root = make_suite(tmp_path)
    path = root / EPISODES
    path.write_text(path.read_text(encoding="utf-8") + '{"episode_id": \n', encoding="utf-8")
    done = invoke("import", "paradigms-release", "release", "--run", "pub")
    assert done.exit_code == 1
    assert f"lost: {EPISODES}, line 5: not valid JSON" in done.stdout
    assert invoke("tables", "pub").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("import", "paradigms-release", "release", "--run", "x", "--users", "2"),
            "--users is for",
        ),
        (("import", "recovery-release", "release", "--run", "x", "--suite", "s"), "--suite is for"),
    ],
)
def test_options_of_the_other_kind(
    tmp_path: Path, invoke: Invoke, arguments: tuple[str, ...], problem: str
) -> None:
    make_suite(tmp_path)
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert problem in done.stderr


def test_tables_of_the_other_suite_are_refused(tmp_path: Path, invoke: Invoke) -> None:
    make_suite(tmp_path / "a")
    make_recovery(tmp_path / "b")
    invoke("import", "paradigms-release", str(tmp_path / "a"), "--run", "p")
    invoke("import", "recovery-release", str(tmp_path / "b"), "--run", "r")
    for run, paper, own in (("p", "recovery", "paradigms"), ("r", "paradigms", "recovery")):
        done = invoke("tables", run, "--paper", paper)
        assert done.exit_code == 2
        assert f"memprobe tables {run} --paper {own}" in done.stderr
