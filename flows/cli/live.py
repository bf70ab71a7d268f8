"""The live display of a run: a table on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.progress import Progress, Snapshot

REFRESH_S = 0.5
PLAIN_EVERY_S = 5.0


def money(dollars: float | None) -> str:
    """US dollars; an unknown price is unknown, not 0."""
    return "unknown" if dollars is None else f"${dollars:,.2f}"


def duration(seconds: float | None) -> str:
    """Seconds as h, m and s."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} m"


def grid(snapshot: Snapshot) -> tuple[list[str], list[list[str]]]:
    """Column names and rows, a row for each stage and a column for each system."""
    systems = sorted({system for _, system in snapshot.stages}, key=lambda s: (s != "", s))
    stages = list(dict.fromkeys(stage for stage, _ in snapshot.stages))
    rows = []
    for stage in stages:
        counts = [snapshot.stages.get((stage, system)) for system in systems]
        rows.append([stage, *("" if c is None else f"{c[0]}/{c[1]}" for c in counts)])
    return ["stage", *(system or "all" for system in systems)], rows


def footer(snapshot: Snapshot) -> str:
    """Calls, tokens, money and time in one line."""
    return (
        f"calls {snapshot.calls:,} · ledger {snapshot.hits:,} · "
        f"tokens {snapshot.prompt_tokens:,} in, {snapshot.completion_tokens:,} out · "
        f"{money(snapshot.cost_usd)} · {duration(snapshot.elapsed_s)} · "
        f"left {duration(snapshot.eta_s)}"
    )


def line(snapshot: Snapshot) -> str:
    """The whole state as one plain line."""
    if not snapshot.stages:
        return snapshot.message or "starting"
    stages: dict[str, list[int]] = {}
    for (stage, _), (done, total) in snapshot.stages.items():
        entry = stages.setdefault(stage, [0, 0])
        entry[0] += done
        entry[1] += total
    units = ", ".join(f"{stage} {done}/{total}" for stage, (done, total) in stages.items())
    return f"{units} · {footer(snapshot)}"


class Display:
    """Shows a progress until the block ends."""

    def __init__(self, progress: Progress, run: str) -> None:
        self._progress = progress
        self._run = run
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Any = None
        self._last: object = None

    def __enter__(self) -> Display:
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal:
            from rich.live import Live

            self._live = Live(
                console=console, get_renderable=self._table, refresh_per_second=1 / REFRESH_S
            )
            self._live.start()
        else:
            self._thread = threading.Thread(target=self._print, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self.tell()

    def _print(self) -> None:
        while not self._stop.wait(PLAIN_EVERY_S):
            self.tell()

    def tell(self) -> None:
        """One line, when anything has changed since the last one."""
        snapshot = self._progress.snapshot()
        state: tuple[object, ...] = (tuple(snapshot.stages.items()), snapshot.calls, snapshot.hits)
        if not snapshot.stages:
            state = (snapshot.message,)
        if state != self._last:
            self._last = state
            print(f"{self._run}: {line(snapshot)}", file=sys.stderr, flush=True)

    def _table(self) -> Any:
        from rich.box import SIMPLE
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        snapshot = self._progress.snapshot()
        title = Text(f"run {self._run}: {snapshot.message}", overflow="ellipsis", no_wrap=True)
        if not snapshot.stages:
            return title
        columns, rows = grid(snapshot)
        table = Table(box=SIMPLE)
        for i, column in enumerate(columns):
            table.add_column(Text(column), justify="left" if i == 0 else "right")
        for row in rows:
            table.add_row(*(Text(value) for value in row))
        return Group(title, table, Text(footer(snapshot)))
