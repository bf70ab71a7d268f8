"""How far a command is that works through a run's stores: one line on stderr."""

from __future__ import annotations

import sys
import time

from flows.cli.live import duration
from flows.cli.output import note, plain

LIVE_EVERY_S = 0.1
PLAIN_EVERY_S = 5.0


class Steps:
    """A line that is written over, or one every few seconds where nobody watches."""

    def __init__(self, what: str = "stores") -> None:
        self._what = what
        self._live = sys.stderr.isatty()
        self._started = self._last = time.monotonic()

    def __call__(self, done: int, total: int, name: str) -> None:
        """So many of all are done; `name` is the last of them."""
        now = time.monotonic()
        ended = done == total
        if not ended and now - self._last < (LIVE_EVERY_S if self._live else PLAIN_EVERY_S):
            return
        self._last = now
        passed = now - self._started
        left = (
            f", about {duration(passed * (total - done) / done)} left" if 0 < done < total else ""
        )
        line = f"memprobe: {done}/{total} {self._what}, {plain(name)[:60]}{left}"
        if self._live:
            print(f"\r\033[K{line}", end="\n" if ended else "", file=sys.stderr, flush=True)
        else:
            note(line)
