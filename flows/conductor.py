"""Who runs the units of a run in the order that their inputs allow; the suites fill it in.

A Prefect task is a unit of minutes, one (stage, system, user): about 550 task
runs for 5 systems and 50 users. Inside a unit plain asyncio makes the calls. The
artifact is the truth: a unit whose part is there with the same fingerprint is
not run; Prefect's own cache is a fast path on top, with a flat key and an
explicit code version, and is refreshed when it disagrees with the artifacts.
Arguments are ids and paths: a task may run in another process
(`flows/dask_units.py`), and opens what it needs there.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Generic, Protocol

from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import TaskRunContext

from flows import progress
from flows.accounts import Account
from flows.runtime import ContextT, Runtime
from flows.units import Chain, Marked, chains
from memprobe.errors import BudgetExceeded, CallFailed, MemProbeError
from memprobe.ids import slug
from memprobe.outcomes import Reason, Unscored
from storage.packed import PACK, pack
from storage.runs import Unit
from tasks.commit import is_partial, is_there

MAX_CHAINS = 64
"""Stores open at the same time in one process."""
MAX_PROCESSES = max(2, os.cpu_count() or 2)
"""Stores of one system open at the same time that each have a process of their own."""


def cache_key(_: TaskRunContext, parameters: dict[str, Any]) -> str:
    """A flat key: no path, no slash, and the unit's fingerprint as its version."""
    return f"{slug(parameters['run'])}__{parameters['unit']}__{parameters['mark'][:16]}"


CACHED: dict[str, Any] = {
    "cache_policy": CacheKeyFnPolicy(cache_key_fn=cache_key),
    "persist_result": True,
    "result_serializer": "json",
}


class Units(Protocol):
    """Other processes that run tasks."""

    async def run(self, job: Any, parameters: dict[str, Any]) -> None:
        """Run one task to its end; raises what it raised."""
        ...


class Elsewhere(Protocol):
    """Other work pools that run whole systems."""

    systems: frozenset[str]

    async def perform(
        self, run: Runtime[Any], system: str, ready: Callable[[], Awaitable[Any]]
    ) -> Account:
        """Have a system's part done once `ready()` ends; tells what went wrong, raises nothing."""
        ...


