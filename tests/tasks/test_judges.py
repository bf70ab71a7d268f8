"""Agreement of a run's judges, from stored verdicts, against values worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.catalog import query
from storage.runs import RunStore
from tasks.judges import score_agreement
from tests.storage.rows import Row, commit_verdicts, new_run, unscored, verdict

FIRST = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
SECOND = [0.0, 0.5, 0.5, 0.5, 1.0, 0.0]


def items(layer: str, scores: list[float], **changes: Any) -> list[Row]:
    return [
        verdict(
            "a",
            f"u{number // 2}",
            "skill_memory",
            f"d{number}",
            layer=layer,
            score=score,
            label=f"label {number}",
            judge_model=f"openai/{layer}",
            judge_reason=f"{layer} on {number}",
        )
        | changes
        for number, score in enumerate(scores)
    ]


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return new_run(tmp_path / "run", systems=("a",), access=("dump_all",))


def whole(rows: list[Row], **where: Any) -> Row:
    found = [
        r
        for r in rows
        if r["system"] is None and all(r[name] == value for name, value in where.items())
    ]
    assert len(found) == 1, found
    return found[0]


def test_two_judges_of_the_same_labels(run: RunStore) -> None:
    commit_verdicts(run, items("base", FIRST))
    commit_verdicts(run, items("second", SECOND), "second")
    rows = score_agreement(run)
    assert len(run.read("judge_agreement")) == len(rows) == 4
    assert {(r["scope"], r["system"]) for r in rows} == {
        (scope, system) for scope in ("judged", "all") for system in (None, "a")
    }
    found = whole(rows, scope="judged")
    assert (found["first"], found["second"]) == ("base", "second")
    assert (found["n_items"], found["n_users"]) == (6, 3)
    assert found["mean_error"] == pytest.approx(1.5 / 6)
    assert found["shift"] == pytest.approx(1.0 / 6)
    assert found["exact"] == 0.5
    # Items 3 (0.75 and 0.5) and 5 (1 and 0) are on two sides.
    assert found["threshold"] == pytest.approx(4 / 6)
    by_chance = sum(
        r * c * (i - j) ** 2
        for i, r in enumerate((1, 1, 1, 1, 2))
        for j, c in enumerate((2, 0, 3, 0, 1))
    )
    assert found["kappa"] == pytest.approx(1 - (1 + 1 + 16) * 6 / by_chance)
    assert found["kappa_lo"] <= found["kappa"] <= found["kappa_hi"]
    assert json.loads(found["confusion_json"])[4] == [1, 0, 0, 0, 1]


def test_disagreements_are_listed_with_both_reasons(run: RunStore) -> None:
    commit_verdicts(run, items("base", FIRST))
    commit_verdicts(run, items("second", SECOND), "second")
    score_agreement(run)
    found = query(run, "select * from judge_disagreements").dicts()
    assert [(r["dimension"], r["first_score"], r["second_score"]) for r in found] == [
        ("d5", 1.0, 0.0),
        ("d3", 0.75, 0.5),
    ]
    assert (found[0]["first_reason"], found[0]["second_reason"]) == ("base on 5", "second on 5")


def test_unknown_is_nobodys_verdict_and_unscored_items_stay_out(run: RunStore) -> None:
    first, second = items("base", FIRST), items("second", SECOND)
    for rows in (first, second):
        rows[0]["label"] = ' "Unknown". '
    second[1] = unscored(second[1]) | {"label": first[1]["label"]}
    commit_verdicts(run, first)
    commit_verdicts(run, second, "second")
    rows = score_agreement(run)
    assert whole(rows, scope="judged")["n_items"] == 4
    assert whole(rows, scope="all")["n_items"] == 5


def test_a_second_reading_and_the_same_judge_are_no_pair(run: RunStore) -> None:
    commit_verdicts(run, items("base", FIRST))
    other = items("reread", SECOND)
    other[2]["label"] = "what another reader said"
    commit_verdicts(run, other, "reread")
    same = items("chunked", FIRST, judge_model="openai/base")
    commit_verdicts(run, same, "chunked")
    pairs = {(r["first"], r["second"]) for r in score_agreement(run)}
    assert ("base", "reread") not in pairs
    assert ("base", "chunked") not in pairs


def test_three_judges_make_three_pairs(run: RunStore) -> None:
    commit_verdicts(run, items("base", FIRST))
    commit_verdicts(run, items("b", SECOND), "b")
    commit_verdicts(run, items("c", FIRST[::-1]), "c")
    pairs = {(r["first"], r["second"]) for r in score_agreement(run)}
    assert pairs == {("b", "base"), ("b", "c"), ("base", "c")}


def test_one_judge_has_no_agreement(run: RunStore) -> None:
    commit_verdicts(run, items("base", FIRST))
    assert score_agreement(run) == []
    assert query(run, "select count(*) as n from judge_disagreements").dicts() == [{"n": 0}]


def test_a_judge_of_another_scale_has_no_figure(run: RunStore) -> None:
    commit_verdicts(run, items("base", FIRST))
    commit_verdicts(run, items("stars", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), "stars")
    assert score_agreement(run) == []
