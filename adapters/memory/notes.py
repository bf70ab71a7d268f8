"""A log of notes: what the systems that keep every message verbatim share.

A note's text follows the published long-context baseline: `[Task k] ...` for
the message that opens an episode, then `Agent: ...` and `User: ...`; a turn's
number is that of the reply it holds or reacts to. A document is kept as
`[author, date] text`.

Vectors are made in the background from the moment a note is written, so that
encoding runs beside the dialogue and in the embedder's batches. They are awaited
where they are needed: by a search and by a snapshot.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from adapters.memory.refusals import check_text
from adapters.memory.snapshots import read_snapshot, write_snapshot
from memprobe.errors import AdapterError, SnapshotError, UnsupportedEvent
from memprobe.ports import Embedder
from memprobe.systems import Services
from memprobe.types import DocumentEvent, Event, MemoryItem, MessageEvent, Scope, SessionEvent

NOTES, VECTORS = "notes.jsonl", "vectors.npy"
BATCH = 64
"""Texts per request to the embedder; a close waits for one request at most."""
Vectors = npt.NDArray[np.float32]


def cosines(notes: Vectors, query: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Cosine of unit vectors of shape (notes, dimensions) with that of a query, shape (notes,)."""
    scores: npt.NDArray[np.float64] = (notes.astype(np.float64) * query.astype(np.float64)).sum(1)
    return scores


def nearest_first(scores: npt.NDArray[np.float64], k: int) -> list[int]:
    """Places of the `k` best scores, best first; of equal scores the earlier comes first."""
    order: list[int] = np.argsort(-scores, kind="stable")[:k].tolist()
    return order


@dataclass(frozen=True, slots=True)
class Note:
    """One kept message or document. `kind` is task, agent_reply, user_reply or document."""

    text: str
    kind: str
    event_time: datetime
    task_index: int | None = None
    turn: int | None = None
    author: str | None = None

    def fields(self) -> dict[str, JsonValue]:
        """The item's native fields, under the published names."""
        named: dict[str, JsonValue] = {
            "category": self.kind,
            "task_index": self.task_index,
            "turn": self.turn,
            "author": self.author,
        }
        return {key: value for key, value in named.items() if value is not None}

    def row(self) -> dict[str, Any]:
        """As a snapshot keeps it."""
        return {**self.fields(), "text": self.text, "event_time": self.event_time.isoformat()}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Note:
        """The inverse of `row`; raises `KeyError`, `TypeError` or `ValueError`."""
        return cls(
            text=str(row["text"]),
            kind=str(row["category"]),
            event_time=datetime.fromisoformat(row["event_time"]),
            task_index=row.get("task_index"),
            turn=row.get("turn"),
            author=row.get("author"),
        )


