"""Whole systems in other work pools: started, watched, and accounted for.

`run_deployment` does not raise when a child fails and waits for a worker for
ever, so both are looked after here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.deployments import arun_deployment
from prefect.exceptions import PrefectException
from prefect.states import Cancelled, Cancelling

from flows import progress
from flows.accounts import Account, read_account
from flows.pools import Kind, deployment, pool_state
from flows.runtime import Runtime
from memprobe.errors import BudgetExceeded, MemProbeError
from storage.lock import lock_owner
from storage.runs import RunStore

POLL_S = 5.0
SAY_AGAIN_S = 180.0
SILENT = 3
"""Looks in a row that find a running part's process dead before it is believed."""
ENDING_S = 20.0
"""How long a part that is told to stop is waited for."""


def run_tag(run: str) -> str:
    """The tag of all flow runs that work on parts of a run."""
    return f"memprobe-run:{run}"


def system_tag(system: str) -> str:
    """The tag of a flow run that works on one system."""
    return f"memprobe-system:{system}"


@dataclass(frozen=True, slots=True)
class Parent:
    """The flow run that conducts: its id and how often it was started."""

    flow_run: str
    run_count: int = 1


class Dispatcher:
    """Has systems done by the deployments `memprobe-part/<kind>`.

    `kinds` maps each system that is not done here to its card's pool.
    `warn` takes what a person must know now, e.g. the flow's logger.
    """

    def __init__(
        self,
        parent: Parent,
        kinds: dict[str, Kind],
        *,
        worker_wait: float,
        given: dict[str, Any] | None = None,
        warn: Callable[[str], None] = print,
        poll_s: float = POLL_S,
    ) -> None:
        self.systems = frozenset(kinds)
        self._parent = parent
        self._kinds = kinds
        self._wait_s = worker_wait
        self._given = dict(given or {})
        self._warn = warn
        self._poll_s = poll_s

    async def perform(
        self, run: Runtime[Any], system: str, ready: Callable[[], Awaitable[Any]]
    ) -> Account:
        """Have a system's part done once `ready()` ends; tells what went wrong, raises nothing."""
        name = f"memprobe-part/{self._kinds[system]}"
        try:
            async with get_client() as client:
                target = await deployment(client, name)
                pool = target.work_pool_name or ""
                watch = _Missing(client, pool, system, self._wait_s, self._warn)
                # Whoever has to start a worker learns it now, not when it is needed.
                await watch.look()
                await ready()
                part = _Part(client, run.context.store, system, watch, self._poll_s)
                found = await part.running(run.context.config.name)
                if found is not None:
                    await part.until_ended(found)
                child = await self._start(run, system, name)
                return await part.until_ended(child)
        except BudgetExceeded as error:
            return Account(stopped=str(error))
        except (MemProbeError, PrefectException, httpx.HTTPError, OSError) as error:
            text = f"{system}: {error}"
            return Account(failures=(text,), failed=text)

    async def _start(self, run: Runtime[Any], system: str, name: str) -> FlowRun:
        manifest = run.context.store.manifest
        parent = self._parent
        return await arun_deployment(
            name,
            parameters={
                "run": manifest.name,
                "system": system,
                "begun": manifest.created_at,
                "places": {**self._given, **run.places},
            },
            timeout=0,
            # A start that is asked for twice is one; a retried parent asks anew.
            idempotency_key=f"{parent.flow_run}:{parent.run_count}:{manifest.name}:{system}",
            tags=["memprobe", "part", run_tag(manifest.name), system_tag(system)],
            flow_run_name=f"part-{manifest.name}-{system}",
        )


class _Missing:
    """Notices that nobody will take what is scheduled in a pool, and says so."""

    def __init__(
        self,
        client: PrefectClient,
        pool: str,
        system: str,
        wait_s: float,
        warn: Callable[[str], None],
    ) -> None:
        self._client = client
        self._pool = pool
        self._system = system
        self.wait_s = wait_s
        self.warn = warn
        self._said: tuple[str, float] | None = None
        self._told = False

    async def look(self) -> str | None:
        """What is wrong with the pool now; said at once, and again every few minutes."""
        trouble = (await pool_state(self._client, self._pool)).trouble
        if trouble is None:
            if self._said is not None:
                self.warn(f"{self._system}: pool {self._pool} has a worker now")
            self._said = None
            return None
        now = time.monotonic()
        if self._said is None or self._said[0] != trouble or now - self._said[1] >= SAY_AGAIN_S:
            self._said = trouble, now
            await self._say(f"{self._system} is not measured yet: {trouble}")
        return trouble

    async def _say(self, text: str) -> None:
        self.warn(f"{text} (waiting up to {self.wait_s:g} s)")
        progress.current().say(text)
        if not self._told:
            self._told = True
            # The warning must not fail the run that it is about.
            with contextlib.suppress(Exception):
                key = "missing-worker-" + "".join(
                    c if c.isalnum() else "-" for c in self._pool.lower()
                )
                await acreate_markdown_artifact(key=key, markdown=text, description=text[:200])


