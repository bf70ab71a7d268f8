"""What a sound store does to a fact's confidence, and what it lets an older document do.

Source: the published reference system. It gives no numbers for its confidence
labels; those are ours, and so is the guard's second form.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from memprobe.evolution.spec import Action

CONFIDENCE = {"high": 0.9, "medium": 0.7, "low": 0.5}
"""Confidence of an observation by its label: decided, discussed, inferred."""
STEP = 0.1
"""What a corroboration adds to a fact's confidence."""


def reinforced(confidence: float, times: int = 1) -> float:
    """A confidence after corroborations: 0.1 more for each, 1 at most."""
    if times < 0:
        raise ValueError("a fact cannot be corroborated less than not at all")
    return min(1.0, round(confidence + STEP * times, 9))


class Guard(StrEnum):
    """What an observation older than a fact's last update may do to the fact.

    `STRICT` is the published rule: nothing but reinforce. `ENRICH` lets it add a detail
    (update), as the published out-of-order example expects, and replace nothing.
    """

    STRICT = "strict"
    ENRICH = "enrich"


def guarded(
    action: Action, observed: datetime, last_update: datetime, guard: Guard = Guard.STRICT
) -> Action:
    """The action that a decision becomes, by the times of observation and fact."""
    if observed >= last_update:
        return action
    if action is Action.SUPERSEDE or (action is Action.UPDATE and guard is Guard.STRICT):
        return Action.REINFORCE
    return action
