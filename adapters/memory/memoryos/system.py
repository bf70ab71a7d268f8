"""MemoryOS behind the port.

Written from a description of what the published `memoryos-pypi` does; no line and
no prompt of its source is in here. `docs/systems/memoryos.md` says what is written
when and where `strict` departs from what was published.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import numpy as np

from adapters.memory.calls import DoorClient
from adapters.memory.memoryos import items, longterm, midterm, retrieval, snapshot
from adapters.memory.memoryos.model import Analyst
from adapters.memory.memoryos.options import Options
from adapters.memory.memoryos.pairs import (
    PLACEHOLDER,
    Pair,
    check_event,
    document_text,
    sides,
    spoken,
)
from adapters.memory.memoryos.parsing import Learnt
from adapters.memory.memoryos.records import Page, Segment, Store
from adapters.memory.snapshots import read_snapshot, write_snapshot
from adapters.memory.vectors import VectorIndex, Vectors
from memprobe.errors import AdapterError, SnapshotError, UnsupportedEvent
from memprobe.ports import Capabilities
from memprobe.systems import ModelWork, Services, SystemCard
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

NAME = "memoryos"


class MemoryOS:
    """Turn pairs move from a short to a middle memory by age, and to a long one by heat."""

    name = NAME
    Options = Options
    capabilities = Capabilities(
        needs_llm=True, needs_embedder=True, documents=True, sessions=True, derives=True
    )
    card = SystemCard(
        name=NAME,
        title="MemoryOS",
        summary=(
            "Turn pairs in a short, a middle and a long memory; a model groups them by theme "
            "and draws a profile and knowledge from what is hot."
        ),
        licence="Apache-2.0",
        capabilities=capabilities,
        probe_access=AccessMode.RETRIEVE,
        probe_k=15,
        per_message=ModelWork(calls=3.5, prompt_tokens=520, completion_tokens=90),
        score_scale="cosine with the query, -1 to 1",
        notes=(
            "Clean-room, from a description of MemoryOS (Kang et al. 2025, BAI-LAB/MemoryOS, "
            "memoryos-pypi, Apache-2.0); prompts are our own.",
            "A search heats the segments in which it finds pages, as published: reading decides "
            "what is promoted next.",
            "Under paper the latest turn pairs are found by no search, a page is printed as its "
            "whole JSON with the 384 numbers of its embedding, and the error sentence of a failed "
            "call is taken for its answer, all as published; strict mends these.",
            "Its clock is the event's time under both protocols; the published one is the wall's.",
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
        self._analyst = Analyst(self._client, given, published=self._published)
        # A search changes the store, too, and must not be lost in a write.
        self._changing = asyncio.Lock()
        self._open = False
        self._store = self._empty()

    def _empty(self) -> Store:
        return Store(index=VectorIndex(self._embedder))

    def _check(self) -> None:
        if not self._open:
            raise AdapterError(f"{NAME}: the store is not open")

    async def open(self, scope: Scope) -> None:
        """An empty store; it lives in this object alone, so no other scope can be seen in it."""
        if self._open:
            raise AdapterError(f"{NAME}: the store is open already")
        self._store = self._empty()
        self._open = True

    async def write(self, event: Event) -> None:
        """Take in a message, a session or a document as turn pairs.

        A message of the user waits for its answer, and is a pair of its own when
        none comes. Three model calls for each pair that leaves the short-term memory,
        two more when a segment is promoted. All is taken over at the end, so that a
        failed write leaves the store as it was. Raises `UnsupportedEvent` for text
        that is not valid Unicode and for unknown roles, and `CallFailed` when the
        model gives no usable answer (under `paper` the published stand-in is taken).
        """
        self._check()
        check_event(event)
        async with self._changing:
            self._analyst.take_marks()
            store = self._store.copy()
            store.now = event.event_time
            for pair in _complete(store, event):
                await self._add(store, pair)
            self._check()
            self._store = store

    async def _add(self, store: Store, pair: Pair) -> None:
        # Full before the pair comes in: the oldest makes room, and none is lost.
        while len(store.short) >= self.options.short_term_capacity:
            await self._migrate(store, store.short.pop(0))
        store.short.append(pair)
        await self._promote(store)

    async def _migrate(self, store: Store, pair: Pair) -> None:
        """Move the oldest pair to the middle memory, into a segment for each of its themes."""
        previous = store.last
        if previous is not None:
            previous = store.pages.get(previous.id, previous)
        page = Page(id=f"page_{pair.number:05d}", pair=pair)
        continues = False
        if previous is not None or self._published:
            said = await self._analyst.continuous(previous, page)
            continues = said and previous is not None
        before = previous.meta_info if previous is not None and continues else None
        meta = await self._analyst.meta(before, page)
        themes = await self._analyst.themes([page])
        page = page.model_copy(update={"meta_info": meta, "defaulted": self._analyst.take_marks()})
        texts = [page.embedded_text(), *(theme.content for theme in themes)]
        row, *rows = await store.index.embed(texts)
        midterm.add_page(store, page, row, continues=continues)
        for theme, vector in zip(themes, rows, strict=True):
            spare = not self._published
            midterm.place(store, [page], theme, vector, _now(store), self.options, spare=spare)
        midterm.prune(store)

    async def _promote(self, store: Store) -> None:
        """Draw profile and knowledge from the hottest segment, when it is hot enough."""
        segment = midterm.due(store, self.options.heat_threshold)
        if segment is None:
            return
        pages = _unseen(store, segment)
        existing = store.profile.text if store.profile else None
        # Both are waited for: a call that goes on behind a failed write is nobody's.
        profile, learnt = await asyncio.gather(
            self._analyst.profile(existing, pages),
            self._analyst.knowledge(pages),
            return_exceptions=True,
        )
        if isinstance(profile, BaseException):
            raise profile
        if isinstance(learnt, BaseException):
            raise learnt
        # Which of the two came first is chance.
        longterm.rewrite(store, profile, pages, sorted(self._analyst.take_marks()))
        rows = await self._rows(store, learnt)
        longterm.learn(store, learnt, rows, pages, self.options.knowledge_capacity)
        midterm.cool(store, segment.id, _now(store))

    async def _rows(self, store: Store, learnt: Learnt) -> list[Vectors]:
        lines = [*learnt.user, *learnt.assistant]
        return await store.index.embed(lines) if lines else []

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` pages, lines of knowledge and latest pairs, by cosine.

        Heats the segments whose pages were found. With `include_short_term` off the
        latest pairs are found by no search.
        """
        self._check()
        if k < 1:
            raise AdapterError(f"{NAME}: k is {k}, at least 1 is needed")
        async with self._changing:
            store = self._store
            waiting = store.waiting() if self.options.include_short_term else []
            if not len(store.index) and not waiting:
                return []
            texts = [query, *(pair.embedded_text() for pair in waiting)]
            target, *rows = await store.index.embed(texts)
            self._check()
            found = retrieval.retrieve(store, store.cosines(target), self.options)
            retrieval.heat_up(store, found, _now(store))
        scored = [self._page(store, page) for page in found.pages]
        for pair, row in zip(waiting, rows, strict=True):
            item = items.of_pair(pair, answered=pair is not store.pending)
            scored.append(_scored(item, float(np.dot(target.astype(np.float64), row))))
        for category, lines in (
            ("user_knowledge", found.user_knowledge),
            ("assistant_knowledge", found.assistant_knowledge),
        ):
            scored += [_scored(items.of_knowledge(one, category), score) for one, score in lines]
        scored.sort(key=lambda item: -(item.score or 0.0))
        return scored[:k]

    def _page(self, store: Store, found: retrieval.FoundPage) -> MemoryItem:
        item = _scored(items.of_page(store, found.segment, found.place), found.score)
        if not self._published:
            return item
        placement = found.segment.details[found.place]
        row = store.index.row(placement.page)
        whole = items.whole_page(store.pages[placement.page], placement, row)
        return item.model_copy(update={"content": whole})

    async def dump(self) -> list[MemoryItem]:
        """All there is: profile, knowledge, segments with their pages, and the latest pairs."""
        self._check()
        return list(items.everything(self._store))

    async def save(self, directory: Path) -> None:
        """Write state, texts and vectors; equal stores, equal bytes."""
        self._check()
        parts = snapshot.parts_of(self._store)
        write_snapshot(directory, NAME, self._embedder.name, self._store.pairs, parts)

    async def restore(self, directory: Path) -> None:
        """Read a snapshot; encodes nothing. Raises `SnapshotError` when any part is off."""
        self._check()
        if self._store.pairs:
            raise SnapshotError(f"{NAME}: only an empty store can be restored")
        count, parts = read_snapshot(directory, NAME, self._embedder.name, snapshot.PARTS)
        store = snapshot.store_of(parts, VectorIndex(self._embedder))
        if store.pairs != count:
            raise SnapshotError(f"{directory}: {count} pairs announced, {store.pairs} found")
        self._store = store

    async def close(self) -> None:
        """Drop the store and the connection to the model."""
        self._open = False
        self._store = self._empty()
        await self._client.close()