class _Part:
    """One system's part while another process works on it."""

    def __init__(
        self,
        client: PrefectClient,
        store: RunStore,
        system: str,
        missing: _Missing,
        poll_s: float,
    ) -> None:
        self._client = client
        self._store = store
        self._system = system
        self._missing = missing
        self._poll_s = poll_s

    async def running(self, run: str) -> FlowRun | None:
        """A part of an earlier conductor that still works on the system, so that two never do.

        Those that have not begun are cancelled.
        """
        for left in await self._found(run, "SCHEDULED", "PENDING"):
            await self._stop(left.id)
        lock = lock_owner(self._store.files, self._store.part_file(self._system, "lock"))
        if lock is None or not lock[1]:
            return None
        found = await self._found(run, "RUNNING", "CANCELLING")
        return found[0] if found else None

    async def _found(self, run: str, *states: str) -> list[FlowRun]:
        tags = {"all_": [run_tag(run), system_tag(self._system)]}
        wanted = {"tags": tags, "state": {"type": {"any_": list(states)}}}
        return await self._client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(wanted)
        )

    async def until_ended(self, child: FlowRun) -> Account:
        """Wait for a part; one that no worker takes is cancelled and given up."""
        try:
            state, why = await self._watch(child.id)
        except BaseException:
            await asyncio.shield(self._stop(child.id))
            raise
        account = read_account(self._store, self._system, str(child.id))
        if account is not None and state.is_final() and not (state.is_crashed()):
            return account
        if why is None and state.is_completed():
            why = "its flow run completed and left no account of itself in the run's folder"
        text = f"{self._system}: {why or f'its flow run {child.name} {_ending(state)}'}"
        return Account(failures=(text,), failed=text)

    async def _watch(self, flow_run: UUID) -> tuple[State[Any], str | None]:
        waiting: float | None = None
        dead = 0
        said = time.monotonic()
        while True:
            state = await self._state(flow_run)
            if state.is_final():
                return state, None
            if state.is_scheduled() or state.is_pending():
                trouble = await self._missing.look()
                waiting = waiting or time.monotonic() if trouble else None
                if waiting is not None and time.monotonic() - waiting >= self._missing.wait_s:
                    await self._stop(flow_run)
                    return state, f"given up after {self._missing.wait_s:g} s: {trouble}"
                if trouble is None and time.monotonic() - said >= SAY_AGAIN_S:
                    said = time.monotonic()
                    self._missing.warn(f"{self._system} waits for a free worker")
            elif state.is_running():
                dead = dead + 1 if self._process_died() else 0
                if dead >= SILENT:
                    return state, "its process died and its flow run does not know"
            await asyncio.sleep(self._poll_s)

    def _process_died(self) -> bool:
        lock = lock_owner(self._store.files, self._store.part_file(self._system, "lock"))
        return lock is not None and not lock[1]

    async def _state(self, flow_run: UUID) -> State[Any]:
        """The state now; a server that is away for a while is waited for."""
        failing = time.monotonic()
        while True:
            try:
                found = await self._client.read_flow_run(flow_run)
                assert found.state is not None
                return found.state
            except httpx.HTTPError:
                if time.monotonic() - failing >= self._missing.wait_s:
                    raise
                await asyncio.sleep(self._poll_s)

    async def _stop(self, flow_run: UUID) -> None:
        """Cancel a part, and give a running one time to save its state."""
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(ENDING_S):
                found = await self._client.read_flow_run(flow_run)
                if found.state is None or found.state.is_final():
                    return
                begun = found.state.is_running()
                await self._client.set_flow_run_state(
                    flow_run, Cancelling() if begun else Cancelled(), force=not begun
                )
                if begun:
                    # Without a worker nobody carries the order out; the part then goes on.
                    await self._watch(flow_run)


def _ending(state: State[Any]) -> str:
    message = f": {state.message}" if state.message else ""
    return f"ended {state.name}{message}"
