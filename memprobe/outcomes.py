"""What a measurement ends in: a value, or the reason why there is none.

An error is never a score. A scored item is `Scored`; everything else is
`Unscored` with a reason from a closed list, and stays out of every mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why an item has no score."""

    PROVIDER_ERROR = "provider_error"
    TIMEOUT = "timeout"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    INVALID_OUTPUT = "invalid_output"
    STORE_OVERFLOW = "store_overflow"
    ADAPTER_ERROR = "adapter_error"
    DATASET_ERROR = "dataset_error"
    NOT_JUDGED = "not_judged"
    """The chosen model cannot judge this at all (the embedded profile and preferences)."""


RETRIED = frozenset({Reason.PROVIDER_ERROR, Reason.TIMEOUT, Reason.ADAPTER_ERROR})
"""Reasons that may have passed by the next time: a resumed run tries these items again."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A finite value on the item's declared scale."""

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a score must be finite, not {self.value!r}")


@dataclass(frozen=True, slots=True)
class Unscored:
    """No value, and why."""

    reason: Reason
    detail: str = ""


Outcome = Scored | Unscored


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what was attempted could be scored."""

    scored: int
    total: int

    @property
    def share(self) -> float | None:
        """scored / total; None when nothing was attempted."""
        return self.scored / self.total if self.total else None