class NoteLog:
    """Base of the systems that keep every message as a note, in order.

    A subclass sets `name`, says which notes can be seen (`visible`) and ranks
    them (`rank`).
    """

    name = "notes"

    def __init__(self, services: Services) -> None:
        self.services = services
        self._embedder: Embedder = services.embedder
        self._notes: list[Note] = []
        self._rows: list[npt.NDArray[np.float32]] = []
        self._encoder: asyncio.Task[None] | None = None
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise AdapterError(f"{self.name}: the store is not open")

    async def open(self, scope: Scope) -> None:
        """An empty log; it lives in this object alone, so no other scope can be seen in it."""
        if self._open:
            raise AdapterError(f"{self.name}: the store is open already")
        self._notes, self._rows, self._encoder = [], [], None
        self._open = True

    async def write(self, event: Event) -> None:
        """Keep an event as one note; refuses text that is not valid Unicode and unknown roles."""
        self._check()
        check_text(self.name, event.text)
        self._notes.append(self._note(event))
        self._start_encoder()

    def _start_encoder(self) -> asyncio.Task[None]:
        if self._encoder is None or self._encoder.done():
            self._encoder = asyncio.create_task(self._encode())
        return self._encoder

    async def _encode(self) -> None:
        while self._open and len(self._rows) < len(self._notes):
            start = len(self._rows)
            texts = [note.text for note in self._notes[start : start + BATCH]]
            encoded = await self._embedder.encode(texts)
            self._rows += [np.asarray(row, dtype=np.float32) for row in encoded]

    def _note(self, event: Event) -> Note:
        if isinstance(event, DocumentEvent):
            day = event.event_time.date().isoformat()
            text = f"[{event.author}, {day}] {event.text}"
            return Note(text, "document", event.event_time, author=event.author)
        if isinstance(event, SessionEvent):
            raise UnsupportedEvent("a session is written message by message here")
        return self._message(event)

    def _message(self, event: MessageEvent) -> Note:
        episode = event.episode or None
        earlier = [n for n in self._notes if n.task_index == episode and n.kind != "document"]
        replies = sum(n.kind == "agent_reply" for n in earlier)
        match event.role:
            case "user" if episode is not None and not earlier:
                text = f"[Task {episode}] {event.text}"
                return Note(text, "task", event.event_time, episode)
            case "user":
                text, kind, turn = f"User: {event.text}", "user_reply", replies
            case "assistant":
                text, kind, turn = f"Agent: {event.text}", "agent_reply", replies + 1
            case _:
                raise UnsupportedEvent(f"{self.name}: no message of role {event.role!r} is kept")
        return Note(text, kind, event.event_time, episode, turn)

    def visible(self) -> list[int]:
        """Positions of the notes that a dump or a search can return, in order."""
        return list(range(len(self._notes)))

    async def rank(self, query: str, positions: Sequence[int]) -> npt.NDArray[np.float64]:
        """One score a position, higher is nearer."""
        raise NotImplementedError

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """The `k` best notes, nearest first; of equal scores the earlier note comes first."""
        self._check()
        if k < 1:
            raise AdapterError(f"{self.name}: k is {k}, at least 1 is needed")
        positions = self.visible()
        if not positions:
            return []
        scores = await self.rank(query, positions)
        return [self._item(positions[i], float(scores[i])) for i in nearest_first(scores, k)]

    async def dump(self) -> list[MemoryItem]:
        """Every visible note in the order of writing."""
        self._check()
        return [self._item(position) for position in self.visible()]

    def _item(self, position: int, score: float | None = None) -> MemoryItem:
        note = self._notes[position]
        return MemoryItem(
            id=f"n{position + 1:06d}",
            content=note.text,
            event_time=note.event_time,
            score=score,
            fields=note.fields(),
        )

    def text(self, position: int) -> str:
        """The text of a note."""
        return self._notes[position].text

    async def vectors(self) -> Vectors:
        """Unit vectors of all notes, shape (notes, dimensions); waits for those under way."""
        while len(self._rows) < len(self._notes):
            encoder = self._start_encoder()
            # `wait` and not `await`: a search that is cancelled must not stop the encoder.
            await asyncio.wait([encoder])
            encoder.result()
            self._check()
        if not self._rows:
            return np.zeros((0, self._embedder.dimensions), dtype=np.float32)
        return np.stack(self._rows)

    async def cosine(self, query: str, positions: Sequence[int]) -> npt.NDArray[np.float64]:
        """Cosine of the query with the notes at these positions."""
        target = np.asarray((await self._embedder.encode([query]))[0], dtype=np.float32)
        return cosines((await self.vectors())[list(positions)], target)

    async def save(self, directory: Path) -> None:
        """Write notes, vectors and an index with their hashes; equal logs give equal bytes."""
        self._check()
        lines = [
            json.dumps(n.row(), ensure_ascii=False, sort_keys=True) + "\n" for n in self._notes
        ]
        notes = "".join(lines).encode()
        buffer = io.BytesIO()
        np.save(buffer, (await self.vectors())[: len(lines)], allow_pickle=False)
        write_snapshot(
            directory,
            self.name,
            self._embedder.name,
            len(lines),
            {NOTES: notes, VECTORS: buffer.getvalue()},
        )

    async def restore(self, directory: Path) -> None:
        """Read a snapshot; encodes nothing. Raises `SnapshotError` when any part is off."""
        self._check()
        if self._notes:
            raise SnapshotError(f"{self.name}: only an empty store can be restored")
        count, parts = read_snapshot(directory, self.name, self._embedder.name, (NOTES, VECTORS))
        notes, vectors = parts[NOTES], parts[VECTORS]
        try:
            loaded = [Note.from_row(json.loads(line)) for line in notes.decode().split("\n")[:-1]]
            rows: Vectors = np.load(io.BytesIO(vectors), allow_pickle=False)
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"{directory}: unreadable snapshot ({error})") from error
        if not len(loaded) == len(rows) == count:
            raise SnapshotError(
                f"{directory}: {count} notes announced, {len(loaded)} notes and "
                f"{len(rows)} vectors found"
            )
        self._notes, self._rows = loaded, list(rows)

    async def close(self) -> None:
        """Drop the log. A batch under way is waited for: others may share it."""
        self._open = False
        if self._encoder is not None:
            await asyncio.gather(self._encoder, return_exceptions=True)
        self._notes, self._rows, self._encoder = [], [], None
