"""Keeps an identical message once and does not say so."""

from examples.my_memory import MyMemory
from memprobe import Event


class MergesDuplicates(MyMemory):
    async def write(self, event: Event) -> None:
        if all(item.content != event.text for item in self._kept()):
            await super().write(event)
