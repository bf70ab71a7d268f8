"""The statistics against their definitions, independent computations and known values."""

from __future__ import annotations

import math
import statistics

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memprobe import metrics

scale = st.sampled_from(metrics.SCALE)
unit = st.floats(0, 1, allow_nan=False)


def test_b_is_the_mean_of_category_means_not_of_items() -> None:
    scores = {"a": [1.0, 1.0, 1.0, 1.0], "b": [0.0]}
    assert metrics.recovery_score(scores) == 0.5


@given(st.dictionaries(st.sampled_from("abcde"), st.lists(st.none() | scale, max_size=7)))
def test_unscored_items_leave_b_as_if_they_had_not_been_attempted(
    scores: dict[str, list[float | None]],
) -> None:
    kept = {c: [v for v in values if v is not None] for c, values in scores.items()}
    assert metrics.recovery_score(scores) == metrics.recovery_score(kept)
    if not any(kept.values()):
        assert metrics.recovery_score(scores) is None


@given(st.lists(unit, min_size=2, max_size=40))
def test_sample_std_is_the_one_with_n_minus_1(values: list[float]) -> None:
    found = metrics.sample_std(values)
    assert found == pytest.approx(statistics.stdev(values), abs=1e-12)
    assert metrics.sample_std(values[:1]) is None


def test_missing_values_are_left_out_of_mean_and_std() -> None:
    assert metrics.mean([1.0, math.nan, 0.0]) == 0.5
    assert metrics.sample_std([1.0, math.nan, 0.0]) == pytest.approx(math.sqrt(0.5))
    assert metrics.mean([math.nan]) is None
    assert metrics.row_means(np.array([[1.0, np.nan], [np.nan, np.nan]]))[0] == 1.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=60), st.integers(0, 100))
def test_quantile_disc_is_the_databases(values: list[int], percent: int) -> None:
    expected = duckdb.execute(
        f"SELECT quantile_disc(v, {percent / 100:.2f}) FROM (SELECT unnest(?) AS v)", [values]
    ).fetchone()
    assert expected is not None
    assert metrics.quantile_disc(values, percent / 100) == expected[0]


def test_published_quantiles_are_the_lower_order_statistic() -> None:
    values = list(range(50))
    assert metrics.quantile_disc(values, 0.5) == 24
    assert metrics.quantile_disc(values, 0.9) == 44
    assert metrics.quantile_disc([], 0.5) is None


@settings(max_examples=25, deadline=None)
@given(st.lists(unit, min_size=2, max_size=30), st.integers(0, 99))
def test_the_interval_is_reproducible_and_within_the_values(values: list[float], seed: int) -> None:
    found = metrics.cluster_interval(values, seed=seed, resamples=300)
    again = metrics.cluster_interval(values, seed=seed, resamples=300)
    assert found == again
    assert found is not None
    assert min(values) - 1e-9 <= found.lo <= found.hi <= max(values) + 1e-9


def test_the_interval_has_the_width_of_the_standard_error() -> None:
    values = np.random.default_rng(3).normal(0.5, 0.2, 400)
    found = metrics.cluster_interval(values, seed=1)
    assert found is not None
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    assert found.hi - found.lo == pytest.approx(2 * half, rel=0.08)
    assert found.contains(float(values.mean()))


def test_chunks_do_not_change_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).random((37, 2))
    whole = metrics.bootstrap_means(values, resamples=100, seed=5)
    monkeypatch.setattr(metrics, "_CHUNK_CELLS", 37 * 7)
    assert np.allclose(metrics.bootstrap_means(values, resamples=100, seed=5), whole)


def test_a_column_leaves_its_missing_users_out_and_shares_the_resamples() -> None:
    values = np.array([[1.0, 1.0], [0.0, np.nan], [0.5, 0.5]] * 10)
    samples = metrics.bootstrap_means(values, resamples=500, seed=2)
    assert samples[:, 1].min() >= 0.5
    assert samples[:, 1].mean() == pytest.approx(0.75, abs=0.02)
    same = np.array([[v, v] for v in np.linspace(0, 1, 20)])
    drawn = metrics.bootstrap_means(same, resamples=50, seed=2)
    assert np.array_equal(drawn[:, 0], drawn[:, 1])


@given(st.dictionaries(st.text(max_size=3), scale, min_size=2, max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_system_never_differs_from_itself(scores: dict[str, float]) -> None:
    found = metrics.paired_difference(scores, scores, resamples=200)
    assert found.difference == 0
    assert not found.shown
    assert found.p_value == 1.0


def test_pairs_are_the_users_that_both_have() -> None:
    first = {"a": 1.0, "b": 0.5, "c": None, "d": 0.9}
    second = {"a": 0.0, "b": 0.0, "c": 0.0, "e": 1.0}
    found = metrics.paired_difference(first, second)
    assert found.n == 2
    assert found.difference == 0.75
    assert not metrics.paired_difference({"a": 1.0}, {"b": 1.0}).shown
    single = metrics.paired_difference({"a": 1.0}, {"a": 0.0})
    assert (single.n, single.difference, single.shown) == (1, 1.0, False)


def test_a_handful_of_users_shows_nothing_however_much_they_agree() -> None:
    for users, shown in ((2, False), (5, False), (6, True)):
        first = {f"u{i}": 0.9 + i / 1000 for i in range(users)}
        found = metrics.paired_difference(first, dict.fromkeys(first, 0.1))
        assert found.interval is not None
        assert found.interval.lo > 0
        assert found.shown is shown


def test_pairing_shows_a_small_difference_that_users_would_drown() -> None:
    users = {f"u{i}": i / 40 for i in range(40)}
    better = {u: v + 0.02 for u, v in users.items()}
    assert metrics.paired_difference(better, users).shown


@given(st.lists(unit, max_size=12))
def test_holm_only_raises_p_values_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = metrics.holm(p_values)
    assert all(a >= p for a, p in zip(adjusted, p_values, strict=True))
    assert all(a <= 1 for a in adjusted)
    by_p = [a for _, a in sorted(zip(p_values, adjusted, strict=True))]
    assert by_p == sorted(by_p)


def test_holm_by_hand() -> None:
    assert metrics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_errors_in_denominator_both_figures() -> None:
    """Case errors-in-denominator: 60 of 80 completed, 80 of 100 attempted."""
    outcomes = [1.0] * 60 + [0.0] * 20 + [math.nan] * 20
    assert metrics.mean(outcomes) == 0.75
    assert metrics.coverage(80, 100) == 0.8
    with pytest.raises(ValueError, match="cannot be"):
        metrics.coverage(101, 100)


def test_zero_rows_have_no_figure() -> None:
    """Case zero-rows: nothing to divide by, and no zero in its place."""
    assert metrics.mean([]) is None
    assert metrics.coverage(0, 0) is None
    assert metrics.cluster_interval([]) is None
    assert metrics.paired_difference({}, {}).difference is None
