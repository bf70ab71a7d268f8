"""Opening a run: which users it has, what they need, and what may be changed later."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.runtime import open_store, opened
from flows.workloads import RecoveryWorkload, users_of, workload_of
from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.settings import Settings
from memprobe.types import Role


@pytest.fixture(scope="module")
def work() -> RecoveryWorkload:
    found = workload_of(RunConfig(name="r"))
    assert isinstance(found, RecoveryWorkload)
    return found


def unscripted(work: RecoveryWorkload) -> RecoveryWorkload:
    dataset = work.dataset
    user = dataset.users[0]
    tasks = tuple(task.model_copy(update={"script": None}) for task in user.tasks)
    bare = user.model_copy(update={"tasks": tasks})
    return RecoveryWorkload(dataset.model_copy(update={"users": (bare, *dataset.users[1:])}))


def test_users_are_the_first_in_order_or_the_named_ones(work: RecoveryWorkload) -> None:
    assert users_of(RunConfig(name="r", users=2), work) == ("user_001", "user_002")
    assert users_of(RunConfig(name="r", users=("user_003",)), work) == ("user_003",)
    assert len(users_of(RunConfig(name="r"), work)) == len(work.dataset.users)


def test_more_users_than_there_are_is_told_with_the_way_to_more(work: RecoveryWorkload) -> None:
    with pytest.raises(UsageError, match="memprobe generate"):
        users_of(RunConfig(name="r", users=500), work)
    with pytest.raises(UsageError, match="user_999"):
        users_of(RunConfig(name="r", users=("user_999",)), work)


def test_the_embedded_profile_refuses_users_without_scripts_before_it_starts(
    work: RecoveryWorkload,
) -> None:
    bare = unscripted(work)
    with pytest.raises(UsageError, match=r"user_001.*--model"):
        bare.check(RunConfig(name="r"), ("user_001", "user_002"))
    bare.check(RunConfig(name="r"), ("user_002",))
    remote = {Role.ASSISTANT: "openai/x", Role.SIMULATOR: "openai/x"}
    bare.check(RunConfig(name="r", model_roles=remote), ("user_001",))


def test_a_run_is_extended_and_never_mixed(work: RecoveryWorkload, tmp_path: Path) -> None:
    settings = Settings(runs=str(tmp_path / "runs"))
    open_store(RunConfig(name="r", users=1, systems=("nomem",)), settings, work)
    more = RunConfig(name="r", users=2, systems=("rag",), k=(1, 3))
    config = open_store(more, settings, work).manifest.config
    assert config.systems == ("nomem", "rag")
    assert config.users == 2
    assert config.k == (1, 3, 5)
    with pytest.raises(UsageError, match="seed"):
        open_store(RunConfig(name="r", seed=8), settings, work)


def test_a_run_of_another_data_set_is_refused(work: RecoveryWorkload, tmp_path: Path) -> None:
    settings = Settings(runs=str(tmp_path / "runs"))
    open_store(RunConfig(name="r"), settings, work)
    changed = RecoveryWorkload(work.dataset.model_copy(update={"digest": "0" * 64}))
    with pytest.raises(UsageError, match="another version of the data set"):
        open_store(RunConfig(name="r"), settings, changed)


async def test_a_misspelt_system_leaves_no_run_behind(tmp_path: Path) -> None:
    settings = Settings(runs=str(tmp_path / "runs"), ledger=f"sqlite:///{tmp_path}/ledger.sqlite")
    with pytest.raises(UsageError, match="Did you mean 'rag'"):
        async with opened(RunConfig(name="r", systems=("ragg",)), settings):
            pass
    assert not (tmp_path / "runs").exists()
