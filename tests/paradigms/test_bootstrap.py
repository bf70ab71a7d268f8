"""The bootstrap against a slow loop from its description, and against known cases."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import pytest

from memprobe.paradigms import bootstrap
from memprobe.paradigms.bootstrap import Difference, adjusted, differences, estimates, shown
from memprobe.paradigms.metrics import Result, Summary, delta_fc, rag_norm, summarise
from memprobe.paradigms.scoring import Match
from memprobe.paradigms.spec import ProbeType
from memprobe.paradigms.tally import BEHIND, METRICS, Sheet, tally_of
from tests.paradigms.test_metrics import FULL, OWN, C, E, I, P, S, results
from tests.paradigms.verdicts import PRESERVE, UPDATE, drawn, of_episode

READ: dict[str, Callable[[Summary], float | None]] = {
    **{
        rate: lambda s, rate=rate: getattr(s, rate).value  # type: ignore[misc]
        for rate in (
            *("accuracy", "partial", "plasticity", "stability", "under_update", "over_update"),
            *("sp_balance", "historical", "source_fidelity", "temporal"),
            *("split", "non_split", "split_delta"),
        )
    },
    "sp_gap": lambda s: (
        None
        if s.plasticity.value is None or s.stability.value is None
        else s.plasticity.value - s.stability.value
    ),
}


def by_episode(rows: list[Result]) -> list[list[Result]]:
    names = list(dict.fromkeys(r.episode for r in rows))
    return [[r for r in rows if r.episode == name] for name in names]


def loop(
    rows: list[list[Result]], statistic: Callable[[list[Result]], float | None], seed: int
) -> list[float]:
    """2,000 draws of episodes, one by one; an episode drawn twice is there twice."""
    random = np.random.default_rng(seed)
    values = []
    for _ in range(2000):
        drawn = [int(i) for i in random.integers(0, len(rows), size=len(rows))]
        value = statistic([r for i in drawn for r in rows[i]])
        if value is not None:
            values.append(value)
    return values


def percentile(values: list[float], share: float) -> float:
    """Linear interpolation between the two neighbours in order."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def test_the_table_of_three_episodes() -> None:
    """Every metric, by hand.

    episode                     current   second            third      fourth
    a interference, update      correct   previous: wrong   change: ok temporal: partial
    b misinformation, preserve  correct   conflict: partial source: no change: correct
    c reconsolidation, update,  wrong     previous: correct change: no temporal: error
      split
    The conflict verdict of b has its status part right.
    """
    tally = tally_of(OWN)
    expected = {
        "accuracy": (5 / 11, 11, None),
        "partial": (2 / 11, 11, None),
        # a: 2 of 4, c: 1 of 3
        "plasticity": (3 / 7, 7, None),
        # b: 2 of 4
        "stability": (2 / 4, 4, None),
        "under_update": (4 / 7, 7, None),
        "over_update": (2 / 4, 4, None),
        # 2 * 3/7 * 1/2 : (3/7 + 1/2) = 3/7 : 13/14
        "sp_balance": (6 / 13, 7, 4),
        "sp_gap": (3 / 7 - 1 / 2, 7, 4),
        "historical": (1 / 2, 2, None),
        # the source probe wrong, the status right
        "source_fidelity": (1 / 2, 2, None),
        "temporal": (0.0, 1, None),
        "split": (1 / 3, 3, None),
        "non_split": (4 / 8, 8, None),
        # the paper's sign: split minus the others
        "split_delta": (1 / 3 - 1 / 2, 3, 8),
    }
    assert set(expected) == set(METRICS)
    for metric, (value, n, n_other) in expected.items():
        first, second = BEHIND[metric]
        assert tally.value(metric) == pytest.approx(value), metric
        assert tally.n(first) == n, metric
        assert (tally.n(second) if second else None) == n_other, metric
    assert tally.n_errors("accuracy") == tally.n_errors("temporal") == 1
    assert tally.n_errors("stability") == 0
    assert tally.n_episodes("sp_balance") == 3
    assert tally.n_episodes("split") == tally.n_clusters("split_delta") == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_tally_gives_what_the_metrics_give(seed: int) -> None:
    rows = drawn(seed, 0.7, 0.4, error=0.1)
    tally, summary = tally_of(rows), summarise(rows)
    for metric, read in READ.items():
        assert tally.value(metric) == pytest.approx(read(summary)), metric


