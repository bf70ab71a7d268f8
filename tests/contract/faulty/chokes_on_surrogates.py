"""Text that is not valid Unicode ends in a bare UnicodeEncodeError."""

from examples.my_memory import MyMemory
from memprobe import Event


class ChokesOnSurrogates(MyMemory):
    async def write(self, event: Event) -> None:
        event.text.encode("utf-8")
        await super().write(event)
