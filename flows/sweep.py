"""The `sweep` flow: one system over the data set, as often as its schedule says.

Every occurrence is a run of its own, named after the day for which it was
scheduled, so a late or repeated start of the same occurrence resumes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.conducting import chosen_by, measured

PREFIX = "sweep"


def sweep_name(system: str, scheduled: datetime) -> str:
    """The run of a system's sweep that was scheduled for this time, e.g. `sweep_rag_20300131`.

    The day is UTC's. The name is a folder's as it stands: nothing in it is escaped.
    """
    return f"{PREFIX}_{system}_{scheduled.astimezone(UTC):%Y%m%d}"


@flow(name="sweep", flow_run_name="sweep-{system}", log_prints=False)
async def sweep(
    system: str,
    users: int | list[str] | None = None,
    limit: int | None = None,
    model: str | None = None,
    run: str | None = None,
    config: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
) -> Any:
    """The recovery suite with one system, in a run of the scheduled day.

    `run` gives it another name. The other parameters are those of `memprobe`.
    """
    name = run or sweep_name(system, flow_run.scheduled_start_time)
    given = {"systems": [system], "users": users, "limit": limit, "model": model}
    chosen, settings = chosen_by(name, given, config, places)
    return await measured(chosen, settings, places)
