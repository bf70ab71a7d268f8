"""What the scorer takes and gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memprobe.paradigms.spec import Condition, Episode, Probe, ProbeType
from memprobe.types import Protocol

ERROR_MARK = "[ERROR:"
"""How a published report marks a call that failed, in place of an answer."""


class Match(StrEnum):
    """A verdict. `PARTIAL` counts as wrong in accuracy and is reported beside it.

    `SKIP` (nothing to compare with) and `EXECUTION_ERROR` (no readable answer)
    are no verdicts on the memory and enter no metric.
    """

    CORRECT = "correct"
    PARTIAL = "partial"
    INCORRECT = "incorrect"
    SKIP = "skip"
    EXECUTION_ERROR = "execution_error"

    @property
    def scored(self) -> bool:
        """Whether the verdict counts in metrics."""
        return self in (Match.CORRECT, Match.PARTIAL, Match.INCORRECT)


@dataclass(frozen=True, slots=True)
class ConflictKey:
    """The conflicting value, its source and status as in the gold, and what holds instead.

    `label` tells the source in words ("her colleague Dov"), when the gold does.
    """

    value: str
    source: str
    status: str
    remains: str
    applies: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class TemporalKey:
    """The structured gold of a temporal probe; published probes have it in part only."""

    old: str
    new: str
    trigger: str
    reason: str


@dataclass(frozen=True, slots=True)
class Key:
    """What is true for one probe.

    `initial` and `new` are the canonical values of the fact; `gold` is the gold
    answer in words, empty when there is none. An imported suite may have gold
    values that differ from the canonical ones.
    """

    probe_type: ProbeType
    gold: str
    condition: Condition
    initial: str
    new: str
    conflict: ConflictKey | None = None
    temporal: TemporalKey | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A verdict with the parts it was made of (True: that part is right) and why."""

    match: Match
    reason: str
    parts: Mapping[str, bool] = field(default_factory=dict)


def key_of(episode: Episode, probe: Probe) -> Key:
    """The key of an episode's probe."""
    spec, gold = episode.spec, episode.spec.gold
    conflict = temporal = None
    if gold.conflict is not None:
        conflict = ConflictKey(
            gold.conflict.value,
            gold.conflict.source.value,
            gold.conflict.status.value,
            gold.current_value,
            label=gold.conflict.source_label,
        )
    if gold.temporal is not None:
        temporal = TemporalKey(
            spec.initial_value, spec.new_value, gold.temporal.trigger, gold.temporal.reason
        )
    return Key(
        probe.probe_type,
        probe.gold_answer,
        spec.condition,
        spec.initial_value,
        spec.new_value,
        conflict,
        temporal,
    )


_PART = re.compile(
    r"\b(value|source|status|applicability)=(true|false|correct|incorrect)\b", re.IGNORECASE
)


def parts_of_reason(reason: str) -> dict[str, bool]:
    """A conflict's parts from the reason of an older published row, which lacks them apart."""
    found = _PART.findall(reason)
    return {name.lower(): said.lower() in ("true", "correct") for name, said in found}


def unscorable(key: Key, predicted: str) -> Score | None:
    """The score of what cannot be compared at all, or None when it can."""
    if predicted.lstrip().startswith(ERROR_MARK):
        return Score(Match.EXECUTION_ERROR, predicted.strip())
    if not key.gold.strip() or key.gold.strip() == "None":
        return Score(Match.SKIP, "the probe has no gold answer")
    return None


def score(key: Key, predicted: str, protocol: Protocol = Protocol.STRICT) -> Score:
    """Score a reader's text under a protocol."""
    from memprobe.paradigms.scoring import paper, strict

    if protocol is Protocol.PAPER:
        return paper.score(key, predicted)
    return strict.score(key, predicted)
