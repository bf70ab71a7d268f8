"""A dump that stops at a library's default page."""

from examples.my_memory import MyMemory
from memprobe import MemoryItem


class CappedDump(MyMemory):
    async def dump(self) -> list[MemoryItem]:
        return (await super().dump())[:20]
