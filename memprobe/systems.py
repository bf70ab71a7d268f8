"""What a memory system is registered with: its card, and the services it is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from typing import Protocol as Port

from memprobe.ports import Capabilities, Embedder, MemorySystem
from memprobe.types import Frozen, Protocol


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """An OpenAI-compatible endpoint on loopback that goes through the gateway.

    The key names run, system and user; `chat_model` and `embedding_model` are
    the names to ask for.
    """

    base_url: str
    api_key: str
    chat_model: str
    embedding_model: str


@dataclass(frozen=True, slots=True)
class Services:
    """What a system may use: the shared embedder, the protocol, and a model where it needs one."""

    embedder: Embedder
    protocol: Protocol = Protocol.STRICT
    models: ModelAccess | None = None


class SystemCard(Frozen):
    """The public facts of a system.

    `retrieve` tells whether it has a retrieval of its own (nomem has none).
    `reply_access` is what the assistant sees of it while it answers: nothing,
    the best items for the user's latest message, or everything.
    `code` identifies a plug-in's source: with another one its results are made
    anew. `extra` is the name of the optional dependency that installs it.
    """

    name: str
    title: str
    summary: str
    licence: str
    capabilities: Capabilities
    pool: Literal["cpu", "gpu"] = "cpu"
    extra: str | None = None
    score_scale: str = "none"
    retrieve: bool = True
    reply_access: Literal["none", "retrieve", "dump_all"] = "retrieve"
    origin: str = "built in"
    code: str = ""


Factory = Callable[[Services], MemorySystem]
"""Makes one store's object; it is opened afterwards."""


class SystemSource(Port):
    """Where a run's systems come from."""

    def card(self, name: str) -> SystemCard:
        """The card of a system; raises `UsageError` when there is none."""
        ...

    def create(self, name: str, user: str) -> MemorySystem:
        """A fresh, unopened store object for one user."""
        ...
