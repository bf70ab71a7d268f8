"""Statistics of the suites: means by cluster, intervals, paired comparisons, agreement.

Everything here is a function of arrays; NaN stands for "no value" and is left
out, never counted as zero. Random draws are seeded, so the same scores give the
same interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
CONFIDENCE = 0.95
SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The judge's scale for recovered targets."""

Floats = npt.NDArray[np.float64]
_CHUNK_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Lower and upper bound of a percentile bootstrap interval."""

    lo: float
    hi: float

    def contains(self, value: float) -> bool:
        """Whether a value lies within the closed interval."""
        return self.lo <= value <= self.hi


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference first - second over users that both have.

    `interval` and `p_value` are None with fewer than two users. `shown` is
    False ("no difference shown") when the interval spans zero, when there is
    none, and when the users are too few for any evidence at this level.
    """

    n: int
    difference: float | None
    interval: Interval | None
    p_value: float | None

    @property
    def shown(self) -> bool:
        """Whether the data show a difference."""
        return (
            self.interval is not None
            and not self.interval.contains(0.0)
            and self.p_value is not None
            and self.p_value <= 1 - CONFIDENCE
        )


def category_means(scores: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
    """Mean per category over its scored items; a category without any is left out."""
    means = {}
    for category, values in scores.items():
        scored = [v for v in values if v is not None]
        if scored:
            means[category] = math.fsum(scored) / len(scored)
    return means


def recovery_score(scores: Mapping[str, Sequence[float | None]]) -> float | None:
    """One user's B: the unweighted mean of the category means over scored items.

    `scores` maps a category to its items' scores, None for an unscored one.
    None when nothing was scored. (Published recovery protocol, metric B.)
    """
    means = category_means(scores)
    return math.fsum(means.values()) / len(means) if means else None


def row_means(values: Floats) -> Floats:
    """Mean of each row over its numbers, shape (rows, columns) -> (rows,); NaN for none."""
    present = ~np.isnan(values)
    count = present.sum(axis=1)
    total = np.where(present, values, 0.0).sum(axis=1)
    out: Floats = np.full(len(values), np.nan)
    np.divide(total, count, out=out, where=count > 0)
    return out


def mean(values: npt.ArrayLike) -> float | None:
    """Mean of the numbers in an array; None when there is none."""
    found = np.asarray(values, dtype=np.float64)
    found = found[~np.isnan(found)]
    return math.fsum(found) / len(found) if len(found) else None


def sample_std(values: npt.ArrayLike) -> float | None:
    """Sample standard deviation (n - 1), as in the published tables; None below two numbers."""
    found = np.asarray(values, dtype=np.float64)
    found = found[~np.isnan(found)]
    if len(found) < 2:
        return None
    centre = math.fsum(found) / len(found)
    return math.sqrt(math.fsum((found - centre) ** 2) / (len(found) - 1))


def quantile_disc(values: Sequence[float], share: float) -> float | None:
    """The lower order statistic at a share, as SQL's `quantile_disc`; None for no values.

    For 50 values, 0.5 and 0.9 are the sorted values at indices 24 and 44.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies in [0, 1], not {share}")
    if not values:
        return None
    # The decimal the caller wrote, not its binary neighbour: 0.07 of 100 is the seventh.
    rank = math.ceil(Fraction(str(share)) * len(values))
    return sorted(values)[max(rank, 1) - 1]


def bootstrap_ratios(
    numerators: Floats,
    denominators: Floats,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Floats:
    """Resample clusters and take sum(numerator) / sum(denominator) of each column.

    Both arrays have shape (clusters, statistics); the result has shape
    (resamples, statistics), NaN where a resample's denominator is zero. All
    columns see the same resamples, so differences between them are paired.
    Clusters are drawn whole and with replacement (Efron & Tibshirani 1993,
    section 8.5 on resampling independent units). Memory stays within some tens
    of megabytes whatever the number of clusters.
    """
    if numerators.shape != denominators.shape or numerators.ndim != 2:
        raise ValueError("numerators and denominators need one shape (clusters, statistics)")
    clusters, statistics = numerators.shape
    out = np.full((resamples, statistics), np.nan)
    if clusters == 0:
        return out
    random = np.random.default_rng(seed)
    stacked = np.hstack([numerators, denominators])
    step = max(1, min(resamples, _CHUNK_CELLS // clusters))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = random.integers(0, clusters, size=(rows, clusters), dtype=np.int32)
        drawn += (np.arange(rows, dtype=np.int32) * clusters)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * clusters)
        sums = weights.reshape(rows, clusters).astype(np.float64) @ stacked
        top, bottom = sums[:, :statistics], sums[:, statistics:]
        np.divide(top, bottom, out=out[start : start + rows], where=bottom != 0)
    return out


def bootstrap_means(values: Floats, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Resampled column means of per-cluster values; NaN values are left out of their column."""
    present = ~np.isnan(values)
    return bootstrap_ratios(
        np.where(present, values, 0.0),
        present.astype(np.float64),
        resamples=resamples,
        seed=seed,
    )


def interval(samples: Floats, confidence: float = CONFIDENCE) -> Interval | None:
    """Percentile interval of one statistic's resamples; None when none could be computed."""
    found = samples[~np.isnan(samples)]
    if not len(found):
        return None
    tail = (1 - confidence) / 2
    lo, hi = np.quantile(found, [tail, 1 - tail])
    return Interval(float(lo), float(hi))


def cluster_interval(
    values: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """Bootstrap interval of the mean of one value a user; None below two users with a value."""
    found = np.asarray(values, dtype=np.float64)
    found = found[~np.isnan(found)]
    if len(found) < 2:
        return None
    return interval(bootstrap_means(found[:, None], resamples=resamples, seed=seed)[:, 0])


def paired_difference(
    first: Mapping[str, float | None],
    second: Mapping[str, float | None],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedDifference:
    """Compare two systems on the users that both have a value for.

    Resamples users with their pair of values. The p-value is the two-sided
    bootstrap one, with one added to both counts so that it is never zero
    (Davison & Hinkley 1997, section 4.2). It is never below 2**(1 - n), that of
    a sign test on which all n users agree: two users resampled 2,000 times are
    still two users, so fewer than six never show a difference at 5 %.
    """
    pairs = [
        (a, b)
        for user in sorted(first.keys() & second.keys())
        if (a := first[user]) is not None and (b := second[user]) is not None
    ]
    if not pairs:
        return PairedDifference(0, None, None, None)
    differences = np.array([a - b for a, b in pairs], dtype=np.float64)
    observed = math.fsum(differences) / len(differences)
    if len(differences) < 2:
        return PairedDifference(len(differences), observed, None, None)
    samples = bootstrap_means(differences[:, None], resamples=resamples, seed=seed)[:, 0]
    below = (int((samples <= 0).sum()) + 1) / (resamples + 1)
    above = (int((samples >= 0).sum()) + 1) / (resamples + 1)
    p_value = min(1.0, max(2 * min(below, above), 2.0 ** (1 - len(differences))))
    return PairedDifference(len(differences), observed, interval(samples), p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def coverage(scored: int, total: int) -> float | None:
    """The share of attempted items that could be scored; None when nothing was attempted."""
    if not 0 <= scored <= total:
        raise ValueError(f"{scored} scored of {total} cannot be")
    return scored / total if total else None
