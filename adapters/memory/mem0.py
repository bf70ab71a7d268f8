"""mem0, through its own library (extra `mem0`, Apache-2.0).

The library keeps a store in an embedded Qdrant and an SQLite file of its own; its
model and its embedder are asked through the run's door. What the published
recovery protocol writes is kept: the user's messages, one an `add`, and none of
the assistant's (https://github.com/mem0ai/mem0; arXiv:2504.19413).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, JsonValue

from adapters.memory import mem0_engine
from adapters.memory.guard import messages_of
from adapters.memory.mem0_engine import Engine
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
    SessionEvent,
)

NAME = "mem0"
INSTALL = "pip install 'memprobe-audit[mem0]'"
CLOSING = 30.0
"""Seconds that a close waits for a call which was given up; it then ends by itself."""

T = TypeVar("T")


class Mem0Options(SystemOptions):
    """mem0's options; the defaults are the published ones where strict allows it.

    `threshold` is the least cosine of a search's result: the library's own default
    (0.1, used by the publication) drops items from a top-k. `store` is whose messages
    are kept one by one, `session_store` whose of a session that comes as a whole.
    """

    temperature: float = Field(default=0.0, ge=0, le=2)
    max_tokens: int = Field(default=2000, gt=0)
    threshold: float = Field(default=0.0, ge=0, le=1)
    store: Literal["user", "both"] = "user"
    session_store: Literal["user", "both"] = "both"
    infer: bool = True

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """The publication searched with the library's default threshold."""
        return {"threshold": 0.1}


