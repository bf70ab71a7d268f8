"""The floor: an assistant without any memory."""

from __future__ import annotations

from pathlib import Path

from memprobe.errors import AdapterError, SnapshotError
from memprobe.ports import Capabilities
from memprobe.systems import SystemCard
from memprobe.types import Event, MemoryItem, Scope

MARKER = "nomem.json"
EMPTY = b'{"memories":[],"num_memories":0}\n'


class NoMemory:
    """Keeps nothing: `dump` and `search` are empty whatever was written."""

    capabilities = Capabilities(
        top_k=False, event_time=False, documents=True, stores=False, verbatim=False
    )
    card = SystemCard(
        name="nomem",
        title="No memory",
        summary="Keeps nothing; every conversation starts from the task alone.",
        licence="Apache-2.0",
        capabilities=capabilities,
        retrieve=False,
        reply_access="none",
    )

    def __init__(self) -> None:
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise AdapterError("nomem: the store is not open")

    async def open(self, scope: Scope) -> None:
        """Nothing to prepare."""
        self._open = True

    async def write(self, event: Event) -> None:
        """Forgets the event."""
        self._check()

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """Always empty."""
        self._check()
        return []

    async def dump(self) -> list[MemoryItem]:
        """Always empty."""
        self._check()
        return []

    async def save(self, directory: Path) -> None:
        """Writes a marker, so that a restore can tell a snapshot from an empty folder."""
        self._check()
        (directory / MARKER).write_bytes(EMPTY)

    async def restore(self, directory: Path) -> None:
        """Checks the marker; raises `SnapshotError` when it is not there."""
        self._check()
        marker = directory / MARKER
        if not marker.is_file() or marker.read_bytes() != EMPTY:
            raise SnapshotError(f"{directory} holds no snapshot of nomem")

    async def close(self) -> None:
        """Nothing to release."""
        self._open = False
