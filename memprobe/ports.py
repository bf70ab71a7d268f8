"""The ports: what MemProbe asks of a memory system, a chat model and an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from memprobe.types import Event, Frozen, MemoryItem, Scope


class Capabilities(Frozen):
    """What a memory system can do; the contract suite holds it to what it declares.

    `stores` is false for a baseline that keeps nothing; `verbatim` is false for a
    system that rewrites what it is told (extracted facts instead of messages);
    `deduplicates` is true when an identical message is kept once. `derives` is true
    for a system that keeps a message and, beside it, items made of several: facts
    with their sources, a running summary. `sessions` is true for a system that takes
    a whole session in one write. `needs_llm` is true for a system that cannot do
    without a language model, `uses_llm` for one that takes it where the run has one
    and does without otherwise.
    """

    full_dump: bool = True
    top_k: bool = True
    event_time: bool = True
    delete: bool = False
    needs_llm: bool = False
    uses_llm: bool = False
    needs_embedder: bool = False
    concurrent_stores: bool = True
    documents: bool = False
    sessions: bool = False
    stores: bool = True
    verbatim: bool = True
    deduplicates: bool = False
    derives: bool = False

    @property
    def takes_llm(self) -> bool:
        """Whether the system is handed a language model in a run that has one."""
        return self.needs_llm or self.uses_llm


@runtime_checkable
class MemorySystem(Protocol):
    """A memory under audit. One object is one store: one system's memory of one user.

    Errors raise; an adapter swallows nothing. Event time is the event's, never
    "now". The object is opened before any other call and closed last.
    """

    capabilities: Capabilities

    async def open(self, scope: Scope) -> None:
        """Create an empty store for the scope; nothing of another scope may be visible in it."""

    async def write(self, event: Event) -> None:
        """Take in one event, in order."""

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """At most `k` items, nearest first."""

    async def dump(self) -> list[MemoryItem]:
        """Every item of the store, in a stable order, whatever a library's default page is."""

    async def save(self, directory: Path) -> None:
        """Write all that `restore` needs into an existing empty directory."""

    async def restore(self, directory: Path) -> None:
        """Bring an opened, empty store to the state that `save` wrote, in any process."""

    async def close(self) -> None:
        """Release files and connections; safe to call twice."""


Vector = Sequence[float]


@runtime_checkable
class Embedder(Protocol):
    """Encodes texts as unit vectors. The same text gives the same vector, bit for bit."""

    name: str
    dimensions: int

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """One L2-normalised vector a text, shape (len(texts), dimensions)."""
