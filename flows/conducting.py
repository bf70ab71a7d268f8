"""Bringing a run of any suite to its end inside a flow."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import deployment, flow_run
from prefect.states import Completed, Failed

from flows import progress, runtime
from flows.conductor import Elsewhere
from flows.dask_units import units_of
from flows.dispatch import Dispatcher, Parent
from flows.outcome import RunResult, result_of
from flows.pools import own_kind
from flows.runtime import Runtime
from flows.suites import conductor_of, report_task
from flows.units import progress_of
from memprobe.config import RunConfig
from memprobe.places import settled
from memprobe.settings import Settings, load_settings
from memprobe.types import SuiteName
from storage.manifest import RunStatus
from storage.runs import RunStore
from tasks import report

LIVE_S = 3.0
"""How old the counters of a display may be when they come from the ledger."""


async def conduct(run: Runtime[Any], elsewhere: Elsewhere | None = None) -> RunResult:
    """Bring a run to its end inside a flow: units, then scores, catalog and report."""
    store = run.context.store
    progress.current().watch(lambda: run.usage(LIVE_S))
    sent = elsewhere.systems if elsewhere is not None else frozenset()
    with contextlib.ExitStack() as locks:
        locks.enter_context(store.lock())
        for system in run.systems:
            if system not in sent:
                # A part that outlived its conductor may still be at work on it.
                locks.enter_context(store.part_lock(system))
        store.update_manifest(status=RunStatus.RUNNING)
        run.work.store_inputs(run.context, run.users)
        try:
            async with units_of(run.settings) as units:
                if units is not None or sent:
                    run.share()
                conductor = conductor_of(run, units, elsewhere)
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
        dropped = {model: set(names) for model, names in run.gateway.dropped_params.items()}
        for model, names in conductor.dropped.items():
            dropped.setdefault(model, set()).update(names)
        store.update_manifest(
            status=status,
            dropped_params={model: tuple(sorted(names)) for model, names in dropped.items()},
        )
        path = await report_task(run.context.config.name)
    return result_of(run, status, (done, total), failures=conductor.failure_lines(), report=path)


async def publish(store: RunStore, result: RunResult) -> None:
    """The summary as Prefect artifacts, for whoever watches the server's page."""
    await acreate_table_artifact(
        key=f"{store.manifest.config.suite}-summary",
        table=result.summary,
        description=f"run {result.run}",
    )
    text = await asyncio.to_thread(report.summary, store)
    await acreate_markdown_artifact(
        key="report", markdown=f"{text}\nReport: `{result.report}`\n", description=result.status
    )


def chosen_by(
    run: str,
    given: dict[str, Any],
    config: dict[str, Any] | None,
    places: dict[str, Any] | None,
    suite: SuiteName = "recovery",
) -> tuple[RunConfig, Settings]:
    """A run's configuration and settings: what is given, over environment and file."""
    settings, base = load_settings(suite)
    fields = {
        **base,
        **(config or {}),
        **{k: v for k, v in given.items() if v is not None},
        "name": run,
        "suite": suite,
    }
    return RunConfig.model_validate(fields), settled(settings, places or {})


async def measured(config: RunConfig, settings: Settings, places: dict[str, Any] | None) -> Any:
    """The body of a flow that measures: the run to its end, its summary, the flow run's state."""
    async with runtime.opened(config, settings) as opened:
        result = await conduct(opened, await dispatcher_of(opened, places))
        await publish(opened.context.store, result)
    return ending(result, config.error_threshold)


async def dispatcher_of(run: Runtime[Any], places: dict[str, Any] | None) -> Dispatcher | None:
    """Who takes the systems of other pools; None outside a deployment, or when there are none."""
    if deployment.id is None or flow_run.id is None:
        return None
    kinds = {card.name: card.pool for card in map(run.registry.card, run.systems)}
    async with get_client() as client:
        mine = await own_kind(client, flow_run.id)
    others = {system: kind for system, kind in kinds.items() if kind != mine}
    if not others:
        return None
    return Dispatcher(
        Parent(str(flow_run.id), flow_run.run_count or 1),
        others,
        worker_wait=run.settings.worker_wait,
        given=places,
        warn=get_run_logger().warning,
    )


def ending(result: RunResult, error_threshold: float) -> Any:
    """The flow run's state: what is not complete must not look completed to a scheduler.

    Nor must a run with a larger share of unscored items than the error threshold.
    """
    if result.status == "complete" and result.error_share > error_threshold:
        share = f"{result.error_share:.1%} of the items could not be scored"
        return Failed(message=f"complete, but {share}: {result.unscored}", data=result.as_dict())
    if result.status == "complete":
        return Completed(message="complete", data=result.as_dict())
    message = "; ".join(result.failures) or f"{result.units_done} of {result.units_total} units"
    return Failed(message=f"{result.status}: {message}", data=result.as_dict())
