"""One list for all users."""

from typing import ClassVar

from examples.my_memory import MyMemory
from memprobe import MemoryItem, Scope


class SharedStore(MyMemory):
    everyone: ClassVar[list[MemoryItem]] = []

    async def open(self, scope: Scope) -> None:
        self.items = self.everyone
