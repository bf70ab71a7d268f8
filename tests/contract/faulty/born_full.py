"""A store that starts with a greeting in it."""

from datetime import UTC, datetime

from examples.my_memory import MyMemory
from memprobe import MemoryItem, Scope


class BornFull(MyMemory):
    async def open(self, scope: Scope) -> None:
        hello = MemoryItem(id="0", content="Hello!", event_time=datetime(2020, 1, 1, tzinfo=UTC))
        self.items = [hello]
