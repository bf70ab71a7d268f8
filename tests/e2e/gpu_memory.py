"""A plug-in whose card names the gpu pool; it notes in which process it was opened."""

from __future__ import annotations

import json
import os
from pathlib import Path

from memprobe import Capabilities, Event, MemoryItem, Scope, SnapshotError
from memprobe.systems import SystemCard


def leave_note(user: str) -> None:
    """One line in the file that the test named, if it did."""
    note = os.environ.get("GPU_MEMORY_NOTE")
    if note:
        row = {"pool": os.environ.get("TEST_POOL"), "pid": os.getpid(), "user": user}
        with Path(note).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


class GpuMemory:
    """Keeps every message; searching finds the newest."""

    capabilities = Capabilities()
    card = SystemCard(
        name="gpu_memory",
        title="GPU memory",
        summary="Stands in for a system that needs a GPU.",
        licence="Apache-2.0",
        capabilities=capabilities,
        pool="gpu",
    )

    async def open(self, scope: Scope) -> None:
        """Note where this process was started."""
        self.items: list[MemoryItem] = []
        leave_note(scope.user)

    async def write(self, event: Event) -> None:
        """Keep the event."""
        number = str(len(self.items) + 1)
        item = MemoryItem(id=number, content=event.text, event_time=event.event_time)
        self.items.append(item)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """The newest k."""
        return self.items[-k:][::-1]

    async def dump(self) -> list[MemoryItem]:
        """All of them, oldest first."""
        return list(self.items)

    async def save(self, directory: Path) -> None:
        """One JSON file."""
        rows = [item.model_dump(mode="json") for item in self.items]
        (directory / "items.json").write_text(json.dumps(rows), encoding="utf-8")

    async def restore(self, directory: Path) -> None:
        """Read it back."""
        try:
            rows = json.loads((directory / "items.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SnapshotError(f"no usable snapshot in {directory}: {error}") from error
        self.items = [MemoryItem.model_validate(row) for row in rows]

    async def close(self) -> None:
        """Nothing to release."""
