"""The five collections: rows with their sources, and the vectors that find them.

A document is the memory's text and, below a separator line, the messages it came
from; the whole of it is embedded. Vectors are made when they are needed, in one
batch: a summary that is rewritten with every message is encoded when somebody
searches it or a snapshot is taken, not each time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from adapters.memory.vectors import VectorIndex, Vectors
from memprobe.errors import SnapshotError
from memprobe.ports import Embedder

TURNS, FACTS, EXPERIENCES = "turns", "facts", "experiences"
PERSONAS, SUMMARY = "personas", "summary"
COLLECTIONS = (TURNS, FACTS, EXPERIENCES, PERSONAS, SUMMARY)

SEPARATOR = "----- ORIGINAL SOURCE -----"
DUMMY_ID = "_init_dummy_id_"
DUMMY_TEXT = "This is a placeholder of a collection in which nothing was stored yet."


def document(memory: str, sources: Sequence[str]) -> str:
    """What is stored and embedded: the memory, and the messages it came from."""
    if not sources:
        return memory
    joined = "\n".join(sources)
    return f"{memory}\n\n{SEPARATOR}\n{joined}"


def split_document(text: str) -> tuple[str, str]:
    """The memory and the sources of a document; the first separator counts."""
    memory, _, sources = text.partition(f"\n\n{SEPARATOR}\n")
    return memory, sources


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `metadata` is what is native to it; it is never changed in place.

    A turn has no `memory_content` in its metadata and no sources: it is one.
    """

    id: str
    memory: str
    event_time: datetime | None
    sources: tuple[str, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def document(self) -> str:
        return document(self.memory, self.sources)

    @property
    def is_dummy(self) -> bool:
        return self.id == DUMMY_ID

    def text(self, name: str) -> str:
        """A text of the metadata; "" when there is none."""
        value = self.metadata.get(name)
        return value if isinstance(value, str) else ""

    def list(self, name: str) -> list[JsonValue]:
        """A list of the metadata; empty when there is none."""
        value = self.metadata.get(name)
        return list(value) if isinstance(value, list) else []

    def as_json(self) -> dict[str, Any]:
        """As a snapshot keeps it."""
        return {
            "id": self.id,
            "memory": self.memory,
            "event_time": self.event_time.isoformat() if self.event_time else None,
            "sources": list(self.sources),
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Row:
        """The inverse; raises `KeyError`, `TypeError` or `ValueError`."""
        when = row["event_time"]
        return cls(
            id=str(row["id"]),
            memory=str(row["memory"]),
            event_time=datetime.fromisoformat(when) if when is not None else None,
            sources=tuple(str(source) for source in row["sources"]),
            metadata=dict(row["metadata"]),
        )


class Collection:
    """Rows by id in the order of insertion; an update keeps its row's place."""

    def __init__(self, index: VectorIndex) -> None:
        self._index = index
        self._rows: dict[str, Row] = {}
        self._pending: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[Row]:
        """All rows, dummies included."""
        return list(self._rows.values())

    def get(self, row_id: str) -> Row | None:
        """The row of that id."""
        return self._rows.get(row_id)

    def upsert(self, row: Row) -> None:
        """Add a row, or replace the one of its id."""
        self._rows[row.id] = row
        self._pending[row.id] = row.document

    def delete(self, row_id: str) -> None:
        """Remove a row; one that is not there is no error."""
        self._rows.pop(row_id, None)
        self._pending.pop(row_id, None)
        self._index.delete(row_id)

    async def encode(self, *more: str) -> list[Vectors]:
        """Make the vectors that are still missing, in one batch with those of `more`."""
        pending = dict(self._pending)
        texts = [*pending.values(), *more]
        if not texts:
            return []
        vectors = await self._index.embed(texts)
        for (row_id, text), vector in zip(pending.items(), vectors, strict=False):
            # Another search may have been here meanwhile.
            if self._pending.get(row_id) == text:
                self._index.put(row_id, text, vector)
                del self._pending[row_id]
        return vectors[len(pending) :]

    async def nearest(self, query: str, k: int) -> list[Row]:
        """At most `k` rows, nearest first by squared L2."""
        if len(self._rows) <= 1 or k < 1:
            return self.rows()[: max(k, 0)]
        (target,) = await self.encode(query)
        return [self._rows[hit.id] for hit in self._index.closest(target, k)]

    def copy(self) -> Collection:
        """A copy that changes on its own."""
        other = Collection(self._index.copy())
        other._rows, other._pending = dict(self._rows), dict(self._pending)
        return other

    async def parts(self, name: str) -> dict[str, bytes]:
        """The collection as named bytes; equal collections, equal bytes."""
        await self.encode()
        lines = [
            json.dumps(row.as_json(), ensure_ascii=False, sort_keys=True) + "\n"
            for row in self._rows.values()
        ]
        texts, vectors = self._index.dump_rows()
        return {
            f"{name}.rows.jsonl": "".join(lines).encode(),
            f"{name}.texts.jsonl": texts,
            f"{name}.vectors.npy": vectors,
        }

    @staticmethod
    def names(name: str) -> tuple[str, str, str]:
        """The names under which `parts` gives its bytes."""
        return f"{name}.rows.jsonl", f"{name}.texts.jsonl", f"{name}.vectors.npy"

    def load(self, rows: bytes, texts: bytes, vectors: bytes) -> None:
        """Bring an empty collection to what `parts` gave; encodes nothing.

        Raises `SnapshotError` when the parts do not belong together.
        """
        try:
            # Not `splitlines`, which also cuts at line separators inside a text.
            lines = rows.decode().split("\n")[:-1]
            loaded = [Row.from_json(json.loads(line)) for line in lines]
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"unreadable rows ({error!r})") from error
        self._index.load_rows(texts, vectors)
        if self._index.ids() != [row.id for row in loaded]:
            raise SnapshotError("rows and vectors are not of the same items")
        self._rows = {row.id: row for row in loaded}


@dataclass(slots=True)
class State:
    """One store: the collections, the running summary and personas, and the counters.

    A write works on a copy and puts it in place at its end, so that one that
    fails leaves nothing behind.
    """

    collections: dict[str, Collection]
    summary: str = ""
    personas: dict[str, str] = field(default_factory=dict)
    turns: int = 0
    ordinal: int = 0

    @classmethod
    def empty(cls, embedder: Embedder) -> State:
        """Five empty collections."""
        return cls({name: Collection(VectorIndex(embedder)) for name in COLLECTIONS})

    def __getitem__(self, name: str) -> Collection:
        return self.collections[name]

    def copy(self) -> State:
        """A copy that changes on its own."""
        return State(
            {name: found.copy() for name, found in self.collections.items()},
            self.summary,
            dict(self.personas),
            self.turns,
            self.ordinal,
        )

    def next_ordinal(self) -> int:
        """Numbers what gets an id; the same number again after a restore."""
        self.ordinal += 1
        return self.ordinal

    def items(self) -> list[tuple[str, Row]]:
        """Collection and row of everything stored, in the dump's order; no dummies."""
        return [
            (name, row)
            for name in COLLECTIONS
            for row in self.collections[name].rows()
            if not row.is_dummy
        ]

    def add_dummies(self) -> None:
        """The published fault: reading an empty collection stores a placeholder in it."""
        for found in self.collections.values():
            if not len(found):
                found.upsert(Row(DUMMY_ID, DUMMY_TEXT, None))

    def as_json(self) -> dict[str, Any]:
        """All but the collections, as a snapshot keeps it."""
        return {
            "summary": self.summary,
            "personas": self.personas,
            "turns": self.turns,
            "ordinal": self.ordinal,
        }