class Conductor(ABC, Generic[ContextT]):
    """Runs the units of one flow run in the order that their inputs allow.

    `units` takes the tasks to other processes, `elsewhere` whole systems to
    other pools; without them all is done here. `part`: another process conducts
    the run and this one has some of its systems.
    """

    shown: ClassVar[dict[str, tuple[str, ...]]] = {}
    """What a task is called where stages are counted: by the units that it leaves."""

    def __init__(
        self,
        run: Runtime[ContextT],
        units: Units | None = None,
        elsewhere: Elsewhere | None = None,
        *,
        part: bool = False,
    ) -> None:
        self.run = run
        self.units = units
        self.elsewhere = elsewhere
        self.is_part = part
        self.context = run.context
        self.name = run.context.config.name
        self.failures: list[str] = []
        self.broken: dict[str, MemProbeError] = {}
        self.out_of_budget: BudgetExceeded | None = None
        self.slots = asyncio.Semaphore(MAX_CHAINS)
        self.ended = 0
        self.dropped: dict[str, set[str]] = {}
        self.systems = run.systems
        self.chains = chains(self.context, self.systems, run.users)
        self._own: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_PROCESSES)
        )

    @abstractmethod
    def stages(self) -> tuple[str, ...]:
        """The stages of a chain, as they are counted."""

    @abstractmethod
    def units_of(self, chain: Chain) -> tuple[Marked, ...]:
        """What a chain leaves, in the order of `stages`."""

    @abstractmethod
    async def work(self, chain: Chain) -> bool:
        """Have a chain's units done; tells whether it came to its end."""

    @abstractmethod
    async def give_up(self, chain: Chain, failure: Unscored) -> None:
        """Leave rows that say why a chain was not measured."""

    async def before(self) -> None:
        """What every chain of the run needs, e.g. of a part; raises nothing."""

    async def beside(self) -> None:
        """Units of the run that no chain waits for."""

    def failure_lines(self) -> list[str]:
        """What went wrong, a line each; the cost limit counts as one."""
        limit = [str(self.out_of_budget)] if self.out_of_budget is not None else []
        return [*limit, *self.failures]

    def expect(self) -> None:
        """Tell the display what is to come; nobody watches a part's counters."""
        if self.is_part:
            return
        per_system = len(self.chains) // max(1, len(self.systems))
        for system in self.systems:
            for stage in self.stages():
                progress.current().expect(stage, system, per_system)

    async def unit(
        self,
        stage: str,
        unit: Unit,
        mark: str,
        job: Callable[..., Awaitable[Any]],
        **arguments: Any,
    ) -> bool:
        """Run one unit unless its artifact is there for good; tells whether it is there now."""
        store = self.context.store
        if not store.is_complete(unit, mark):
            if self.out_of_budget is not None:
                return False
            progress.current().say(unit.slug)
            # What Prefect remembers of a unit with failed items is the failure.
            again = is_partial(store, unit, mark)
            try:
                await self._through_prefect(unit, mark, job, arguments, again=again)
            except BudgetExceeded as error:
                self.out_of_budget = error
                return False
            except MemProbeError as error:
                self.failures.append(f"{unit.slug}: {error}")
                self.broken[unit.slug] = error
                return False
        for name in self.shown.get(stage, (stage,)):
            progress.current().finish(name, unit.system)
        return True

    async def _through_prefect(
        self, unit: Unit, mark: str, job: Any, arguments: dict[str, Any], *, again: bool
    ) -> None:
        store = self.context.store
        identity = {"run": self.name, "unit": unit.slug, "mark": mark}
        parameters = {**identity, "places": self.run.places, **arguments}
        try:
            await self._call(job.with_options(refresh_cache=again), parameters)
        except MemProbeError:
            raise
        except Exception as error:
            # A damaged result file of Prefect's cache fails the task instead of missing.
            if is_there(store, unit, mark):
                return
            progress.current().say(f"{unit.slug}: again after {type(error).__name__}: {error}")
        if is_there(store, unit, mark):
            return
        try:
            await self._call(job.with_options(refresh_cache=True), parameters)
        except MemProbeError:
            raise
        except Exception as error:
            raise MemProbeError(f"{type(error).__name__}: {error}") from error

    async def _call(self, job: Any, parameters: dict[str, Any]) -> None:
        if self.units is None:
            await job(**parameters)
        else:
            await self.units.run(job, parameters)

    async def chain(self, chain: Chain) -> None:
        """A chain to its end, in the place that its system's process leaves."""
        async with AsyncExitStack() as places:
            await places.enter_async_context(self.slots)
            if self.context.systems.card(chain.system).process == "own":
                await places.enter_async_context(self._own[chain.system])
            ended = await self.work(chain)
        if ended:
            await self.chain_ended()

    async def chain_ended(self) -> None:
        """Pack the tables now and then; that belongs to the whole run."""
        self.ended += 1
        if self.ended % PACK == 0 and not self.is_part:
            await asyncio.to_thread(pack, self.context.store)

    async def break_off(self, chain: Chain, unit: Unit) -> None:
        """Give up a broken chain; one that was merely stopped leaves no rows."""
        error = self.broken.get(unit.slug)
        if error is None:
            return
        reason = error.reason if isinstance(error, CallFailed) else Reason.ADAPTER_ERROR
        await self.give_up(chain, Unscored(reason, str(error)))

    def finished(self, chain: Chain) -> bool:
        """Whether nothing of a chain is left to do, not even items that may be tried again."""
        return all(self.context.store.is_complete(*unit) for unit in self.units_of(chain))

    async def part(self, system: str, inputs: asyncio.Task[None]) -> None:
        """Have all chains of a system done in another pool, and account for those that are not."""
        assert self.elsewhere is not None
        mine = [chain for chain in self.chains if chain.system == system]
        if not all(self.finished(chain) for chain in mine):
            account = await self.elsewhere.perform(self.run, system, lambda: self._inputs(inputs))
            await self._settle(mine, account)
        self._show(mine)

    async def _inputs(self, inputs: asyncio.Task[None]) -> None:
        """What a part needs of this process; raises `BudgetExceeded` when nothing may follow."""
        await asyncio.wait([inputs])
        if self.out_of_budget is not None:
            raise self.out_of_budget

    async def _settle(self, mine: Sequence[Chain], account: Account) -> None:
        self.failures += account.failures
        for model, names in account.dropped.items():
            self.dropped.setdefault(model, set()).update(names)
        if account.stopped and self.out_of_budget is None:
            self.out_of_budget = BudgetExceeded(account.stopped)
        if account.failed is None:
            return
        for chain in mine:
            units = self.units_of(chain)
            there = all(is_there(self.context.store, *unit) for unit in units)
            # Where the part itself told why a chain broke off, its word stands.
            if not there and not {unit.slug for unit, _ in units} & set(account.broken):
                await self.give_up(chain, Unscored(Reason.ADAPTER_ERROR, account.failed))

    def _show(self, mine: Sequence[Chain]) -> None:
        for chain in mine:
            for stage, unit in zip(self.stages(), self.units_of(chain), strict=True):
                if is_there(self.context.store, *unit):
                    progress.current().finish(stage, chain.system)

    async def all(self) -> None:
        """Every unit of the run; failures of one chain leave the others alone."""
        self.expect()
        inputs = asyncio.create_task(self.before())
        sent = self.elsewhere.systems if self.elsewhere is not None else frozenset()
        await asyncio.gather(
            self.beside(),
            *(self.chain(c) for c in self.chains if c.system not in sent),
            *(self.part(s, inputs) for s in self.systems if s in sent),
        )
        await inputs
