"""A part of a run: the same figures, the run's manifest untouched, nobody out of the count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flows import conductor
from flows.accounts import Account
from flows.part import measure, settings_for
from flows.recovery_units import RecoveryConductor
from flows.runtime import Runtime, attached, check_card, opened, opened_part
from flows.units import progress_of
from memprobe.config import RunConfig
from memprobe.errors import MissingPrerequisite, UsageError
from memprobe.settings import Settings
from storage.runs import RunStore
from tasks.inputs import store_inputs
from tests.e2e.support import assert_same_tables

CONFIG = RunConfig(name="r", systems=("nomem", "rag"), users=2, limit=2)


@pytest.fixture(autouse=True)
def without_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are called as plain functions: a server has no part in this."""

    async def call(self: RecoveryConductor, job: Any, parameters: dict[str, Any]) -> None:
        await job.fn(**parameters)

    monkeypatch.setattr(conductor.Conductor, "_call", call)


def places(folder: Path) -> Settings:
    return Settings(runs=str(folder / "runs"), ledger=f"sqlite:///{folder / 'ledger.sqlite'}")


class InAThread:
    """Another process as far as event loops go: a part in a thread with a loop of its own."""

    def __init__(self, settings: Settings, account: Account | None = None) -> None:
        self.systems = frozenset({"rag"})
        self.settings = settings
        self.account = account
        self.manifests: list[bytes] = []

    async def perform(
        self, run: Runtime, system: str, ready: Callable[[], Awaitable[Any]]
    ) -> Account:
        await ready()
        if self.account is not None:
            return self.account
        manifest = Path(run.context.store.location) / "manifest.json"
        self.manifests.append(manifest.read_bytes())
        account = await asyncio.to_thread(lambda: asyncio.run(self._part(system)))
        self.manifests.append(manifest.read_bytes())
        return account

    async def _part(self, system: str) -> Account:
        async with opened_part("r", self.settings, [system]) as run:
            assert run.systems == [system]
            return await measure(run, system)


async def conducted(
    settings: Settings, elsewhere: InAThread | None = None
) -> tuple[RecoveryConductor, tuple[int, int], int]:
    async with opened(CONFIG, settings) as run:
        if elsewhere is not None:
            run.share()
        store_inputs(run.context, run.users)
        made = RecoveryConductor(run, elsewhere=elsewhere)
        await made.all()
        run.ledger.flush()
        return made, progress_of(run), run.usage()[0]


async def test_a_part_makes_the_tables_that_one_process_makes(tmp_path: Path) -> None:
    whole, split = places(tmp_path / "whole"), places(tmp_path / "split")
    one, (done, total), calls = await conducted(whole)
    assert (done, one.failure_lines()) == (total, [])
    elsewhere = InAThread(split)
    two, found, counted = await conducted(split, elsewhere)
    assert (found, two.failure_lines()) == ((total, total), [])
    assert_same_tables(tmp_path / "whole" / "runs" / "r", tmp_path / "split" / "runs" / "r")
    before, after = elsewhere.manifests
    assert before == after
    # The part's calls are the run's: told by the ledger, as another process made them.
    assert counted == calls > 0
    # Again: nothing is missing, so no part is asked for.
    again = InAThread(split)
    await conducted(split, again)
    assert again.manifests == []


async def test_a_part_that_failed_leaves_its_users_in_the_count(tmp_path: Path) -> None:
    settings = places(tmp_path)
    account = Account(failures=("rag: no worker",), failed="rag: no worker")
    made, (done, total), _ = await conducted(settings, InAThread(settings, account))
    assert made.failure_lines() == ["rag: no worker"]
    assert done < total
    store = RunStore.open(tmp_path / "runs" / "r")
    rows = [row for row in store.read("verdicts") if row["system"] == "rag"]
    assert {row["user_id"] for row in rows} == {"user_001", "user_002"}
    assert {(row["status"], row["detail"]) for row in rows} == {("unscored", "rag: no worker")}
    # The next time the part is done, and the rows are those of a run without a failure.
    _, (done, total), _ = await conducted(settings, InAThread(settings))
    assert done == total
    clean = places(tmp_path / "clean")
    await conducted(clean)
    assert_same_tables(tmp_path / "clean" / "runs" / "r", tmp_path / "runs" / "r")


