"""Work pools and their workers, as a Prefect server tells them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from memprobe.errors import MissingPrerequisite
from storage.bundled import deploy_dir

Kind = Literal["cpu", "gpu"]
POOL_OF: dict[Kind, str] = {"cpu": "memprobe-cpu", "gpu": "memprobe-gpu"}
"""The pool that `deploy/prefect.yaml` gives each kind of system."""
HEARTBEAT_S = 30
"""What workers are to be started with, for the zombie automation."""
BEATS = 1.5
"""Heartbeats that a worker may be late: the server itself waits for three."""


def deploy_command() -> str:
    """The command that makes all deployments."""
    return f"prefect deploy --prefect-file {deploy_dir() / 'prefect.yaml'} --all"


def worker_command(pool: str) -> str:
    """The command that starts a worker of a pool."""
    return f"prefect worker start --pool {pool}"


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool at one moment. `workers` are the names of those that live."""

    pool: str
    exists: bool
    paused: bool
    workers: tuple[str, ...]

    @property
    def trouble(self) -> str | None:
        """Why nothing that is scheduled there will start, with the command that helps."""
        if not self.exists:
            return f"there is no work pool {self.pool}: run `{deploy_command()}`"
        if self.paused:
            return f"work pool {self.pool} is paused: run `prefect work-pool resume {self.pool}`"
        if not self.workers:
            return (
                f"no worker of pool {self.pool} is online: run `{worker_command(self.pool)}` "
                f"on a machine for it, with PREFECT_FLOWS_HEARTBEAT_FREQUENCY={HEARTBEAT_S} set"
            )
        return None


def alive(worker: Any, now: datetime) -> bool:
    """Whether a worker's last heartbeat is fresh; the server notices a silent one late."""
    beat = worker.last_heartbeat_time
    if beat is None or str(worker.status).rpartition(".")[2].upper() != "ONLINE":
        return False
    allowed = BEATS * (worker.heartbeat_interval_seconds or HEARTBEAT_S)
    return bool(now - beat <= timedelta(seconds=allowed))


async def pool_state(client: Any, pool: str) -> PoolState:
    """A pool as the server tells it now."""
    from prefect.exceptions import ObjectNotFound

    try:
        found = await client.read_work_pool(pool)
        workers = await client.read_workers_for_work_pool(pool)
    except ObjectNotFound:
        return PoolState(pool, False, False, ())
    now = datetime.now(UTC)
    names = tuple(worker.name for worker in workers if alive(worker, now))
    return PoolState(pool, True, bool(found.is_paused), names)


async def deployment(client: Any, name: str) -> Any:
    """A deployment by `flow/name`; raises `MissingPrerequisite` with the command that makes it."""
    from prefect.exceptions import ObjectNotFound

    try:
        return await client.read_deployment_by_name(name)
    except ObjectNotFound:
        raise MissingPrerequisite(
            f"the Prefect server has no deployment {name}: run `{deploy_command()}`"
        ) from None


async def own_kind(client: Any, flow_run: Any) -> Kind:
    """The kind of systems that belong to the pool in which a flow run was started.

    It is told by the pools of the part deployments, since pools may have other
    names than ours; a pool of neither counts as cpu.
    """
    pool = (await client.read_flow_run(flow_run)).work_pool_name
    for kind in POOL_OF:
        try:
            part = await deployment(client, f"memprobe-part/{kind}")
        except MissingPrerequisite:
            continue
        if part.work_pool_name == pool:
            return kind
    return "cpu"
