"""The `sweep` flow: one system over a suite's data, as often as its schedule says.

Every occurrence is a run of its own, named after the day for which it was
scheduled, so a late or repeated start of the same occurrence resumes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.conducting import chosen_by, measured
from memprobe.types import SuiteName

PREFIX = "sweep"


def sweep_name(system: str, scheduled: datetime, suite: SuiteName = "recovery") -> str:
    """The run of a system's sweep that was scheduled for this time, e.g. `sweep_rag_20300131`.

    The day is UTC's. A suite other than recovery stands in the name. The name is a
    folder's as it stands: nothing in it is escaped.
    """
    which = system if suite == "recovery" else f"{suite}_{system}"
    return f"{PREFIX}_{which}_{scheduled.astimezone(UTC):%Y%m%d}"


@flow(name="sweep", flow_run_name="sweep-{system}", log_prints=False)
async def sweep(
    system: str,
    users: int | list[str] | None = None,
    limit: int | None = None,
    model: str | None = None,
    run: str | None = None,
    suite: SuiteName = "recovery",
    config: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
) -> Any:
    """A suite with one system, in a run of the scheduled day.

    `run` gives it another name. The other parameters are those of the suite's flow.
    """
    name = run or sweep_name(system, flow_run.scheduled_start_time, suite)
    given = {"systems": [system], "users": users, "limit": limit, "model": model}
    chosen, settings = chosen_by(name, given, config, places, suite)
    return await measured(chosen, settings, places)
