"""What a process needs to work on a run: data set, ledger, gateway, systems, store.

Prefect passes ids and paths only; each process builds its own clients here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prompts
from adapters.memory.guard import Guarded
from adapters.memory.registry import Registry
from adapters.models.door import Door
from adapters.models.embedded.provider import EmbeddedProvider
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from memprobe.config import RunConfig, merge_config
from memprobe.dataset import Dataset, load_dataset
from memprobe.errors import UsageError
from memprobe.ids import slug
from memprobe.settings import Settings
from memprobe.systems import ModelAccess
from memprobe.types import Asker, Role
from storage.bundled import recovery_dir
from storage.ledger import Ledger
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.context import RunContext

PROMPTS = (
    "assistant",
    "simulator",
    "preference",
    "slot_fill",
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
    if store.manifest.dataset_digest != dataset.digest:
        raise UsageError(
            f"run {config.name!r} was made from another version of the data set "
            f"({store.manifest.dataset_digest[:12]}, now {dataset.digest[:12]}); "
            "choose another name with --run"
        )
    known = [user.user_id for user in dataset.users]
    merged = merge_config(store.manifest.config, config, known)
    changes: dict[str, Any] = {
        "config": merged.model_dump(mode="json"),
        "prompts": {name: prompts.load(name).identity for name in PROMPTS},
    }
    store.update_manifest(**changes)
    return store


@dataclass(slots=True)
class Runtime:
    """One run, opened in this process."""

    context: RunContext
    gateway: Gateway
    ledger: Ledger
    registry: Registry
    embedder: MiniLM
    users: tuple[str, ...]
    systems: list[str]

    def usage(self) -> tuple[int, int, int, int, float | None]:
        """Sent calls, ledger hits, prompt and completion tokens, dollars of this process."""
        return self.gateway.usage()


_OPEN: dict[str, Runtime] = {}


def current(name: str) -> Runtime:
    """The runtime of a run that is open in this process."""
    return _OPEN[name]


@asynccontextmanager
async def opened(config: RunConfig, settings: Settings) -> AsyncIterator[Runtime]:
    """Open a run; everything is closed, and the ledger flushed, when the block ends."""
    dataset = dataset_of(config)
    check_scripts(config, dataset, users_of(config, dataset))
    # A name that cannot be loaded must not enter the manifest: the run could never go on.
    Registry(MiniLM(), config.protocol, names=config.systems)
    store = open_store(config, settings, dataset)
    config = store.manifest.config
    users = users_of(config, dataset)
    ledger = Ledger.open(settings.ledger)
    embedder = MiniLM(ledger)
    embedded = EmbeddedProvider(dataset, config.seed, embedder)
    gateway = Gateway(config, ledger, {"embedded": embedded})
    door = Door(gateway, embedder)

    def models(system: str, user: str) -> ModelAccess:
        asker = Asker(
            run=config.name, suite=config.suite, stage="rollout", system=system, user=user
        )
        return ModelAccess(
            base_url=door.url,
            api_key=door.token(asker),
            chat_model=config.model_of(Role.MEMORY),
            embedding_model=embedder.name,
        )

    has_model = not config.model_of(Role.MEMORY).startswith("embedded/")
    registry = Registry(
        embedder,
        config.protocol,
        models if has_model else None,
        names=config.systems,
    )
    cards = {registry.card(name).name: registry.card(name) for name in config.systems}
    store.update_manifest(
        systems={name: card.model_dump(mode="json") for name, card in cards.items()},
    )
    context = RunContext(config, dataset, store, gateway, embedder, Guarded(registry))
    needs_door = any(card.capabilities.needs_llm for card in cards.values())
    if needs_door:
        await door.start()
    try:
        run = Runtime(context, gateway, ledger, registry, embedder, users, list(cards))
        _OPEN[config.name] = run
        yield run
    finally:
        _OPEN.pop(config.name, None)
        if needs_door:
            await door.stop()
        await gateway.close()
        await embedder.close()
        await asyncio.to_thread(ledger.close)
