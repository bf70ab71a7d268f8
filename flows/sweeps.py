"""The sweeps that a Prefect server has: listed, started, watched, and their schedules switched."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flows import server
from flows.pools import deploy_command, pool_state
from memprobe.errors import MissingPrerequisite, UsageError
from memprobe.setting_values import nearest
from memprobe.settings import Settings

FLOW = "sweep"
POLL_S = 3.0
SAY_AGAIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep deployment. Times are ISO 8601 in UTC; `workers` are those online in its pool."""

    system: str
    deployment: str
    pool: str
    schedule: str | None
    active: bool
    next: str | None
    last: str | None
    last_state: str | None
    workers: int
    trouble: str | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Started:
    """A sweep that was started. `trouble` tells why nobody will take it up, if so."""

    system: str
    run: str
    flow_run: str
    pool: str
    state: str
    message: str
    trouble: str | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def use_server(settings: Settings) -> str:
    """The API of the server to talk to, exported for Prefect's client.

    `PREFECT_API_URL`, else the server that `memprobe up` keeps for the runs folder.
    Raises `MissingPrerequisite` when none answers.
    """
    given = server.given()
    if given is not None:
        if not server.healthy(given, timeout=10.0):
            raise MissingPrerequisite(
                f"PREFECT_API_URL is {given}, and no server answers there; start one with "
                "`memprobe up`"
            )
        return given
    runs = server.local_home(settings.runs)
    kept = server.running(runs)
    if kept is None:
        raise MissingPrerequisite(
            "sweeps live on a Prefect server, and none is up for this runs folder: run "
            "`memprobe up` in another terminal and do what it prints, or set PREFECT_API_URL"
        )
    os.environ.update(server.environment(server.prefect_home(runs), kept.api_url))
    return kept.api_url


def _stamp(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="seconds") if moment else None


async def _deployed(client: Any) -> dict[str, Any]:
    """The sweep deployments by system."""
    from prefect.client.schemas.filters import FlowFilter

    wanted = FlowFilter.model_validate({"name": {"any_": [FLOW]}})
    found = {}
    for deployment in await client.read_deployments(flow_filter=wanted):
        system = deployment.parameters.get("system")
        if system:
            found[str(system)] = deployment
    if not found:
        raise MissingPrerequisite(
            f"the server at {client.api_url} has no sweeps: run `{deploy_command()}`"
        )
    return dict(sorted(found.items()))


def _chosen(deployed: Mapping[str, Any], systems: Sequence[str]) -> dict[str, Any]:
    for system in systems:
        if system not in deployed:
            raise UsageError(
                f"there is no sweep of {system!r}{nearest(system, deployed)}; the server has: "
                f"{', '.join(deployed)}"
            )
    return {system: deployed[system] for system in dict.fromkeys(systems)}


async def _next(client: Any, deployment: Any) -> datetime | None:
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.server.schemas.schedules import CronSchedule

    wanted = {
        "deployment_id": {"any_": [str(deployment.id)]},
        "state": {"type": {"any_": ["SCHEDULED"]}},
    }
    found = await client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate(wanted),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
        limit=1,
    )
    if found:
        due: datetime | None = found[0].next_scheduled_start_time
        return due or found[0].expected_start_time
    # The server's scheduler looks once a minute; until then the schedule itself tells.
    times: list[datetime] = []
    for schedule in deployment.schedules:
        if schedule.active and hasattr(schedule.schedule, "cron"):
            own = CronSchedule(cron=schedule.schedule.cron, timezone=schedule.schedule.timezone)
            times += await own.get_dates(n=1)
    return min(times, default=None)


async def _last(client: Any, deployment: Any) -> Any:
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    wanted = {
        "deployment_id": {"any_": [str(deployment.id)]},
        "state": {"type": {"not_any_": ["SCHEDULED"]}},
    }
    found = await client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate(wanted),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=1,
    )
    return found[0] if found else None


