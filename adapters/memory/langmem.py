"""LangMem, through its own library (extra `langmem`, MIT).

A conversation is one `ainvoke` of its store manager: the nearest memories are
looked up, and the model adds, patches and removes memories by tool calls. They
live in langgraph's in-memory store; model and embedder are asked through the
run's door (https://github.com/langchain-ai/langmem).
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, JsonValue

from adapters.memory import langmem_engine
from adapters.memory.langmem_engine import Engine, text_of
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

NAME = "langmem"
INSTALL = "pip install 'memprobe-audit[langmem]'"
MEMORIES, VECTORS, STATE = "memories.jsonl", "vectors.npy", "state.json"


class LangMemOptions(SystemOptions):
    """LangMem's options.

    `query_limit` is how many memories the model sees when it takes a conversation
    in (the nearest to its last message), `max_steps` how often it may go over it.
    `dates` tells it when a conversation took place. `store` is whose messages are
    kept when they come one by one; a session is always taken in whole.
    """

    temperature: float = Field(default=0.0, ge=0, le=2)
    query_limit: int = Field(default=5, ge=4, le=1000)
    max_steps: int = Field(default=1, ge=1, le=20)
    deletes: bool = True
    dates: bool = False
    store: Literal["user", "both"] = "user"


@dataclass(slots=True)
class Record:
    """What we keep of a memory beside the library: its place, and the sessions that made it."""

    ordinal: int
    event_time: str
    session_id: str
    created_in: str
    changes: int = 0
    author: str = ""


class LangMem:
    """Memories that a model keeps in order by tool calls, session by session."""

    Options = LangMemOptions
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
        title="LangMem",
        summary="memories that a model adds, patches and removes, by LangMem's library",
        licence="MIT",
        capabilities=capabilities,
        extra="langmem",
        package="langmem",
        probe_access=AccessMode.DUMP_ALL,
        per_message=ModelWork(calls=1.0, prompt_tokens=2100, completion_tokens=120),
        score_scale="cosine similarity, -1 to 1",
        notes=(
            "tried with langmem 0.0.30, langgraph 1.2.24 and langchain-openai 1.7.4",
            "published with gemini-2.5-flash inside; here the run's memory model and embedder",
            "published with every memory shown, whatever was asked: the paradigms suite does so",
            "a session is one call (2,100 tokens and its own text, measured; answers assumed), "
            "more when the model has to repair an edit",
            "what the model sees of the memories are the 5 nearest to a session's last message, "
            "the library's default",
            "a memory has the time of the session that last changed it; LangMem keeps none itself",
            "assistants' messages that come one by one are not stored unless store=both",
        ),
    )

    def __init__(self, services: Services) -> None:
        given = services.options
        self._services = services
        self._options = given if isinstance(given, LangMemOptions) else LangMemOptions()
        self._strict = services.protocol is Protocol.STRICT
        self._engine: Engine | None = None
        self._records: dict[str, Record] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._made = 0
        self._writes = asyncio.Lock()

    async def open(self, scope: Scope) -> None:
        """An empty store in this object.

        Raises `MissingPrerequisite` when the library or a model is missing.
        """
        if self._engine is not None:
            raise AdapterError(f"{NAME}: the store is open already")
        models = models_for(
            NAME, self._services, installed=langmem_engine.installed(), install=INSTALL
        )
        settings = langmem_engine.Settings(
            models=models,
            dimensions=self._services.embedder.dimensions,
            temperature=self._options.temperature,
            query_limit=self._options.query_limit,
            max_steps=self._options.max_steps,
            deletes=self._options.deletes,
            strict=self._strict,
        )
        try:
            # Seconds of imports, during which other stores go on.
            await asyncio.to_thread(langmem_engine.library)
            self._engine = Engine(settings)
        except Exception as error:
            raise AdapterError(f"{NAME}: the library did not start: {error!r}") from error
        self._records, self._values, self._made = {}, {}, 0

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AdapterError(f"{NAME}: the store is not open")
        return self._engine

    async def write(self, event: Event) -> None:
        """Hand a session, a message or a document to LangMem as one conversation.

        An assistant's message that comes alone is passed over unless `store=both`.
        Raises `CallFailed` when a model call failed or its answer could not be
        read; under the published protocol both are logged and forgotten.
        """
        engine = self._opened()
        messages = _conversation(event, self._options)
        if not messages:
            return
        async with self._writes:
            try:
                await engine.add(messages)
            except MemProbeError as error:
                self._swallow(error, "a write")
            finally:
                self._note(event, await engine.items())

    def _note(self, event: Event, values: dict[str, dict[str, Any]]) -> None:
        """Give what this event made or changed its time; forget what it removed."""
        when, session = event.event_time.isoformat(), event.session_id
        for key, value in values.items():
            record = self._records.get(key)
            if record is None:
                self._made += 1
                author = event.author if isinstance(event, DocumentEvent) else ""
                self._records[key] = Record(self._made, when, session, session, author=author)
            elif self._values[key] != value:
                record.event_time, record.session_id = when, session
                record.changes += 1
        for key in set(self._records) - set(values):
            del self._records[key]
        self._values = values

    def _swallow(self, error: MemProbeError, doing: str) -> None:
        """Raise, but forget what the library forgets under the published protocol."""
        pass_over(NAME, doing, error, strict=self._strict)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` memories by the cosine of their JSON with the query."""
        engine = self._opened()
        if k < 1 or not query.strip():
            return []
        try:
            found = await engine.search(query, k)
        except MemProbeError as error:
            self._swallow(error, "search")
            return []
        return [self._item(key, text, score) for key, text, score in found]

    async def dump(self) -> list[MemoryItem]:
        """Every memory, oldest first; raises `AdapterError` unless it is proven to be all."""
        values = await self._opened().items()
        if values.keys() != self._records.keys():
            raise AdapterError(
                f"{NAME}: {len(values)} memories in the store, {len(self._records)} are known"
            )
        order = sorted(values, key=lambda key: self._records[key].ordinal)
        return [self._item(key, text_of(values[key])) for key in order]

    def _item(self, key: str, text: str, score: float | None = None) -> MemoryItem:
        record = self._records[key]
        fields: dict[str, JsonValue] = {
            "kind": str(self._values[key].get("kind")),
            "session_id": record.session_id,
            "created_in": record.created_in,
            "changes": record.changes,
        }
        if record.author:
            fields["author"] = record.author
        return MemoryItem(
            id=f"l{record.ordinal:05d}",
            content=text,
            event_time=datetime.fromisoformat(record.event_time),
            score=score,
            fields=fields,
        )

    async def save(self, directory: Path) -> None:
        """Memories with their vectors, our record of them, and how far names are counted."""
        engine = self._opened()
        values = await engine.items()
        rows = [
            {"key": k, "value": v, "record": asdict(self._records[k])} for k, v in values.items()
        ]
        vectors = [engine.vector(key) for key in values]
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(vectors, dtype=np.float64), allow_pickle=False)
        text = "".join(json.dumps(r, ensure_ascii=False, sort_keys=True) + "\n" for r in rows)
        state = json.dumps({"names": engine.names, "made": self._made}, sort_keys=True)
        write_snapshot(
            directory,
            NAME,
            self._services.embedder.name,
            len(rows),
            {MEMORIES: text.encode(), VECTORS: buffer.getvalue(), STATE: state.encode()},
        )

    async def restore(self, directory: Path) -> None:
        """Bring back a saved store; asks no model and embeds nothing."""
        engine = self._opened()
        if self._records:
            raise SnapshotError(f"{NAME}: only an empty store can be restored")
        parts = (MEMORIES, VECTORS, STATE)
        count, raw = read_snapshot(directory, NAME, self._services.embedder.name, parts)
        try:
            rows = [json.loads(line) for line in raw[MEMORIES].decode().split("\n")[:-1]]
            vectors = np.load(io.BytesIO(raw[VECTORS]), allow_pickle=False).tolist()
            state = json.loads(raw[STATE])
            if not len(rows) == len(vectors) == count:
                raise ValueError(
                    f"{count} memories announced, {len(rows)} and {len(vectors)} found"
                )
            records = {str(row["key"]): Record(**row["record"]) for row in rows}
            values = {str(row["key"]): dict(row["value"]) for row in rows}
            made, names = int(state["made"]), int(state["names"])
        except (ValueError, TypeError, KeyError) as error:
            raise SnapshotError(f"{directory}: unreadable snapshot ({error})") from error
        engine.load([(k, v, r) for (k, v), r in zip(values.items(), vectors, strict=True)], names)
        self._records, self._values, self._made = records, values, made

    async def close(self) -> None:
        """Drop the memories and close the connections; safe to call twice."""
        engine, self._engine = self._engine, None
        self._records, self._values = {}, {}
        if engine is not None:
            await engine.close()


