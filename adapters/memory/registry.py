"""Which memory systems there are, and how one is made.

Three kinds of name: a built-in, an installed package's entry point
(`memprobe.memory_systems`), and `path/to/file.py:Class`. A class is imported
when it is asked for, and a plug-in that is broken takes only itself out.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from adapters.memory import external
from adapters.memory.guard import Guard
from adapters.memory.isolated import Isolated, Pool
from memprobe.errors import (
    AdapterContractError,
    AdapterError,
    MemProbeError,
    MissingPrerequisite,
    UsageError,
)
from memprobe.ids import slug
from memprobe.ports import Embedder, MemorySystem
from memprobe.systems import ModelLine, Services, SystemCard, SystemOptions
from memprobe.types import Protocol

BUILT_IN: dict[str, str] = {
    "nomem": "adapters.memory.nomem:NoMemory",
    "longctx_full": "adapters.memory.longctx:LongContext",
    "rag": "adapters.memory.rag:Rag",
    "amem": "adapters.memory.amem:AMem",
    "mem0": "adapters.memory.mem0:Mem0",
    "graphiti": "adapters.memory.graphiti:Graphiti",
    "langmem": "adapters.memory.langmem:LangMem",
    "cognee": "adapters.memory.cognee:Cognee",
    "memt": "adapters.memory.memt:MemT",
    "memoryos": "adapters.memory.memoryos:MemoryOS",
    "factstore": "adapters.memory.factstore:FactStore",
    "full_context": "adapters.memory.sessions:FullContext",
    "naive_rag": "adapters.memory.sessions:NaiveRag",
    "time_aware_rag": "adapters.memory.sessions:TimeAwareRag",
    "recency": "adapters.memory.sessions:Recency",
    "oracle_rag": "adapters.memory.sessions:OracleRag",
    "latest_value": "adapters.memory.sessions:LatestValue",
    "always_update": "adapters.memory.sessions:AlwaysUpdate",
    "always_preserve": "adapters.memory.sessions:AlwaysPreserve",
}
"""Name and `module:Class` of each system that comes with MemProbe."""


Lines = Callable[[str, str, str, int], ModelLine]
"""The model line of a store: of (system, user, stage, epoch)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    cls: type
    card: SystemCard
    options: SystemOptions = field(default_factory=SystemOptions)


def install_command(card: SystemCard) -> str:
    """What to type when a system's package is missing."""
    if card.extra is None:
        return f"pip install {card.package}"
    return f"pip install 'memprobe-audit[{card.extra}]'"


def lacks(card: SystemCard, model: bool) -> str | None:
    """Why a system cannot be made, with what helps; `model`: the run has a language model."""
    if card.package is not None and card.package_version is None:
        return f"{card.name} needs the package {card.package}: {install_command(card)}"
    if card.trouble is not None:
        return f"{card.name}: {card.trouble}"
    if card.capabilities.needs_llm and not model:
        return (
            f"{card.name} needs a language model: pass --model, e.g. "
            "--model openai/gpt-5.4-mini or --model ollama/llama3.2"
        )
    return None


def _built_in(name: str) -> type:
    module, _, attribute = BUILT_IN[name].partition(":")
    try:
        found: type = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise AdapterError(f"{name} failed to import: {type(error).__name__}: {error}") from error
    return found


