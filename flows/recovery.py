"""The `memprobe` flow: roll out, recover, attribute, score, report.

A Prefect task is a unit of minutes, one (stage, system, user): about 550 task
runs for 5 systems and 50 users. Inside a unit plain asyncio makes the calls. The
artifact is the truth: a unit whose part is there with the same fingerprint is
not run; Prefect's own cache is a fast path on top, with a flat key and an
explicit code version, and is refreshed when it disagrees with the artifacts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from prefect import flow, task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import TaskRunContext
from prefect.states import Completed, Failed

from flows import progress, runtime
from flows.outcome import RunResult, result_of
from flows.runtime import Runtime
from flows.units import Chain, chains, measured, progress_of
from memprobe.config import RunConfig
from memprobe.errors import BudgetExceeded, CallFailed, MemProbeError
from memprobe.ids import slug
from memprobe.outcomes import Reason, Unscored
from memprobe.places import settled
from memprobe.settings import load_settings
from storage.catalog import build_catalog
from storage.manifest import RunStatus
from storage.packed import PACK, pack
from storage.runs import RunStore, Unit
from tasks import attribute, judge_check, oracle, recover, report, rollout, score
from tasks.commit import is_partial, is_there
from tasks.inputs import store_inputs

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
async def rollout_task(run: str, unit: str, mark: str, system: str, user: str, epoch: int) -> str:
    """One user's episodes with one system."""
    return await rollout.rollout_user(runtime.current(run).context, system, user, epoch)


@task(name="measure", task_run_name="{unit}", **CACHED)
async def measure_task(run: str, unit: str, mark: str, system: str, user: str, epoch: int) -> str:
    """Recovery of one user from one system in all modes, then its attribution."""
    context = runtime.current(run).context
    await recover.recover_user(context, system, user, epoch)
    return await attribute.attribute_user(context, system, user, epoch)


@task(name="oracle", task_run_name="{unit}", **CACHED)
async def oracle_task(run: str, unit: str, mark: str, user: str) -> str:
    """Stage 0 for one user's tasks."""
    return await oracle.oracle_user(runtime.current(run).context, user)


@task(name="judge-check", task_run_name="{unit}", **CACHED)
async def judge_check_task(run: str, unit: str, mark: str, users: list[str]) -> str:
    """The planted answers of this run."""
    return await judge_check.judge_check(runtime.current(run).context, tuple(users))


@task(name="report")
async def report_task(run: str) -> str:
    """Scores, catalog and report of what is there."""
    context = runtime.current(run).context
    await asyncio.to_thread(score.score_run, context.store)
    await asyncio.to_thread(build_catalog, context.store)
    path = await asyncio.to_thread(report.build_report, context.store)
    return str(path)


class Conductor:
    """Runs the units of one flow run in the order that their inputs allow."""

    def __init__(self, run: Runtime) -> None:
        self.run = run
        self.context = run.context
        self.name = run.context.config.name
        self.failures: list[str] = []
        self.broken: dict[str, MemProbeError] = {}
        self.out_of_budget: BudgetExceeded | None = None
        self.slots = asyncio.Semaphore(MAX_CHAINS)
        self.ended = 0
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
        parameters = {"run": self.name, "unit": unit.slug, "mark": mark, **arguments}
        try:
            await job.with_options(refresh_cache=again)(**parameters)
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
            await job.with_options(refresh_cache=True)(**parameters)
        except MemProbeError:
            raise
        except Exception as error:
            raise MemProbeError(f"{type(error).__name__}: {error}") from error

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
        key = (chain.system, chain.user, chain.epoch)
        async with self.slots:
            rolled = await self.unit(
                "rollout",
                rollout.rollout_unit(*key),
                rollout.rollout_fingerprint(self.context, *key),
                rollout_task,
                **place,
            )
            if not rolled:
                await self.give_up(chain, rollout.rollout_unit(*key))
            if not rolled or not await oracle_done:
                return
            recovered, attributed = measured(self.context, chain)
            store = self.context.store
            if not is_there(store, *recovered):
                # Attributions of verdicts that are lost: both are made again.
                store.reset(attributed[0])
            unit, mark = attributed
            if not await self.unit("measure", unit, mark, measure_task, **place):
                await self.give_up(chain, unit)
        self.ended += 1
        if self.ended % PACK == 0:
            await asyncio.to_thread(pack, self.context.store)

    async def give_up(self, chain: Chain, unit: Unit) -> None:
        """Leave rows that say why a broken chain was not measured; a stopped one has none."""
        error = self.broken.get(unit.slug)
        if error is None:
            return
        reason = error.reason if isinstance(error, CallFailed) else Reason.ADAPTER_ERROR
        failure = Unscored(reason, str(error))
        key = (chain.system, chain.user, chain.epoch)
        await recover.give_up_user(self.context, *key, failure)
        await attribute.attribute_user(self.context, *key, failed=True)

    async def all(self) -> None:
        """Every unit of the run; failures of one chain leave the others alone."""
        self.expect()
        oracles = {user: asyncio.create_task(self.oracle(user)) for user in self.run.users}
        await asyncio.gather(
            self.judge_check(), *(self.chain(c, oracles[c.user]) for c in self.chains)
        )
        await asyncio.gather(*oracles.values())


