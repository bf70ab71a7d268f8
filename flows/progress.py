"""How far a run is: counters that stages raise and displays read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment. `stages` maps (stage, system) to (done, total) units."""

    stages: dict[tuple[str, str], tuple[int, int]]
    calls: int
    hits: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    elapsed_s: float
    message: str

    @property
    def eta_s(self) -> float | None:
        """Seconds left at the pace so far; None before the first finished unit."""
        done = sum(d for d, _ in self.stages.values())
        total = sum(t for _, t in self.stages.values())
        return self.elapsed_s * (total - done) / done if done else None


@dataclass
class Progress:
    """Thread-safe counters of one run in this process."""

    _stages: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _usage: Callable[[], tuple[int, int, int, int, float | None]] | None = None
    _message: str = ""
    _started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, stage: str, system: str, total: int, done: int = 0) -> None:
        """Set how many units a stage has for a system, and how many were there already."""
        with self._lock:
            self._stages[(stage, system)] = [done, total]

    def finish(self, stage: str, system: str) -> None:
        """One more unit of a stage is done."""
        with self._lock:
            self._stages.setdefault((stage, system), [0, 0])[0] += 1

    def say(self, message: str) -> None:
        """What the run is doing now, in a few words."""
        with self._lock:
            self._message = message

    def watch(self, usage: Callable[[], tuple[int, int, int, int, float | None]]) -> None:
        """Where calls, hits, prompt tokens, completion tokens and dollars are read from."""
        self._usage = usage

    def snapshot(self) -> Snapshot:
        """The counters now."""
        calls, hits, prompt, completion, cost = self._usage() if self._usage else (0, 0, 0, 0, None)
        with self._lock:
            stages = {key: (done, total) for key, (done, total) in self._stages.items()}
            return Snapshot(
                stages,
                calls,
                hits,
                prompt,
                completion,
                cost,
                time.monotonic() - self._started,
                self._message,
            )


_current = Progress()


def current() -> Progress:
    """The progress of the run in this process; flows that a worker starts have one too."""
    return _current


def install(progress: Progress) -> None:
    """Make a display's progress the one that stages report to."""
    global _current
    _current = progress