class Registry:
    """The source of systems of a run.

    `lines` gives the model line of one store, for the systems whose card says
    that they need or use a language model. `names` are resolved at once, so that the
    slug of a `file.py:Class` is known before it is first asked for. `options` are
    the systems' own, by system. `guarded` puts every store behind a `Guard`.
    A system whose card says `process="own"` lives in a child (`isolated`); with
    `own_processes=False` it does not, as in that child itself. `close` ends them.
    """

    def __init__(
        self,
        embedder: Embedder,
        protocol: Protocol = Protocol.STRICT,
        lines: Lines | None = None,
        *,
        names: Sequence[str] = (),
        options: Mapping[str, Mapping[str, JsonValue]] | None = None,
        guarded: bool = False,
        own_processes: bool = True,
    ) -> None:
        self._embedder = embedder
        self._protocol = protocol
        self._lines = lines
        self._options = dict(options or {})
        self._guarded = guarded
        self._own_processes = own_processes
        self._pool: Pool | None = None
        self._plugins = external.plugins()
        self._entries: dict[str, _Entry] = {}
        self._by_slug: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        for name in names:
            self.card(name)

    def names(self) -> list[str]:
        """Built-in systems and plug-ins, working or not."""
        return [*BUILT_IN, *sorted(set(self._plugins) - set(BUILT_IN))]

    def card(self, name: str) -> SystemCard:
        """The card of a system.

        `name` is a listed name, `path/to/file.py:Class`, or the slug of a path
        seen before. Raises `UsageError` for an unknown name,
        `AdapterContractError` for a class that is no memory system, and
        `AdapterError` for one that fails to import.
        """
        return self._entry(name).card

    def cards(self) -> list[SystemCard]:
        """The cards of all listed systems that load; see `broken` for the others."""
        found = []
        for name in self.names():
            try:
                found.append(self.card(name))
            except MemProbeError as error:
                self._broken[name] = str(error)
        return found

    def broken(self) -> dict[str, str]:
        """Listed systems that cannot be loaded, with the reason."""
        self.cards()
        return dict(self._broken)

    def create(self, name: str, user: str, stage: str = "rollout", epoch: int = 1) -> MemorySystem:
        """A fresh, unopened store object for one user.

        Raises `MissingPrerequisite` when the system needs a language model and
        the run has none to give, or a package that is not installed.
        """
        entry = self._entry(name)
        card = entry.card
        lacking = lacks(card, self._lines is not None)
        if lacking is not None:
            raise MissingPrerequisite(lacking)
        line = None
        if card.capabilities.takes_llm and self._lines is not None:
            line = self._lines(card.name, user, stage, epoch)
        services = Services(
            embedder=self._embedder,
            protocol=self._protocol,
            models=line.access if line else None,
            options=entry.options,
        )
        store: MemorySystem
        if card.process == "own" and self._own_processes:
            self._pool = self._pool or Pool()
            store = Isolated(
                self._by_slug.get(name, name),
                card,
                services,
                self._pool,
                reusable=bool(getattr(entry.cls, "reusable", True)),
            )
        else:
            store = external.construct(entry.cls, services, card.origin)
        if not self._guarded:
            return store
        return Guard(store, card, line=line, protocol=self._protocol)

    def close(self) -> None:
        """End the processes of the systems that have their own; safe to call twice."""
        if self._pool is not None:
            self._pool.close()

    def check_options(self) -> None:
        """Raises `UsageError` when options are given for a system that nobody asked for."""
        known = {self._by_slug.get(name, name) for name in self._entries} | set(self._by_slug)
        for name in self._options:
            if name not in known:
                raise UsageError(
                    f"--system-option {name}.*: the run has no system {name!r}; "
                    f"it has {', '.join(sorted(self._by_slug))}"
                )

    def _entry(self, name: str) -> _Entry:
        name = self._by_slug.get(name, name)
        if name not in self._entries:
            entry = self._load(name)
            self._keep(name, entry)
        return self._entries[name]

    def _keep(self, name: str, entry: _Entry) -> None:
        taken = self._by_slug.get(entry.card.name, name)
        if entry.card.name in self.names() and name != entry.card.name:
            taken = entry.card.name
        if taken != name:
            raise UsageError(
                f"{name} would be called {entry.card.name!r} in the results, as {taken} is; "
                "give its class another name or a card with another name"
            )
        self._by_slug[entry.card.name] = name
        self._entries[name] = self._configured(entry)

    def _configured(self, entry: _Entry) -> _Entry:
        """The entry with its options, recorded on its card, and the installed package."""
        card = entry.card
        options = external.options_of(
            entry.cls, self._protocol, self._options.get(card.name, {}), card.name
        )
        trouble = getattr(entry.cls, "trouble", None)
        card = card.model_copy(
            update={
                "options": options.model_dump(mode="json"),
                "capabilities": options.capabilities(card.capabilities),
                "package_version": external.version_of(card.package),
                "trouble": trouble() if callable(trouble) else None,
            }
        )
        return _Entry(entry.cls, card, options)

    def _load(self, name: str) -> _Entry:
        if external.is_path_spec(name):
            cls = external.load_path(name)
            external.check_class(cls, name)
            return _Entry(cls, external.card_of(cls, self._path_name(cls), name))
        if name in BUILT_IN:
            cls = _built_in(name)
            return _Entry(cls, external.card_of(cls, name, "built in"))
        if name in self._plugins:
            plugin = self._plugins[name]
            cls = external.load_plugin(plugin)
            external.check_class(cls, f"plug-in {name!r}")
            return _Entry(cls, external.card_of(cls, slug(name), f"plug-in {plugin.value}"))
        raise UsageError(self._unknown(name))

    @staticmethod
    def _path_name(cls: type) -> str:
        card = getattr(cls, "card", None)
        if card is not None and not isinstance(card, SystemCard):
            raise AdapterContractError(f"{cls.__name__}.card is not a SystemCard")
        return slug(card.name if card else external.snake(cls.__name__))

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names(), n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return (
            f"there is no memory system {name!r}.{hint} There are: {', '.join(self.names())}; "
            "your own is named path/to/file.py:Class"
        )