def test_intervals_and_errors_are_those_of_the_slow_loop() -> None:
    rows = drawn(5, 0.7, 0.45, episodes=9, error=0.05)
    episodes = by_episode(rows)
    (found,) = estimates([tally_of(rows)], seed=42)
    summaries: list[Summary] = []
    loop(episodes, lambda sample: summaries.append(summarise(sample)), 42)
    assert len(summaries) == 2000
    for metric, read in READ.items():
        values = [v for s in summaries if (v := read(s)) is not None]
        one = found[metric]
        assert one.lo == pytest.approx(percentile(values, 0.025)), metric
        assert one.hi == pytest.approx(percentile(values, 0.975)), metric
        assert one.se == pytest.approx(statistics.stdev(values)), metric


def test_each_system_draws_from_its_own_seed_of_one_master() -> None:
    one, two = drawn(1, 0.8, 0.5), drawn(2, 0.5, 0.8)
    found = bootstrap.overall({"one": tally_of(one), "two": tally_of(two)})
    master = np.random.default_rng(42)
    for name, rows in (("one", one), ("two", two)):
        seed = int(master.integers(0, 2**32))
        values = loop(by_episode(rows), lambda s: summarise(s).accuracy.value, seed)
        assert found[name]["accuracy"].lo == pytest.approx(percentile(values, 0.025))
        assert found[name]["accuracy"].se == pytest.approx(statistics.stdev(values))
    alone = bootstrap.overall({"one": tally_of(one)})
    assert alone["one"] == found["one"]


def test_pairs_see_the_same_episodes_and_p_counts_both_sides() -> None:
    systems = {"a": drawn(1, 0.7, 0.6), "b": drawn(2, 0.6, 0.5), "c": drawn(3, 0.3, 0.3)}
    episodes = {name: by_episode(rows) for name, rows in systems.items()}
    found = bootstrap.paired({name: tally_of(rows) for name, rows in systems.items()})
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    random = np.random.default_rng(42)
    draws = [random.integers(0, 12, size=12).tolist() for _ in range(2000)]
    for (a, b), metrics in found.items():
        values = []
        for draw in draws:
            one, other = (
                summarise([r for i in draw for r in episodes[name][i]]).accuracy for name in (a, b)
            )
            values.append(one.right / one.n - other.right / other.n)
        ties = sum(v == 0 for v in values) / 2
        above, below = (sum(v > 0 for v in values) + ties, sum(v < 0 for v in values) + ties)
        accuracy = metrics["accuracy"]
        assert accuracy.p == pytest.approx(min(1.0, 2 * min(above, below) / 2000))
        assert accuracy.lo == pytest.approx(percentile(values, 0.025))
        assert accuracy.hi == pytest.approx(percentile(values, 0.975))
        assert accuracy.significant is (percentile(values, 0.025) > 0)
    assert found["a", "c"]["accuracy"].significant
    assert found["a", "b"]["accuracy"].p is not None
    assert found["a", "b"]["accuracy"].p > 0


def test_a_system_against_itself_is_all_ties() -> None:
    tally = tally_of(drawn(4, 0.5, 0.5))
    (found,) = differences([(tally, tally)])
    for metric in METRICS:
        one = found[metric]
        assert (one.difference, one.lo, one.hi, one.p) == (0.0, 0.0, 0.0, 1.0), metric
        assert not one.significant


def test_half_of_the_ties_on_each_side() -> None:
    assert bootstrap.two_sided_p(np.array([0.0, 0.0, 1.0, 1.0])) == 0.5
    assert bootstrap.two_sided_p(np.array([-1.0, 0.0, 1.0, 1.0])) == 0.75
    assert bootstrap.two_sided_p(np.array([1.0, np.nan, 2.0])) == 0.0
    assert bootstrap.two_sided_p(np.array([np.nan])) is None


def test_probe_tests_are_in_percent_with_bonferroni() -> None:
    systems = {name: drawn(i, 0.9 - 0.4 * i, 0.9 - 0.4 * i, episodes=40) for i, name in
               enumerate(("a", "b", "c"))}  # fmt: skip
    found = bootstrap.probe(systems)
    assert len(found) == 18
    by_key = {(t.first, t.second, t.probe_type): t for t in found}
    one = by_key["a", "c", ProbeType.CURRENT]
    shares = [
        summarise([r for r in systems[s] if r.probe_type is ProbeType.CURRENT]).accuracy.value or 0
        for s in ("a", "c")
    ]
    assert one.found.difference == pytest.approx(100 * (shares[0] - shares[1]))
    assert one.p_corrected == pytest.approx(min(1.0, 18 * (one.found.p or 0.0)))
    assert one.significant
    shuffled = {name: list(reversed(rows)) for name, rows in systems.items()}
    assert bootstrap.probe(shuffled) == found


