"""The metrics of the paradigms suite, each with the number of probes behind it.

Source: the published definitions. A partial verdict counts as wrong; execution
errors and skipped probes enter no rate and are counted apart. Two departures: a
rate over nothing is None, not 0, and `split_delta` follows the paper's text
(split minus non-split), whose code has the opposite sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memprobe.paradigms.scoring.results import Match, Score
from memprobe.paradigms.spec import Condition, Domain, Episode, Expected, Paradigm, ProbeType


@dataclass(frozen=True, slots=True)
class Result:
    """One probe's score with what it is grouped by."""

    episode: str
    paradigm: Paradigm
    condition: Condition
    domain: Domain
    split: bool
    probe_type: ProbeType
    expected: Expected
    score: Score
    epoch: int = 1

    @property
    def slot(self) -> tuple[str, int, ProbeType]:
        """Which question of which repetition it answers."""
        return (self.episode, self.epoch, self.probe_type)

    @property
    def right(self) -> bool:
        """Whether the verdict is `correct`."""
        return self.score.match is Match.CORRECT


def results_of(episode: Episode, scores: Sequence[Score]) -> list[Result]:
    """An episode's scores, in the order of its probes, as results.

    Whether an episode is split is told by its sessions, as published. Raises
    `ValueError` when there are not as many scores as probes.
    """
    spec = episode.spec
    split = any(s.session_type.perturbs and "_p" in s.session_type for s in episode.sessions)
    return [
        Result(
            spec.episode_id,
            spec.paradigm,
            spec.condition,
            spec.domain,
            split,
            probe.probe_type,
            probe.expected_behavior,
            score,
        )
        for probe, score in zip(episode.probes, scores, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Rate:
    """Right items of n; `value` is None when n is 0."""

    right: int
    n: int

    @property
    def value(self) -> float | None:
        """The share, from 0 to 1."""
        return self.right / self.n if self.n else None

    def complement(self) -> Rate:
        """The share of what is not right."""
        return Rate(self.n - self.right, self.n)

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.right + other.right, self.n + other.n)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure made of two rates; `n` are the items behind each."""

    value: float | None
    n: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """All metrics of one system over some results."""

    accuracy: Rate
    partial: Rate
    plasticity: Rate
    stability: Rate
    under_update: Rate
    over_update: Rate
    sp_balance: Figure
    historical: Rate
    source_fidelity: Rate
    temporal: Rate
    split: Rate
    non_split: Rate
    split_delta: Figure
    execution_errors: int
    skipped: int


def _scored(results: Iterable[Result]) -> list[Result]:
    return [r for r in results if r.score.match.scored]


def accuracy(results: Iterable[Result]) -> Rate:
    """Correct verdicts of the scored ones."""
    scored = _scored(results)
    return Rate(sum(r.right for r in scored), len(scored))


def source_fidelity(results: Iterable[Result]) -> Rate:
    """Source probes and the status part of conflict probes, pooled.

    A conflict verdict without that part (an older published row) is left out.
    """
    scored = _scored(results)
    status = [
        r.score.parts["status"]
        for r in scored
        if r.probe_type is ProbeType.CONFLICT and "status" in r.score.parts
    ]
    return accuracy(r for r in scored if r.probe_type is ProbeType.SOURCE) + Rate(
        sum(status), len(status)
    )


MEMBERS: dict[str, Callable[[Result], bool]] = {
    "accuracy": lambda r: True,
    "plasticity": lambda r: r.expected is Expected.UPDATE,
    "stability": lambda r: r.expected is Expected.PRESERVE,
    "historical": lambda r: r.probe_type is ProbeType.PREVIOUS,
    "temporal": lambda r: r.probe_type is ProbeType.TEMPORAL,
    "split": lambda r: r.split,
    "non_split": lambda r: not r.split,
}
"""The probes that each accuracy is over."""


def _difference(first: Rate, second: Rate) -> Figure:
    a, b = first.value, second.value
    return Figure(None if a is None or b is None else a - b, (first.n, second.n))


def harmonic(first: Rate, second: Rate) -> Figure:
    """The harmonic mean of two rates; 0 when both are 0."""
    a, b = first.value, second.value
    if a is None or b is None:
        return Figure(None, (first.n, second.n))
    return Figure(2 * a * b / (a + b) if a + b else 0.0, (first.n, second.n))


def summarise(results: Sequence[Result]) -> Summary:
    """All metrics over results of one system."""

    def over(metric: str) -> Rate:
        return accuracy(r for r in results if MEMBERS[metric](r))

    plasticity, stability = over("plasticity"), over("stability")
    split, whole = over("split"), over("non_split")
    scored = _scored(results)
    return Summary(
        accuracy=accuracy(results),
        partial=Rate(sum(r.score.match is Match.PARTIAL for r in scored), len(scored)),
        plasticity=plasticity,
        stability=stability,
        under_update=plasticity.complement(),
        over_update=stability.complement(),
        sp_balance=harmonic(plasticity, stability),
        historical=over("historical"),
        source_fidelity=source_fidelity(results),
        temporal=over("temporal"),
        split=split,
        non_split=whole,
        split_delta=_difference(split, whole),
        execution_errors=sum(r.score.match is Match.EXECUTION_ERROR for r in results),
        skipped=sum(r.score.match is Match.SKIP for r in results),
    )


def by_paradigm(results: Sequence[Result]) -> dict[Paradigm, Summary]:
    """The summary of each paradigm that occurs."""
    groups = {p: [r for r in results if r.paradigm is p] for p in Paradigm}
    return {p: summarise(rows) for p, rows in groups.items() if rows}


def by_probe(results: Sequence[Result]) -> dict[ProbeType, Rate]:
    """The accuracy of each probe type that occurs."""
    rates = {p: accuracy(r for r in results if r.probe_type is p) for p in ProbeType}
    return {p: rate for p, rate in rates.items() if rate.n}


def by_paradigm_and_probe(results: Sequence[Result]) -> dict[tuple[Paradigm, ProbeType], Rate]:
    """The accuracy of each probe type within each paradigm."""
    return {
        (paradigm, probe): rate
        for paradigm in Paradigm
        for probe, rate in by_probe([r for r in results if r.paradigm is paradigm]).items()
    }


def in_common(first: Sequence[Result], second: Sequence[Result]) -> Mapping[str, list[Result]]:
    """The results of both over the probes that both have a verdict on, as `first`, `second`."""

    def keys(results: Sequence[Result]) -> set[tuple[str, int, ProbeType]]:
        return {r.slot for r in _scored(results)}

    both = keys(first) & keys(second)
    return {
        "first": [r for r in first if r.slot in both],
        "second": [r for r in second if r.slot in both],
    }


def delta_fc(full: Sequence[Result], own: Sequence[Result]) -> Figure:
    """Accuracy that full context has over a system: Acc_FC - Acc_r (negative: the system leads).

    Each over its own verdicts, as published; pass `in_common` for the same probes.
    """
    return _difference(accuracy(full), accuracy(own))


def rag_norm(full: Sequence[Result], own: Sequence[Result]) -> Figure:
    """A system's accuracy as a share of full context's: Acc_r / Acc_FC; None when that is 0."""
    a, b = accuracy(own), accuracy(full)
    value = a.value / b.value if a.value is not None and b.value else None
    return Figure(value, (a.n, b.n))