def _now(store: Store) -> datetime:
    """The store's clock: the time of the latest event."""
    if store.now is None:
        raise AdapterError(f"{NAME}: nothing was written yet, so that there is no time")
    return store.now


def _unseen(store: Store, segment: Segment) -> list[Page]:
    """The pages of a segment that long-term memory has not seen, each once."""
    ids = dict.fromkeys(p.page for p in segment.details if not p.analyzed)
    return [store.pages[page_id] for page_id in ids]


def _scored(item: MemoryItem, score: float) -> MemoryItem:
    return item.model_copy(update={"score": score})


def _complete(store: Store, event: Event) -> list[Pair]:
    """The pairs that an event completes; the user's message waits in the store for its answer."""
    waiting, store.pending = store.pending, None
    done = [waiting] if waiting is not None else []
    match event:
        case DocumentEvent():
            done.append(_pair(store, event, spoken(document_text(event)), PLACEHOLDER))
        case SessionEvent():
            done += [_pair(store, event, user, reply) for user, reply in sides(event.messages)]
        case MessageEvent(role="user"):
            store.pending = _pair(store, event, spoken(event.text), PLACEHOLDER)
        case MessageEvent(role="assistant"):
            reply = spoken(event.text)
            if waiting is not None and waiting.session == event.session_id:
                done = [waiting.model_copy(update={"assistant": reply})]
            else:
                done.append(_pair(store, event, PLACEHOLDER, reply))
        case _:
            raise UnsupportedEvent(f"{NAME}: no message of role {event.role!r} is kept")
    return done


def _pair(store: Store, event: Event, user: str, assistant: str) -> Pair:
    store.pairs += 1
    return Pair(
        number=store.pairs,
        user=user,
        assistant=assistant,
        event_time=event.event_time,
        session=event.session_id,
    )
