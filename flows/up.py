"""`memprobe up`: a tuned Prefect server that stays, ready for deployments."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from datetime import timedelta

from flows import server
from flows.pools import HEARTBEAT_S, POOL_OF, deploy_command, worker_command
from memprobe.errors import UsageError
from memprobe.settings import Settings

POOLS = tuple(POOL_OF.values())
ZOMBIES = "memprobe-zombies"
SILENCE = timedelta(seconds=90)


def ensure_pools() -> None:
    """Create the work pools that the server at `PREFECT_API_URL` lacks."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client:
        for name in POOLS:
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=name, type="process"))


async def prepare() -> None:
    """Create the work pools and the zombie automation on the server at `PREFECT_API_URL`.

    A flow run whose worker and process are both gone says nothing any more and
    would stay Running for ever; the automation calls it Crashed after 90 s
    without a heartbeat. Safe to call again.
    """
    from prefect.automations import Automation
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    await asyncio.to_thread(ensure_pools)
    async with get_client() as client:
        if await client.read_automations_by_name(ZOMBIES):
            return
    heartbeat = "prefect.flow-run.heartbeat"
    ended = {f"prefect.flow-run.{s}" for s in ("Completed", "Failed", "Cancelled", "Crashed")}
    automation = Automation(
        name=ZOMBIES,
        trigger=EventTrigger(
            after={heartbeat},
            expect={heartbeat, *ended},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=SILENCE,
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message="no heartbeat for 90 s")],
    )
    await automation.acreate()


def instructions(api_url: str) -> str:
    """What to type next, in another terminal."""
    return (
        f"Prefect server: {api_url.removesuffix('/api')}\n\n"
        "In another terminal:\n"
        f"  export PREFECT_API_URL={api_url}\n"
        f"  {deploy_command()}\n"
        f"  PREFECT_FLOWS_HEARTBEAT_FREQUENCY={HEARTBEAT_S} {worker_command(POOL_OF['cpu'])}\n"
        "  prefect deployment run memprobe/full -p users=2 --watch\n\n"
        "Systems that need a GPU (`memprobe systems` names them) want a worker on such a machine:\n"
        f"  PREFECT_FLOWS_HEARTBEAT_FREQUENCY={HEARTBEAT_S} {worker_command(POOL_OF['gpu'])}\n\n"
        "Sweeps, one a system, are listed, started and scheduled by `memprobe sweep`.\n"
        "`memprobe run` uses this server as long as it is up. Ctrl-C ends it."
    )


def up(settings: Settings, port: int = 4200) -> None:
    """Keep a server running until it is interrupted; reuses nothing that is already there."""
    runs = server.local_home(settings.runs)
    kept = server.running(runs)
    if kept is not None:
        raise UsageError(f"a server is up for {runs} already: {kept.ui_url}")
    home = server.prefect_home(runs)
    started, process = server.start(home, port, settings.server_database)
    try:
        os.environ.update(server.environment(home, started.api_url))
        asyncio.run(prepare())
        server.remember(runs, started)
        print(instructions(started.api_url), file=sys.stderr, flush=True)
        stopped = threading.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: stopped.set())
        while process.poll() is None and not stopped.wait(0.5):
            pass
    finally:
        server.forget(runs)
        server.stop(process)
