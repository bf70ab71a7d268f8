"""Scores, comparisons, rankings and gates from stored artifacts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from memprobe import metrics
from memprobe.errors import UsageError
from storage.catalog import query
from storage.runs import RunStore, Unit
from tasks.compare import NO_DIFFERENCE, Side, compare, ranking, split_layer
from tasks.gate import check_gates, parse_gate
from tasks.score import NOTHING, score_run
from tests.storage.rows import Row, commit_verdicts, episode, item, new_run, unscored, verdict
from tests.support.kappa import quadratic_kappa

CATEGORIES = ("skill_memory", "episodic_memory", "self_model")


def scores(system: str, users: int, level: float, seed: int = 1, **changes: Any) -> list[Row]:
    """Verdicts of several users, five targets in the first category and two in the others."""
    draw = random.Random(seed)
    rows = []
    for user in range(users):
        for category, count in zip(CATEGORIES, (5, 2, 2), strict=True):
            for number in range(count):
                score = 1.0 if draw.random() < level else draw.choice((0.0, 0.25, 0.5))
                rows.append(
                    verdict(system, f"u{user:02d}", category, f"{category}_{number}", score=score)
                    | changes
                )
    return rows


def stored(run: RunStore, metric: str, **where: Any) -> Row:
    rows = [
        r
        for r in run.read("metrics")
        if r["metric"] == metric and all(r[k] == v for k, v in where.items())
    ]
    assert len(rows) == 1, rows
    return rows[0]


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return new_run(tmp_path / "run", systems=("a", "b"), access=("dump_all",))


def test_b_matches_the_kernel_and_the_view(run: RunStore) -> None:
    rows = scores("a", 12, 0.5)
    rows[3] = unscored(rows[3])
    commit_verdicts(run, rows)
    result = score_run(run)
    assert (result.state, result.n_scored, result.n_total) == ("scored", 107, 108)
    by_user: dict[str, dict[str, list[float | None]]] = {}
    for row in rows:
        by_user.setdefault(row["user_id"], {}).setdefault(row["category"], []).append(row["score"])
    expected = [metrics.recovery_score(by_user[user]) for user in sorted(by_user)]
    found = stored(run, "B", category=None)
    assert found["value"] == pytest.approx(metrics.mean([b or 0.0 for b in expected]))
    assert found["std"] == pytest.approx(metrics.sample_std([b or 0.0 for b in expected]))
    assert found["lo"] < found["value"] < found["hi"]
    assert (found["n_users"], found["n_scored"], found["n_total"]) == (12, 107, 108)
    view = query(run, "SELECT b_mean, b_std, b_lo, b_hi FROM recovery_summary").rows[0]
    assert view == pytest.approx([found[c] for c in ("value", "std", "lo", "hi")])


def test_the_interval_leaves_the_view_when_the_scores_change(run: RunStore) -> None:
    commit_verdicts(run, scores("a", 4, 0.5))
    score_run(run)
    assert query(run, "SELECT b_lo FROM recovery_summary").rows[0][0] is not None
    commit_verdicts(run, scores("a", 4, 0.9, seed=2))
    assert query(run, "SELECT b_lo FROM recovery_summary").rows == [(None,)]


def test_errors_in_denominator(run: RunStore) -> None:
    """Case errors-in-denominator: 60 of 80 measured is 0.75; 0.6 of attempted stands beside it."""
    rows = [verdict("a", "u", "self_model", f"d{i:03d}", score=float(i < 60)) for i in range(100)]
    rows = rows[:80] + [unscored(row, "provider_error") for row in rows[80:]]
    commit_verdicts(run, rows)
    score_run(run)
    assert stored(run, "B", category=None)["value"] == 0.75
    assert stored(run, "B_floor")["value"] == 0.6
    assert stored(run, "coverage")["value"] == 0.8


def test_judge_down_counted_wrong_does_not_move_b(run: RunStore, tmp_path: Path) -> None:
    """Case judge-down-counted-wrong: an outage leaves B and shows in the coverage."""
    commit_verdicts(run, [verdict("a", "u", "self_model", f"d{i}") for i in range(4)])
    score_run(run)
    whole = stored(run, "B", category=None)["value"]
    other = new_run(tmp_path / "other", "other", systems=("a",))
    rows = [verdict("a", "u", "self_model", f"d{i}") for i in range(4)]
    commit_verdicts(other, [rows[0], *(unscored(r, "provider_error") for r in rows[1:])])
    score_run(other)
    assert stored(other, "B", category=None)["value"] == whole == 1.0
    assert stored(other, "coverage")["value"] == 0.25


def test_zero_rows(run: RunStore) -> None:
    """Case zero-rows: nothing stored, or nothing scored, is said and not divided by."""
    empty = score_run(run)
    assert (empty.state, empty.coverage, empty.rows) == (NOTHING, None, 0)
    commit_verdicts(run, [unscored(row) for row in scores("a", 2, 0.5)])
    result = score_run(run)
    assert (result.state, result.coverage) == (NOTHING, 0.0)
    found = stored(run, "B", category=None)
    assert (found["value"], found["lo"], found["n_users"]) == (None, None, 0)
    (place,) = ranking(run)
    assert place.places == ()
    assert "a 0/18 scored = 0.0% (18 timeout)" in place.message


def test_one_user_has_a_value_and_no_interval(run: RunStore) -> None:
    commit_verdicts(run, scores("a", 1, 0.5))
    score_run(run)
    found = stored(run, "B", category=None)
    assert found["value"] is not None
    assert (found["std"], found["lo"], found["hi"]) == (None, None, None)


def test_rollout_metrics(run: RunStore) -> None:
    blank = {"system": "a", "user_id": "u", "epoch": 1, "dimension": "p", "status": "scored"}
    failed = {"score": None, "status": "unscored", "reason": "timeout"}
    run.commit(
        Unit("rollout", "a", "u"),
        "f",
        {
            "episodes": [
                episode("a", "u", 1, n_turns=1),
                episode("a", "u", 2, n_turns=4, end_reason="max_turns"),
                episode("a", "u", 3, end_reason=None, status="unscored", reason="timeout"),
            ],
            "preference_scores": [
                {**blank, "episode": 1, "turn": 1, "idx": 1, "score": 5},
                {**blank, "episode": 1, "turn": 1, "idx": 2, "score": 4},
                {**blank, "episode": 2, "turn": 1, "idx": 1, "score": 1},
                {**blank, "episode": 2, "turn": 2, "idx": 1, "score": None},
                {**blank, "episode": 2, "turn": 3, "idx": 1, **failed},
            ],
            "memory_items": [item("a", "u", 0, "abc"), item("a", "u", 1, "她住在北京")],
        },
    )
    run.commit(Unit("rollout", "b", "u"), "f", {"episodes": [episode("b", "u", 1)]})
    score_run(run)
    values = {m: stored(run, m, system="a") for m in ("A", "C", "C_satisfied", "D")}
    assert {m: r["value"] for m, r in values.items()} == {
        "A": 0.5,
        "C": 2.5,
        "C_satisfied": 1.0,
        "D": 2.75,
    }
    assert (values["A"]["n_scored"], values["A"]["n_total"]) == (2, 3)
    assert (values["D"]["n_scored"], values["D"]["n_total"]) == (2, 3)
    assert stored(run, "items", system="a")["value"] == 2
    assert stored(run, "chars", system="a")["value"] == 4
    assert stored(run, "items", system="b")["value"] == 0
    assert stored(run, "chars", system="b")["value"] is None
    assert stored(run, "D", system="b")["value"] is None


def test_recovery_rate_is_pooled_over_targets(run: RunStore) -> None:
    rows = scores("a", 3, 0.5)
    commit_verdicts(run, rows)
    for user in ("u00", "u01", "u02"):
        mine = [r for r in rows if r["user_id"] == user]
        labels = ["ok", "ok", "memory_failure"] if user == "u00" else ["ok", "task_design_failure"]
        blamed = [{**r, "label": label} for r, label in zip(mine, labels, strict=False)]
        run.commit(Unit("attribute", "a", user), "f", {"attributions": blamed})
    score_run(run)
    found = stored(run, "recovery_rate")
    assert found["value"] == pytest.approx(4 / 5)
    assert found["n_total"] == 7
    view = query(run, "SELECT DISTINCT recovery_rate FROM attribution_counts").rows
    assert view == [(0.8,)]


def test_equal_artifacts_make_an_equal_table(run: RunStore, tmp_path: Path) -> None:
    rows = [r for s in ("a", "b") for r in scores(s, 9, 0.6)]
    for row in rows:
        row["score"] = round(row["score"] / 3, 3)
    commit_verdicts(run, rows)
    score_run(run)
    other = new_run(tmp_path / "elsewhere", "another name", systems=("a", "b"))
    commit_verdicts(other, list(reversed(rows)))
    score_run(other)
    path = run.parts("metrics")[0]
    assert run.files.read(path) == other.files.read(path)


def test_a_layer_is_scored_beside_the_base(run: RunStore) -> None:
    commit_verdicts(run, scores("a", 5, 0.9))
    score_run(run)
    before = run.files.read(run.parts("metrics")[0])
    commit_verdicts(run, scores("a", 5, 0.1, seed=3, layer="strict2"), variant="strict2")
    score_run(run, "strict2")
    score_run(run)
    assert run.files.read(run.parts("metrics", variant="")[0]) == before
    base = stored(run, "B", category=None, layer="base")
    layer = stored(run, "B", category=None, layer="strict2")
    assert base["value"] > layer["value"]


def test_compare_pairs_users_and_says_when_nothing_is_shown(run: RunStore, tmp_path: Path) -> None:
    commit_verdicts(run, scores("a", 12, 0.9) + scores("b", 12, 0.5, seed=5))
    other = new_run(tmp_path / "other", "t2", systems=("a", "b"))
    commit_verdicts(other, scores("a", 10, 0.1, seed=2) + scores("b", 12, 0.5, seed=5))
    found = compare(Side(run), Side(other))
    better, same = found.rows
    assert (better.system, better.n_users, better.finding) == ("a", 10, "first is higher")
    assert better.interval is not None
    assert better.interval.lo > 0
    assert better.difference == pytest.approx((better.first or 0) - (better.second or 0))
    assert better.p_value is not None
    assert better.p_holm == pytest.approx(2 * better.p_value)
    assert (same.difference, same.finding, same.kappa) == (0.0, NO_DIFFERENCE, 1.0)
    assert compare(Side(other), Side(run)).rows[0].finding == "second is higher"


def test_compare_layers_gives_their_agreement_on_common_items(run: RunStore) -> None:
    rows = scores("a", 6, 0.5)
    commit_verdicts(run, [unscored(rows[0]), *rows[1:]])
    layer = [{**r, "layer": "judge2", "score": 1.0 - r["score"]} for r in rows]
    commit_verdicts(run, layer, variant="judge2")
    (row,) = compare(Side(run), Side(run, "judge2")).rows
    assert row.n_items == len(rows) - 1
    a = [r["score"] for r in rows[1:]]
    assert row.kappa == pytest.approx(quadratic_kappa(a, [1 - v for v in a]))
    with pytest.raises(UsageError, match="layers there are: base, judge2"):
        compare(Side(run), Side(run, "nothing"))


def test_compare_names_what_is_missing_and_refuses_other_people(
    run: RunStore, tmp_path: Path
) -> None:
    commit_verdicts(run, scores("a", 3, 0.9) + scores("b", 3, 0.9))
    other = new_run(tmp_path / "other", "t2")
    commit_verdicts(other, scores("a", 3, 0.9))
    assert compare(Side(run), Side(other)).missing == ("b dump_all: only in t1",)
    other.update_manifest(dataset_digest="1" * 64)
    with pytest.raises(UsageError, match="different data sets"):
        compare(Side(run), Side(other))
    assert split_layer("t1@judge2") == ("t1", "judge2")
    assert split_layer("t1") == ("t1", "base")


def test_ranking_marks_neighbours_without_a_shown_difference(run: RunStore) -> None:
    rows = scores("a", 12, 0.9, seed=1) + scores("b", 12, 0.88, seed=2) + scores("c", 12, 0.1)
    commit_verdicts(run, rows)
    (found,) = ranking(run)
    assert found.message == ""
    assert [p.system for p in found.places][-1] == "c"
    assert [p.tied for p in found.places] == [True, False, False]


def test_ranking_is_refused_below_the_coverage_threshold(run: RunStore) -> None:
    """Case store-overflow: a system that could not be measured is not ranked last."""
    rows = scores("a", 3, 0.9)
    lost = scores("b", 3, 0.9)
    commit_verdicts(run, rows + lost[:9] + [unscored(r, "store_overflow") for r in lost[9:]])
    (found,) = ranking(run)
    assert found.places == ()
    assert [s.system for s in found.refused] == ["b"]
    assert found.message == (
        "no ranking of dump_all below 95% coverage: b 9/27 scored = 33.3% (18 store_overflow)"
    )


@pytest.fixture
def gated(tmp_path: Path) -> RunStore:
    run = new_run(tmp_path / "gated", systems=("a", "b"), k=(1, 5))
    commit_verdicts(
        run,
        [
            row
            for system, level in (("a", 1.0), ("b", 0.0))
            for mode, k in (("dump_all", None), ("retrieve", 1), ("retrieve", 5))
            for row in scores(system, 3, level, access_mode=mode, k=k)
        ],
    )
    episodes = [episode(s, "u00", 1) for s in ("a", "b")]
    for row in episodes:
        run.commit(Unit("rollout", row["system"], "u00"), "f", {"episodes": [row]})
    score_run(run)
    return run


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("recovery.dump_all.a.B>=0.99", [True]),
        ("recovery.dump_all.b.B>=0.99", [False]),
        ("recovery.dump_all.B >= 0.55", [True, False]),
        ("recovery.retrieve@5.a.B>=1", [True]),
        ("recovery.retrieve.a.B>1", [False, False]),
        ("recovery.coverage>=0.95", [True] * 6),
        ("recovery.dump_all.a.B[self_model]>=1", [True]),
        ("recovery.A>=1", [True, True]),
        ("recovery.a.C<=2", [True]),
        ("recovery.a.D<=5", [False]),
        ("recovery.dump_all.a.recovery_rate>=0", [False]),
        ("recovery.b.chars<1000", [False]),
    ],
)
def test_gates(gated: RunStore, text: str, met: list[bool]) -> None:
    results = check_gates(gated, [text])
    assert [r.met for r in results] == met
    assert all(r.met is False for r in results if r.value is None)


def test_a_system_that_was_never_measured_fails_the_gate_of_all(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", systems=("a", "lost"), access=("dump_all",))
    commit_verdicts(run, scores("a", 2, 1.0))
    score_run(run)
    results = check_gates(run, ["recovery.dump_all.B>=0.5"])
    assert {(r.figure, r.met) for r in results} == {
        ("recovery.dump_all.a.B", True),
        ("recovery.dump_all.lost.B", False),
    }
    assert "no value" in str(results[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recovery.dump_all.B", "is no gate"),
        ("recovery.dump_all.B>=much", "'much' is no number"),
        ("recovery.dump_all.B>=nan", "must be a number"),
        ("recall.B>=1", "there is recovery"),
        ("recovery>=1", "a metric is missing"),
        ("recovery.dump_all.F1>=1", "there are B, recovery_rate, coverage"),
        ("recovery.dump_all.B[mood]>=1", "there are skill_memory"),
        ("recovery.dump_all.a.A>=1", "belongs to a system"),
        ("recovery.dump_all@5.B>=1", "dump_all has no k"),
    ],
)
def test_wrong_gates_say_what_there_is(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gate(text)
    assert message in str(caught.value)


def test_gates_on_what_the_run_does_not_have(gated: RunStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no system 'c' in this run; there are a, b"):
        check_gates(gated, ["recovery.dump_all.c.B>=0.5"])
    with pytest.raises(UsageError, match=r"retrieve@3.*dump_all, retrieve@1, retrieve@5"):
        check_gates(gated, ["recovery.retrieve@3.B>=0.5"])
    with pytest.raises(UsageError, match="memprobe score"):
        check_gates(new_run(tmp_path / "unscored"), ["recovery.B>=0.5"])


def test_a_user_without_verdicts_counts_as_attempted(tmp_path: Path) -> None:
    """A system that broke on one of two users was not measured in full, and is not ranked."""
    run = new_run(tmp_path / "run", systems=("rag",))
    for user in ("u1", "u2"):
        row = {"user_id": user, "category": "c", "dimension": "d"}
        target = {**row, "short": "s", "explanation": "e"}
        run.commit(Unit("inputs", "", user), "f", {"targets": [target]})
    commit_verdicts(run, [verdict("rag", "u1", "c", "d", score=1.0)])
    result = score_run(run)
    assert (result.n_scored, result.n_total) == (1, 2)
    (row,) = query(run, "SELECT * FROM recovery_summary").dicts()
    assert (row["n_users"], row["n_scored"], row["n_total"], row["b_mean"]) == (1, 1, 2, 1.0)
    (row,) = query(run, "SELECT * FROM recovery_by_category").dicts()
    assert (row["n_users"], row["n_scored"], row["n_total"]) == (1, 1, 2)
    (ranked,) = ranking(run)
    assert "rag 1/2 scored" in ranked.message


def test_a_mean_over_survivors_does_not_meet_a_gate(tmp_path: Path) -> None:
    """Case errors-in-denominator: what was lost on the way cannot be gated away."""
    run = new_run(tmp_path / "run", systems=("a",), access=("dump_all",))
    rows = scores("a", 2, 1.0)
    commit_verdicts(run, rows[:9] + [unscored(r, "adapter_error") for r in rows[9:]])
    score_run(run)
    (result,) = check_gates(run, ["recovery.dump_all.a.B>=0.5"])
    assert result.value == 1.0
    assert not result.met
    (coverage,) = check_gates(run, ["recovery.dump_all.a.coverage>=0.4"])
    assert coverage.met


def test_zeros_for_what_was_never_measured_are_no_agreement_of_b(run: RunStore) -> None:
    rows = scores("a", 6, 0.5)
    zeros = [
        row | {"score": 0.0, "label": "unknown", "reason": "store_overflow"}
        for row in scores("b", 6, 0.5)[:20]
    ]
    both = rows + zeros + scores("b", 6, 0.5)[20:]
    commit_verdicts(run, both)
    again = [{**row, "layer": "judge2", "score": 1.0 - row["score"]} for row in rows]
    commit_verdicts(
        run, again + [{**row, "layer": "judge2"} for row in both[len(rows) :]], variant="judge2"
    )
    error = compare(Side(run), Side(run, "judge2")).b_error
    assert error is not None
    assert error.n == 1, "b holds zeros by rule"
    assert error.mean > 0
