"""Agreement of two judges on the same items: kappa, confusion, errors, with intervals.

The items of one user hang together, so every interval resamples users whole.
Everything follows from the table of both judges' scores, one table a user;
sums of whole numbers make the figures the same whatever the order of the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memprobe.metrics import RESAMPLES, SCALE, Floats, Interval, bootstrap_means, interval

RECOVERED = 0.75
"""A target counts as recovered from this score on (published recovery protocol)."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two judges agree on `n_items` items of `n_clusters` users.

    `kappa` is the quadratic weighted one (Cohen 1968), None without items and where
    both judges gave one and the same score throughout. `mean_error` is the mean
    absolute difference of the scores and `shift` the mean of first - second.
    `exact` is the share of equal scores, `threshold` the share of items that both
    judges put on one side of 0.75, `first_passed` and `second_passed` the shares
    that each of them put above. `confusion[i][j]` counts items that the first
    judge gave the i-th score of the scale and the second the j-th. Intervals are
    percentile bootstrap ones over users, None below two users.
    """

    n_items: int
    n_clusters: int
    kappa: float | None
    kappa_interval: Interval | None
    mean_error: float | None
    mean_error_interval: Interval | None
    shift: float | None
    exact: float | None
    threshold: float | None
    threshold_interval: Interval | None
    first_passed: float | None
    second_passed: float | None
    confusion: tuple[tuple[int, ...], ...]


def places(values: Sequence[float], scale: Sequence[float] = SCALE) -> Counts:
    """The place of each value on the scale; raises `ValueError` for a value off it."""
    at = {value: place for place, value in enumerate(scale)}
    try:
        return np.array([at[value] for value in values], dtype=np.int64)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is not on the scale {tuple(scale)}") from None


def confusion(
    first: Sequence[float], second: Sequence[float], scale: Sequence[float] = SCALE
) -> Counts:
    """Items by both judges' scores, shape (scale, scale): rows the first's, columns the second's.

    Raises `ValueError` for a value off the scale and for judges of unequal items.
    """
    if len(first) != len(second):
        raise ValueError("both judges score the same items")
    size = len(scale)
    cells = places(first, scale) * size + places(second, scale)
    return np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.int64)


def kappas(tables: Floats) -> Floats:
    """Quadratic weighted kappa of each table, shape (tables, scale, scale) -> (tables,).

    NaN where chance cannot be told from agreement. A table may hold counts or any
    multiple of them.
    """
    size = tables.shape[-1]
    weights = (np.arange(size)[:, None] - np.arange(size)[None, :]) ** 2.0
    total = tables.sum(axis=(1, 2))
    by_chance = tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :]
    seen = (tables * weights).sum(axis=(1, 2)) * total
    expected = (by_chance * weights).sum(axis=(1, 2))
    ratio: Floats = np.full(len(tables), np.nan)
    np.divide(seen, expected, out=ratio, where=expected > 0)
    return 1.0 - ratio


def _shares(tables: Floats, weights: Floats) -> Floats:
    total = tables.sum(axis=(1, 2))
    out: Floats = np.full(len(tables), np.nan)
    np.divide((tables * weights).sum(axis=(1, 2)), total, out=out, where=total > 0)
    return out


def _number(values: Floats) -> float | None:
    return None if np.isnan(values[0]) else float(values[0])


def agreement(
    clusters: Sequence[str],
    first: Sequence[float],
    second: Sequence[float],
    *,
    scale: Sequence[float] = SCALE,
    threshold: float = RECOVERED,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Compare two judges item by item; `clusters` names each item's user.

    The three sequences have one length, in any order of items. Raises `ValueError`
    for a score off the scale and for unequal lengths.
    """
    if not len(clusters) == len(first) == len(second):
        raise ValueError("both judges score the same items, each of one user")
    size = len(scale)
    names = sorted(set(clusters))
    row = {name: index for index, name in enumerate(names)}
    owner = np.array([row[name] for name in clusters], dtype=np.int64)
    cells = (owner * size + places(first, scale)) * size + places(second, scale)
    per_user = np.bincount(cells, minlength=len(names) * size * size)
    per_user = per_user.reshape(len(names), size * size)
    whole = per_user.sum(axis=0).reshape(1, size, size).astype(np.float64)
    steps = np.array(scale, dtype=np.float64)
    passed = steps >= threshold
    difference = steps[:, None] - steps[None, :]
    same_side = (passed[:, None] == passed[None, :]).astype(np.float64)

    def between(statistic: Floats) -> Interval | None:
        return interval(statistic) if len(names) > 1 else None

    drawn: Floats = np.empty((0, size, size))
    if len(names) > 1:
        means = bootstrap_means(per_user.astype(np.float64), resamples=resamples, seed=seed)
        drawn = means.reshape(-1, size, size)
    ones = np.ones((size, size))
    return Agreement(
        n_items=len(first),
        n_clusters=len(names),
        kappa=_number(kappas(whole)),
        kappa_interval=between(kappas(drawn)),
        mean_error=_number(_shares(whole, np.abs(difference))),
        mean_error_interval=between(_shares(drawn, np.abs(difference))),
        shift=_number(_shares(whole, difference)),
        exact=_number(_shares(whole, np.eye(size))),
        threshold=_number(_shares(whole, same_side)),
        threshold_interval=between(_shares(drawn, same_side)),
        first_passed=_number(_shares(whole, passed[:, None] * ones)),
        second_passed=_number(_shares(whole, passed[None, :] * ones)),
        confusion=tuple(tuple(int(n) for n in line) for line in whole[0]),
    )
