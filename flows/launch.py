"""Run the flow in this process, with a Prefect server where none is given."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from typing import Any

from flows import progress as progress_module
from flows import server
from flows.dask_units import check_runner
from flows.outcome import RunResult, result_of
from flows.preflight import check_models, check_systems, roles_of_run
from flows.progress import Progress
from flows.runtime import opened, run_location
from flows.units import partial_units, progress_of
from memprobe.config import RunConfig
from memprobe.errors import MissingPrerequisite, UsageError
from memprobe.places import exported, public
from memprobe.settings import PROCESS_OPTIONS, Settings
from memprobe.types import Role
from storage.manifest import RunStatus
from storage.runs import RunStore
from tasks import report


async def finished(config: RunConfig, settings: Settings) -> RunResult | None:
    """The result of a run that has nothing left to do; None when it has.

    No server is started and no model is loaded for it.
    """
    async with opened(config, settings) as run:
        store = run.context.store
        written = store.files.size(f"{report.FOLDER}/index.html") is not None
        units = progress_of(run)
        done = store.manifest.status is RunStatus.COMPLETE and units[0] == units[1]
        done = done and not partial_units(run)
        if not done or not written:
            return None
        page = await asyncio.to_thread(report.local_page, store)
        return result_of(run, RunStatus.COMPLETE, units, failures=[], report=str(page))


def _flow_result(config: RunConfig, settings: Settings) -> RunResult:
    # Prefect reads its settings when it is imported, so this comes after the server.
    from prefect.exceptions import TerminationSignal

    from flows.paradigms import paradigms
    from flows.recovery import memprobe

    suite_flow: Any = memprobe if config.suite == "recovery" else paradigms
    logging.getLogger("prefect").setLevel(logging.WARNING)
    if not settings.debug:
        # Failures end in the result; Prefect's own account of them is a traceback each.
        for name in ("prefect.flow_runs", "prefect.task_runs"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    processes = {option.name: getattr(settings, option.name) for option in PROCESS_OPTIONS}
    places = {**processes, **public({"runs": settings.runs, "ledger": settings.ledger})}

    async def run() -> Any:
        main = asyncio.current_task()
        assert main is not None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, main.cancel)
        loop.add_signal_handler(signal.SIGTERM, main.cancel)
        state = await suite_flow(
            run=config.name,
            config=config.model_dump(mode="json"),
            places=places,
            return_state=True,
        )
        # A run that is not complete ends in a failed state and has a result all the same.
        return await state.aresult(raise_on_failure=False)

    try:
        with exported(settings):
            found = asyncio.run(run())
    except TerminationSignal:
        # While a flow runs, Prefect's handler of SIGTERM stands before ours.
        raise KeyboardInterrupt from None
    if isinstance(found, BaseException):
        raise found
    return RunResult(**found)


def _warm(config: RunConfig) -> None:
    """Import what the run will need while the server starts: seconds that nobody waits for then."""
    with contextlib.suppress(Exception):
        # What is missing is told where it is needed.
        import sentence_transformers  # noqa: F401

        if any(not config.model_of(role).startswith("embedded/") for role in Role):
            from adapters.models.litellm_loader import load_litellm

            load_litellm()


def run_suite(config: RunConfig, settings: Settings, progress: Progress) -> RunResult:
    """Bring a run to its end, or go on with it where it stopped.

    Raises `KeyboardInterrupt` on Ctrl-C or SIGTERM after the state is saved.
    """
    progress_module.install(progress)
    check_runner(settings)
    # A new run that cannot go on must leave no folder; a finished one needs no model.
    where = run_location(settings.runs, config.name)
    known = RunStore.exists(where)
    if known and RunStore.open(where).manifest.origin is not None:
        raise UsageError(
            f"run {config.name!r} was imported, so there is nothing to play; `memprobe score` "
            "judges it again, and a run of your own needs another --run name"
        )
    if not known:
        check_systems(config)
        check_models(config, roles_of_run(config))
    progress.say("looking for finished units")
    result = asyncio.run(finished(config, settings))
    if result is not None:
        return result
    if known:
        check_systems(config)
        check_models(config, roles_of_run(config))
    if settings.no_server and not server.given():
        raise MissingPrerequisite(
            "--no-server is set and PREFECT_API_URL is not: set it to a running server's API"
        )
    address = server.given()
    if address and not server.healthy(address, timeout=10.0):
        raise MissingPrerequisite(
            f"PREFECT_API_URL is {address}, and no server answers there; start one with "
            "`memprobe up`, or unset the variable: a run then starts its own"
        )
    # No daemon: a thread cut off inside an import holds the import lock while the
    # interpreter ends, and the process hangs.
    threading.Thread(target=_warm, args=(config,), name="warm").start()
    progress.say("starting the Prefect server")
    with server.serving(server.local_home(settings.runs), settings.server_database):
        try:
            return _flow_result(config, settings)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
