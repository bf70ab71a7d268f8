"""How far what a memory holds and what it answers lie apart: intrinsic against extrinsic.

d = I - E for each trajectory in each epoch. Epochs repeat the same trajectories, so
the pairs are no independent evidence: `intervals` resamples trajectories whole, and
`averaged` makes one pair of each trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from memprobe import metrics
from memprobe.agreement import kappas
from memprobe.evolution.scores import Scores, Spread, spread_of
from memprobe.metrics import RESAMPLES, Floats, Interval, interval
from memprobe.paradigms.correlations import pearson, ranks

TAU = 0.15
"""A pair diverges when |d| is above this, strictly."""
PASS = 0.5
"""A score passes from here on."""
EXACT = 50
"""Differences up to which the signed-rank test counts all signs instead of approximating."""
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Pair:
    """Intrinsic and extrinsic score of a trajectory in an epoch, both in [0, 1]."""

    trajectory: str
    category: str
    level: str
    epoch: int
    intrinsic: float | None
    extrinsic: float | None


def pairs_of(scores: Iterable[Scores]) -> list[Pair]:
    """The pair of each trajectory and epoch."""
    return [
        Pair(s.trajectory, s.category, s.level, s.epoch, s.intrinsic, s.extrinsic) for s in scores
    ]


@dataclass(frozen=True, slots=True)
class SignedRank:
    """Wilcoxon's signed-rank test, two-sided.

    `plus` and `minus` are the rank sums of positive and negative differences,
    `statistic` (W) the smaller one, `n` the differences that are not zero. `p` is
    exact up to 50 differences, ties included, and else the normal approximation
    with the correction for ties (no continuity correction); None without a difference.
    """

    n: int
    plus: float
    minus: float
    p: float | None
    exact: bool

    @property
    def statistic(self) -> float:
        """W = min(W+, W-)."""
        return min(self.plus, self.minus)


def signed_rank(differences: Sequence[float]) -> SignedRank:
    """Test whether differences lie around zero: zeros dropped, ties with the mean rank.

    Differences that agree to nine digits are equal. (Wilcoxon 1945.)
    """
    found = [d for x in differences if (d := round(x, _DIGITS)) != 0]
    size = ranks([abs(d) for d in found]) if found else []
    plus = math.fsum(r for d, r in zip(found, size, strict=True) if d > 0)
    minus = math.fsum(r for d, r in zip(found, size, strict=True) if d < 0)
    exact = len(found) <= EXACT
    p: float | None = None
    if found:
        p = _exact_p(size, min(plus, minus)) if exact else _normal_p(size, min(plus, minus))
    return SignedRank(len(found), plus, minus, p, exact)


def _exact_p(size: Sequence[float], smaller: float) -> float:
    """Twice the share of sign assignments whose rank sum is at most the smaller one."""
    # Tied ranks are halves: twice a rank is whole.
    doubled = [round(2 * r) for r in size]
    ways = [1] + [0] * sum(doubled)
    reach = 0
    for rank in doubled:
        reach += rank
        for total in range(reach, rank - 1, -1):
            ways[total] += ways[total - rank]
    below = sum(ways[: round(2 * smaller) + 1])
    share: float = 2 * below / 2 ** len(size)
    return min(1.0, share)


def _normal_p(size: Sequence[float], smaller: float) -> float:
    # The variance of a sum of signed ranks; summing the squared ranks corrects for ties.
    centre, variance = math.fsum(size) / 2, math.fsum(r * r for r in size) / 4
    return min(1.0, math.erfc(abs(smaller - centre) / math.sqrt(2 * variance)))


def passes(value: float) -> bool:
    """Whether a score passes: at least 0.5."""
    return round(value, _DIGITS) >= PASS


def diverges(difference: float) -> bool:
    """Whether |d| is above 0.15, strictly."""
    return round(abs(difference), _DIGITS) > TAU


@dataclass(frozen=True, slots=True)
class Divergence:
    """Intrinsic against extrinsic over pairs; None stands for a figure over nothing.

    `n` pairs have both scores, `left_out` lack one of them. `mad` is the mean |d|,
    `rate` the share of diverging pairs, `signed` the mean d, `flips` the share on which
    pass and fail differ, `kappa` Cohen's kappa on pass and fail (None where one side's
    verdicts leave nothing to chance), `r` Pearson's over all pairs.
    """

    n: int
    left_out: int
    trajectories: int
    intrinsic: float | None
    extrinsic: float | None
    mad: float | None
    rate: float | None
    signed: float | None
    flips: float | None
    kappa: float | None
    r: float | None
    test: SignedRank


FIGURES = ("intrinsic", "extrinsic", "mad", "rate", "signed", "flips", "kappa", "r")
"""The figures of `Divergence` that have a spread and an interval."""


def _both(pairs: Iterable[Pair]) -> list[tuple[Pair, float, float]]:
    return [
        (p, p.intrinsic, p.extrinsic)
        for p in pairs
        if p.intrinsic is not None and p.extrinsic is not None
    ]


def kappa(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Cohen's kappa of two sides that each say yes or no (Cohen 1960).

    None without items, and where both say one and the same throughout. Raises
    `ValueError` for unequal lengths.
    """
    if len(first) != len(second):
        raise ValueError("both sides judge the same items")
    table = np.zeros((1, 2, 2))
    for a, b in zip(first, second, strict=True):
        table[0, int(a), int(b)] += 1
    # Two classes have one distance, so the quadratic weighting changes nothing.
    found = float(kappas(table)[0])
    return None if math.isnan(found) else found


