"""When a failed attempt is tried again, and after how long."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapters.models.provider import FaultKind, ProviderFault

RETRYABLE = frozenset(
    {FaultKind.RATE_LIMIT, FaultKind.SERVER, FaultKind.CONNECTION, FaultKind.TIMEOUT}
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter; a provider's Retry-After is the lower bound.

    `attempts` counts failures other than rate limits: being told to wait is no
    sign of a broken provider, so rate limits end only at the deadline, which is
    `deadline_factor` times the attempt timeout. Times in seconds. `sleep`,
    `clock` and `rng` are replaceable so that tests need not wait.
    """

    attempts: int = 6
    base_s: float = 0.5
    cap_s: float = 30.0
    retry_after_cap_s: float = 120.0
    deadline_factor: float = 5.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)

    def gives_up(self, fault: ProviderFault, failures: int) -> bool:
        """No further attempt after this fault; `failures` includes it unless it is a rate limit."""
        return fault.kind not in RETRYABLE or failures >= self.attempts

    def delay(self, fault: ProviderFault, failed: int) -> float:
        """Seconds to wait before the attempt that follows `failed` failed ones."""
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(failed - 1, 16))
        if fault.retry_after_s is not None:
            told = min(max(fault.retry_after_s, 0.0), self.retry_after_cap_s)
            return told + self.rng.uniform(0.0, min(ceiling, 0.1 * told + 0.05))
        return self.rng.uniform(0.5 * ceiling, ceiling)
