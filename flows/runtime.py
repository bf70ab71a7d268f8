"""What a process needs to work on a run: data set, ledger, gateway, systems, store.

Prefect passes ids and paths only; each process builds its own clients here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import prompts
from adapters.memory.registry import Registry
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from flows.workloads import Workload, users_of, workload_of
from memprobe.config import RunConfig, merge_config
from memprobe.errors import UsageError
from memprobe.ids import slug
from memprobe.places import public, settled
from memprobe.settings import Settings, load_settings
from memprobe.systems import ModelLine, SystemCard
from memprobe.types import Asker, Role
from storage.ledger import Ledger, Spending
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.context import StageContext

SQLITE = "sqlite:///"


def run_location(runs: str, name: str) -> str:
    """Where the run of that name lies."""
    return f"{runs.rstrip('/')}/{slug(name)}"


def open_store(config: RunConfig, settings: Settings, work: Workload) -> RunStore:
    """The run's store: a new one, or the existing one with its settings extended.

    Raises `UsageError` when the run exists with other settings that would change
    its figures, or was made from another data set.
    """
    location = run_location(settings.runs, config.name)
    if not RunStore.exists(location):
        manifest = Manifest.start(
            config,
            dataset_name=work.name,
            dataset_digest=work.digest,
            prompts={name: prompts.load(name).identity for name in work.prompts},
        )
        return RunStore.create(location, manifest)
    store = RunStore.open(location)
    check_digest(store.manifest, work)
    merged = merge_config(store.manifest.config, config, work.known)
    changes: dict[str, Any] = {
        "config": merged.model_dump(mode="json"),
        "prompts": {name: prompts.load(name).identity for name in work.prompts},
    }
    store.update_manifest(**changes)
    return store


Usage = tuple[int, int, int, int, float | None]


ContextT = TypeVar("ContextT", bound=StageContext)


@dataclass(slots=True)
class Runtime(Generic[ContextT]):
    """One run, opened in this process, with the context of its suite."""

    context: ContextT
    work: Workload
    settings: Settings
    gateway: Gateway
    ledger: Ledger
    registry: Registry
    embedder: MiniLM
    users: tuple[str, ...]
    systems: list[str]
    before: Spending | None = None
    """The ledger's counters when other processes began to work too."""
    _read: tuple[float, Usage] | None = None

    @property
    def places(self) -> dict[str, str]:
        """Where the run and its ledger lie, for a process in another folder; no passwords."""
        runs, ledger = self.settings.runs, self.settings.ledger
        if "://" not in runs:
            runs = str(Path(runs).absolute())
        if ledger.startswith(SQLITE):
            ledger = SQLITE + str(Path(ledger.removeprefix(SQLITE)).absolute())
        return public({"runs": runs, "ledger": ledger})

    def share(self) -> None:
        """From now on other processes work on the run too, over the same ledger."""
        self.gateway.share_budget()
        if self.before is None:
            self.before = self.ledger.spending(self.context.config.name)

    def usage(self, max_age_s: float = 0.0) -> Usage:
        """Sent calls, ledger hits, prompt and completion tokens, dollars.

        Of this process; after `share` of all processes since then, by the ledger,
        read again when older than `max_age_s`. The ledger keeps an asker's first
        answer only, so the hits of a resumed run that others replay are not all seen.
        """
        own = self.gateway.usage()
        if self.before is None:
            return own
        if self._read is None or time.monotonic() - self._read[0] >= max_age_s:
            before, now = self.before, self.ledger.spending(self.context.config.name)
            known = now.unpriced == before.unpriced
            usage = (
                now.calls - before.calls,
                max(now.hits - before.hits, own[1]),
                now.prompt_tokens - before.prompt_tokens,
                now.completion_tokens - before.completion_tokens,
                now.cost_usd - before.cost_usd if known else None,
            )
            self._read = time.monotonic(), usage
        return self._read[1]

    def freeze(self) -> None:
        """Keep the counters as they are: a display asks for them after the ledger is closed."""
        if self.before is not None:
            self._read = math.inf, self.usage()


_OPEN: dict[tuple[str, int], Runtime[Any]] = {}
"""By run and event loop: a gateway belongs to one loop, and a Dask worker has one a thread."""


def _place(name: str) -> tuple[str, int]:
    return name, id(asyncio.get_running_loop())


def current(name: str) -> Runtime[Any]:
    """The runtime of a run that is open in this event loop."""
    return _OPEN[_place(name)]


@asynccontextmanager
async def attached(
    name: str, places: Mapping[str, str], systems: Sequence[str] = ()
) -> AsyncIterator[Runtime[Any]]:
    """The run that is open here, else the run opened beside the process that conducts it.

    `places` are those of `Runtime.places`, `systems` the ones that will be used.
    """
    here = _OPEN.get(_place(name))
    if here is not None:
        yield here
        return
    settings = settled(load_settings()[0], places)
    async with opened_part(name, settings, systems) as run:
        yield run


