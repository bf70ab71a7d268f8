"""Intervals and tests of the paradigms suite: the published episode-level bootstrap.

Source: the published statistics of the suite. N episodes are drawn with
replacement, 2,000 times, seed 42; an episode drawn twice counts twice. Intervals
are percentile ones (95 %, linear interpolation), the standard error is the sample
standard deviation of the resamples, and the two-sided p-value of a difference is
twice the smaller share of resamples on one side of zero, half of those at zero on
each side, at most 1. A resample in which a rate is over nothing is left out.

`overall` draws each system apart, `paired` and `probe` draw once for all, so that a
difference is one of the same episodes. Corrections: `probe` has the published one
(Bonferroni); `adjusted` is ours (Holm), for any family of comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from memprobe import metrics
from memprobe.metrics import CONFIDENCE, RESAMPLES, Floats
from memprobe.paradigms.metrics import Result
from memprobe.paradigms.spec import ProbeType
from memprobe.paradigms.tally import METRICS, RATES, Mask, Sheet, Tally, figures

SEED = 42
"""The published seed."""

_BATCH = 64
"""Tallies that are resampled at once, to bound the memory."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric with its standard error and 95 % interval; None where there is none."""

    value: float | None
    se: float | None
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """First - second of a metric over the same episodes, with its two-sided p-value.

    `n_episodes` are those with an item, of the rate with fewest of them. A p-value of 0 means that
    none of the resamples lies on the other side of zero: below one in their number.
    """

    difference: float | None
    se: float | None
    lo: float | None
    hi: float | None
    p: float | None
    n_episodes: int

    @property
    def significant(self) -> bool:
        """Whether the interval leaves zero out (as published)."""
        return self.lo is not None and self.hi is not None and (self.lo > 0 or self.hi < 0)


