"""Work on what a run has stored: its context with other models, and its chains one by one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from adapters.memory.registry import Registry
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from flows.workloads import stored_workload
from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.ports import MemorySystem
from memprobe.settings import Resolved
from memprobe.systems import SystemCard
from memprobe.types import Role
from storage.ledger import Ledger
from storage.runs import RunStore
from tasks.report import export_calls

LIMITS = ("max_connections", "call_timeout", "max_cost")
AT_ONCE = 4
"""Chains under way at a time: their prompts are in memory, and one has dozens of calls."""
MADE_BY = {
    "rejudge": "memprobe score",
    "reread": "memprobe reread",
    "reattribute": "memprobe attribute",
}
Tell = Callable[[int, int, str], None]
"""Told of done chains, all chains, and what was done last."""


@dataclass(frozen=True, slots=True)
class StoredChain:
    """What a run has stored of one system with one user in one epoch."""

    system: str
    user: str
    epoch: int

    def __str__(self) -> str:
        epoch = "" if self.epoch == 1 else f", epoch {self.epoch}"
        return f"{self.system}, {self.user}{epoch}"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """An open run with what its stages work with."""

    context: Any
    gateway: Gateway
    ledger: Ledger
    embedder: MiniLM


def limited(stored: RunConfig, resolved: Resolved, roles: dict[Role, str]) -> RunConfig:
    """The run's settings with other models of some roles and the limits that were given."""
    given = {name: resolved.values[name] for name in resolved.given() & set(LIMITS)}
    return stored.model_copy(update={**given, "model_roles": {**stored.model_roles, **roles}})


def own_layer(store: RunStore, layer: str) -> str:
    """The name itself; raises `UsageError` for what an import calls its own layer."""
    if store.manifest.stored_layer(layer) != layer:
        raise UsageError(
            f"layer {layer!r} is what the import is called; choose another --layer name"
        )
    return layer


def free_layer(store: RunStore, stage: str, layer: str) -> dict[str, str]:
    """The fingerprints of what a layer holds of a stage already, by unit.

    Raises `UsageError` when the name is taken by what another command made.
    """
    own_layer(store, layer)
    made: dict[str, str] = {}
    for state in store.units():
        unit = state.unit
        if unit.variant != layer and not re.fullmatch(rf"{layer}_e\d+", unit.variant):
            continue
        if unit.stage == stage and state.complete:
            made[unit.slug] = state.fingerprint
        elif unit.stage in MADE_BY and unit.stage != stage:
            raise UsageError(
                f"layer {layer!r} holds what `{MADE_BY[unit.stage]}` made; "
                "choose another --layer name"
            )
    return made


def chains_of(
    store: RunStore,
    stage: str,
    systems: Sequence[str] | None = None,
    users: int | Sequence[str] | None = None,
) -> list[StoredChain]:
    """The chains whose unit of a stage is complete, by user.

    Raises `UsageError` naming those there are when one that was asked for is not there.
    """
    found = [
        StoredChain(s.unit.system, s.unit.user, int(s.unit.variant.removeprefix("e") or 1))
        for s in store.units()
        if s.unit.stage == stage and s.complete
    ]
    if not found:
        raise UsageError(f"run {store.name!r} has nothing to read: memprobe resume {store.name}")
    there = {chain.system for chain in found}, sorted({chain.user for chain in found})
    if isinstance(users, int):
        users = there[1][:users]
    for kind, asked, known in (("system", systems, there[0]), ("user", users, there[1])):
        missing = [name for name in asked or () if name not in known]
        if missing:
            raise UsageError(
                f"run {store.name!r} has no {kind} {', '.join(missing)}; "
                f"there are: {', '.join(sorted(known)[:20])}"
            )
    chosen = [
        chain
        for chain in found
        if (systems is None or chain.system in systems) and (users is None or chain.user in users)
    ]
    return sorted(chosen, key=lambda chain: (chain.epoch, chain.user, chain.system))


async def each(
    chains: Sequence[StoredChain],
    job: Callable[[StoredChain], Awaitable[object]],
    tell: Tell,
    at_once: int = AT_ONCE,
) -> None:
    """Run a job for every chain, some at a time; the first error stops the rest."""
    waiting = iter(chains)
    done = 0

    async def work() -> None:
        nonlocal done
        for chain in waiting:
            await job(chain)
            done += 1
            tell(done, len(chains), str(chain))

    tell(0, len(chains), "reading what is stored")
    workers = [asyncio.create_task(work()) for _ in range(min(at_once, len(chains)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class RecordedCards:
    """The systems of a run as its manifest has them: they need not be installed here."""

    def __init__(self, store: RunStore, registry: Registry) -> None:
        self._cards = store.manifest.systems
        self._registry = registry

    def card(self, name: str) -> SystemCard:
        """The recorded card, else the one of this machine."""
        return self._cards.get(name) or self._registry.card(name)

    def create(self, name: str, user: str, stage: str = "rollout", epoch: int = 1) -> MemorySystem:
        """As the registry's; work on what is stored makes none."""
        return self._registry.create(name, user, stage, epoch)


Work = Callable[[Any, StoredChain], Awaitable[object]]
"""What a stage does with one chain."""


async def over_chains(
    store: RunStore,
    resolved: Resolved,
    config: RunConfig,
    chains: Sequence[StoredChain],
    work: Work,
    tell: Tell,
    at_once: int = AT_ONCE,
) -> dict[str, int]:
    """Do a stage's work on every chain of an opened run; tells the calls and texts it took.

    The caller holds the run's lock. Interrupted, the same again goes on: chains that
    are done are skipped by the stage, finished calls are in the ledger.
    """
    async with stored_run(store, resolved, config) as run:
        await each(chains, lambda chain: work(run.context, chain), tell, at_once)
        return {"new_calls": run.gateway.new_calls, "encoded": run.embedder.encoded}


@asynccontextmanager
async def stored_run(
    store: RunStore, resolved: Resolved, config: RunConfig
) -> AsyncIterator[StoredRun]:
    """Open a run's stored side under other settings; closed, its calls are exported.

    The caller holds the run's lock. Nothing is played: there is no door for
    systems and none of them is made.
    """
    work = stored_workload(store)
    ledger = Ledger.open(resolved.settings.ledger)
    embedder = MiniLM(ledger)
    gateway = Gateway(config, ledger, {"embedded": work.embedded(config, embedder)})
    systems = RecordedCards(store, Registry(embedder, config.protocol))
    context = work.context(config, store, gateway, embedder, systems)
    try:
        yield StoredRun(context, gateway, ledger, embedder)
        await asyncio.to_thread(ledger.flush)
        await asyncio.to_thread(export_calls, store, ledger)
    finally:
        await gateway.close()
        await embedder.close()
        await asyncio.to_thread(ledger.close)
