"""What a run of each suite is conducted by, and what closes it."""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import task

from flows import runtime
from flows.conductor import Conductor, Elsewhere, Units
from flows.paradigms_units import ParadigmsConductor
from flows.recovery_units import RecoveryConductor
from flows.runtime import Runtime
from memprobe.types import SuiteName
from storage.catalog import build_catalog
from storage.runs import RunStore
from tasks import chunked, report, score
from tasks.paradigms.score import score_paradigms

CONDUCTORS: dict[SuiteName, type[Conductor[Any]]] = {
    "recovery": RecoveryConductor,
    "paradigms": ParadigmsConductor,
}


def conductor_of(
    run: Runtime[Any],
    units: Units | None = None,
    elsewhere: Elsewhere | None = None,
    *,
    part: bool = False,
) -> Conductor[Any]:
    """The conductor of the run's suite."""
    return CONDUCTORS[run.context.config.suite](run, units, elsewhere, part=part)


def score_layers(store: RunStore) -> None:
    """Every layer of a run that its units made, as metrics."""
    config = store.manifest.config
    if config.suite == "paradigms":
        score_paradigms(store)
        return
    for layer in chunked.layers(config):
        score.score_run(store, layer)


@task(name="report")
async def report_task(run: str) -> str:
    """Scores, catalog and report of what is there."""
    store = runtime.current(run).context.store
    await asyncio.to_thread(score_layers, store)
    await asyncio.to_thread(build_catalog, store)
    return str(await asyncio.to_thread(report.build_report, store))
