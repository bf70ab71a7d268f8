"""What a process needs to work on a run: data set, ledger, gateway, systems, store.

Prefect passes ids and paths only; each process builds its own clients here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prompts
from adapters.memory.registry import Registry
from adapters.models.door import Door
from adapters.models.embedded.provider import EmbeddedProvider
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from memprobe.config import RunConfig, merge_config
from memprobe.dataset import Dataset, load_dataset
from memprobe.errors import UsageError
from memprobe.ids import slug
from memprobe.places import public, settled
from memprobe.settings import Settings, load_settings
from memprobe.systems import ModelLine, SystemCard
from memprobe.types import Asker, Role
from storage.bundled import recovery_dir
from storage.ledger import Ledger, Spending
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.context import RunContext

SQLITE = "sqlite:///"
PROMPTS = (
    "assistant",
    "simulator",
    "preference",
    "slot_fill",
    "slot_fill_merge",
    "retrieval_query",
    "judge",
    "oracle",
    "disclosure",
    "subclass",
)


def run_location(runs: str, name: str) -> str:
    """Where the run of that name lies."""
    return f"{runs.rstrip('/')}/{slug(name)}"


def dataset_of(config: RunConfig) -> Dataset:
    """The data set of a run: the bundled one, or the folder that `--dataset` names."""
    return load_dataset(Path(config.dataset) if config.dataset else recovery_dir())


def users_of(config: RunConfig, dataset: Dataset) -> tuple[str, ...]:
    """The ids of a run's users; raises `UsageError` when there are not enough of them."""
    known = [user.user_id for user in dataset.users]
    if config.users is None:
        return tuple(known)
    if isinstance(config.users, int):
        if config.users > len(known):
            raise UsageError(
                f"--users {config.users}: data set {dataset.name!r} has {len(known)} users; "
                "`memprobe generate` makes more"
            )
        return tuple(known[: config.users])
    missing = [user for user in config.users if user not in known]
    if missing:
        raise UsageError(
            f"--users: no user {', '.join(missing)} in data set {dataset.name!r}; "
            f"there are: {', '.join(known[:20])}"
        )
    return tuple(config.users)


def check_scripts(config: RunConfig, dataset: Dataset, users: tuple[str, ...]) -> None:
    """Raises `UsageError` when the embedded profile is to play users without scripts."""
    roles = (Role.ASSISTANT, Role.SIMULATOR)
    if not any(config.model_of(role).startswith("embedded/") for role in roles):
        return
    silent = [u for u in users if any(t.script is None for t in dataset.user(u).tasks)]
    if silent:
        raise UsageError(
            f"the embedded profile plays from scripts, and {', '.join(silent[:5])} of data set "
            f"{dataset.name!r} has none: give a model for assistant and simulator with --model"
        )


def open_store(config: RunConfig, settings: Settings, dataset: Dataset) -> RunStore:
    """The run's store: a new one, or the existing one with its settings extended.

    Raises `UsageError` when the run exists with other settings that would change
    its figures, or was made from another data set.
    """
    location = run_location(settings.runs, config.name)
    if not RunStore.exists(location):
        manifest = Manifest.start(
            config,
            dataset_name=dataset.name,
            dataset_digest=dataset.digest,
            prompts={name: prompts.load(name).identity for name in PROMPTS},
        )
        return RunStore.create(location, manifest)
    store = RunStore.open(location)
    check_digest(store.manifest, dataset)
    known = [user.user_id for user in dataset.users]
    merged = merge_config(store.manifest.config, config, known)
    changes: dict[str, Any] = {
        "config": merged.model_dump(mode="json"),
        "prompts": {name: prompts.load(name).identity for name in PROMPTS},
    }
    store.update_manifest(**changes)
    return store


Usage = tuple[int, int, int, int, float | None]


@dataclass(slots=True)
class Runtime:
    """One run, opened in this process."""

    context: RunContext
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


_OPEN: dict[tuple[str, int], Runtime] = {}
"""By run and event loop: a gateway belongs to one loop, and a Dask worker has one a thread."""


def _place(name: str) -> tuple[str, int]:
    return name, id(asyncio.get_running_loop())


def current(name: str) -> Runtime:
    """The runtime of a run that is open in this event loop."""
    return _OPEN[_place(name)]


@asynccontextmanager
async def attached(
    name: str, places: Mapping[str, str], systems: Sequence[str] = ()
) -> AsyncIterator[Runtime]:
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
async def opened(config: RunConfig, settings: Settings) -> AsyncIterator[Runtime]:
    """Open a run; everything is closed, and the ledger flushed, when the block ends."""
    dataset = dataset_of(config)
    check_scripts(config, dataset, users_of(config, dataset))
    # A name that cannot be loaded must not enter the manifest: the run could never go on.
    Registry(
        MiniLM(), config.protocol, names=config.systems, options=config.system_options
    ).check_options()
    store = open_store(config, settings, dataset)
    config = store.manifest.config
    async with _working(store, dataset, settings, config.systems) as run:
        cards = [run.registry.card(name) for name in run.systems]
        store.update_manifest(
            systems={card.name: card.model_dump(mode="json") for card in cards},
        )
        yield run


@asynccontextmanager
async def opened_part(
    name: str, settings: Settings, systems: Sequence[str]
) -> AsyncIterator[Runtime]:
    """Open an existing run to work on some of its systems, by the names of their cards.

    Settings come from the manifest, which is read and never written. Raises
    `UsageError` when there is no such run, when its data set or a system is
    another one here, or when it has no such system.
    """
    store = RunStore.open(run_location(settings.runs, name))
    manifest = store.manifest
    dataset = dataset_of(manifest.config)
    check_digest(manifest, dataset)
    given = dict(zip(manifest.systems, manifest.config.systems, strict=True))
    missing = [system for system in systems if system not in given]
    if missing:
        raise UsageError(f"run {name!r} has no system {', '.join(missing)}")
    names = [given[system] for system in systems]
    async with _working(store, dataset, settings, names) as run:
        for system in systems:
            check_card(manifest.systems[system], run.registry.card(system))
        run.share()
        yield run


def check_digest(manifest: Manifest, dataset: Dataset) -> None:
    """Raises `UsageError` when a run was made from another version of the data set."""
    if manifest.dataset_digest != dataset.digest:
        raise UsageError(
            f"run {manifest.name!r} was made from another version of the data set "
            f"({manifest.dataset_digest[:12]}, now {dataset.digest[:12]}); "
            "choose another name with --run"
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
    store: RunStore, dataset: Dataset, settings: Settings, names: Sequence[str]
) -> AsyncIterator[Runtime]:
    config = store.manifest.config
    users = users_of(config, dataset)
    ledger = Ledger.open(settings.ledger)
    embedder = MiniLM(ledger)
    embedded = EmbeddedProvider(dataset, config.seed, embedder)
    gateway = Gateway(config, ledger, {"embedded": embedded})
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
    context = RunContext(config, dataset, store, gateway, embedder, registry)
    needs_door = any(card.capabilities.needs_llm for card in cards.values())
    if needs_door:
        await door.start()
    try:
        run = Runtime(context, settings, gateway, ledger, registry, embedder, users, list(cards))
        _OPEN[_place(config.name)] = run
        yield run
        await asyncio.to_thread(run.freeze)
    finally:
        _OPEN.pop(_place(config.name), None)
        if needs_door:
            await door.stop()
        await gateway.close()
        await embedder.close()
        await asyncio.to_thread(ledger.close)