async def conduct(run: Runtime) -> RunResult:
    """Bring a run to its end inside a flow: units, then scores, catalog and report."""
    store = run.context.store
    progress.current().watch(run.usage)
    conductor = Conductor(run)
    with store.lock():
        store.update_manifest(status=RunStatus.RUNNING)
        store_inputs(run.context, run.users)
        try:
            await conductor.all()
        except BaseException:
            run.ledger.flush()
            store.update_manifest(status=RunStatus.INTERRUPTED)
            raise
        run.ledger.flush()
        report.export_calls(store, run.ledger)
        done, total = progress_of(run)
        if conductor.out_of_budget is not None:
            status = RunStatus.INTERRUPTED
        else:
            whole = done == total and not conductor.failures
            status = RunStatus.COMPLETE if whole else RunStatus.FAILED
        store.update_manifest(
            status=status,
            dropped_params={m: tuple(sorted(p)) for m, p in run.gateway.dropped_params.items()},
        )
        path = await report_task(run.context.config.name)
    return result_of(run, status, (done, total), failures=conductor.failure_lines(), report=path)


async def publish(store: RunStore, result: RunResult) -> None:
    """The summary as Prefect artifacts, for whoever watches the server's page."""
    await acreate_table_artifact(
        key="recovery-summary", table=result.summary, description=f"run {result.run}"
    )
    text = await asyncio.to_thread(report.summary, store)
    await acreate_markdown_artifact(
        key="report", markdown=f"{text}\nReport: `{result.report}`\n", description=result.status
    )


@flow(name="memprobe", flow_run_name="memprobe-{run}", log_prints=False)
async def memprobe(
    run: str = "full",
    systems: list[str] | None = None,
    users: int | list[str] | None = None,
    model: str | None = None,
    config: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
) -> Any:
    """The recovery suite from rollout to report.

    `config` holds any field of a run's configuration, `places` of its settings
    (`runs`, `ledger`); `systems`, `users` and `model` are shortcuts for the most
    used ones. Whatever is not given comes from the environment and
    `memprobe.toml`. The same `run` again resumes it.
    """
    settings, base = load_settings()
    settings = settled(settings, places or {})
    given = {"systems": systems, "users": users, "model": model}
    fields = {
        **base,
        **(config or {}),
        **{k: v for k, v in given.items() if v is not None},
        "name": run,
    }
    chosen = RunConfig.model_validate(fields)
    async with runtime.opened(chosen, settings) as opened:
        result = await conduct(opened)
        await publish(opened.context.store, result)
    return ending(result)


def ending(result: RunResult) -> Any:
    """The flow run's state: what is not complete must not look completed to a scheduler."""
    if result.status == "complete":
        return Completed(message="complete", data=result.as_dict())
    message = "; ".join(result.failures) or f"{result.units_done} of {result.units_total} units"
    return Failed(message=f"{result.status}: {message}", data=result.as_dict())