async def list_sweeps(systems: Sequence[str] = ()) -> list[Sweep]:
    """The sweeps on the server, or those of some systems."""
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        deployed = await _deployed(client)
        chosen = _chosen(deployed, systems) if systems else deployed
        pools: dict[str, Any] = {}
        sweeps = []
        for system, deployment in chosen.items():
            pool = deployment.work_pool_name or ""
            if pool not in pools:
                pools[pool] = await pool_state(client, pool)
            crons = [getattr(s.schedule, "cron", str(s.schedule)) for s in deployment.schedules]
            last = await _last(client, deployment)
            sweeps.append(
                Sweep(
                    system=system,
                    deployment=f"{FLOW}/{deployment.name}",
                    pool=pool,
                    schedule=", ".join(crons) or None,
                    active=any(schedule.active for schedule in deployment.schedules),
                    next=_stamp(await _next(client, deployment)),
                    last=_stamp(last.start_time or last.expected_start_time) if last else None,
                    last_state=last.state_name if last else None,
                    workers=len(pools[pool].workers),
                    trouble=pools[pool].trouble,
                )
            )
    return sweeps


async def switch(systems: Sequence[str], active: bool) -> list[Sweep]:
    """Switch the schedules of sweeps on or off; gives them as they are then."""
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        for system, deployment in _chosen(await _deployed(client), systems).items():
            if not deployment.schedules:
                raise UsageError(
                    f"the sweep of {system} has no schedule to switch: run `{deploy_command()}`"
                )
            for schedule in deployment.schedules:
                await client.update_deployment_schedule(deployment.id, schedule.id, active=active)
    return await list_sweeps(systems)


async def start(systems: Sequence[str], parameters: Mapping[str, Any]) -> list[Started]:
    """Start sweeps now; all names are looked up before the first is started."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import arun_deployment

    from flows.sweep import sweep_name

    started = []
    async with get_client() as client:
        for system, deployment in _chosen(await _deployed(client), systems).items():
            begun = await arun_deployment(
                deployment.id,
                parameters={"system": system, **parameters},
                timeout=0,
                as_subflow=False,
                tags=["memprobe", "sweep"],
            )
            pool = deployment.work_pool_name or ""
            given = {**deployment.parameters, **parameters}
            day = begun.expected_start_time or datetime.now(UTC)
            started.append(
                Started(
                    system=system,
                    run=sweep_name(system, day, given.get("suite", "recovery")),
                    flow_run=str(begun.id),
                    pool=pool,
                    state=(begun.state and begun.state.name) or "Scheduled",
                    message="",
                    trouble=(await pool_state(client, pool)).trouble,
                )
            )
    return started


async def watch(
    started: Sequence[Started], say: Callable[[str], None], poll_s: float = POLL_S
) -> list[Started]:
    """Wait until all have ended; a pool that has no worker is said at once and then again."""
    from prefect.client.orchestration import get_client

    ended: dict[str, Started] = {}
    shown: dict[str, str] = {}
    said: dict[str, float] = {one.pool: time.monotonic() for one in started if one.trouble}
    async with get_client() as client:
        while True:
            waiting = set()
            for one in started:
                if one.system in ended:
                    continue
                state = (await client.read_flow_run(UUID(one.flow_run))).state
                if state is None:
                    continue
                name = state.name or state.type.value
                if shown.get(one.system) != name:
                    shown[one.system] = name
                    say(f"{one.system}: {name}")
                if state.is_final():
                    fields: dict[str, Any] = {
                        "state": name,
                        "message": state.message or "",
                        "trouble": None,
                    }
                    ended[one.system] = replace(one, **fields)
                elif state.is_scheduled() or state.is_pending():
                    waiting.add(one.pool)
            if len(ended) == len(started):
                return [ended[one.system] for one in started]
            for pool in sorted(waiting):
                trouble = (await pool_state(client, pool)).trouble
                if trouble is None:
                    said.pop(pool, None)
                elif time.monotonic() - said.get(pool, float("-inf")) >= SAY_AGAIN_S:
                    said[pool] = time.monotonic()
                    say(trouble)
            await asyncio.sleep(poll_s)
