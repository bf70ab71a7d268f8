"""A-MEM behind the port.

Written from a description of the variant that the published recovery benchmark
runs; no line and no prompt of its source is in here. `docs/systems/amem.md` says
what is written when and where `strict` departs from what was published.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeGuard

from pydantic import Field, JsonValue, ValidationError

from adapters.memory.amem.evolution import Evolved, evolve
from adapters.memory.amem.model import Analyst, cleaned
from adapters.memory.amem.note import DEFAULT_CONTEXT, Note, note_id, timestamp
from adapters.memory.calls import DoorClient
from adapters.memory.refusals import check_text
from adapters.memory.snapshots import read_snapshot, write_snapshot
from adapters.memory.vectors import VectorIndex
from memprobe.errors import (
    AdapterError,
    BudgetExceeded,
    CallFailed,
    SnapshotError,
    UnsupportedEvent,
)
from memprobe.ports import Capabilities
from memprobe.systems import ModelWork, Services, SystemCard, SystemOptions
from memprobe.types import (
    AccessMode,
    DocumentEvent,
    Event,
    MemoryItem,
    Protocol,
    Scope,
    SessionEvent,
)

NAME = "amem"
SESSION = "session"
"""The category of a note that is a whole session."""

NOTES, INDEXED, TEXTS, VECTORS, STATE = (
    "notes.jsonl",
    "indexed.jsonl",
    "texts.jsonl",
    "vectors.npy",
    "state.json",
)


class Options(SystemOptions):
    """What can be set. `evo_threshold` is in evolutions, `neighbours` in notes.

    `reindex_on_evolve`: an evolved neighbour is found by its new words at once;
    off, the index keeps every note as it was first inserted. `store`: the user's
    messages, as published, or the assistant's as well.
    """

    evo_threshold: int = Field(default=100, ge=1)
    reindex_on_evolve: bool = True
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    neighbours: int = Field(default=5, ge=1)
    store: Literal["user", "both"] = "user"

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """The release samples at 1.0, and its index never sees an evolution."""
        return {"reindex_on_evolve": False, "temperature": 1.0}


class AMem:
    """Every user message is a note that a model describes, links and lets change its neighbours."""

    name = NAME
    Options = Options
    capabilities = Capabilities(needs_llm=True, needs_embedder=True, documents=True, sessions=True)
    card = SystemCard(
        name=NAME,
        title="A-MEM",
        summary="Messages as linked notes; a model describes each and lets its neighbours evolve.",
        licence="Apache-2.0",
        capabilities=capabilities,
        probe_access=AccessMode.RETRIEVE,
        probe_k=15,
        per_message=ModelWork(calls=2.0, prompt_tokens=650, completion_tokens=110),
        score_scale=(
            "1 - d/2 for the squared L2 distance d of unit vectors, which is their cosine: "
            "1 equal, 0 unrelated, -1 opposite; d itself is in the item's fields"
        ),
        notes=(
            "Clean-room, from a description of the release variant of A-MEM (Xu et al. 2025); "
            "prompts are our own.",
            "Under paper an evolution never reaches the index, links are unchecked, and a failed "
            "call leaves defaults or no evolution, all as published; strict mends these.",
            "Timestamps are the event's under both protocols; the published ones are wall clock.",
            "A session is one note, as in the published paradigms run. Under paper its type is the "
            "note's category and first tag, and a search prints the whole note, tags included: "
            "the type reaches the reader, as published.",
        ),
    )

    def __init__(self, services: Services) -> None:
        self._published = services.protocol is Protocol.PAPER
        given = services.options
        if not isinstance(given, Options):
            given = Options.model_validate(Options.published() if self._published else {})
        self.options = given
        self._embedder = services.embedder
        self._client = DoorClient(services.models)
        self._analyst = Analyst(self._client, given.temperature, published=self._published)
        self._writing = asyncio.Lock()
        self._open = False
        self._clear()

    def _clear(self) -> None:
        self._notes: dict[str, Note] = {}
        self._indexed: dict[str, Note] = {}
        self._index = VectorIndex(self._embedder)
        self._evolutions = 0

    def _check(self) -> None:
        if not self._open:
            raise AdapterError(f"{NAME}: the store is not open")

    async def open(self, scope: Scope) -> None:
        """An empty store; it lives in this object alone, so no other scope can be seen in it."""
        if self._open:
            raise AdapterError(f"{NAME}: the store is open already")
        self._clear()
        self._open = True

    async def write(self, event: Event) -> None:
        """Store a message as a note: one call for the first of a store, two for any other.

        The note and all it changes are taken over together at the end, so that a
        failed write leaves the store as it was. Raises `UnsupportedEvent` for text
        that is not valid Unicode and for unknown roles, and `CallFailed` when the
        model gives no usable answer (under `paper` the published defaults instead).
        """
        self._check()
        content = _content(event)
        async with self._writing:
            category = self._category(event)
            if category is None:
                return
            note = Note(
                id=note_id(len(self._notes) + 1),
                content=content,
                event_time=event.event_time,
                session=event.session_id,
                timestamp=timestamp(event.event_time),
                category=category,
                tags=(event.label,) if self._labelled(event) else (),
                whole=isinstance(event, SessionEvent),
            )
            await self._take_over(await self._constructed(note))

    def _category(self, event: Event) -> str | None:
        """The published category of a message; None for one that is not stored."""
        if isinstance(event, DocumentEvent):
            return "document"
        if isinstance(event, SessionEvent):
            return event.label if self._labelled(event) else SESSION
        match event.role:
            case "user":
                known = any(note.session == event.session_id for note in self._notes.values())
                return "user" if known else "task"
            case "assistant":
                return "assistant" if self.options.store == "both" else None
        raise UnsupportedEvent(f"{NAME}: no message of role {event.role!r} is kept")

    def _labelled(self, event: Event) -> TypeGuard[SessionEvent]:
        """Whether the note is filed under what the session was designed to be, as published."""
        return self._published and isinstance(event, SessionEvent) and bool(event.label)

    async def _constructed(self, note: Note) -> Evolved:
        note = await self._described(note)
        hits = await self._index.nearest(note.content, self.options.neighbours)
        if not hits:
            return Evolved(note)
        # What the index holds is shown: under `reindex_on_evolve` that is the live note.
        lines = [self._indexed[hit.id].line(decoded=self._published) for hit in hits]
        try:
            decision = await self._analyst.decide(note, lines)
        except CallFailed as failure:
            return Evolved(self._passed_over(note, "evolution", failure))
        neighbours = [self._notes[hit.id] for hit in hits]
        number = self._evolutions + 1
        return evolve(note, neighbours, decision, number, published=self._published)

    async def _described(self, note: Note) -> Note:
        try:
            found = await self._analyst.analyse(note.content)
        except CallFailed as failure:
            return self._passed_over(note, "analysis", failure)
        keywords, context, tags = found.keywords, found.context, found.tags
        if not self._published:
            keywords, tags = cleaned(keywords), cleaned(tags)
            context = context.strip() or DEFAULT_CONTEXT
        update = {"keywords": keywords, "context": context, "tags": note.tags or tags}
        return note.model_copy(update=update)

    def _passed_over(self, note: Note, call: str, failure: CallFailed) -> Note:
        """The note as it stands, which is what the published code goes on with; strict raises."""
        if not self._published or isinstance(failure, BudgetExceeded):
            raise failure
        mark = f"{call}: {failure.reason.value}"
        return note.model_copy(update={"defaulted": (*note.defaulted, mark)})

    async def _take_over(self, evolved: Evolved) -> None:
        note = evolved.note
        live = {**self._notes, **{n.id: n for n in evolved.changed}, note.id: note}
        evolutions, consolidate = self._evolutions, False
        if mark := note.evolution:
            evolutions = mark.number
            consolidate = evolutions % self.options.evo_threshold == 0
            mark = mark.model_copy(update={"consolidated": consolidate})
            note = live[note.id] = note.model_copy(update={"evolution": mark})
        stale = self._stale(live, note, evolved.changed, consolidate)
        rows = await self._index.embed([text for _, text in stale])
        self._check()
        # Nothing is awaited from here on: the write happens as a whole.
        for (known, text), row in zip(stale, rows, strict=True):
            self._index.put(known.id, text, row)
        self._notes = live
        self._indexed[note.id] = note
        if self.options.reindex_on_evolve:
            changed = live.values() if consolidate else evolved.changed
            self._indexed.update((n.id, n) for n in changed)
        self._evolutions = evolutions

    def _stale(
        self, live: Mapping[str, Note], note: Note, changed: Sequence[Note], consolidate: bool
    ) -> list[tuple[Note, str]]:
        """The notes whose text in the index is to change, with the new text.

        A consolidation adds every note to the index again. The published index
        passes over ids that it has, so that without `reindex_on_evolve` the new
        note alone gets in.
        """
        again: Sequence[Note] = ()
        if self.options.reindex_on_evolve:
            again = list(live.values()) if consolidate else changed
        todo = {n.id: (n, n.embedded_text()) for n in (*again, note)}
        return [
            (n, text)
            for n, text in todo.values()
            if n.id not in self._index or self._index.text(n.id) != text
        ]

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """The `k` nearest notes as they are now, nearest first; linked notes are not added."""
        self._check()
        if k < 1:
            raise AdapterError(f"{NAME}: k is {k}, at least 1 is needed")
        notes = self._notes
        found = []
        for hit in await self._index.nearest(query, k):
            item = _item(notes[hit.id])
            fields = {**item.fields, "distance": hit.distance}
            update: dict[str, object] = {"score": 1.0 - hit.distance / 2.0, "fields": fields}
            if self._published:
                fields["category"] = ""
                if notes[hit.id].whole:
                    update["content"] = notes[hit.id].printed()
            found.append(item.model_copy(update=update))
        return found

    async def dump(self) -> list[MemoryItem]:
        """Every note in the order of insertion."""
        self._check()
        return [_item(note) for note in self._notes.values()]

    async def save(self, directory: Path) -> None:
        """Write the notes, the notes as indexed, texts and vectors; equal stores, equal bytes."""
        self._check()
        texts, vectors = self._index.dump_rows()
        # Most notes are indexed as they are; only the others are written twice.
        behind = [n for n in self._indexed.values() if n != self._notes[n.id]]
        state = json.dumps({"evolutions": self._evolutions}, sort_keys=True) + "\n"
        parts = {
            NOTES: _lines(self._notes.values()),
            INDEXED: _lines(behind),
            TEXTS: texts,
            VECTORS: vectors,
            STATE: state.encode(),
        }
        write_snapshot(directory, NAME, self._embedder.name, len(self._notes), parts)

    async def restore(self, directory: Path) -> None:
        """Read a snapshot; encodes nothing. Raises `SnapshotError` when any part is off."""
        self._check()
        if self._notes:
            raise SnapshotError(f"{NAME}: only an empty store can be restored")
        names = (NOTES, INDEXED, TEXTS, VECTORS, STATE)
        count, parts = read_snapshot(directory, NAME, self._embedder.name, names)
        index = VectorIndex(self._embedder)
        index.load_rows(parts[TEXTS], parts[VECTORS])
        try:
            notes = _notes(parts[NOTES])
            indexed = {**notes, **_notes(parts[INDEXED])}
            evolutions = int(json.loads(parts[STATE])["evolutions"])
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"{directory}: unreadable snapshot ({error})") from error
        texts = {i: note.embedded_text() for i, note in indexed.items()}
        if len(notes) != count or {i: index.text(i) for i in index.ids()} != texts:
            raise SnapshotError(
                f"{directory}: {count} notes announced, {len(notes)} notes and {len(index)} "
                "indexed texts found, which do not belong together"
            )
        self._notes, self._indexed, self._index = notes, indexed, index
        self._evolutions = evolutions

    async def close(self) -> None:
        """Drop the notes and the connection to the model."""
        self._open = False
        self._clear()
        await self._client.close()


def _content(event: Event) -> str:
    """The raw text of a message; a document's has its author and day before it."""
    text = event.text
    if isinstance(event, DocumentEvent):
        text = f"[{event.author}, {event.event_time.date().isoformat()}] {text}"
    check_text(NAME, text)
    return text


def _item(note: Note) -> MemoryItem:
    return MemoryItem(
        id=note.id, content=note.content, event_time=note.event_time, fields=note.fields()
    )


def _lines(notes: Iterable[Note]) -> bytes:
    # Notes of messages keep the form they had before sessions came in.
    rows = (note.model_dump_json(exclude=None if note.whole else {"whole"}) for note in notes)
    return "".join(row + "\n" for row in rows).encode()


def _notes(raw: bytes) -> dict[str, Note]:
    found = (Note.model_validate_json(line) for line in raw.decode().split("\n")[:-1])
    return {note.id: note for note in found}
