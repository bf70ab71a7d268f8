"""The units of a run as Prefect tasks, and who runs them in the order that their inputs allow.

A Prefect task is a unit of minutes, one (stage, system, user): about 550 task
runs for 5 systems and 50 users. Inside a unit plain asyncio makes the calls. The
artifact is the truth: a unit whose part is there with the same fingerprint is
not run; Prefect's own cache is a fast path on top, with a flat key and an
explicit code version, and is refreshed when it disagrees with the artifacts.
Arguments are ids and paths: a task may run in another process (`flows/dask.py`),
and opens what it needs there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import TaskRunContext

from flows import progress, runtime
from flows.accounts import Account
from flows.runtime import Runtime
from flows.units import Chain, chains, finished, measured, rolled
from memprobe.errors import BudgetExceeded, CallFailed, MemProbeError
from memprobe.ids import slug
from memprobe.outcomes import Reason, Unscored
from storage.catalog import build_catalog
from storage.packed import PACK, pack
from storage.runs import Unit
from tasks import attribute, chunked, judge_check, oracle, recover, report, rollout, score
from tasks.commit import is_partial, is_there

MAX_CHAINS = 64
"""Stores open at the same time in one process."""

SHOWN = {"measure": ("recover", "attribute")}
"""What a task is called where stages are counted: by the units that it leaves."""


def cache_key(_: TaskRunContext, parameters: dict[str, Any]) -> str:
    """A flat key: no path, no slash, and the unit's fingerprint as its version."""
    return f"{slug(parameters['run'])}__{parameters['unit']}__{parameters['mark'][:16]}"


CACHED: dict[str, Any] = {
    "cache_policy": CacheKeyFnPolicy(cache_key_fn=cache_key),
    "persist_result": True,
    "result_serializer": "json",
}


@task(name="rollout", task_run_name="{unit}", **CACHED)
async def rollout_task(
    run: str, unit: str, mark: str, places: dict[str, str], system: str, user: str, epoch: int
) -> str:
    """One user's episodes with one system."""
    async with runtime.attached(run, places, [system]) as here:
        return await rollout.rollout_user(here.context, system, user, epoch)


@task(name="measure", task_run_name="{unit}", **CACHED)
async def measure_task(
    run: str, unit: str, mark: str, places: dict[str, str], system: str, user: str, epoch: int
) -> str:
    """Recovery of one user from one system in all modes, then its attribution."""
    async with runtime.attached(run, places, [system]) as here:
        await recover.recover_user(here.context, system, user, epoch)
        return await attribute.attribute_user(here.context, system, user, epoch)


@task(name="oracle", task_run_name="{unit}", **CACHED)
async def oracle_task(run: str, unit: str, mark: str, places: dict[str, str], user: str) -> str:
    """Stage 0 for one user's tasks."""
    async with runtime.attached(run, places) as here:
        return await oracle.oracle_user(here.context, user)


@task(name="judge-check", task_run_name="{unit}", **CACHED)
async def judge_check_task(
    run: str, unit: str, mark: str, places: dict[str, str], users: list[str]
) -> str:
    """The planted answers of this run."""
    async with runtime.attached(run, places) as here:
        return await judge_check.judge_check(here.context, tuple(users))


@task(name="report")
async def report_task(run: str) -> str:
    """Scores, catalog and report of what is there."""
    context = runtime.current(run).context
    for layer in chunked.layers(context.store.manifest.config):
        await asyncio.to_thread(score.score_run, context.store, layer)
    await asyncio.to_thread(build_catalog, context.store)
    path = await asyncio.to_thread(report.build_report, context.store)
    return str(path)


class Units(Protocol):
    """Other processes that run tasks."""

    async def run(self, job: Any, parameters: dict[str, Any]) -> None:
        """Run one task to its end; raises what it raised."""
        ...


class Elsewhere(Protocol):
    """Other work pools that run whole systems."""

    systems: frozenset[str]

    async def perform(
        self, run: Runtime, system: str, ready: Callable[[], Awaitable[Any]]
    ) -> Account:
        """Have a system's part done once `ready()` ends; tells what went wrong, raises nothing."""
        ...


