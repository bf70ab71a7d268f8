"""Unicode composed on the way in: two different texts become one."""

import unicodedata

from examples.my_memory import MyMemory
from memprobe import Event


class NormalisesText(MyMemory):
    async def write(self, event: Event) -> None:
        text = unicodedata.normalize("NFC", event.text)
        await super().write(event.model_copy(update={"text": text}))