@asynccontextmanager
async def opened(config: RunConfig, settings: Settings) -> AsyncIterator[Runtime[Any]]:
    """Open a run; everything is closed, and the ledger flushed, when the block ends."""
    work = workload_of(config)
    work.check(config, users_of(config, work))
    # A name that cannot be loaded must not enter the manifest: the run could never go on.
    Registry(
        MiniLM(), config.protocol, names=config.systems, options=config.system_options
    ).check_options()
    store = open_store(config, settings, work)
    config = store.manifest.config
    async with _working(store, work, settings, config.systems) as run:
        cards = [run.registry.card(name) for name in run.systems]
        store.update_manifest(
            systems={card.name: card.model_dump(mode="json") for card in cards},
        )
        yield run


@asynccontextmanager
async def opened_part(
    name: str, settings: Settings, systems: Sequence[str]
) -> AsyncIterator[Runtime[Any]]:
    """Open an existing run to work on some of its systems, by the names of their cards.

    Settings come from the manifest, which is read and never written. Raises
    `UsageError` when there is no such run, when its data set or a system is
    another one here, or when it has no such system.
    """
    store = RunStore.open(run_location(settings.runs, name))
    manifest = store.manifest
    work = workload_of(manifest.config)
    check_digest(manifest, work)
    given = dict(zip(manifest.systems, manifest.config.systems, strict=True))
    missing = [system for system in systems if system not in given]
    if missing:
        raise UsageError(f"run {name!r} has no system {', '.join(missing)}")
    names = [given[system] for system in systems]
    async with _working(store, work, settings, names) as run:
        for system in systems:
            check_card(manifest.systems[system], run.registry.card(system))
        run.share()
        yield run


def check_digest(manifest: Manifest, work: Workload) -> None:
    """Raises `UsageError` when a run was made from another version of the data set."""
    if manifest.dataset_digest != work.digest:
        raise UsageError(
            f"run {manifest.name!r} was made from another version of the data set "
            f"({manifest.dataset_digest[:12]}, now {work.digest[:12]}); "
            "choose another name with --run"
        )


def check_suite(config: RunConfig, cards: Iterable[SystemCard]) -> None:
    """Raises `UsageError` for systems that are no part of the run's suite."""
    others = [card.name for card in cards if config.suite not in card.suites]
    if others:
        raise UsageError(
            f"{', '.join(others)}: no part of the {config.suite} suite; `memprobe systems` tells "
            "what is"
        )


def check_card(recorded: SystemCard, found: SystemCard) -> None:
    """Raises `UsageError` when this machine's system is not the one of the run's manifest."""
    names = ("code", "package_version", "options")
    differ = [
        f"{name} {getattr(recorded, name) or 'none'} in the run, "
        f"{getattr(found, name) or 'none'} here"
        for name in names
        if getattr(recorded, name) != getattr(found, name)
    ]
    if differ:
        raise UsageError(
            f"system {recorded.name!r} is another one on this machine: {'; '.join(differ)}. "
            "Install the same on all workers"
        )


@asynccontextmanager
async def _working(
    store: RunStore, work: Workload, settings: Settings, names: Sequence[str]
) -> AsyncIterator[Runtime[Any]]:
    config = store.manifest.config
    users = users_of(config, work)
    ledger = Ledger.open(settings.ledger)
    embedder = MiniLM(ledger)
    gateway = Gateway(config, ledger, {"embedded": work.embedded(config, embedder)})
    door = Door(gateway, embedder)

    def line(system: str, user: str, stage: str, epoch: int) -> ModelLine:
        asker = Asker(run=config.name, suite=config.suite, stage=stage, system=system, user=user)
        return door.line(asker, epoch - 1)

    has_model = not config.model_of(Role.MEMORY).startswith("embedded/")
    registry = Registry(
        embedder,
        config.protocol,
        line if has_model else None,
        names=names,
        options=config.system_options,
        guarded=True,
    )
    cards = {registry.card(name).name: registry.card(name) for name in names}
    check_suite(config, cards.values())
    context = work.context(config, store, gateway, embedder, registry)
    needs_door = any(card.capabilities.takes_llm for card in cards.values())
    if needs_door:
        await door.start()
    try:
        run = Runtime(
            context, work, settings, gateway, ledger, registry, embedder, users, list(cards)
        )
        _OPEN[_place(config.name)] = run
        yield run
        await asyncio.to_thread(run.freeze)
    finally:
        _OPEN.pop(_place(config.name), None)
        await asyncio.to_thread(registry.close)
        if needs_door:
            await door.stop()
        await gateway.close()
        await embedder.close()
        await asyncio.to_thread(ledger.close)
