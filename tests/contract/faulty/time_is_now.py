"""The moment of ingestion in place of the moment of the event."""

from datetime import UTC, datetime

from examples.my_memory import MyMemory
from memprobe import Event


class TimeIsNow(MyMemory):
    async def write(self, event: Event) -> None:
        await super().write(event.model_copy(update={"event_time": datetime.now(UTC)}))
