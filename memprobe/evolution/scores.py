"""All metrics of a trajectory in one record, and their means over groups and epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from memprobe import metrics as statistics
from memprobe.evolution import metrics
from memprobe.evolution.records import (
    NOTHING,
    Figure,
    TrajectoryRun,
    across,
    figure,
    of_state,
    pooled,
)

POOLED = frozenset({"action_accuracy", "action_accuracy_lenient", "update_recall", "false_updates"})
"""Metrics that are shares of states: a mean over all states, not over trajectories."""

METRICS = (
    "fact_accuracy",
    "fact_accuracy_ungated",
    "statewise_accuracy",
    "claim_coverage",
    "miss_rate",
    "gate_changes",
    "extrinsic",
    "action_accuracy",
    "action_accuracy_lenient",
    "update_recall",
    "false_updates",
    "fact_count",
    "fact_gap",
    "confidence_error",
    "author_error",
    "author_sets",
    "retracted_kept",
)
"""The metrics of a trajectory, in report order."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The metrics of one trajectory in one epoch by name (`METRICS`)."""

    trajectory: str
    category: str
    level: str
    domain: str
    epoch: int
    figures: dict[str, Figure]

    @property
    def intrinsic(self) -> float | None:
        """I: the gated fact accuracy of the final state."""
        return self.figures["fact_accuracy"].value

    @property
    def extrinsic(self) -> float | None:
        """E: the mean score of the answers."""
        return self.figures["extrinsic"].value


def score(run: TrajectoryRun) -> Scores:
    """Every metric of a trajectory; one that has no records behind it is a figure over nothing."""
    final = of_state(run.gated, run.final_state)
    facts = run.facts
    figures = {
        "fact_accuracy": metrics.fact_accuracy(run.gated, run.final_state),
        "fact_accuracy_ungated": metrics.fact_accuracy(run.ungated, run.final_state),
        "statewise_accuracy": metrics.statewise_accuracy(run.gated),
        "claim_coverage": metrics.claim_coverage(final),
        "miss_rate": metrics.miss_rate(final),
        "gate_changes": metrics.gate_changes(run.gated, run.ungated),
        "extrinsic": metrics.extrinsic(run.answers),
        "action_accuracy": metrics.action_accuracy(run.actions),
        "action_accuracy_lenient": metrics.action_accuracy(run.actions, lenient=True),
        "update_recall": metrics.update_recall(run.actions),
        "false_updates": metrics.false_updates(run.actions),
        "fact_count": NOTHING if facts is None else figure([facts.count]),
        "fact_gap": NOTHING if facts is None else figure([facts.gap]),
        "confidence_error": metrics.confidence_error(run.confidences),
        "author_error": metrics.author_error(run.attributions),
        "author_sets": metrics.author_sets(run.attributions),
        "retracted_kept": metrics.claim_coverage(run.retracted),
    }
    return Scores(run.trajectory, run.category, run.level, run.domain, run.epoch, figures)


def summarise(scores: Sequence[Scores]) -> dict[str, Figure]:
    """Every metric over trajectories: shares of states over all states, others as a mean of means.

    `attempted` counts states for `POOLED` metrics and trajectories for all others.
    """
    return {
        name: (pooled if name in POOLED else across)([s.figures[name] for s in scores])
        for name in METRICS
    }


def grouped(scores: Iterable[Scores], key: Callable[[Scores], str]) -> dict[str, list[Scores]]:
    """Scores by a key, in the order of the keys."""
    found: dict[str, list[Scores]] = {}
    for one in scores:
        found.setdefault(key(one), []).append(one)
    return dict(sorted(found.items()))


def by_category(scores: Iterable[Scores]) -> dict[str, dict[str, Figure]]:
    """`summarise` of each category."""
    return {k: summarise(v) for k, v in grouped(scores, lambda s: s.category).items()}


def by_level(scores: Iterable[Scores]) -> dict[str, dict[str, Figure]]:
    """`summarise` of each level."""
    return {k: summarise(v) for k, v in grouped(scores, lambda s: s.level).items()}


def by_domain(scores: Iterable[Scores]) -> dict[str, dict[str, Figure]]:
    """`summarise` of each domain."""
    return {k: summarise(v) for k, v in grouped(scores, lambda s: s.domain).items()}


@dataclass(frozen=True, slots=True)
class Spread:
    """A metric over epochs: the mean of the epochs' values and their sample standard deviation.

    `std` is None below two epochs with a value.
    """

    mean: float | None
    std: float | None
    epochs: int


def spread_of(values: Iterable[float | None]) -> Spread:
    """Mean and sample standard deviation of the epochs that have a value."""
    found = [v for v in values if v is not None]
    return Spread(statistics.mean(found), statistics.sample_std(found), len(found))


def over_epochs(scores: Iterable[Scores]) -> dict[str, Spread]:
    """Every metric of each epoch, then its mean and spread over the epochs."""
    epochs: dict[int, list[Scores]] = {}
    for one in scores:
        epochs.setdefault(one.epoch, []).append(one)
    each = [summarise(epochs[e]) for e in sorted(epochs)]
    return {name: spread_of(s[name].value for s in each) for name in METRICS}
