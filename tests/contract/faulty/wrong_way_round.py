"""Distances handed out as scores: the nearest item comes last."""

from examples.my_memory import MyMemory
from memprobe import MemoryItem


class WrongWayRound(MyMemory):
    async def search(self, query: str, k: int) -> list[MemoryItem]:
        best = await super().search(query, k)
        return [item.model_copy(update={"score": 1.0 + place}) for place, item in enumerate(best)]
