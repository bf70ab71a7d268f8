"""Stopping before the call that would pass `--max-cost`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adapters.models.prices import Price
from memprobe.errors import BudgetExceeded, UsageError

TYPICAL_COMPLETION = 512
REREAD_S = 1.0
"""How old the ledger's sum may be while other processes spend for the same run."""


class Budget:
    """What a run has spent and has in flight, in US dollars, against its limit (None: no limit)."""

    def __init__(self, limit: float | None, spent: Callable[[], float]) -> None:
        self.limit = limit
        self.spent = spent() if limit is not None else 0.0
        self.reserved = 0.0
        self.shared = False
        """Other processes spend for the run too; what they have in flight is not known here."""
        self._recorded = spent
        self._read_at = time.monotonic()

    def _reread(self) -> None:
        if self.shared and time.monotonic() - self._read_at >= REREAD_S:
            self.spent = self._recorded()
            self._read_at = time.monotonic()

    @contextmanager
    def reserve(
        self, model: str, price: Price | None, tokens: Callable[[], int], completion: int | None
    ) -> Iterator[None]:
        """Hold the estimated cost of one call while it is in flight.

        Raises `BudgetExceeded` when it does not fit, `UsageError` when the model's
        price is unknown: an unknown price is not zero.
        """
        if self.limit is None:
            yield
            return
        if price is None:
            raise UsageError(
                f"the price of {model!r} is unknown, so --max-cost cannot be kept; "
                "leave --max-cost out or choose a model that litellm has a price for"
            )
        self._reread()
        estimate = price.estimate(tokens(), completion or TYPICAL_COMPLETION) if _paid(price) else 0
        total = self.spent + self.reserved + estimate
        if total > self.limit:
            raise BudgetExceeded(
                f"the next call of {model} (about ${estimate:.4f}) would pass the limit of "
                f"${self.limit:.2f}: ${self.spent:.4f} spent, ${self.reserved:.4f} in flight. "
                "All finished calls are kept; resume with a higher --max-cost"
            )
        self.reserved += estimate
        try:
            yield
        finally:
            self.reserved = max(0.0, self.reserved - estimate)

    def pay(self, cost: float | None) -> None:
        """Book a finished call."""
        self.spent += cost or 0.0


def _paid(price: Price) -> bool:
    return price.prompt > 0 or price.completion > 0
