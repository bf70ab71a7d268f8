"""A snapshot that only the process that wrote it can read."""

from pathlib import Path

from examples.my_memory import MyMemory
from memprobe import MemoryItem, SnapshotError

SAVED: dict[str, list[MemoryItem]] = {}


class ProcessBound(MyMemory):
    async def save(self, directory: Path) -> None:
        SAVED[str(directory)] = await self.dump()

    async def restore(self, directory: Path) -> None:
        if str(directory) not in SAVED:
            raise SnapshotError("never seen")
        self.items = list(SAVED[str(directory)])
