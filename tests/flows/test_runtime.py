"""Opening a run: which users it has, what they need, and what may be changed later."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.runtime import check_scripts, dataset_of, open_store, opened, users_of
from memprobe.config import RunConfig
from memprobe.dataset import Dataset
from memprobe.errors import UsageError
from memprobe.settings import Settings
from memprobe.types import Role


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return dataset_of(RunConfig(name="r"))


def unscripted(dataset: Dataset) -> Dataset:
    user = dataset.users[0]
    tasks = tuple(task.model_copy(update={"script": None}) for task in user.tasks)
    bare = user.model_copy(update={"tasks": tasks})
    return dataset.model_copy(update={"users": (bare, *dataset.users[1:])})


def test_users_are_the_first_in_order_or_the_named_ones(dataset: Dataset) -> None:
    assert users_of(RunConfig(name="r", users=2), dataset) == ("user_001", "user_002")
    assert users_of(RunConfig(name="r", users=("user_003",)), dataset) == ("user_003",)
    assert len(users_of(RunConfig(name="r"), dataset)) == len(dataset.users)


def test_more_users_than_there_are_is_told_with_the_way_to_more(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="memprobe generate"):
        users_of(RunConfig(name="r", users=500), dataset)
    with pytest.raises(UsageError, match="user_999"):
        users_of(RunConfig(name="r", users=("user_999",)), dataset)


def test_the_embedded_profile_refuses_users_without_scripts_before_it_starts(
    dataset: Dataset,
) -> None:
    bare = unscripted(dataset)
    with pytest.raises(UsageError, match=r"user_001.*--model"):
        check_scripts(RunConfig(name="r"), bare, ("user_001", "user_002"))
    check_scripts(RunConfig(name="r"), bare, ("user_002",))
    remote = {Role.ASSISTANT: "openai/x", Role.SIMULATOR: "openai/x"}
    check_scripts(RunConfig(name="r", model_roles=remote), bare, ("user_001",))


def test_a_run_is_extended_and_never_mixed(dataset: Dataset, tmp_path: Path) -> None:
    settings = Settings(runs=str(tmp_path / "runs"))
    open_store(RunConfig(name="r", users=1, systems=("nomem",)), settings, dataset)
    more = RunConfig(name="r", users=2, systems=("rag",), k=(1, 3))
    config = open_store(more, settings, dataset).manifest.config
    assert config.systems == ("nomem", "rag")
    assert config.users == 2
    assert config.k == (1, 3, 5)
    with pytest.raises(UsageError, match="seed"):
        open_store(RunConfig(name="r", seed=8), settings, dataset)


def test_a_run_of_another_data_set_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    settings = Settings(runs=str(tmp_path / "runs"))
    open_store(RunConfig(name="r"), settings, dataset)
    changed = dataset.model_copy(update={"digest": "0" * 64})
    with pytest.raises(UsageError, match="another version of the data set"):
        open_store(RunConfig(name="r"), settings, changed)


async def test_a_misspelt_system_leaves_no_run_behind(tmp_path: Path) -> None:
    settings = Settings(runs=str(tmp_path / "runs"), ledger=f"sqlite:///{tmp_path}/ledger.sqlite")
    with pytest.raises(UsageError, match="Did you mean 'rag'"):
        async with opened(RunConfig(name="r", systems=("ragg",)), settings):
            pass
    assert not (tmp_path / "runs").exists()