def drawn(
    tallies: Sequence[Tally], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Iterator[Floats]:
    """All metrics of each tally in each resample, shape (resamples, metrics), one by one.

    The tallies have the same episodes in the same order and see the same resamples.
    """
    rest = iter(tallies)
    while batch := list(islice(rest, _BATCH)):
        rates = metrics.bootstrap_ratios(
            np.concatenate([t.right for t in batch], axis=1),
            np.concatenate([t.counted for t in batch], axis=1),
            resamples=resamples,
            seed=seed,
        )
        yield from np.moveaxis(figures(rates.reshape(resamples, len(batch), len(RATES))), 1, 0)


def two_sided_p(samples: Floats) -> float | None:
    """The published p-value of one difference's resamples; None when there are none."""
    found = samples[~np.isnan(samples)]
    if not len(found):
        return None
    ties = float((found == 0).mean()) / 2
    above, below = float((found > 0).mean()) + ties, float((found < 0).mean()) + ties
    return min(1.0, 2 * min(above, below))


def estimate(value: float | None, samples: Floats, n_clusters: int) -> Estimate:
    """A metric with the spread of its resamples; one episode behind a rate has no spread."""
    found = metrics.interval(samples) if n_clusters > 1 else None
    if value is None or found is None:
        return Estimate(value, None, None, None)
    there = samples[~np.isnan(samples)]
    spread = float(there.std(ddof=1)) if len(there) > 1 else None
    return Estimate(value, spread, found.lo, found.hi)


def difference(value: float | None, samples: Floats, n_episodes: int) -> Difference:
    """A difference with the spread of its resamples and its p-value."""
    one = estimate(value, samples, n_episodes)
    p = None if one.lo is None else two_sided_p(samples)
    return Difference(one.value, one.se, one.lo, one.hi, p, n_episodes)


def estimates(
    tallies: Sequence[Tally], *, resamples: int = RESAMPLES, seed: int = SEED
) -> list[dict[str, Estimate]]:
    """Every metric of each tally, all over one resample of the same episodes."""
    return [
        {
            metric: estimate(tally.value(metric), samples[:, i], tally.n_clusters(metric))
            for i, metric in enumerate(METRICS)
        }
        for tally, samples in zip(
            tallies, drawn(tallies, resamples=resamples, seed=seed), strict=True
        )
    ]


def seeds(n: int, seed: int = SEED) -> list[int]:
    """A seed for each of n systems in report order, from one master generator.

    A system's seed does not depend on those behind it.
    """
    return [int(s) for s in np.random.default_rng(seed).integers(0, 2**32, size=n)]


def overall(
    systems: Mapping[str, Tally], *, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, dict[str, Estimate]]:
    """Every metric of each system, in report order, each system with draws of its own."""
    return {
        name: estimates([tally], resamples=resamples, seed=own)[0]
        for (name, tally), own in zip(systems.items(), seeds(len(systems), seed), strict=True)
    }


def differences(
    pairs: Sequence[tuple[Tally, Tally]],
    wanted: Sequence[str] = METRICS,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[dict[str, Difference]]:
    """First - second of each pair, by metric; one resample for all pairs."""
    both = [tally for pair in pairs for tally in pair]
    samples = drawn(both, resamples=resamples, seed=seed)
    out = []
    for first, second in pairs:
        a, b = next(samples), next(samples)
        found = {}
        for metric in wanted:
            i = METRICS.index(metric)
            one, other = first.value(metric), second.value(metric)
            value = None if one is None or other is None else one - other
            n = min(first.n_clusters(metric), second.n_clusters(metric))
            found[metric] = difference(value, a[:, i] - b[:, i], n)
        out.append(found)
    return out


def against(
    full: Tally, own: Tally, *, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, Estimate]:
    """`delta_fc` (Acc_FC - Acc_r) and `rag_norm` (Acc_r / Acc_FC) with their intervals.

    `rag_norm` is None where full context has nothing right.
    """
    at = METRICS.index("accuracy")
    a, b = (s[:, at] for s in drawn([full, own], resamples=resamples, seed=seed))
    top, bottom = own.value("accuracy"), full.value("accuracy")
    n = min(full.n_episodes("accuracy"), own.n_episodes("accuracy"))
    delta = None if top is None or bottom is None else bottom - top
    share: Floats = np.full(len(a), np.nan)
    np.divide(b, a, out=share, where=a > 0)
    ratio = top / bottom if top is not None and bottom else None
    return {"delta_fc": estimate(delta, a - b, n), "rag_norm": estimate(ratio, share, n)}


def paired(
    systems: Mapping[str, Tally],
    pairs: Sequence[Pair] | None = None,
    wanted: Sequence[str] = METRICS,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[Pair, dict[str, Difference]]:
    """A - B of the given pairs (all of them without), one resample for all systems."""
    chosen = list(combinations(systems, 2)) if pairs is None else list(pairs)
    found = differences(
        [(systems[a], systems[b]) for a, b in chosen], wanted, resamples=resamples, seed=seed
    )
    return dict(zip(chosen, found, strict=True))


@dataclass(frozen=True, slots=True)
class ProbeTest:
    """Two systems on one probe type; the difference is in percentage points.

    `p_corrected` is Bonferroni's over the whole set of tests.
    """

    first: str
    second: str
    probe_type: ProbeType
    found: Difference
    p_corrected: float | None

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value is below 0.05."""
        return self.p_corrected is not None and self.p_corrected < 1 - CONFIDENCE


def probe(
    systems: Mapping[str, Sequence[Result]], *, resamples: int = RESAMPLES, seed: int = SEED
) -> list[ProbeTest]:
    """Every pair of systems on each probe type, in percent, Bonferroni over all tests.

    Episodes are in the order of their ids. Three systems make 18 tests.
    """
    slots = sorted({r.slot for results in systems.values() for r in results})
    sheets = {name: Sheet(results, slots) for name, results in systems.items()}
    kinds = np.array([slot[2] for slot in slots], dtype=object)
    tests: list[tuple[str, str, ProbeType]] = [
        (a, b, kind) for kind in ProbeType for a, b in combinations(sheets, 2)
    ]
    pairs = [(sheets[a].tally(kinds == t), sheets[b].tally(kinds == t)) for a, b, t in tests]
    found = differences(pairs, ("accuracy",), resamples=resamples, seed=seed)
    out = []
    for (a, b, kind), one in zip(tests, found, strict=True):
        points = _percent(one["accuracy"])
        p = None if points.p is None else min(1.0, points.p * len(tests))
        out.append(ProbeTest(a, b, kind, points, p))
    return out


def _percent(found: Difference) -> Difference:
    value, se, lo, hi = (
        None if x is None else 100 * x
        for x in (found.difference, found.se, found.lo, found.hi)
    )  # fmt: skip
    return Difference(value, se, lo, hi, found.p, found.n_episodes)


def in_common(first: Sheet, second: Sheet, keep: Mask | None = None) -> tuple[Tally, Tally]:
    """Both sheets over the slots that both have a verdict on (and that are in a mask)."""
    both = first.scored & second.scored
    if keep is not None:
        both = both & keep
    return first.tally(both), second.tally(both)


def adjusted(found: Sequence[Difference]) -> list[float | None]:
    """Holm's corrected p-values of one family of comparisons, None where there is no p.

    A p-value enters as at least 2**(1 - episodes), that of a sign test on which all
    episodes agree: resampling three episodes 2,000 times makes no evidence.
    """
    at = [i for i, one in enumerate(found) if one.p is not None]
    raised = [max(p, 2.0 ** (1 - found[i].n_episodes)) for i in at if (p := found[i].p) is not None]
    out: list[float | None] = [None] * len(found)
    for i, p in zip(at, metrics.holm(raised), strict=True):
        out[i] = min(1.0, p)
    return out


def shown(found: Difference, p_corrected: float | None) -> bool:
    """Whether a difference is shown: interval without zero, corrected p of at most 5 %."""
    return found.significant and p_corrected is not None and p_corrected <= 1 - CONFIDENCE + 1e-12
