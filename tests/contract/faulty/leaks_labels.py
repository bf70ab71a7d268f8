"""The harness's session id inside the remembered text."""

from examples.my_memory import MyMemory
from memprobe import Event


class LeaksLabels(MyMemory):
    async def write(self, event: Event) -> None:
        text = f"[{event.session_id}] {event.text}"
        await super().write(event.model_copy(update={"text": text}))
