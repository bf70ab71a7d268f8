"""What a memory system is registered with: its card, and the services it is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal
from typing import Protocol as Port

from pydantic import ConfigDict, Field, JsonValue

from memprobe.errors import MemProbeError
from memprobe.ports import Capabilities, Embedder, MemorySystem
from memprobe.types import SUITES, AccessMode, Frozen, Protocol, SuiteName


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """An OpenAI-compatible endpoint on loopback that goes through the gateway.

    The key names run, system and user; `chat_model` and `embedding_model` are
    the names to ask for. Failed calls were retried already: ask with no retries
    of your own.
    """

    base_url: str
    api_key: str
    chat_model: str
    embedding_model: str


class ModelLine(Port):
    """The harness's end of one store's model access."""

    @property
    def access(self) -> ModelAccess:
        """What the store is handed."""
        ...

    def begin(self, item: str) -> None:
        """Calls from now on belong to this item, e.g. `s0003/turn2/write`."""
        ...

    def failure(self) -> MemProbeError | None:
        """A failed call that no later one made good, once; None when there is none."""
        ...

    def close(self) -> None:
        """Turn the store's key away from now on."""
        ...


class SystemOptions(Frozen):
    """Base of a system's own options: `--system-option NAME.FIELD=VALUE`.

    A system with options has a class attribute `Options`, a subclass of this
    with a default for every field.
    """

    # JSON has no such numbers: a manifest would say null for what a run used.
    model_config = ConfigDict(allow_inf_nan=False)

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """Defaults under `--protocol paper`, where they differ."""
        return {}

    def capabilities(self, declared: Capabilities) -> Capabilities:
        """What the system can do and needs under these options; as declared, unless it says so."""
        return declared


@dataclass(frozen=True, slots=True)
class Services:
    """What a system may use.

    The shared embedder, the protocol, a model where it needs one, and its
    options, validated and complete (an instance of its own `Options`).
    """

    embedder: Embedder
    protocol: Protocol = Protocol.STRICT
    models: ModelAccess | None = None
    options: SystemOptions = field(default_factory=SystemOptions)


class ModelWork(Frozen):
    """A system's own calls for one message or one search, on average; for estimates.

    Tokens are those of one call.
    """

    calls: float
    prompt_tokens: int
    completion_tokens: int


class SystemCard(Frozen):
    """The public facts of a system.

    `retrieve` tells whether it has a retrieval of its own (nomem has none).
    `reply_access` is what the assistant sees of it while it answers: nothing,
    the best items for the user's latest message, or everything.
    `code` identifies a plug-in's source: with another one its results are made
    anew. `extra` is the name of the optional dependency that installs it, and
    `package` the distribution that must then be there; `package_version` is the
    installed one. `trouble` says why an installed package cannot work here, and what helps:
    what a class's `trouble()` tells, if it has one. `per_message` and `per_search` are the
    model calls to expect for a message of the user and for a search. `options` are those
    that a run uses, `notes` what a reader of its figures must know. `pool` is the kind of worker
    that it belongs to; `process` own has each store live in a process beside the
    run's, for a library that keeps process-wide state or clashes with another.

    `probe_access` and `probe_k` are how the paradigms suite reads it unless a run
    says otherwise. `suites` are those that it can be part of; `sees_gold` marks a
    reference of the paradigms suite that is handed gold on purpose: which sessions
    hold the fact, or the values themselves.
    """

    name: str
    title: str
    summary: str
    licence: str
    capabilities: Capabilities
    pool: Literal["cpu", "gpu"] = "cpu"
    process: Literal["shared", "own"] = "shared"
    suites: tuple[SuiteName, ...] = SUITES
    probe_access: AccessMode = AccessMode.RETRIEVE
    probe_k: Annotated[int, Field(gt=0)] = 15
    sees_gold: Literal["none", "sessions", "values"] = "none"
    extra: str | None = None
    package: str | None = None
    package_version: str | None = None
    trouble: str | None = None
    per_message: ModelWork | None = None
    per_search: ModelWork | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
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

    def create(self, name: str, user: str, stage: str = "rollout", epoch: int = 1) -> MemorySystem:
        """A fresh, unopened store object for one user; `stage` says who will use it."""
        ...
