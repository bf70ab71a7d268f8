"""Agreement of two judges, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprobe.agreement import agreement, confusion, kappas
from memprobe.metrics import SCALE
from tests.support.kappa import quadratic_kappa

FIRST = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
SECOND = [0.0, 0.5, 0.5, 0.5, 1.0, 0.75]
USERS = ["a", "a", "b", "b", "c", "c"]


def test_confusion_counts_both_judges() -> None:
    table = confusion(FIRST, SECOND)
    assert table.tolist() == [
        [1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1],
    ]


def test_figures_of_six_items() -> None:
    found = agreement(USERS, FIRST, SECOND)
    assert (found.n_items, found.n_clusters) == (6, 3)
    # Seen 3 of squared distance 1; by chance: rows 1,1,1,1,2 against columns 1,0,3,1,1.
    by_chance = sum(
        r * c * (i - j) ** 2
        for i, r in enumerate((1, 1, 1, 1, 2))
        for j, c in enumerate((1, 0, 3, 1, 1))
    )
    assert found.kappa == pytest.approx(1 - 3 * 6 / by_chance)
    assert found.mean_error == pytest.approx(0.75 / 6)
    assert found.shift == pytest.approx(0.25 / 6)
    assert found.exact == 0.5
    assert found.threshold == pytest.approx(5 / 6)
    assert (found.first_passed, found.second_passed) == (0.5, pytest.approx(2 / 6))


def test_intervals_resample_users_whole() -> None:
    found = agreement(USERS, FIRST, SECOND, resamples=500)
    assert found.mean_error_interval is not None
    # The users' own errors are 0.125 each: no resample of whole users moves them.
    assert found.mean_error_interval.lo == pytest.approx(0.125)
    assert found.mean_error_interval.hi == pytest.approx(0.125)
    assert found.threshold_interval is not None
    assert (found.threshold_interval.lo, found.threshold_interval.hi) == (0.5, 1.0)
    assert agreement(["a"] * 6, FIRST, SECOND).kappa_interval is None


def test_nothing_and_one_score_have_no_kappa() -> None:
    empty = agreement([], [], [])
    assert (empty.n_items, empty.kappa, empty.mean_error, empty.kappa_interval) == (0,) + (
        None,
    ) * 3
    same = agreement(["a", "b"], [1.0, 1.0], [1.0, 1.0])
    assert same.kappa is None
    assert same.kappa_interval is None
    assert same.exact == 1.0


@pytest.mark.parametrize("score", [0.3, float("nan"), 5.0])
def test_a_score_off_the_scale_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="not on the scale"):
        agreement(["a"], [score], [1.0])


def test_unequal_items_are_refused() -> None:
    with pytest.raises(ValueError, match="same items"):
        agreement(["a", "b"], [1.0], [1.0])


_scores = st.lists(st.tuples(st.sampled_from(SCALE), st.sampled_from(SCALE)), max_size=40)


@given(_scores)
def test_kappa_is_its_definition_and_knows_no_order(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    users = [str(i % 3) for i in range(len(pairs))]
    found = agreement(users, first, second, resamples=50)
    expected = quadratic_kappa(first, second)
    assert found.kappa == (None if expected is None else pytest.approx(expected))
    turned = agreement(users[::-1], first[::-1], second[::-1], resamples=50)
    assert turned == found


def test_kappa_of_a_multiple_is_the_same() -> None:
    table = confusion(FIRST, SECOND).astype(np.float64)
    assert kappas(np.stack([table, table / 7]))[0] == pytest.approx(kappas((table / 7)[None])[0])
