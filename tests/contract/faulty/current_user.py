"""The store of the moment in a global: right in sequence, wrong side by side."""

from examples.my_memory import MyMemory
from memprobe import Event, MemoryItem, Scope

CURRENT: dict[str, list[MemoryItem]] = {}


class CurrentUser(MyMemory):
    async def open(self, scope: Scope) -> None:
        await super().open(scope)
        CURRENT["items"] = self._kept()

    async def write(self, event: Event) -> None:
        mine, self.items = self._kept(), CURRENT["items"]
        try:
            await super().write(event)
        finally:
            self.items = mine
