"""The fact store behind the port.

Written from a description of the reference system of the published evolution
benchmark, whose code was not published; prompts are our own.
`docs/systems/factstore.md` says what is written when and what was ours to settle.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from adapters.memory.calls import DoorClient
from adapters.memory.factstore import items, snapshot
from adapters.memory.factstore.consolidate import appended, apply, guarded, outdated
from adapters.memory.factstore.embedded import EmbeddedEngine
from adapters.memory.factstore.engine import Decision, Engine
from adapters.memory.factstore.model import ModelEngine
from adapters.memory.factstore.options import Options
from adapters.memory.factstore.records import Action, Draft, Fact, Operation, Store
from adapters.memory.factstore.retrieval import Found, hybrid
from adapters.memory.factstore.texts import is_read, parts_of
from adapters.memory.snapshots import read_snapshot, write_snapshot
from adapters.memory.vectors import VectorIndex, Vectors
from memprobe.errors import AdapterError, MissingPrerequisite, SnapshotError
from memprobe.ports import Capabilities
from memprobe.systems import ModelWork, Services, SystemCard
from memprobe.types import AccessMode, Event, MemoryItem, Protocol, Scope

NAME = "factstore"


class FactStore:
    """Statements become facts that are updated, reinforced, superseded or marked in conflict."""

    name = NAME
    Options = Options
    capabilities = Capabilities(
        uses_llm=True, needs_embedder=True, documents=True, sessions=True, verbatim=False
    )
    card = SystemCard(
        name=NAME,
        title="Fact store",
        summary=(
            "Draws statements from texts and keeps them as facts with history, authors and "
            "confidence; each new statement creates, updates, reinforces or supersedes one."
        ),
        licence="Apache-2.0",
        capabilities=capabilities,
        probe_access=AccessMode.RETRIEVE,
        probe_k=10,
        per_message=ModelWork(calls=5.0, prompt_tokens=700, completion_tokens=120),
        score_scale="0.3 * BM25 (0 to 1 among the candidates) + 0.7 * cosine, -0.7 to 1",
        notes=(
            "Written from a description of the reference system of the evolution benchmark; "
            "prompts, the numbers behind confidence labels and the action conflict are our own.",
            "Without a language model, rules and embeddings take its place: sentences are "
            "statements, and cosines, shared words and changed numbers or names decide. Their "
            "bounds were tried out on claims of bundled evolution trajectories.",
            "Under the strict guard a document older than a fact's last update reinforces the "
            "fact, even where it contradicts it, as published.",
            "Superseded facts stay in a dump, marked [superseded]; a search passes over them.",
        ),
    )

    def __init__(self, services: Services) -> None:
        self._published = services.protocol is Protocol.PAPER
        given = services.options
        if not isinstance(given, Options):
            given = Options.model_validate(Options.published() if self._published else {})
        self.options = given
        self._services = services
        self._engine: Engine | None = None
        self._writing = asyncio.Lock()
        self._store = self._empty()

    def _empty(self) -> Store:
        return Store(VectorIndex(self._services.embedder))

    def _opened(self) -> Engine:
        if self._engine is None:
            raise AdapterError(f"{NAME}: the store is not open")
        return self._engine

    async def open(self, scope: Scope) -> None:
        """An empty store; it lives in this object alone, so no other scope can be seen in it.

        Raises `MissingPrerequisite` for `engine=model` in a run without a model.
        """
        if self._engine is not None:
            raise AdapterError(f"{NAME}: the store is open already")
        self._store, self._engine = self._empty(), self._made()

    def _made(self) -> Engine:
        models, wanted = self._services.models, self.options.engine
        if wanted == "embedded" or (wanted == "auto" and models is None):
            return EmbeddedEngine(self._services.embedder, conflict=self.options.conflict)
        if models is None:
            raise MissingPrerequisite(
                f"{NAME}.engine=model needs a language model: pass --model, or leave engine at auto"
            )
        return ModelEngine(
            DoorClient(models),
            self.options.temperature,
            conflict=self.options.conflict,
            checked=not self._published,
        )

    async def write(self, event: Event) -> None:
        """Draw statements from a document, a session or a message and settle each in turn.

        With a model: a call for the event, one for each statement, and one more for
        each update. All is taken over at the end, so that a failed write leaves the
        store as it was. Raises `UnsupportedEvent` for text that is not valid Unicode
        and for unknown roles, and `CallFailed` when the model gives no usable answer.
        """
        engine = self._opened()
        parts_of(event)
        if not is_read(event, self.options.store):
            return
        async with self._writing:
            store = self._store.copy()
            for draft in await engine.extract(event):
                await self._settle(engine, store, draft, event)
            self._opened()
            self._store = store

    async def _settle(self, engine: Engine, store: Store, draft: Draft, event: Event) -> None:
        seen = store.observe(draft, event.event_time, event.session_id)
        (row,) = await store.index.embed([seen.what])
        found = hybrid(seen.what, row, store.active(), store.index, self.options.candidates)
        wish = await engine.decide(seen, [one.fact for one in found])
        decision = guarded(wish, seen, store.facts, self.options.guard)
        merged = ""
        if decision.action is Action.UPDATE:
            fact = store.facts[decision.facts[0]]
            # What an older document appends must leave every word of the fact as it is.
            merged = (
                appended(fact.statement, seen.what)
                if outdated(seen, fact)
                else await engine.synthesise(fact, seen)
            )
        outcome = apply(
            decision, seen, store.facts, store.next_fact(), decided=wish.action, merged=merged
        )
        stale = [
            fact
            for fact in outcome.facts
            if fact.id not in store.index or store.index.text(fact.id) != fact.statement
        ]
        for fact, vector in zip(stale, await self._rows(store, stale), strict=True):
            store.index.put(fact.id, fact.statement, vector)
        store.keep(outcome.facts)
        store.operations.append(
            Operation(
                observation_id=seen.id,
                session=seen.session,
                time=seen.time,
                author=seen.author,
                decided=wish.action,
                action=decision.action,
                facts=_concerned(decision),
                result=outcome.result,
            )
        )

    async def _rows(self, store: Store, facts: list[Fact]) -> list[Vectors]:
        return await store.index.embed([fact.statement for fact in facts]) if facts else []

    def operations(self) -> list[Operation]:
        """What was done with each observation, in the order of arrival."""
        self._opened()
        return list(self._store.operations)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` facts by the hybrid score, best first; superseded ones by option only."""
        return [items.of_found(one) for one in await self._found(query, k)]

    async def _found(self, query: str, k: int) -> list[Found]:
        self._opened()
        if k < 1:
            raise AdapterError(f"{NAME}: k is {k}, at least 1 is needed")
        store = self._store
        facts = list(store.facts.values()) if self.options.superseded else store.active()
        if not facts:
            return []
        (target,) = await store.index.embed([query])
        return hybrid(query, target, facts, store.index, k)

    async def dump(self) -> list[MemoryItem]:
        """Every fact in the order of creation, and by option every observation behind them."""
        self._opened()
        store = self._store
        found = [items.of_fact(fact) for fact in store.facts.values()]
        if self.options.observations:
            pairs = zip(store.observations.values(), store.operations, strict=True)
            found += [items.of_observation(seen, done) for seen, done in pairs]
        return found

    async def save(self, directory: Path) -> None:
        """Write facts, observations, operations and vectors; equal stores, equal bytes."""
        self._opened()
        parts = snapshot.parts_of(self._store)
        embedder = self._services.embedder.name
        write_snapshot(directory, NAME, embedder, len(self._store.observations), parts)

    async def restore(self, directory: Path) -> None:
        """Read a snapshot; encodes nothing. Raises `SnapshotError` when any part is off."""
        self._opened()
        if self._store.observations:
            raise SnapshotError(f"{NAME}: only an empty store can be restored")
        embedder = self._services.embedder
        count, parts = read_snapshot(directory, NAME, embedder.name, snapshot.PARTS)
        store = snapshot.store_of(parts, VectorIndex(embedder))
        if len(store.observations) != count:
            raise SnapshotError(
                f"{directory}: {count} observations announced, {len(store.observations)} found"
            )
        self._store = store

    async def close(self) -> None:
        """Drop the facts and the connection to the model."""
        engine, self._engine = self._engine, None
        self._store = self._empty()
        if engine is not None:
            await engine.close()


def _concerned(decision: Decision) -> tuple[str, ...]:
    return decision.facts if decision.agrees is None else (*decision.facts, decision.agrees)
