"""Declares whole sessions and can only take messages."""

from examples.my_memory import MyMemory
from memprobe import Capabilities, Event


class RefusesSessions(MyMemory):
    capabilities = Capabilities(documents=True, sessions=True)

    async def write(self, event: Event) -> None:
        assert event.role  # type: ignore[union-attr]
        await super().write(event)
