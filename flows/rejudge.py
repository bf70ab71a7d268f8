"""A second judge over a finished run: a layer of verdicts beside the first."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adapters.memory.registry import Registry
from adapters.models.embedded.provider import EmbeddedProvider
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from memprobe.config import RunConfig
from memprobe.dataset import load_dataset
from memprobe.errors import UsageError
from memprobe.ids import slug
from memprobe.settings import Resolved
from memprobe.types import Role
from storage.bundled import recovery_dir
from storage.importers.dataset import stored_dataset
from storage.ledger import Ledger
from storage.runs import RunStore
from tasks.context import RunContext
from tasks.rejudge import check_layer, rejudge_user
from tasks.report import export_calls

LIMITS = ("max_connections", "call_timeout", "max_cost")


def second_config(stored: RunConfig, resolved: Resolved, judge: str) -> RunConfig:
    """The run's settings with another judge and the limits that were given."""
    given = {name: resolved.values[name] for name in resolved.given() & set(LIMITS)}
    roles = {**stored.model_roles, Role.JUDGE: judge}
    return stored.model_copy(update={**given, "model_roles": roles})


async def rejudge_run(
    store: RunStore, resolved: Resolved, judge: str, layer: str | None
) -> tuple[str, dict[str, int]]:
    """Judge all recovered users of a run again; returns the layer and the calls it took.

    The caller holds the run's lock. Interrupted, the same command goes on: users
    that are done are skipped, finished calls are in the ledger. Raises
    `UsageError` when the data set is not the run's any more.
    """
    name = check_layer(layer or slug(f"judge_{judge}")[:48].rstrip("_"))
    config = second_config(store.manifest.config, resolved, judge)
    if store.manifest.stored_layer(name) != name:
        raise UsageError(
            f"layer {name!r} is what the import is called; choose another --layer name"
        )
    if store.manifest.origin is not None:
        dataset = stored_dataset(store)
    else:
        dataset = load_dataset(Path(config.dataset) if config.dataset else recovery_dir())
    if dataset.digest != store.manifest.dataset_digest:
        raise UsageError(
            f"run {store.name!r} was made from another version of the data set "
            f"({store.manifest.dataset_digest[:12]}, now {dataset.digest[:12]}); "
            "its labels cannot be judged against the present truth"
        )
    chains = [
        (s.unit.system, s.unit.user, int(s.unit.variant.removeprefix("e") or 1))
        for s in store.units()
        if s.unit.stage == "recover" and s.complete
    ]
    if not chains:
        raise UsageError(f"run {store.name!r} has no verdicts yet: memprobe resume {store.name}")
    ledger = Ledger.open(resolved.settings.ledger)
    embedder = MiniLM(ledger)
    gateway = Gateway(
        config, ledger, {"embedded": EmbeddedProvider(dataset, config.seed, embedder)}
    )
    context = RunContext(
        config, dataset, store, gateway, embedder, Registry(embedder, config.protocol)
    )
    try:
        await asyncio.gather(*(rejudge_user(context, s, u, name, e) for s, u, e in chains))
        await asyncio.to_thread(ledger.flush)
        await asyncio.to_thread(export_calls, store, ledger)
        return name, {"new_calls": gateway.new_calls}
    finally:
        await gateway.close()
        await embedder.close()
        await asyncio.to_thread(ledger.close)
