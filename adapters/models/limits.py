"""How many calls a provider takes at once: down when it says "too many", up again after."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType


class AdaptiveLimit:
    """A connection limit between 1 and `maximum`.

    Additive increase, multiplicative decrease. Rate limits of calls that were
    sent before the last decrease do not count again: one overload is one step.
    """

    DECREASE = 0.7
    INCREASE = 2.0

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.limit = float(maximum)
        self.active = 0
        self.peak = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._generation = 0

    async def acquire(self) -> int:
        """Wait for a slot, first come first served; gives the generation to report back with."""
        if self.active >= int(self.limit) or self._waiting:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.release()
                else:
                    # It may have been passed over already, between the cancelling and now.
                    with contextlib.suppress(ValueError):
                        self._waiting.remove(turn)
                raise
        else:
            self._take()
        return self._generation

    def _take(self) -> None:
        self.active += 1
        self.peak = max(self.peak, self.active)

    def release(self) -> None:
        """Give a slot back."""
        self.active -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.active < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self._take()
                turn.set_result(None)

    def succeeded(self) -> None:
        """An attempt went through: open up by a fraction of a slot."""
        if self.limit < self.maximum:
            self.limit = min(float(self.maximum), self.limit + self.INCREASE / self.limit)
            self._wake()

    def overloaded(self, generation: int) -> None:
        """The provider refused an attempt as too many."""
        if generation == self._generation:
            self._generation += 1
            self.limit = max(1.0, self.limit * self.DECREASE)


class Slot:
    """`async with Slot(limit) as slot`: one connection, held for one attempt."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self._limit = limit
        self.generation = 0

    async def __aenter__(self) -> Slot:
        self.generation = await self._limit.acquire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limit.release()
