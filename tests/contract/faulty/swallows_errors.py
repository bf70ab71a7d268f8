"""Whatever goes wrong is printed away."""

from pathlib import Path

from examples.my_memory import MyMemory
from memprobe import Event


class SwallowsErrors(MyMemory):
    async def write(self, event: Event) -> None:
        try:
            await super().write(event)
        except RuntimeError as error:
            print(error)

    async def restore(self, directory: Path) -> None:
        if (directory / "items.json").exists():
            await super().restore(directory)