async def test_a_stopped_part_stops_the_run_and_leaves_no_rows(tmp_path: Path) -> None:
    settings = places(tmp_path)
    made, _, _ = await conducted(settings, InAThread(settings, Account(stopped="the limit")))
    assert made.failure_lines() == ["the limit"]
    assert not RunStore.open(tmp_path / "runs" / "r").read("verdicts", system="rag")


async def test_counters_of_all_processes_outlast_the_ledger(tmp_path: Path) -> None:
    settings = places(tmp_path)
    async with opened(CONFIG, settings) as run:
        run.share()
        store_inputs(run.context, run.users)
        await RecoveryConductor(run).beside()
    told = run.usage(3.0)
    assert told[0] > 0
    assert run.usage() == told


async def test_two_parts_never_work_on_one_system(tmp_path: Path) -> None:
    settings = places(tmp_path)
    async with opened(CONFIG, settings) as run:
        store = run.context.store
        with store.part_lock("rag"):
            with store.part_lock("nomem"), store.lock():
                pass
            with pytest.raises(UsageError, match=r"parts/rag\.lock"):
                await measure(run, "rag")


async def test_a_task_uses_the_run_that_is_open_and_opens_it_elsewhere(tmp_path: Path) -> None:
    settings = places(tmp_path)
    async with opened(CONFIG, settings) as run:
        where = run.places
        async with attached("r", where, ["rag"]) as here:
            assert here is run

        async def elsewhere() -> tuple[bool, list[str]]:
            async with attached("r", where, ["rag"]) as other:
                return other is run, other.systems

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == (False, ["rag"])
        async with attached("r", where) as here:
            assert here is run


async def test_a_part_of_another_run_of_the_same_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = places(tmp_path)
    async with opened(CONFIG, settings) as run:
        begun = run.context.store.manifest.created_at
        where = run.places
    assert settings_for("r", begun, where).runs == settings.runs
    # The conductor's folder is not mounted here; the worker's own settings lead to the run.
    monkeypatch.setenv("MEMPROBE_RUNS", settings.runs)
    assert settings_for("r", begun, {"runs": "/elsewhere"}).runs == settings.runs
    with pytest.raises(UsageError, match=r"does not see run 'r'.*MEMPROBE_RUNS"):
        settings_for("r", "2001-01-01T00:00:00+00:00", where)
    with pytest.raises(UsageError, match="MEMPROBE_LEDGER"):
        settings_for("r", begun, {**where, "ledger": "postgresql+psycopg://u:***@h/d"})


async def test_a_part_wants_the_system_of_the_run(tmp_path: Path) -> None:
    settings = places(tmp_path)
    async with opened(CONFIG, settings) as run:
        card = run.registry.card("rag")
    check_card(card, card)
    with pytest.raises(UsageError, match=r"package_version 1\.0 in the run, none here"):
        check_card(card.model_copy(update={"package_version": "1.0"}), card)
    with pytest.raises(UsageError, match="has no system memt"):
        async with opened_part("r", settings, ["memt"]):
            pass


def test_dask_that_is_not_installed_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows import dask_units

    monkeypatch.setattr(dask_units.util, "find_spec", lambda name: None)
    dask_units.check_runner(Settings())
    with pytest.raises(MissingPrerequisite, match=r"pip install 'memprobe-audit\[dask\]'"):
        dask_units.check_runner(Settings(task_runner="dask"))


async def test_units_are_run_here_unless_dask_is_chosen() -> None:
    from flows.dask_units import units_of

    async with units_of(Settings()) as units:
        assert units is None
