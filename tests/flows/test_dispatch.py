"""Systems that are sent to another pool: what is started, what is waited for, what is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import (
    Cancelled,
    Completed,
    Crashed,
    Failed,
    Pending,
    Running,
    Scheduled,
)

from flows import dispatch
from flows.accounts import Account, read_account, write_account
from flows.dispatch import Dispatcher, Parent
from flows.runtime import Runtime
from memprobe.config import RunConfig
from memprobe.errors import BudgetExceeded
from storage.manifest import Manifest
from storage.runs import RunStore

DEAD = {"host": "", "pid": 1, "started": "never"}


async def at_once() -> None:
    """Nothing to wait for."""


class Server:
    """A Prefect server as far as a dispatcher sees it."""

    def __init__(self, *states: State[Any], workers: int = 1, deployed: bool = True) -> None:
        self.states = list(states)
        self.workers = workers
        self.deployed = deployed
        self.started: list[dict[str, Any]] = []
        self.set: list[tuple[UUID, str, bool]] = []
        self.left: dict[str, list[UUID]] = {}
        self.child = uuid4()
        self.on_look = lambda: None

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read_deployment_by_name(self, name: str) -> Any:
        if not self.deployed:
            raise ObjectNotFound(Exception("404"))
        return SimpleNamespace(work_pool_name="memprobe-gpu")

    async def read_work_pool(self, name: str) -> Any:
        return SimpleNamespace(is_paused=False)

    async def read_workers_for_work_pool(self, name: str) -> list[Any]:
        from datetime import UTC, datetime

        beat = datetime.now(UTC)
        one = SimpleNamespace(
            name="w", status="ONLINE", last_heartbeat_time=beat, heartbeat_interval_seconds=30
        )
        return [one] * self.workers

    async def read_flow_run(self, flow_run: UUID) -> Any:
        self.on_look()
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return SimpleNamespace(id=flow_run, name="part-r-big", state=state)

    async def read_flow_runs(self, *, flow_run_filter: Any) -> list[Any]:
        asked = [t.value for t in flow_run_filter.state.type.any_]
        assert flow_run_filter.tags.all_ == ["memprobe-run:r", "memprobe-system:big"]
        found = [i for name in asked for i in self.left.get(name, [])]
        return [SimpleNamespace(id=i, name="left") for i in found]

    async def set_flow_run_state(self, flow_run: UUID, state: Any, force: bool = False) -> None:
        self.set.append((flow_run, state.type.value, force))
        self.states = [Cancelled()]

    async def start(self, name: str, **more: Any) -> Any:
        self.started.append({"name": name, **more})
        return SimpleNamespace(id=self.child, name="part-r-big")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    manifest = Manifest.start(RunConfig(name="r"), dataset_name="d", dataset_digest="0" * 64)
    return RunStore.create(tmp_path / "r", manifest)


class Site:
    """A dispatcher at a fake server."""

    def __init__(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.monkeypatch = monkeypatch
        self.said: list[str] = []
        self.artifacts: list[str] = []

    async def perform(
        self, server: Server, *, wait: float = 5.0, ready: Any = None, count: int = 1
    ) -> Account:
        async def artifact(**fields: Any) -> None:
            self.artifacts.append(fields["key"])

        self.monkeypatch.setattr(dispatch, "get_client", lambda: server)
        self.monkeypatch.setattr(dispatch, "arun_deployment", server.start)
        self.monkeypatch.setattr(dispatch, "acreate_markdown_artifact", artifact)
        run = SimpleNamespace(
            context=SimpleNamespace(store=self.store, config=RunConfig(name="r")),
            places={"runs": "/shared", "ledger": "postgresql://u:***@h/d"},
        )
        sender = Dispatcher(
            Parent("parent", count),
            {"big": "gpu"},
            worker_wait=wait,
            warn=self.said.append,
            poll_s=0.005,
        )
        return await sender.perform(cast(Runtime, run), "big", ready or at_once)


@pytest.fixture
def site(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(store, monkeypatch)


def accounted(store: RunStore, server: Server, **fields: Any) -> Account:
    account = Account(token=str(server.child), **fields)
    write_account(store, "big", account)
    return account


async def test_a_part_that_completes_is_started_once_and_told_by_its_account(site: Site) -> None:
    server = Server(Scheduled(), Pending(), Running(), Completed())
    account = accounted(site.store, server)
    assert await site.perform(server, count=2) == account
    (started,) = server.started
    assert started["name"] == "memprobe-part/gpu"
    assert started["timeout"] == 0
    assert started["idempotency_key"] == "parent:2:r:big"
    assert {"memprobe-run:r", "memprobe-system:big"} <= set(started["tags"])
    assert started["parameters"] == {
        "run": "r",
        "system": "big",
        "begun": site.store.manifest.created_at,
        "places": {"runs": "/shared", "ledger": "postgresql://u:***@h/d"},
    }
    assert site.said == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (Failed(message="no such model"), "ended Failed: no such model"),
        (Crashed(message="out of memory"), "ended Crashed: out of memory"),
        (Cancelled(), "ended Cancelled"),
        (Completed(), "left no account"),
    ],
)
async def test_a_part_without_an_account_of_its_own_has_failed(
    site: Site, state: State[Any], said: str
) -> None:
    write_account(site.store, "big", Account(token="another flow run"))
    account = await site.perform(Server(Running(), state))
    assert said in str(account.failed)
    assert account.failures == (account.failed,)


async def test_a_crash_after_the_account_of_an_earlier_try_counts(site: Site) -> None:
    server = Server(Running(), Crashed(message="killed"))
    accounted(site.store, server)
    assert "ended Crashed: killed" in str((await site.perform(server)).failed)


async def test_a_failed_part_is_taken_at_its_word(site: Site) -> None:
    server = Server(Failed(message="rollout__big__u: down"))
    account = accounted(site.store, server, failures=("down",), broken=("rollout__big__u",))
    assert await site.perform(server) == account


async def test_a_missing_worker_is_told_before_anything_is_waited_for(site: Site) -> None:
    server = Server(Scheduled(), workers=0)
    told: list[list[str]] = []

    async def ready() -> None:
        told.append(list(site.said))

    account = await site.perform(server, wait=0.05, ready=ready)
    assert len(told[0]) == 1
    assert "`prefect worker start --pool memprobe-gpu`" in told[0][0]
    assert site.artifacts == ["missing-worker-memprobe-gpu"]
    # Given up: nobody may pick it up later, when nobody waits for it.
    assert server.set == [(server.child, "CANCELLED", True)]
    assert str(account.failed).startswith("big: given up after 0.05 s: no worker of pool")
    # Said once, not at every look.
    assert len(site.said) == 1


async def test_a_worker_that_comes_in_time_is_enough(site: Site) -> None:
    server = Server(Scheduled(), Scheduled(), Running(), Completed(), workers=0)
    account = accounted(site.store, server)
    looks = iter(range(100))

    def look() -> None:
        server.workers = int(next(looks) >= 1)

    server.on_look = look
    assert await site.perform(server) == account
    assert [text.partition(":")[0] for text in site.said] == ["big is not measured yet", "big"]
    assert "has a worker now" in site.said[1]
    assert server.set == []


async def test_a_server_without_the_deployment_is_told_the_command(site: Site) -> None:
    server = Server(Completed(), deployed=False)
    account = await site.perform(server)
    assert "memprobe-part/gpu: run `prefect deploy" in str(account.failed)
    assert server.started == []


async def test_nothing_is_started_past_the_cost_limit(site: Site) -> None:
    server = Server(Completed())

    async def ready() -> None:
        raise BudgetExceeded("would pass the limit")

    account = await site.perform(server, ready=ready)
    assert account == Account(stopped="would pass the limit")
    assert server.started == []


async def test_what_an_earlier_run_left_waiting_is_cancelled(site: Site) -> None:
    server = Server(Scheduled())
    old = uuid4()
    server.left = {"SCHEDULED": [old]}
    await site.perform(server)
    assert server.set[0] == (old, "CANCELLED", True)
    assert len(server.started) == 1


async def test_a_part_that_still_works_is_waited_for(site: Site, store: RunStore) -> None:
    server = Server(Running(), Running(), Completed())
    server.left = {"RUNNING": [uuid4()]}
    seen: list[int] = []
    server.on_look = lambda: seen.append(len(server.started))
    account = accounted(store, server)
    with store.part_lock("big"):
        assert await site.perform(server) == account
    assert seen[:3] == [0, 0, 0]
    assert len(server.started) == 1


async def test_a_part_whose_process_died_is_not_waited_for(site: Site, store: RunStore) -> None:
    import socket

    dead = {**DEAD, "host": socket.gethostname()}
    store.files.write(store.part_file("big", "lock"), json.dumps(dead).encode())
    account = await site.perform(Server(Running()))
    assert "its process died" in str(account.failed)


@pytest.mark.parametrize(
    ("state", "ordered"), [(Running(), "CANCELLING"), (Scheduled(), "CANCELLED")]
)
async def test_who_is_stopped_stops_the_part(site: Site, state: State[Any], ordered: str) -> None:
    server = Server(state)
    looked = asyncio.Event()
    server.on_look = looked.set
    task = asyncio.create_task(site.perform(server))
    await looked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(i, s) for i, s, _ in server.set] == [(server.child, ordered)]


def test_an_account_is_read_by_who_it_was_left_for(store: RunStore) -> None:
    assert read_account(store, "a b", "t") is None
    left = Account(token="t", failures=("x",), dropped={"m": ("temperature",)})
    write_account(store, "a b", left)
    assert read_account(store, "a b", "t") == left
    assert read_account(store, "a b", "other") is None
    store.files.write(store.part_file("a b", "json"), b"{")
    assert read_account(store, "a b", "t") is None
