"""cognee, through its own library (extra `cognee`, Apache-2.0).

A session is one `add` and one `cognify`: its text is cut into chunks, and a model
makes of each a graph of things and facts and a summary. Graph (Ladybug), vectors
(LanceDB) and SQLite are embedded; model and embedder are asked through the run's
door (https://github.com/topoteretes/cognee).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from adapters.memory import cognee_library
from adapters.memory.cognee_engine import Engine, Row
from adapters.memory.refusals import check_text, models_for, pass_over
from adapters.memory.snapshots import read_snapshot, write_snapshot
from memprobe.errors import (
    AdapterError,
    MemProbeError,
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
    MessageEvent,
    Protocol,
    Scope,
)

NAME = "cognee"
INSTALL = "pip install 'memprobe-audit[cognee]'"
STORE, RECORDS = "store.tar.gz", "records.json"
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


class CogneeOptions(SystemOptions):
    """cognee's options.

    `search` is what a search gives: edges of the graph, as published, or raw chunks.
    `chunk_tokens` is the length of a chunk. `dates` puts a session's time at the head
    of its text. `store` is whose messages are kept when they come one by one; a
    session is always taken in whole.
    """

    temperature: float = Field(default=0.0, ge=0, le=2)
    search: Literal["graph", "chunks"] = "graph"
    chunk_tokens: int = Field(default=512, ge=64, le=100_000)
    dates: bool = False
    store: Literal["user", "both"] = "user"


@dataclass(slots=True)
class Record:
    """What we keep of a node or an edge: its place, the session that last changed it, its hash."""

    ordinal: int
    event_time: str
    session_id: str
    digest: str


class Cognee:
    """A knowledge graph of what was said, with chunks and summaries."""

    Options = CogneeOptions
    capabilities = Capabilities(
        needs_llm=True,
        needs_embedder=True,
        verbatim=False,
        documents=True,
        sessions=True,
        derives=True,
    )
    card = SystemCard(
        name=NAME,
        title="cognee",
        summary="a knowledge graph that cognee's library makes of each session",
        licence="Apache-2.0",
        capabilities=capabilities,
        process="own",
        extra="cognee",
        package="cognee",
        probe_access=AccessMode.RETRIEVE,
        probe_k=15,
        per_message=ModelWork(calls=2.0, prompt_tokens=850, completion_tokens=200),
        score_scale="none for edges of the graph; chunks: cosine similarity, -1 to 1",
        notes=(
            "tried with cognee 1.6.5, its embedded Ladybug 0.19.0 and LanceDB 0.39.0",
            "published with gemini-2.5-flash inside; here the run's memory model and embedder",
            "published as a search of the graph for context alone, 15 edges, no answer made",
            "two calls a chunk, a graph and a summary (850 tokens each and the chunk's text, "
            "measured; answers assumed); a session has a chunk for each chunk_tokens of it",
            "dumps and the graph hold the session's own text, too: its chunks are nodes",
            "a thing or fact has the time of the session that last changed it",
            "assistants' messages that come one by one are not stored unless store=both",
        ),
    )

    def __init__(self, services: Services) -> None:
        given = services.options
        self._services = services
        self._options = given if isinstance(given, CogneeOptions) else CogneeOptions()
        self._strict = services.protocol is Protocol.STRICT
        self._engine: Engine | None = None
        self._records: dict[str, Record] = {}
        self._rows: dict[str, Row] = {}
        self._made = 0
        self._turn = asyncio.Lock()

    async def open(self, scope: Scope) -> None:
        """An empty store in a folder of its own, which `close` removes.

        Raises `MissingPrerequisite` when the library or a model is missing, and
        `AdapterError` when another store of this process is open.
        """
        if self._engine is not None:
            raise AdapterError(f"{NAME}: the store is open already")
        models = models_for(
            NAME, self._services, installed=cognee_library.installed(), install=INSTALL
        )
        wire = cognee_library.Wire(
            models, self._services.embedder.dimensions, self._options.temperature, self._strict
        )
        try:
            self._engine = Engine(wire, self._options.chunk_tokens)
        except MemProbeError:
            raise
        except Exception as error:
            raise AdapterError(f"{NAME}: the library did not start: {error!r}") from error
        self._records, self._rows, self._made = {}, {}, 0

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AdapterError(f"{NAME}: the store is not open")
        return self._engine

    async def write(self, event: Event) -> None:
        """Hand a session, a message or a document to cognee as one text.

        An assistant's message that comes alone is passed over unless `store=both`.
        Raises `CallFailed` when a model call failed or its answer could not be
        read; under the published protocol both are logged and forgotten.
        """
        engine = self._opened()
        text = _text(event, self._options)
        if text is None:
            return
        async with self._turn:
            try:
                await engine.add(text)
            except MemProbeError as error:
                self._swallow(error, "a write")
            finally:
                self._note(event, await engine.rows())

    def _note(self, event: Event, rows: list[Row]) -> None:
        """Give what this event made or changed its time, and an id in an order of our own."""
        when = event.event_time.isoformat()
        for row in sorted(rows, key=lambda row: (not row.kind, row.kind, row.content, row.key)):
            digest = hashlib.sha256(row.content.encode("utf-8", "replace")).hexdigest()[:16]
            record = self._records.get(row.key)
            if record is None:
                self._made += 1
                self._records[row.key] = Record(self._made, when, event.session_id, digest)
            elif record.digest != digest:
                record.event_time, record.session_id = when, event.session_id
                record.digest = digest
        self._rows = {row.key: row for row in rows}
        for key in set(self._records) - set(self._rows):
            del self._records[key]

    def _swallow(self, error: MemProbeError, doing: str) -> None:
        """Raise, but go on as the published procedure did under its protocol."""
        pass_over(NAME, doing, error, strict=self._strict)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` edges of the graph with the nodes they join, or chunks; best first."""
        engine = self._opened()
        if k < 1 or not query.strip():
            return []
        async with self._turn:
            try:
                found = await engine.search(query, k, self._options.search)
            except MemProbeError as error:
                self._swallow(error, "search")
                return []
        return [self._item(hit.key, hit.kind, hit.content, hit.score) for hit in found]

    async def dump(self) -> list[MemoryItem]:
        """All things, facts, chunks and summaries; `AdapterError` unless proven to be all."""
        engine = self._opened()
        async with self._turn:
            rows = await engine.rows()
        if {row.key for row in rows} != self._records.keys():
            raise AdapterError(
                f"{NAME}: {len(rows)} nodes and edges in the store, {len(self._records)} are known"
            )
        rows.sort(key=lambda row: self._records[row.key].ordinal)
        return [self._item(row.key, row.kind, row.content) for row in rows if row.kind]

    def _item(self, key: str, kind: str, content: str, score: float | None = None) -> MemoryItem:
        record = self._records.get(key)
        if record is None:
            raise AdapterError(f"{NAME} gave a {kind} that it never stored: {ascii(content)[:200]}")
        fields: dict[str, JsonValue] = {"kind": kind, "session_id": record.session_id}
        return MemoryItem(
            id=f"c{record.ordinal:06d}",
            content=content,
            event_time=datetime.fromisoformat(record.event_time),
            score=score,
            fields=fields,
        )

    async def save(self, directory: Path) -> None:
        """The store's databases and files, and our record of what is in them."""
        engine = self._opened()
        async with self._turn:
            raw = await engine.state()
        records = {key: asdict(record) for key, record in self._records.items()}
        state = {"made": self._made, "texts": engine.texts, "records": records}
        kept = json.dumps(state, sort_keys=True)
        parts = {STORE: raw, RECORDS: kept.encode()}
        write_snapshot(directory, NAME, self._services.embedder.name, len(records), parts)

    async def restore(self, directory: Path) -> None:
        """Bring back a saved store; asks no model and embeds nothing."""
        engine = self._opened()
        if self._records:
            raise SnapshotError(f"{NAME}: only an empty store can be restored")
        embedder = self._services.embedder.name
        count, parts = read_snapshot(directory, NAME, embedder, (STORE, RECORDS))
        try:
            kept = json.loads(parts[RECORDS])
            records = {str(key): Record(**row) for key, row in kept["records"].items()}
            made, texts = int(kept["made"]), int(kept["texts"])
            if len(records) != count:
                raise ValueError(f"{count} nodes and edges announced, {len(records)} found")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SnapshotError(f"{directory}: unreadable snapshot ({error})") from error
        engine.load(parts[STORE], texts)
        self._records, self._made = records, made
        self._rows = {row.key: row for row in await engine.rows()}

    async def close(self) -> None:
        """Close the library's databases and remove the store's folder; safe to call twice."""
        engine, self._engine = self._engine, None
        self._records, self._rows = {}, {}
        if engine is not None:
            await engine.close()


def _text(event: Event, options: CogneeOptions) -> str | None:
    """An event as the text that is added; None for what is passed over.

    A text never begins as it was written: cognee takes one that looks like a path
    or an address for a file to read. Raises `UnsupportedEvent`.
    """
    check_text(NAME, event.text)
    moment = event.event_time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    if isinstance(event, DocumentEvent):
        return f"[{event.author}, {moment}] {event.text}"
    if isinstance(event, MessageEvent):
        if event.role not in _SPEAKERS:
            raise UnsupportedEvent(f"{NAME}: no message of role {event.role!r} is kept")
        if event.role == "assistant" and options.store == "user":
            return None
        text = f"{_SPEAKERS[event.role]}: {event.text}"
    else:
        for message in event.messages:
            if message.role not in (*_SPEAKERS, "tool_output"):
                raise UnsupportedEvent(f"{NAME}: no message of role {message.role!r} is kept")
        text = event.text
    return f"This took place on {moment} UTC.\n{text}" if options.dates else text
