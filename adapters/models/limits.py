"""How many calls a provider takes at once, and who goes first.

The limit goes down when the provider says "too many", and up again after.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from enum import IntEnum
from types import TracebackType

from memprobe.types import Role


class Urgency(IntEnum):
    """Who waits for a call: a dialogue, a measurement, or nobody for a while."""

    DIALOGUE = 0
    NORMAL = 1
    BESIDE = 2


_URGENCY = {
    Role.ASSISTANT: Urgency.DIALOGUE,
    Role.SIMULATOR: Urgency.DIALOGUE,
    Role.MEMORY: Urgency.DIALOGUE,
    Role.ORACLE: Urgency.BESIDE,
    Role.PREFERENCE: Urgency.BESIDE,
}


def urgency_of(role: Role) -> Urgency:
    """A user's dialogue is a chain of hundreds of calls and decides how long a run takes."""
    return _URGENCY.get(role, Urgency.NORMAL)


class AdaptiveLimit:
    """A connection limit between 1 and `maximum`.

    Additive increase, multiplicative decrease. Rate limits of calls that were
    sent before the last decrease do not count again: one overload is one step.
    Of those who wait the more urgent go first, and within one urgency the first.
    Calls that nobody waits for have a quarter of the slots while there are others:
    their answers would arrive in bursts that hold the dialogues up.
    """

    DECREASE = 0.7
    INCREASE = 2.0

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.limit = float(maximum)
        self.peak = 0
        self._active = dict.fromkeys(Urgency, 0)
        self._waiting: dict[Urgency, deque[asyncio.Future[None]]] = {u: deque() for u in Urgency}
        self._generation = 0

    @property
    def active(self) -> int:
        """Slots that are taken."""
        return sum(self._active.values())

    async def acquire(self, urgency: Urgency = Urgency.NORMAL) -> int:
        """Wait for a slot; gives the generation to report back with."""
        if self._free(urgency) and not any(self._waiting[u] for u in Urgency if u <= urgency):
            self._take(urgency)
            return self._generation
        turn = asyncio.get_running_loop().create_future()
        self._waiting[urgency].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(urgency)
            else:
                # It may have been passed over already, between the cancelling and now.
                with contextlib.suppress(ValueError):
                    self._waiting[urgency].remove(turn)
                self._wake()
            raise
        return self._generation

    def _free(self, urgency: Urgency) -> bool:
        active, limit = self.active, int(self.limit)
        if active >= limit or urgency is not Urgency.BESIDE:
            return active < limit
        mine = self._active[urgency]
        alone = active == mine and not any(self._waiting[u] for u in Urgency if u < urgency)
        return alone or mine < max(1, limit // 4)

    def _take(self, urgency: Urgency) -> None:
        self._active[urgency] += 1
        self.peak = max(self.peak, self.active)

    def release(self, urgency: Urgency = Urgency.NORMAL) -> None:
        """Give a slot back."""
        self._active[urgency] -= 1
        self._wake()

    def _wake(self) -> None:
        for urgency, waiting in self._waiting.items():
            while waiting and self._free(urgency):
                turn = waiting.popleft()
                if not turn.done():
                    self._take(urgency)
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

    def __init__(self, limit: AdaptiveLimit, urgency: Urgency = Urgency.NORMAL) -> None:
        self._limit = limit
        self._urgency = urgency
        self.generation = 0

    async def __aenter__(self) -> Slot:
        self.generation = await self._limit.acquire(self._urgency)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limit.release(self._urgency)