def _conversation(event: Event, options: LangMemOptions) -> list[Mapping[str, Any]]:
    """An event as chat messages; raises `UnsupportedEvent`. Empty for what is passed over."""
    check_text(NAME, event.text)
    moment = event.event_time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    if isinstance(event, DocumentEvent):
        return [{"role": "user", "content": f"[{event.author}, {moment}] {event.text}"}]
    if isinstance(event, MessageEvent):
        if event.role not in ("user", "assistant"):
            raise UnsupportedEvent(f"{NAME}: no message of role {event.role!r} is kept")
        if event.role == "assistant" and options.store == "user":
            return []
        spoken: list[Mapping[str, Any]] = [{"role": event.role, "content": event.text}]
    else:
        spoken = [_message(n, m.role, m.text) for n, m in enumerate(event.messages, 1)]
    if options.dates:
        spoken.insert(0, {"role": "system", "content": f"This took place on {moment} UTC."})
    return spoken


def _message(number: int, role: str, text: str) -> Mapping[str, Any]:
    match role:
        case "user" | "assistant":
            return {"role": role, "content": text}
        case "tool_output":
            return {"role": "tool", "content": text, "tool_call_id": f"call_{number}"}
        case _:
            raise UnsupportedEvent(f"{NAME}: no message of role {role!r} is kept")
