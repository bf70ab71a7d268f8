"""A search that gives thirty items whatever was asked for."""

from examples.my_memory import MyMemory
from memprobe import MemoryItem


class IgnoresK(MyMemory):
    async def search(self, query: str, k: int) -> list[MemoryItem]:
        return await super().search(query, 30)
