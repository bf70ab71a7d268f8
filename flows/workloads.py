"""What the suites differ in when a run is opened: data, prompts, embedded model, context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapters.models.minilm import MiniLM
from adapters.models.provider import Provider
from memprobe.chat import ChatModel
from memprobe.config import RunConfig
from memprobe.dataset import Dataset, load_dataset
from memprobe.errors import UsageError
from memprobe.paradigms.suite import Suite, load_suite, spread
from memprobe.ports import Embedder
from memprobe.systems import SystemSource
from memprobe.types import Role
from storage.bundled import paradigms_dir, recovery_dir
from storage.importers.dataset import stored_dataset
from storage.runs import RunStore
from tasks.context import RunContext, StageContext
from tasks.inputs import store_inputs
from tasks.paradigms.context import ParadigmsContext
from tasks.paradigms.inputs import store_suite, stored_suite


class Workload(Protocol):
    """One suite's side of an opened run; a user of another suite is what stands in that place."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def prompts(self) -> tuple[str, ...]: ...

    @property
    def known(self) -> list[str]:
        """The ids of all users, in the order in which a count takes them."""
        ...

    def check(self, config: RunConfig, users: Sequence[str]) -> None:
        """Raises `UsageError` for a run that cannot be made."""
        ...

    def embedded(self, config: RunConfig, embedder: MiniLM) -> Provider:
        """The provider of the embedded models."""
        ...

    def context(
        self,
        config: RunConfig,
        store: RunStore,
        chat: ChatModel,
        embedder: Embedder,
        systems: SystemSource,
    ) -> StageContext:
        """What the stages work with."""
        ...

    def store_inputs(self, context: StageContext, users: Sequence[str]) -> None:
        """Commit the tables that describe the run's users."""
        ...


@dataclass(frozen=True, slots=True)
class RecoveryWorkload:
    """The recovery suite."""

    dataset: Dataset
    prompts: tuple[str, ...] = (
        "assistant",
        "simulator",
        "preference",
        "slot_fill",
        "slot_fill_merge",
        "retrieval_query",
        "judge",
        "oracle",
        "disclosure",
        "subclass",
    )

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def digest(self) -> str:
        return self.dataset.digest

    @property
    def known(self) -> list[str]:
        return [user.user_id for user in self.dataset.users]

    def check(self, config: RunConfig, users: Sequence[str]) -> None:
        """Raises `UsageError` when the embedded profile is to play users without scripts."""
        roles = (Role.ASSISTANT, Role.SIMULATOR)
        if not any(config.model_of(role).startswith("embedded/") for role in roles):
            return
        silent = [u for u in users if any(t.script is None for t in self.dataset.user(u).tasks)]
        if silent:
            raise UsageError(
                f"the embedded profile plays from scripts, and {', '.join(silent[:5])} of data "
                f"set {self.name!r} has none: give a model for assistant and simulator with --model"
            )

    def embedded(self, config: RunConfig, embedder: MiniLM) -> Provider:
        from adapters.models.embedded.provider import EmbeddedProvider

        return EmbeddedProvider(self.dataset, config.seed, embedder)

    def context(
        self,
        config: RunConfig,
        store: RunStore,
        chat: ChatModel,
        embedder: Embedder,
        systems: SystemSource,
    ) -> RunContext:
        return RunContext(config, self.dataset, store, chat, embedder, systems)

    def store_inputs(self, context: StageContext, users: Sequence[str]) -> None:
        assert isinstance(context, RunContext)
        store_inputs(context, users)


@dataclass(frozen=True, slots=True)
class ParadigmsWorkload:
    """The paradigms suite; its episodes stand where the recovery suite has users."""

    suite: Suite
    prompts: tuple[str, ...] = (
        "probe_value",
        "probe_change",
        "probe_source",
        "probe_conflict",
        "probe_temporal",
    )

    @property
    def name(self) -> str:
        return self.suite.name

    @property
    def digest(self) -> str:
        return self.suite.digest

    @property
    def known(self) -> list[str]:
        return [episode.id for episode in spread(self.suite.episodes)]

    def check(self, config: RunConfig, users: Sequence[str]) -> None:
        """Every run of a suite that could be read can be made."""

    def embedded(self, config: RunConfig, embedder: MiniLM) -> Provider:
        from adapters.models.embedded.probes import ProbesProvider

        return ProbesProvider(embedder)

    def context(
        self,
        config: RunConfig,
        store: RunStore,
        chat: ChatModel,
        embedder: Embedder,
        systems: SystemSource,
    ) -> ParadigmsContext:
        return ParadigmsContext(config, self.suite, store, chat, embedder, systems)

    def store_inputs(self, context: StageContext, users: Sequence[str]) -> None:
        assert isinstance(context, ParadigmsContext)
        store_suite(context, users)


def workload_of(config: RunConfig) -> Workload:
    """The suite of a run with its data: bundled, or what `--dataset` names."""
    if config.suite == "recovery":
        return RecoveryWorkload(dataset_of(config))
    return ParadigmsWorkload(suite_of(config))


def dataset_of(config: RunConfig) -> Dataset:
    """The recovery data set of a run: the bundled one, or the folder that `--dataset` names."""
    return load_dataset(Path(config.dataset) if config.dataset else recovery_dir())


def suite_of(config: RunConfig) -> Suite:
    """The paradigms suite of a run: a folder, or a bundled one by its name."""
    if config.dataset is None:
        return load_suite(paradigms_dir())
    folder = Path(config.dataset)
    bundled = paradigms_dir(config.dataset) if folder.name == config.dataset else folder
    return load_suite(bundled if not folder.is_dir() and bundled.is_dir() else folder)


def users_of(config: RunConfig, work: Workload) -> tuple[str, ...]:
    """The ids of a run's users; raises `UsageError` when there are not enough of them.

    In the paradigms suite `limit` bounds them, which elsewhere bounds what a user has.
    """
    chosen = _chosen(config, work)
    if config.suite != "recovery" and config.limit is not None:
        chosen = chosen[: config.limit]
    return chosen


def _chosen(config: RunConfig, work: Workload) -> tuple[str, ...]:
    known = work.known
    what = "users" if config.suite == "recovery" else "episodes"
    if config.users is None:
        return tuple(known)
    if isinstance(config.users, int):
        if config.users > len(known):
            more = "generate" if config.suite == "recovery" else "suite build"
            raise UsageError(
                f"--users {config.users}: data set {work.name!r} has {len(known)} {what}; "
                f"`memprobe {more}` makes more"
            )
        return tuple(known[: config.users])
    missing = [user for user in config.users if user not in known]
    if missing:
        raise UsageError(
            f"--users: no {what[:-1]} {', '.join(missing)} in data set {work.name!r}; "
            f"there are: {', '.join(sorted(known)[:20])}"
        )
    return tuple(config.users)


def stored_workload(store: RunStore) -> Workload:
    """The suite that a run was made from, for work on what it has stored.

    Raises `UsageError` when the data set is another one now.
    """
    config = store.manifest.config
    if config.suite == "paradigms":
        return ParadigmsWorkload(stored_suite(store))
    imported = store.manifest.origin is not None
    dataset = stored_dataset(store) if imported else dataset_of(config)
    if dataset.digest != store.manifest.dataset_digest:
        raise UsageError(
            f"run {store.name!r} was made from another version of the data set "
            f"({store.manifest.dataset_digest[:12]}, now {dataset.digest[:12]}); "
            "its labels cannot be judged against the present truth"
        )
    return RecoveryWorkload(dataset)
