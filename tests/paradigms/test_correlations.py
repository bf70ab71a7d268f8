"""Correlations against their definitions."""

from __future__ import annotations

import statistics

import pytest

from memprobe.paradigms.correlations import (
    AXES,
    between_axes,
    between_readers,
    correlate,
    pearson,
    ranks,
    spearman,
)


def test_by_hand() -> None:
    # x - mean: -1.5 -0.5 0.5 1.5; y - mean: -1 -1 0 2; sum of products 1.5+0.5+0+3 = 5;
    # squares 5 and 6: r = 5 / sqrt(30)
    assert pearson([1, 2, 3, 4], [1, 1, 2, 4]) == pytest.approx(5 / 30**0.5)
    assert ranks([1, 1, 2, 4]) == [1.5, 1.5, 3.0, 4.0]
    # ranks - mean: -1 -1 0.5 1.5; products 1.5+0.5+0.25+2.25 = 4.5; squares 5 and 4.5
    assert spearman([1, 2, 3, 4], [1, 1, 2, 4]) == pytest.approx(4.5 / (5 * 4.5) ** 0.5)
    assert spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1.0)
    assert pearson([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)


def test_against_the_standard_library() -> None:
    x, y = [0.1, 0.7, 0.35, 0.9, 0.2], [0.3, 0.6, 0.1, 0.95, 0.5]
    assert pearson(x, y) == pytest.approx(statistics.correlation(x, y))
    # Without ties rho is 1 - 6 * (sum of squared rank differences) / (n * (n^2 - 1)).
    places = [[sorted(values).index(v) for v in values] for values in (x, y)]
    apart = sum((a - b) ** 2 for a, b in zip(*places, strict=True))
    assert spearman(x, y) == pytest.approx(1 - 6 * apart / (5 * 24))


def test_no_figure_for_two_systems_or_a_constant_side() -> None:
    assert pearson([1, 2], [2, 1]) is None
    assert pearson([1, 1, 1], [1, 2, 3]) is None
    assert spearman([], []) is None
    with pytest.raises(ValueError, match="one value a system"):
        pearson([1, 2, 3], [1, 2])


def test_axes_over_the_systems_that_have_both() -> None:
    systems = {
        "a": dict.fromkeys(AXES, 0.2) | {"stability": 0.9},
        "b": dict.fromkeys(AXES, 0.5) | {"stability": 0.6},
        "c": dict.fromkeys(AXES, 0.9) | {"stability": 0.1, "split": None},
    }
    found = {(c.first, c.second): c for c in between_axes(systems)}
    assert len(found) == 15
    one = found["plasticity", "stability"]
    assert one.n == 3
    assert one.pearson == pytest.approx(statistics.correlation([0.2, 0.5, 0.9], [0.9, 0.6, 0.1]))
    assert one.spearman == pytest.approx(-1.0)
    split = found["temporal", "split"]
    assert (split.n, split.pearson, split.spearman) == (2, None, None)


def test_readers_are_held_over_the_systems_both_have_read() -> None:
    first = {"a": 0.9, "b": 0.6, "c": 0.3, "d": None}
    second = {"a": 0.8, "b": 0.9, "c": 0.1, "d": 0.5, "e": 0.4}
    (found,) = between_readers({"base": first, "other": second})
    assert (found.first, found.second, found.n) == ("base", "other", 3)
    assert found.spearman == pytest.approx(0.5)
    assert correlate("x", "y", {"a": 1.0}, {"b": 1.0}).n == 0