def divergence(pairs: Sequence[Pair]) -> Divergence:
    """Every figure over the pairs that have both scores."""
    found = _both(pairs)
    inner, outer = [i for _, i, _ in found], [e for _, _, e in found]
    differences = [i - e for i, e in zip(inner, outer, strict=True)]
    first, second = [passes(i) for i in inner], [passes(e) for e in outer]
    return Divergence(
        n=len(found),
        left_out=len(pairs) - len(found),
        trajectories=len({p.trajectory for p, _, _ in found}),
        intrinsic=metrics.mean(inner),
        extrinsic=metrics.mean(outer),
        mad=metrics.mean([abs(d) for d in differences]),
        rate=metrics.mean([diverges(d) for d in differences]),
        signed=metrics.mean(differences),
        flips=metrics.mean([a != b for a, b in zip(first, second, strict=True)]),
        kappa=kappa(first, second),
        r=pearson(inner, outer),
        test=signed_rank(differences),
    )


def _grouped(pairs: Iterable[Pair], key: Callable[[Pair], str]) -> dict[str, Divergence]:
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(key(pair), []).append(pair)
    return {name: divergence(found[name]) for name in sorted(found)}


def by_category(pairs: Iterable[Pair]) -> dict[str, Divergence]:
    """`divergence` of each category."""
    return _grouped(pairs, lambda p: p.category)


def by_level(pairs: Iterable[Pair]) -> dict[str, Divergence]:
    """`divergence` of each level."""
    return _grouped(pairs, lambda p: p.level)


def over_epochs(pairs: Iterable[Pair]) -> dict[str, Spread]:
    """Mean and sample standard deviation of each figure over the epochs."""
    epochs: dict[int, list[Pair]] = {}
    for pair in pairs:
        epochs.setdefault(pair.epoch, []).append(pair)
    each = [divergence(epochs[e]) for e in sorted(epochs)]
    return {name: spread_of(getattr(d, name) for d in each) for name in FIGURES}


def averaged(pairs: Iterable[Pair]) -> list[Pair]:
    """One pair a trajectory: the means of its epochs that have both scores (`epoch` is 0)."""
    found: dict[str, list[tuple[Pair, float, float]]] = {}
    for one in _both(pairs):
        found.setdefault(one[0].trajectory, []).append(one)
    out = []
    for name, own in sorted(found.items()):
        pair = own[0][0]
        inner, outer = metrics.mean([i for _, i, _ in own]), metrics.mean([e for _, _, e in own])
        out.append(Pair(name, pair.category, pair.level, 0, inner, outer))
    return out


def intervals(
    pairs: Iterable[Pair], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Interval | None]:
    """95 % percentile intervals of `FIGURES`, trajectories drawn whole with all their epochs.

    None below two trajectories, and for a figure that no resample has.
    """
    found = _both(pairs)
    names = sorted({p.trajectory for p, _, _ in found})
    if len(names) < 2:
        return dict.fromkeys(FIGURES)
    row = {name: k for k, name in enumerate(names)}
    sums: Floats = np.zeros((len(names), len(fields(_Moments)) + 4))
    count: Floats = np.zeros(len(names))
    for pair, i, e in found:
        d, cell = i - e, 2 * passes(i) + passes(e)
        moments = _Moments(
            i, e, abs(d), diverges(d), d, passes(i) != passes(e), i * i, e * e, i * e
        )
        at = row[pair.trajectory]
        sums[at] += [*(getattr(moments, f.name) for f in fields(moments)), *np.eye(4)[cell]]
        count[at] += 1
    drawn = metrics.bootstrap_ratios(
        sums, np.repeat(count[:, None], sums.shape[1], axis=1), resamples=resamples, seed=seed
    )
    columns = {f.name: drawn[:, k] for k, f in enumerate(fields(_Moments))}
    samples = {name: columns[name] for name in FIGURES if name in columns}
    samples["kappa"] = kappas(drawn[:, -4:].reshape(-1, 2, 2))
    samples["r"] = _correlations(columns)
    return {name: interval(samples[name]) for name in FIGURES}


@dataclass(frozen=True, slots=True)
class _Moments:
    """What is summed of each pair: plain figures, and what a correlation is made of."""

    intrinsic: float
    extrinsic: float
    mad: float
    rate: float
    signed: float
    flips: float
    intrinsic_squared: float
    extrinsic_squared: float
    product: float


def _correlations(columns: dict[str, Floats]) -> Floats:
    """Pearson's r of each resample from its mean moments; NaN where a side is constant."""
    i, e = columns["intrinsic"], columns["extrinsic"]
    spread = (columns["intrinsic_squared"] - i * i) * (columns["extrinsic_squared"] - e * e)
    out: Floats = np.full(len(i), np.nan)
    # Below this a difference of moments is rounding, not a spread.
    there = spread > 1e-18
    out[there] = (columns["product"] - i * e)[there] / np.sqrt(spread[there])
    return np.clip(out, -1.0, 1.0)
