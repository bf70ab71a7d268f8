"""Verdicts counted by episode: what the bootstrap resamples and every metric is made of.

A rate is right items over counted items; sums of both over episodes give the
same figures as `metrics.summarise`. Repetitions (epochs) of an episode are
pooled in it: they hang together and are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memprobe.metrics import Floats
from memprobe.paradigms.metrics import MEMBERS, Result
from memprobe.paradigms.scoring.results import Match
from memprobe.paradigms.spec import ProbeType

Slot = tuple[str, int, ProbeType]
"""Episode, epoch and probe type."""
Mask = npt.NDArray[np.bool_]

RATES = (*MEMBERS, "partial", "source_fidelity")
DERIVED = ("under_update", "over_update", "sp_balance", "sp_gap", "split_delta")
METRICS = RATES + DERIVED
"""Every metric of a tally. `sp_gap` is plasticity - stability; `split_delta` split - non_split."""

BEHIND: dict[str, tuple[str, str | None]] = {
    **{rate: (rate, None) for rate in RATES},
    "under_update": ("plasticity", None),
    "over_update": ("stability", None),
    "sp_balance": ("plasticity", "stability"),
    "sp_gap": ("plasticity", "stability"),
    "split_delta": ("split", "non_split"),
}
"""The one or two rates that a metric is made of."""

_AT = {rate: i for i, rate in enumerate(RATES)}


def figures(rates: Floats) -> Floats:
    """Rates, shape (..., rates), as all metrics, shape (..., metrics); NaN stays NaN."""
    plasticity, stability = rates[..., _AT["plasticity"]], rates[..., _AT["stability"]]
    both = plasticity + stability
    harmonic = np.where(both == 0, 0.0, both)
    np.divide(2 * plasticity * stability, both, out=harmonic, where=both > 0)
    derived = (
        1 - plasticity,
        1 - stability,
        harmonic,
        plasticity - stability,
        rates[..., _AT["split"]] - rates[..., _AT["non_split"]],
    )
    return np.concatenate([rates, np.stack(derived, axis=-1)], axis=-1)


@dataclass(frozen=True, slots=True)
class Tally:
    """Right, counted and failed items by episode, each of shape (episodes, rates).

    `errors` are items without a readable answer; they enter no rate.
    """

    right: Floats
    counted: Floats
    errors: Floats

    def values(self) -> Floats:
        """All metrics, shape (metrics,); NaN for a rate over nothing."""
        top, bottom = self.right.sum(axis=0), self.counted.sum(axis=0)
        rates = np.full(len(RATES), np.nan)
        np.divide(top, bottom, out=rates, where=bottom > 0)
        return figures(rates)

    def value(self, metric: str) -> float | None:
        """One metric; None where it is over nothing."""
        found = float(self.values()[METRICS.index(metric)])
        return None if np.isnan(found) else found

    def n(self, rate: str) -> int:
        """Items that a rate is over."""
        return int(self.counted[:, _AT[rate]].sum())

    def n_errors(self, rate: str) -> int:
        """Items of a rate that have no readable answer."""
        return int(self.errors[:, _AT[rate]].sum())

    def n_episodes(self, metric: str) -> int:
        """Episodes with an item behind a metric."""
        rates = [_AT[rate] for rate in BEHIND[metric] if rate is not None]
        return int((self.counted[:, rates].sum(axis=1) > 0).sum())

    def n_clusters(self, metric: str) -> int:
        """Episodes behind the rate of a metric that has fewer of them."""
        return min(self.n_episodes(rate) for rate in BEHIND[metric] if rate is not None)


def _counts(result: Result) -> dict[str, bool]:
    """The rates that a scored or failed result counts in, and whether it is right there."""
    found = {rate: result.right for rate, belongs in MEMBERS.items() if belongs(result)}
    found["partial"] = result.score.match is Match.PARTIAL
    if result.probe_type is ProbeType.SOURCE:
        found["source_fidelity"] = result.right
    elif result.probe_type is ProbeType.CONFLICT:
        failed = result.score.match is Match.EXECUTION_ERROR
        if failed or "status" in result.score.parts:
            found["source_fidelity"] = result.score.parts.get("status", False)
    return found


class Sheet:
    """One system's results over a list of slots, ready to be counted under any mask.

    Two sheets over the same slots can be compared. Raises `ValueError` for a
    result outside the slots and for two results of one slot.
    """

    def __init__(self, results: Iterable[Result], slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        at = {slot: i for i, slot in enumerate(self.slots)}
        if len(at) != len(self.slots):
            raise ValueError("each slot once")
        self.episodes = tuple(dict.fromkeys(slot[0] for slot in self.slots))
        row = {name: i for i, name in enumerate(self.episodes)}
        self._owner = np.zeros((len(self.episodes), len(self.slots)))
        for i, slot in enumerate(self.slots):
            self._owner[row[slot[0]], i] = 1.0
        shape = (len(self.slots), len(RATES))
        self._right, self._counted, self._errors = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.scored: Mask = np.zeros(len(self.slots), dtype=np.bool_)
        seen: set[Slot] = set()
        for result in results:
            if result.slot not in at:
                raise ValueError(f"no slot for {result.slot}")
            if result.slot in seen:
                raise ValueError(f"two results for {result.slot}")
            seen.add(result.slot)
            self._add(at[result.slot], result)

    def _add(self, place: int, result: Result) -> None:
        match = result.score.match
        if match is Match.SKIP:
            return
        self.scored[place] = match.scored
        into = self._counted if match.scored else self._errors
        for rate, right in _counts(result).items():
            into[place, _AT[rate]] = 1.0
            self._right[place, _AT[rate]] = float(right and match.scored)

    def tally(self, keep: Mask | None = None) -> Tally:
        """The counts by episode over the slots of a mask (all without one)."""
        mask = np.ones((len(self.slots), 1)) if keep is None else keep[:, None].astype(np.float64)
        right, counted, errors = (
            self._owner @ (part * mask) for part in (self._right, self._counted, self._errors)
        )
        return Tally(right, counted, errors)


def tally_of(results: Sequence[Result]) -> Tally:
    """The tally of some results, episodes in the order of their first result."""
    return Sheet(results, [result.slot for result in results]).tally()


GROUPS: dict[str, Callable[[Result], str]] = {
    "": lambda r: "",
    "paradigm": lambda r: r.paradigm.value,
    "probe": lambda r: r.probe_type.value,
    "domain": lambda r: str(r.domain),
    "condition": lambda r: r.condition.value,
    "paradigm_probe": lambda r: f"{r.paradigm.value}/{r.probe_type.value}",
}
"""The kinds of group that figures are given for; "" is the whole."""


def group_masks(facts: Mapping[Slot, Result], slots: Sequence[Slot]) -> dict[tuple[str, str], Mask]:
    """A mask over the slots for each group that occurs, kinds in order, names sorted.

    `facts` has any result of each slot: what a slot belongs to is the same for all systems.
    """
    found: dict[tuple[str, str], Mask] = {}
    for kind, name_of in GROUPS.items():
        names = np.array([name_of(facts[slot]) for slot in slots], dtype=object)
        for name in sorted(set(names)):
            found[kind, name] = names == name
    return found
