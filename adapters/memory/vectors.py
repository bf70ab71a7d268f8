"""A small exact vector index: texts by id, nearest first by squared L2 distance.

A store holds hundreds of texts, so that exact search is a matrix product. Rows
keep the order of insertion; an update keeps its row's place.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memprobe.errors import SnapshotError
from memprobe.ports import Embedder

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Hit:
    """A found row; `distance` is squared L2: 0 is equal, 2 unrelated, 4 opposite."""

    id: str
    text: str
    distance: float


class VectorIndex:
    """See the module. Equal texts are encoded by the embedder's own memory only once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._texts: dict[str, str] = {}
        self._rows: dict[str, Vectors] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, row_id: str) -> bool:
        return row_id in self._texts

    def ids(self) -> list[str]:
        """All ids in the order of insertion."""
        return list(self._texts)

    def text(self, row_id: str) -> str:
        """The indexed text; raises `KeyError`."""
        return self._texts[row_id]

    def row(self, row_id: str) -> Vectors:
        """The indexed text's unit vector, shape (dimensions,); raises `KeyError`."""
        return self._rows[row_id]

    async def embed(self, texts: Sequence[str]) -> list[Vectors]:
        """Unit vectors, each of shape (dimensions,)."""
        return [np.asarray(v, dtype=np.float32) for v in await self._embedder.encode(texts)]

    async def upsert(self, row_id: str, text: str) -> None:
        """Add a row, or replace its text and vector in its place."""
        (row,) = await self.embed([text])
        self.put(row_id, text, row)

    def put(self, row_id: str, text: str, row: Vectors) -> None:
        """As `upsert` with a vector at hand: nothing is awaited, so nothing can come between."""
        self._texts[row_id], self._rows[row_id] = text, row

    def delete(self, row_id: str) -> None:
        """Remove a row; one that is not there is no error."""
        self._texts.pop(row_id, None)
        self._rows.pop(row_id, None)

    async def nearest(self, query: str, k: int) -> list[Hit]:
        """At most `k` rows, nearest first; of equal distances the earlier row comes first."""
        if not self._texts or k < 1:
            return []
        (target,) = await self.embed([query])
        return self.closest(target, k)

    def closest(self, target: Vectors, k: int) -> list[Hit]:
        """As `nearest` with the query's vector at hand."""
        if not self._texts or k < 1:
            return []
        ids = self.ids()
        rows = np.stack([self._rows[i] for i in ids]).astype(np.float64)
        gaps = ((rows - target.astype(np.float64)) ** 2).sum(axis=1)
        best = np.argsort(gaps, kind="stable")[:k]
        return [Hit(ids[i], self._texts[ids[i]], float(gaps[i])) for i in best]

    def copy(self) -> VectorIndex:
        """A copy that changes on its own; texts and vectors are shared, being immutable."""
        other = VectorIndex(self._embedder)
        other._texts, other._rows = dict(self._texts), dict(self._rows)
        return other

    def dump_rows(self) -> tuple[bytes, bytes]:
        """Ids and texts as JSON lines, and the vectors as .npy; equal indexes, equal bytes."""
        lines = [
            json.dumps([i, t], ensure_ascii=False, separators=(",", ":")) + "\n"
            for i, t in self._texts.items()
        ]
        buffer = io.BytesIO()
        empty: Vectors = np.zeros((0, self._embedder.dimensions), dtype=np.float32)
        np.save(buffer, np.stack(list(self._rows.values())) if self._rows else empty)
        return "".join(lines).encode(), buffer.getvalue()

    def load_rows(self, texts: bytes, vectors: bytes) -> None:
        """Bring an empty index to what `dump_rows` gave; encodes nothing.

        Raises `SnapshotError` when the two do not belong together.
        """
        try:
            pairs = [json.loads(line) for line in texts.decode().split("\n")[:-1]]
            rows: Vectors = np.load(io.BytesIO(vectors), allow_pickle=False)
            loaded = {str(i): str(t) for i, t in pairs}
        except (ValueError, TypeError) as error:
            raise SnapshotError(f"unreadable vector index ({error})") from error
        if not len(pairs) == len(loaded) == len(rows):
            raise SnapshotError(f"{len(pairs)} texts and {len(rows)} vectors do not match")
        if len(rows) and rows.shape[1] != self._embedder.dimensions:
            raise SnapshotError(f"vectors of width {rows.shape[1]}")
        self._texts = loaded
        self._rows = {i: rows[n] for n, i in enumerate(loaded)}
