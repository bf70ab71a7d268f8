"""Units of a run on Dask workers: processes of this machine, or of a cluster.

A worker thread does one unit at a time and opens the run for it by its places,
so run, ledger and plug-in files must be reachable there under the same names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import util
from typing import Any

from memprobe.errors import MissingPrerequisite
from memprobe.settings import Settings


def check_runner(settings: Settings) -> None:
    """Raises `MissingPrerequisite` with the command that installs a chosen runner."""
    if settings.task_runner == "dask" and util.find_spec("prefect_dask") is None:
        raise MissingPrerequisite(
            "--task-runner dask needs Prefect's Dask integration: "
            "pip install 'memprobe-audit[dask]'"
        )


class DaskUnits:
    """Submits tasks to a started `DaskTaskRunner` and waits without holding the event loop."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    async def run(self, job: Any, parameters: dict[str, Any]) -> None:
        """Run one task to its end; raises what it raised there."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell(_: object) -> None:
            # A loop that is gone has nobody who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        future = self._runner.submit(job, parameters).wrapped_future
        future.add_done_callback(tell)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            future.cancel()
            raise
        state = future.result()
        await state.aresult()


@asynccontextmanager
async def units_of(settings: Settings) -> AsyncIterator[DaskUnits | None]:
    """What runs the tasks by these settings; None when this process does.

    Raises `MissingPrerequisite` when Dask is not installed or its scheduler
    does not answer.
    """
    check_runner(settings)
    if settings.task_runner == "local":
        yield None
        return
    from prefect_dask.task_runners import DaskTaskRunner

    where: dict[str, Any] = {
        "cluster_kwargs": {
            "n_workers": settings.dask_workers,
            "threads_per_worker": 1,
            "dashboard_address": None,
        }
    }
    if settings.dask_address:
        where = {"address": settings.dask_address}
    if not settings.debug:
        # Dask tells of every connection, and of workers that it has to end; failures of
        # tasks come back as exceptions.
        logging.getLogger("distributed").setLevel(logging.ERROR)
    runner = DaskTaskRunner(**where)
    with runner:
        try:
            # The first look makes or finds the cluster, which takes seconds.
            await asyncio.to_thread(lambda: runner.client)
        except (OSError, ValueError) as error:
            raise MissingPrerequisite(
                f"no Dask scheduler answers at {settings.dask_address or 'this machine'} "
                f"({error}); start one with `dask scheduler` and workers with "
                "`dask worker ADDRESS`, or leave --dask-address out"
            ) from error
        yield DaskUnits(runner)
