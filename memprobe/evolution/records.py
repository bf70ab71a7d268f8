"""What a run of the evolution suite hands to its metrics, and what a metric is.

Records are small and frozen. Something that was not measured is an `Unscored` with
its reason: it enters no mean and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memprobe.evolution.spec import Action
from memprobe.outcomes import Unscored


class Verdict(StrEnum):
    """A judge's word on a claim or an answer."""

    YES = "yes"
    PARTIAL = "partial"
    NO = "no"

    @property
    def score(self) -> float:
        """1, 0.5 or 0."""
        return {"yes": 1.0, "partial": 0.5, "no": 0.0}[self.value]


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean with what stands behind it: the sum over `scored` of `attempted` items."""

    total: float
    scored: int
    attempted: int

    def __post_init__(self) -> None:
        if not 0 <= self.scored <= self.attempted:
            raise ValueError(f"{self.scored} scored of {self.attempted} cannot be")

    @property
    def value(self) -> float | None:
        """The mean over the scored items; None when there is none."""
        return self.total / self.scored if self.scored else None

    @property
    def unscored(self) -> int:
        """Items that were attempted and have no score."""
        return self.attempted - self.scored


NOTHING = Figure(0.0, 0, 0)
"""The figure of a rate over nothing."""


def figure(values: Iterable[float | bool | None]) -> Figure:
    """Mean of the values; None is an item without a score."""
    found = list(values)
    scored = [float(v) for v in found if v is not None]
    return Figure(math.fsum(scored), len(scored), len(found))


def across(figures: Iterable[Figure]) -> Figure:
    """Unweighted mean of means (of trajectories, say); those over nothing are left out.

    A figure that was attempted and has no scored item counts as attempted here, one
    over nothing (a rate whose denominator is zero) does not.
    """
    return figure(f.value for f in figures if f.attempted)


def pooled(figures: Iterable[Figure]) -> Figure:
    """Mean over all items behind several figures."""
    found = list(figures)
    return Figure(
        math.fsum(f.total for f in found),
        sum(f.scored for f in found),
        sum(f.attempted for f in found),
    )


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Whether the active facts after a state entail a claim expected there.

    `state` is the index of the arrival, `fact` the id of the fact that the judge
    named, None for none.
    """

    state: int
    claim: str
    outcome: Verdict | Unscored
    fact: str | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, None when there is none."""
        return None if isinstance(self.outcome, Unscored) else self.outcome


@dataclass(frozen=True, slots=True)
class Operation:
    """What a system did with one observation of a document.

    `match` is how well the observation matches the document's claims (any scale,
    higher is better), by which the dominant action is chosen. `pre_existing` tells
    whether the touched fact was there before the document, `relevant` whether that
    fact is about the trajectory's topic.
    """

    action: Action
    match: float
    pre_existing: bool = False
    relevant: bool = True


@dataclass(frozen=True, slots=True)
class StateActions:
    """The action expected of a state and the system's operations on its document.

    No operation at all is a system that did nothing (`none`); `Unscored` is a system
    whose actions could not be seen.
    """

    state: int
    expected: Action
    operations: tuple[Operation, ...] | Unscored


@dataclass(frozen=True, slots=True)
class Confidence:
    """Expected confidence of a state, and that of the fact which best matches its new claims.

    `actual` is None when there is no such fact, which counts as 0.
    """

    state: int
    expected: float
    actual: float | Unscored | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """Authors expected of a fact group, and those of the fact that stands for it.

    An empty `actual` is a fact without authors, or no fact.
    """

    expected: frozenset[str]
    actual: frozenset[str] | Unscored


@dataclass(frozen=True, slots=True)
class Answer:
    """A judge's word on the answer to a question (index in the trajectory)."""

    question: int
    outcome: Verdict | Unscored

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, None when there is none."""
        return None if isinstance(self.outcome, Unscored) else self.outcome


@dataclass(frozen=True, slots=True)
class FactCount:
    """Active facts at the end against the groups that are expected.

    A low count is no merit by itself: it may be a loss. Both distances are None when
    the facts could not be counted.
    """

    active: int | Unscored
    expected: int

    @property
    def count(self) -> int | None:
        """Active facts."""
        return None if isinstance(self.active, Unscored) else self.active

    @property
    def surplus(self) -> int | None:
        """Active facts more (or, negative, fewer) than expected."""
        return None if isinstance(self.active, Unscored) else self.active - self.expected

    @property
    def gap(self) -> int | None:
        """The size of the difference."""
        return None if self.surplus is None else abs(self.surplus)


@dataclass(frozen=True, slots=True)
class TrajectoryRun:
    """All records of one system on one trajectory in one epoch.

    `gated` are verdicts whose candidates passed the cosine gate, `ungated` those of the
    nearest facts whatever their cosine; either may be empty. `retracted` are verdicts on
    claims that must be gone, over the active facts at the end. `category`, `level` and
    `domain` are the trajectory's.
    """

    trajectory: str
    category: str
    level: str
    domain: str
    epoch: int
    final_state: int
    gated: tuple[ClaimVerdict, ...] = ()
    ungated: tuple[ClaimVerdict, ...] = ()
    retracted: tuple[ClaimVerdict, ...] = ()
    actions: tuple[StateActions, ...] = ()
    facts: FactCount | None = None
    confidences: tuple[Confidence, ...] = ()
    attributions: tuple[Attribution, ...] = ()
    answers: tuple[Answer, ...] = ()


def of_state(verdicts: Sequence[ClaimVerdict], state: int) -> list[ClaimVerdict]:
    """The verdicts of one state."""
    return [v for v in verdicts if v.state == state]
