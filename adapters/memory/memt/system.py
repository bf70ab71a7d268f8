"""Mem-T behind the port: formation, update and a search of its own, by a trained policy.

Built from a description of the published adapter, not from its code. The policy
speaks a text protocol over any OpenAI-compatible server.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

from adapters.memory.memt import promptset
from adapters.memory.memt.options import Options as MemTOptions
from adapters.memory.memt.policy import Policy
from adapters.memory.memt.searching import Found, Search
from adapters.memory.memt.store import (
    COLLECTIONS,
    Collection,
    Row,
    State,
)
from adapters.memory.memt.writing import Writer
from adapters.memory.refusals import check_text
from adapters.memory.snapshots import read_snapshot, write_snapshot
from memprobe.errors import AdapterError, SnapshotError, UnsupportedEvent
from memprobe.ports import Capabilities
from memprobe.systems import ModelWork, Services, SystemCard
from memprobe.types import Event, MemoryItem, MessageEvent, Protocol, Scope

STATE = "state.json"
FALLBACK_ITEMS, FALLBACK_CHARS = 20, 400

NOTES = (
    "The policy was reinforcement-trained on its authors' prompt texts. MemProbe's keep their "
    "structure, tools and tags in other words, which is out of its distribution; "
    "memt.prompts=FOLDER takes a set of your own, and memt.prompt_set records which was used.",
    "A search is the policy's own: up to six calls, results in the order of first appearance, "
    "without a score.",
    "A dump holds each item with its source messages, as published: about 1,000 characters an "
    "item, so that a whole store outgrows a reader's window soon (memt.dump_content=memory_only).",
    "Under strict, messages found by search_turns are results, and an empty store is not asked; "
    "under paper neither holds.",
)


class MemT:
    """One user's store; see the module.

    A write is atomic: it works on a copy of the state, which takes the old one's
    place when the last call has been answered.
    """

    name = "memt"
    Options = MemTOptions
    capabilities = Capabilities(
        needs_llm=True, needs_embedder=True, delete=False, verbatim=True, derives=True
    )
    card = SystemCard(
        name=name,
        title="Mem-T",
        summary="A trained 4B policy forms, updates and searches five collections by tool calls.",
        licence="Apache-2.0 (the adapter; see the licence of the model you serve)",
        capabilities=capabilities,
        pool="gpu",
        # Updates a message: 2.47 facts and 0.80 experiences in the published release.
        per_message=ModelWork(calls=4.3, prompt_tokens=1300, completion_tokens=120),
        per_search=ModelWork(calls=4.0, prompt_tokens=1550, completion_tokens=80),
        notes=NOTES,
    )

    def __init__(self, services: Services) -> None:
        given = services.options
        self.options = (
            given if isinstance(given, MemTOptions) else self._defaults(services.protocol)
        )
        self._services = services
        self._paper = services.protocol is Protocol.PAPER
        self._policy: Policy | None = None
        self._state = State.empty(services.embedder)
        self._sample = ""
        self._writing = asyncio.Lock()

    @staticmethod
    def _defaults(protocol: Protocol) -> MemTOptions:
        defaults = MemTOptions.published() if protocol is Protocol.PAPER else {}
        return MemTOptions.model_validate(defaults)

    def _opened(self) -> Policy:
        if self._policy is None:
            raise AdapterError(f"{self.name}: the store is not open")
        return self._policy

    async def open(self, scope: Scope) -> None:
        """An empty store. Raises `PromptError` for a prompt set that cannot be used."""
        if self._policy is not None:
            raise AdapterError(f"{self.name}: the store is open already")
        texts = promptset.load(self.options.prompts)
        if texts.identity != self.options.prompt_set:
            raise AdapterError(
                f"{self.name}: the prompt set {self.options.prompts!r} changed while the run was "
                f"on: {self.options.prompt_set} is now {texts.identity}; start the run again"
            )
        self._policy = Policy(self._services.models, self.options, self._services.protocol)
        self._state = State.empty(self._services.embedder)
        # The user names it, not the run: ids appear in prompts, and equal runs ask equal prompts.
        digest = hashlib.sha256(scope.user.encode("utf-8", "surrogatepass")).hexdigest()
        self._sample = f"hmb_{digest[:8]}"

    async def write(self, event: Event) -> None:
        """Take in a user's message: one formation call, and one call a candidate.

        Assistant messages are passed over unless `store_assistant` is set. Raises
        `UnsupportedEvent`, or `CallFailed` with the store as it was.
        """
        policy = self._opened()
        if not isinstance(event, MessageEvent) or event.role not in ("user", "assistant"):
            kind = event.role if isinstance(event, MessageEvent) else "document"
            raise UnsupportedEvent(f"{self.name}: takes messages of a dialogue, no {kind!r}")
        check_text(self.name, event.text)
        if event.role == "assistant" and not self.options.store_assistant:
            return
        async with self._writing:
            state = self._state.copy()
            session = self._sample if self._paper else event.session_id
            writer = Writer(policy, state, self._sample, session, event.event_time)
            await writer.take(f"{event.role} said: {event.text}")
            self._opened()
            self._state = state

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """The first `k` rows that the policy's rounds brought; memory text only, no score."""
        policy = self._opened()
        if k < 1:
            raise AdapterError(f"{self.name}: k is {k}, at least 1 is needed")
        state = self._state
        if not self._paper and not state.items():
            return []
        trace = await Search(policy, state).run(query)
        if trace.collected:
            return [_item(found, found[1].memory) for found in trace.collected[:k]]
        return self._nothing_found(state, k)

    def _nothing_found(self, state: State, k: int) -> list[MemoryItem]:
        head: list[MemoryItem] = []
        if self.options.empty_search == "dump_head":
            head = [
                _item(found, self._content(found[1])[:FALLBACK_CHARS])
                for found in state.items()[: min(k, FALLBACK_ITEMS)]
            ]
        if self._paper:
            # The published fallback reads the dump, and reading an empty collection fills it.
            state.add_dummies()
        return head

    async def dump(self) -> list[MemoryItem]:
        """All rows of the five collections, in their order."""
        self._opened()
        return [_item(found, self._content(found[1])) for found in self._state.items()]

    def _content(self, row: Row) -> str:
        return row.document if self.options.dump_content == "full" else row.memory

    async def save(self, directory: Path) -> None:
        """Write rows, vectors and counters; equal stores give equal bytes."""
        self._opened()
        state = self._state
        parts: dict[str, bytes] = {}
        for name in COLLECTIONS:
            parts |= await state[name].parts(name)
        kept = {**state.as_json(), "sample_id": self._sample, "prompts": self.options.prompt_set}
        parts[STATE] = (json.dumps(kept, ensure_ascii=False, indent=1) + "\n").encode()
        embedder = self._services.embedder.name
        write_snapshot(directory, self.name, embedder, len(state.items()), parts)

    async def restore(self, directory: Path) -> None:
        """Read a snapshot; encodes nothing. Raises `SnapshotError` when any part is off."""
        self._opened()
        if self._state.turns or self._state.items():
            raise SnapshotError(f"{self.name}: only an empty store can be restored")
        names = [STATE, *(part for name in COLLECTIONS for part in Collection.names(name))]
        embedder = self._services.embedder
        count, parts = read_snapshot(directory, self.name, embedder.name, names)
        state = State.empty(embedder)
        try:
            kept = json.loads(parts[STATE])
            state.summary, state.turns = str(kept["summary"]), int(kept["turns"])
            state.ordinal = int(kept["ordinal"])
            state.personas = {str(k): str(v) for k, v in kept["personas"].items()}
            sample = str(kept["sample_id"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SnapshotError(f"{directory / STATE} is unreadable ({error!r})") from error
        for name in COLLECTIONS:
            try:
                state[name].load(*(parts[part] for part in Collection.names(name)))
            except SnapshotError as error:
                raise SnapshotError(f"{directory}: {name}: {error}") from error
        if len(state.items()) != count:
            raise SnapshotError(f"{directory}: {count} items announced, {len(state.items())} found")
        self._state, self._sample = state, sample

    async def close(self) -> None:
        """Drop the store; safe to call twice."""
        policy, self._policy = self._policy, None
        if policy is not None:
            await policy.close()
        self._state = State.empty(self._services.embedder)


def _item(found: Found, content: str) -> MemoryItem:
    collection, row = found
    return MemoryItem(
        # A persona's id is a person's name, which may be that of anything else.
        id=f"{collection}/{row.id}",
        content=content,
        event_time=row.event_time,
        fields={"category": collection, "metadata": dict(row.metadata)},
    )
