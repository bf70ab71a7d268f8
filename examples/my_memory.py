"""A complete memory system in one small file; `memprobe check` passes it."""

import json
import re
from pathlib import Path

from memprobe import Capabilities, Event, MemoryItem, Scope, SnapshotError, UnsupportedEvent


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class MyMemory:
    """Keeps every message and finds those that share most words with the query."""

    capabilities = Capabilities(documents=True)

    async def open(self, scope: Scope) -> None:
        self.items: list[MemoryItem] | None = []

    def _kept(self) -> list[MemoryItem]:
        if self.items is None:
            raise RuntimeError("the store is closed")
        return self.items

    async def write(self, event: Event) -> None:
        try:
            event.text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UnsupportedEvent(f"not valid Unicode: {error}") from error
        number = len(self._kept()) + 1
        item = MemoryItem(id=str(number), content=event.text, event_time=event.event_time)
        self._kept().append(item)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        asked = words(query)
        shared = {item.id: len(asked & words(item.content)) for item in self._kept()}
        best = sorted(self._kept(), key=lambda item: -shared[item.id])[:k]
        return [item.model_copy(update={"score": float(shared[item.id])}) for item in best]

    async def dump(self) -> list[MemoryItem]:
        return list(self._kept())

    async def save(self, directory: Path) -> None:
        rows = [item.model_dump(mode="json") for item in self._kept()]
        (directory / "items.json").write_text(json.dumps(rows), encoding="utf-8")

    async def restore(self, directory: Path) -> None:
        try:
            rows = json.loads((directory / "items.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SnapshotError(f"no usable snapshot in {directory}: {error}") from error
        self.items = [MemoryItem.model_validate(row) for row in rows]

    async def close(self) -> None:
        self.items = None
