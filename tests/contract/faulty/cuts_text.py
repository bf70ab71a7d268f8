"""Long messages cut to what an encoder reads."""

from examples.my_memory import MyMemory
from memprobe import Event


class CutsText(MyMemory):
    async def write(self, event: Event) -> None:
        await super().write(event.model_copy(update={"text": event.text[:8000]}))
