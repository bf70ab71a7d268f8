"""What the Prefect server is asked to keep: one task run a unit, none lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from flows import server
from flows.recovery_units import RecoveryConductor
from flows.runtime import Runtime, opened
from memprobe.config import RunConfig
from memprobe.dataset import Dataset, load_dataset
from memprobe.settings import Settings
from storage.bundled import recovery_dir
from storage.runs import Unit
from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import REMOTE, SMALL, Model, finish, kill_group, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
LIMIT = 750
REPORT = 1


class Counting(RecoveryConductor):
    """Counts the task runs that would be submitted; nothing is run."""

    def __init__(self, run: Runtime) -> None:
        super().__init__(run)
        self.submitted: Counter[str] = Counter()

    async def _through_prefect(
        self, unit: Unit, mark: str, job: Any, arguments: dict[str, Any], **_: Any
    ) -> None:
        self.submitted[unit.slug] += 1


def fifty_users() -> Dataset:
    bundled = load_dataset(recovery_dir())
    users = tuple(
        bundled.users[i % len(bundled.users)].model_copy(update={"user_id": f"user_{i:03}"})
        for i in range(1, 51)
    )
    return bundled.model_copy(update={"users": users})


async def test_five_systems_and_fifty_users_fit_the_server(tmp_path: Path) -> None:
    config = RunConfig(name="plan", systems=("nomem", "longctx_full", "rag"), users=2)
    settings = Settings(runs=str(tmp_path), ledger=f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    async with opened(config, settings) as small:
        systems = ["nomem", "longctx_full", "rag", "one_more", "and_another"]
        dataset = fifty_users()
        run = cast(
            Runtime,
            SimpleNamespace(
                context=SimpleNamespace(
                    config=config,
                    dataset=dataset,
                    digest=dataset.digest,
                    store=small.context.store,
                    chat=small.context.chat,
                    embedder=small.context.embedder,
                    systems=_Systems(small),
                ),
                systems=systems,
                users=tuple(user.user_id for user in dataset.users),
            ),
        )
        conductor = Counting(run)
        await conductor.all()
    assert max(conductor.submitted.values()) == 1
    # A rollout and a measurement for each system and user, an oracle a user, one judge check.
    assert len(conductor.submitted) == 5 * 50 * 2 + 50 + 1
    assert len(conductor.submitted) + REPORT <= LIMIT


class _Systems:
    """The small run's registry, with stand-ins for systems that are not built in."""

    def __init__(self, run: Runtime) -> None:
        self._registry = run.context.systems

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)

        def first_known(system: str, *more: Any) -> Any:
            known = system if system in ("nomem", "longctx_full", "rag") else "rag"
            return found(known, *more)

        return first_known


def count(api: str, flow_run: str, state: str | None = None) -> int:
    query: dict[str, Any] = {"flow_runs": {"name": {"any_": [flow_run]}}}
    if state is not None:
        query["task_runs"] = {"state": {"type": {"any_": [state]}}}
    answer = httpx.post(f"{api}/task_runs/count", json=query, timeout=30)
    answer.raise_for_status()
    found: int = answer.json()
    return found


def test_the_server_has_a_record_of_every_unit(shell: NewShell, prefect: server.Server) -> None:
    with Model() as model:
        home = shell("home", **model.env)
        done = home.remote("recorded")
        assert done.code == 0, done.err
    expected = done.json["units_total"] + REPORT
    assert expected == 2 * 2 * 2 + 2 + 1 + REPORT
    # The recorder writes in batches, a second or so behind the run.
    until(
        lambda: count(prefect.api_url, "memprobe-recorded", "COMPLETED") == expected,
        f"{expected} completed task runs",
        60,
    )
    assert count(prefect.api_url, "memprobe-recorded") == expected


@pytest.mark.parametrize("served", [True, False], ids=["one server", "a server each"])
def test_two_runs_at_once_in_one_folder(
    shell: NewShell, clean: Clean, tmp_path: Path, served: bool
) -> None:
    from tests.e2e.support import Shell, assert_same_tables

    with Model(latency=0.05) as model, contextlib.ExitStack() as stack:
        home = shell("home", **model.env) if served else Shell(tmp_path / "own", model.env)
        both = [home.start(*REMOTE, *SMALL, "--run", n, "--json") for n in ("one", "two")]
        for process in both:
            stack.callback(kill_group, process)
        ended = asyncio.run(_all(both))
        for done in ended:
            assert done.code == 0, done.err
            assert done.json["status"] == "complete"
    for name in ("one", "two"):
        assert_same_tables(clean.run, home.runs / name)


async def _all(processes: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*(asyncio.to_thread(finish, p) for p in processes)))


def test_the_same_run_twice_at_once_is_refused(shell: NewShell) -> None:
    with Model(latency=0.2) as model, contextlib.ExitStack() as stack:
        home = shell("home", **model.env)
        first = home.start(*REMOTE, *SMALL, "--run", "t", "--json")
        stack.callback(kill_group, first)
        until((home.runs / "t" / "lock").exists, "the first run holds its lock")
        second = home.remote("t")
        assert second.code == 2, second.err
        assert f"process {first.pid}" in second.err
        assert "another --run name" in second.err
        assert second.out == ""
        assert "Traceback" not in second.err
        done = finish(first)
        assert done.code == 0, done.err
        assert done.json["status"] == "complete"
