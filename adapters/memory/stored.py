"""Search of a finished run's items, without the store that they came from.

`longctx_full` ranks what its dump returns by the cosine of single texts, so its
search can be made again from the dump alone, for any query and any k. The search of
the other systems needs their store, and is not imitated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adapters.memory.longctx import LongContext
from adapters.memory.notes import Vectors, cosines, nearest_first
from memprobe.ports import Embedder
from memprobe.types import MemoryItem

SEARCHABLE = frozenset({LongContext.name})
"""Systems whose search follows from their dump."""


class StoredNotes:
    """The items of one `longctx_full` store at its end, in the order of its dump."""

    def __init__(self, embedder: Embedder, items: Sequence[MemoryItem]) -> None:
        self._embedder = embedder
        self._items = list(items)
        self._vectors: Vectors | None = None

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """The `k` nearest items with their cosine, as the system itself ranks them."""
        if self._vectors is None:
            rows = await self._embedder.encode([item.content for item in self._items])
            shape = (len(self._items), self._embedder.dimensions)
            self._vectors = np.asarray(rows, dtype=np.float32).reshape(shape)
        target = np.asarray((await self._embedder.encode([query]))[0], dtype=np.float32)
        scores = cosines(self._vectors, target)
        return [
            self._items[place].model_copy(update={"score": float(scores[place])})
            for place in nearest_first(scores, k)
        ]