class Mem0:
    """Facts that mem0's library extracts from what the user says."""

    Options = Mem0Options
    capabilities = Capabilities(
        needs_llm=True,
        needs_embedder=True,
        verbatim=False,
        documents=True,
        sessions=True,
    )
    card = SystemCard(
        name=NAME,
        title="mem0",
        summary="facts extracted by mem0's library from each message of the user",
        licence="Apache-2.0",
        capabilities=capabilities,
        probe_access=AccessMode.DUMP_ALL,
        extra="mem0",
        package="mem0ai",
        per_message=ModelWork(calls=1.0, prompt_tokens=8800, completion_tokens=120),
        score_scale="cosine similarity, 0 to 1",
        notes=(
            "mem0 2.x only adds memories; the update and delete steps of the mem0 paper are 1.0.x",
            "its optional keyword (BM25) and entity signals are off: they need models from a hub",
            "published with mem0ai 2.0.1, gpt-4o-mini (temperature 0.0, max_tokens 2000) and "
            "text-embedding-3-small; here the run's memory model and embedder",
            "top_p is the library's default, 0.1",
            "the assistant's messages are not stored unless store=both; of a session that comes as "
            "a whole both sides are handed over in one add, as in the published paradigms run, "
            "unless session_store=user",
            "the paradigms suite reads all its facts, not the first 20 that the library lists",
        ),
    )

    def __init__(self, services: Services) -> None:
        given = services.options
        self._services = services
        self._options = given if isinstance(given, Mem0Options) else Mem0Options()
        self._strict = services.protocol is Protocol.STRICT
        self._thread: ThreadPoolExecutor | None = None
        self._engine: Engine | None = None

    async def open(self, scope: Scope) -> None:
        """An empty store in a folder of its own, which `close` removes.

        Raises `MissingPrerequisite` when the library or a model is missing.
        """
        if self._thread is not None:
            raise AdapterError(f"{NAME}: the store is open already")
        models = models_for(
            NAME, self._services, installed=mem0_engine.installed(), install=INSTALL
        )
        settings = mem0_engine.Settings(
            models=models,
            dimensions=self._services.embedder.dimensions,
            temperature=self._options.temperature,
            max_tokens=self._options.max_tokens,
            strict=self._strict,
        )
        # One thread a store: SQLite's connections belong to it, and the loop never waits.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{NAME}-{scope.key}")
        try:
            self._engine = await self._run(lambda: Engine(settings))
        except BaseException as error:
            self._thread.shutdown(wait=False)
            self._thread = None
            if isinstance(error, MemProbeError) or not isinstance(error, Exception):
                raise
            raise AdapterError(f"{NAME}: the library did not start: {error!r}") from error

    async def _run(self, job: Callable[[], T]) -> T:
        if self._thread is None:
            raise AdapterError(f"{NAME}: the store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AdapterError(f"{NAME}: the store is not open")
        return self._engine

    async def write(self, event: Event) -> None:
        """Hand a message, or all of a session, to one `add` of mem0's.

        A message of the assistant only with `store=both`, those of a session unless
        `session_store=user`.
        Raises `CallFailed` when a model call failed or its answer could not be
        read. Under the published protocol both are logged and forgotten, as they
        were then.
        """
        engine = self._opened()
        messages, extra = _messages(event)
        whole = isinstance(event, SessionEvent)
        kept = self._options.session_store if whole else self._options.store
        if kept == "user":
            messages = [message for message in messages if message["role"] == "user"]
        if not messages:
            return
        infer = self._options.infer
        try:
            await self._run(lambda: engine.add(messages, event.event_time, extra, infer))
        except MemProbeError as error:
            self._swallow(error, "add")

    def _swallow(self, error: MemProbeError, doing: str) -> None:
        """Raise, but forget what the publication forgot under its protocol."""
        pass_over(NAME, doing, error, strict=self._strict)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` memories by cosine; nothing for a blank query, which mem0 refuses."""
        engine = self._opened()
        if k < 1 or not query.strip():
            return []
        try:
            rows = await self._run(lambda: engine.search(query, k, self._options.threshold))
        except MemProbeError as error:
            self._swallow(error, "search")
            return []
        return [_item(row) for row in rows]

    async def dump(self) -> list[MemoryItem]:
        """Every memory, oldest first; raises `AdapterError` unless it is proven to be all."""
        return [_item(row) for row in await self._run(self._opened().dump)]

    async def save(self, directory: Path) -> None:
        """Memories with their vectors, and the messages that the next prompt will show."""
        count, parts = await self._run(self._opened().state)
        write_snapshot(directory, NAME, self._services.embedder.name, count, parts)

    async def restore(self, directory: Path) -> None:
        """Bring back a saved store; asks no model and embeds nothing."""
        engine = self._opened()
        names = (mem0_engine.MEMORIES, mem0_engine.VECTORS, mem0_engine.MESSAGES)
        count, parts = read_snapshot(directory, NAME, self._services.embedder.name, names)
        try:
            await self._run(lambda: engine.load(count, parts))
        except SnapshotError as error:
            raise SnapshotError(f"{directory}: {error}") from error

    async def close(self) -> None:
        """Close the library and remove its folder; safe to call twice."""
        thread, engine = self._thread, self._engine
        self._thread = self._engine = None
        if thread is None:
            return
        if engine is not None:
            ending = asyncio.get_running_loop().run_in_executor(thread, engine.close)
            thread.shutdown(wait=False)
            await asyncio.wait({ending}, timeout=CLOSING)
            if ending.done():
                ending.result()
            return
        thread.shutdown(wait=False)


def _messages(event: Event) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Roles and texts, and the metadata of what is made of them; raises `UnsupportedEvent`."""
    extra: dict[str, Any] = {"session_id": event.session_id}
    match event:
        case DocumentEvent():
            day = event.event_time.date().isoformat()
            said = [("user", f"[{event.author}, {day}] {event.text}")]
            extra["author"] = event.author
        case SessionEvent():
            said = [(message.role, message.text) for message in messages_of(event)]
        case MessageEvent():
            said = [(event.role, event.text)]
            extra["turn"] = event.turn
    for role, text in said:
        if role not in ("user", "assistant"):
            raise UnsupportedEvent(f"{NAME}: no message of role {role!r} is kept")
        check_text(NAME, text)
    return [{"role": role, "content": text} for role, text in said], extra


def _item(row: Mapping[str, Any]) -> MemoryItem:
    metadata = dict(row.get("metadata") or {})
    fields: dict[str, JsonValue] = {
        "category": metadata.pop("category", None) or "fact",
        **metadata,
        **{
            name: row[name]
            for name in ("hash", "attributed_to", "role")
            if row.get(name) is not None
        },
    }
    score = row.get("score")
    return MemoryItem(
        id=f"m{row['ordinal']:05d}",
        content=row["memory"],
        event_time=datetime.fromisoformat(row["created_at"]),
        score=None if score is None else float(score),
        fields=fields,
    )