class Conductor:
    """Runs the units of one flow run in the order that their inputs allow.

    `units` takes the tasks to other processes, `elsewhere` whole systems to
    other pools; without them all is done here.
    """

    def __init__(
        self, run: Runtime, units: Units | None = None, elsewhere: Elsewhere | None = None
    ) -> None:
        self.run = run
        self.units = units
        self.elsewhere = elsewhere
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

    def failure_lines(self) -> list[str]:
        """What went wrong, a line each; the cost limit counts as one."""
        limit = [str(self.out_of_budget)] if self.out_of_budget is not None else []
        return [*limit, *self.failures]

    def expect(self) -> None:
        """Tell the display what is to come."""
        shown = progress.current()
        per_system = len(self.chains) // max(1, len(self.systems))
        for system in self.systems:
            shown.expect("rollout", system, per_system)
            for stage in SHOWN["measure"]:
                shown.expect(stage, system, per_system)
        shown.expect("oracle", "", len(self.run.users))
        shown.expect("judge_check", "", 1)

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
        for name in SHOWN.get(stage, (stage,)):
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

    async def oracle(self, user: str) -> bool:
        return await self.unit(
            "oracle",
            oracle.oracle_unit(user),
            oracle.oracle_fingerprint(self.context, user),
            oracle_task,
            user=user,
        )

    async def judge_check(self) -> bool:
        return await self.unit(
            "judge_check",
            judge_check.judge_check_unit(),
            judge_check.judge_check_fingerprint(self.context, self.run.users),
            judge_check_task,
            users=list(self.run.users),
        )

    async def chain(self, chain: Chain, oracle_done: asyncio.Task[bool]) -> None:
        """Rollout, then measurement; a user's oracle runs beside the rollout."""
        place = {"system": chain.system, "user": chain.user, "epoch": chain.epoch}
        async with self.slots:
            unit, mark = rolled(self.context, chain)
            there = await self.unit("rollout", unit, mark, rollout_task, **place)
            if not there:
                await self._break_off(chain, unit)
            if not there or not await oracle_done:
                return
            recovered, attributed = measured(self.context, chain)
            store = self.context.store
            if not is_there(store, *recovered):
                # Attributions of verdicts that are lost: both are made again.
                store.reset(attributed[0])
            unit, mark = attributed
            if not await self.unit("measure", unit, mark, measure_task, **place):
                await self._break_off(chain, unit)
        await self.chain_ended()

    async def chain_ended(self) -> None:
        """Pack the tables now and then."""
        self.ended += 1
        if self.ended % PACK == 0:
            await asyncio.to_thread(pack, self.context.store)

    async def _break_off(self, chain: Chain, unit: Unit) -> None:
        """Give up a broken chain; one that was merely stopped leaves no rows."""
        error = self.broken.get(unit.slug)
        if error is None:
            return
        reason = error.reason if isinstance(error, CallFailed) else Reason.ADAPTER_ERROR
        await self.give_up(chain, Unscored(reason, str(error)))

    async def give_up(self, chain: Chain, failure: Unscored) -> None:
        """Leave rows that say why a chain was not measured."""
        key = (chain.system, chain.user, chain.epoch)
        await recover.give_up_user(self.context, *key, failure)
        await attribute.attribute_user(self.context, *key, failed=True)

    async def part(self, system: str, oracles: Sequence[asyncio.Task[bool]]) -> None:
        """Have all chains of a system done in another pool, and account for those that are not."""
        assert self.elsewhere is not None
        mine = [chain for chain in self.chains if chain.system == system]
        if not all(finished(self.context, chain) for chain in mine):
            account = await self.elsewhere.perform(self.run, system, lambda: self._inputs(oracles))
            await self._settle(mine, account)
        self._show(mine)

    async def _inputs(self, oracles: Sequence[asyncio.Task[bool]]) -> None:
        """What a part needs of this process; raises `BudgetExceeded` when nothing may follow."""
        await asyncio.wait(oracles)
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
            recovered, attributed = measured(self.context, chain)
            units = [rolled(self.context, chain), recovered, attributed]
            there = all(is_there(self.context.store, *unit) for unit in units)
            # Where the part itself told why a chain broke off, its word stands.
            if not there and not {unit.slug for unit, _ in units} & set(account.broken):
                await self.give_up(chain, Unscored(Reason.ADAPTER_ERROR, account.failed))

    def _show(self, mine: Sequence[Chain]) -> None:
        for chain in mine:
            made = {"rollout": rolled(self.context, chain)}
            made["recover"], made["attribute"] = measured(self.context, chain)
            for stage, unit in made.items():
                if is_there(self.context.store, *unit):
                    progress.current().finish(stage, chain.system)

    async def all(self) -> None:
        """Every unit of the run; failures of one chain leave the others alone."""
        self.expect()
        oracles = {user: asyncio.create_task(self.oracle(user)) for user in self.run.users}
        sent = self.elsewhere.systems if self.elsewhere is not None else frozenset()
        await asyncio.gather(
            self.judge_check(),
            *(self.chain(c, oracles[c.user]) for c in self.chains if c.system not in sent),
            *(self.part(s, list(oracles.values())) for s in self.systems if s in sent),
        )
        await asyncio.gather(*oracles.values())