def test_against_full_context() -> None:
    found = bootstrap.against(tally_of(FULL), tally_of(OWN))
    assert found["delta_fc"].value == pytest.approx(10 / 12 - 5 / 11)
    assert found["delta_fc"].value == pytest.approx(delta_fc(FULL, OWN).value)
    assert found["rag_norm"].value == pytest.approx((5 / 11) / (10 / 12))
    assert found["rag_norm"].value == pytest.approx(rag_norm(FULL, OWN).value)
    values = _ratio_loop()
    assert found["rag_norm"].lo == pytest.approx(percentile(values, 0.025))
    wrong = tally_of(results(((I,) * 4,) * 3))
    assert bootstrap.against(wrong, tally_of(OWN))["rag_norm"].value is None


def _ratio_loop() -> list[float]:
    own, full = by_episode(OWN), by_episode(FULL)
    random = np.random.default_rng(42)
    values = []
    for _ in range(2000):
        draw = random.integers(0, 3, size=3).tolist()
        mine, best = (summarise([r for i in draw for r in x[i]]).accuracy for x in (own, full))
        if best.right:
            values.append((mine.right / mine.n) / (best.right / best.n))
    return values


def test_over_nothing_is_no_value() -> None:
    updates = [r for r in OWN if r.episode != "b"]
    (found,) = estimates([tally_of(updates)])
    for metric in ("stability", "over_update", "sp_balance", "sp_gap", "source_fidelity"):
        assert found[metric].value is None, metric
        assert found[metric].lo is None, metric
    lost = tally_of(results(((E,) * 4,) * 3))
    assert all(lost.value(metric) is None for metric in METRICS)
    assert lost.n_errors("accuracy") == 12
    (one,) = differences([(tally_of(OWN), lost)])
    assert one["accuracy"] == Difference(None, None, None, None, None, 0)
    none_right = tally_of(results(((I,) * 4,) * 3))
    assert none_right.value("sp_balance") == 0.0
    skipped = tally_of(results(((S, C, C, C), (C, C, C, C), (C, C, C, P))))
    assert (skipped.n("accuracy"), skipped.n_errors("accuracy")) == (11, 0)


def test_one_episode_has_a_value_and_no_interval() -> None:
    (found,) = estimates([tally_of([r for r in OWN if r.episode == "a"])])
    assert (found["accuracy"].value, found["accuracy"].lo) == (0.5, None)
    (three,) = estimates([tally_of(OWN)])
    # One split episode against two others: a difference of which nothing can be told.
    assert three["split_delta"].value == pytest.approx(-1 / 6)
    assert (three["split_delta"].lo, three["split_delta"].se) == (None, None)


def test_in_common_leaves_out_what_one_side_does_not_have() -> None:
    slots = [r.slot for r in OWN]
    full, own = bootstrap.in_common(Sheet(FULL, slots), Sheet(OWN, slots))
    assert (full.n("accuracy"), own.n("accuracy")) == (11, 11)
    assert full.value("accuracy") == pytest.approx(9 / 11)
    assert full.n_errors("accuracy") == own.n_errors("accuracy") == 0


def test_the_epochs_of_an_episode_are_drawn_together() -> None:
    rows = drawn(6, 0.6, 0.6)
    twice = rows + [dataclasses.replace(r, epoch=2) for r in rows]
    (once,), (again,) = estimates([tally_of(rows)]), estimates([tally_of(twice)])
    # The same verdicts again are no new evidence: the interval stays as wide.
    assert again == once
    with pytest.raises(ValueError, match="each slot once"):
        tally_of(rows + rows)


def test_holm_and_what_is_shown() -> None:
    def made(p: float | None, n: int = 56) -> Difference:
        return Difference(0.1, 0.01, 0.05, 0.15, p, n)

    assert adjusted([made(0.01), made(None), made(0.04), made(0.03)]) == [
        pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06),
    ]  # fmt: skip
    # Three episodes that agree are no evidence at 5 %, whatever the resamples say.
    assert adjusted([made(0.0, 3)]) == [0.25]
    assert adjusted([made(1.0, 1)]) == [1.0]
    assert shown(made(0.0), 0.04)
    assert not shown(made(0.0), 0.06)
    assert not shown(Difference(0.1, 0.1, -0.1, 0.3, 0.2, 56), 0.01)


def test_a_verdict_outside_the_slots_is_refused() -> None:
    rows = of_episode("x", UPDATE, lambda _: Match.CORRECT)
    with pytest.raises(ValueError, match="no slot"):
        Sheet(rows, [r.slot for r in of_episode("y", PRESERVE, lambda _: Match.CORRECT)])
