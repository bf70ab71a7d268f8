"""A restore that reads the snapshot and keeps nothing of it."""

from pathlib import Path

from examples.my_memory import MyMemory


class ForgetsOnRestore(MyMemory):
    async def restore(self, directory: Path) -> None:
        await super().restore(directory)
        self.items = []
