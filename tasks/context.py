"""What a stage works with: configuration, data set, run store, models and systems."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

import prompts
from adapters.models.embedded.thresholds import identity
from memprobe.chat import ChatModel
from memprobe.config import RunConfig
from memprobe.dataset import BankEntry, Dataset, User
from memprobe.ports import Embedder
from memprobe.systems import SystemSource
from memprobe.types import Asker, Category, Role
from storage.runs import RunStore


class StageContext(Protocol):
    """What the stages of any suite share: `digest` is that of the data set."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def digest(self) -> str: ...

    @property
    def store(self) -> RunStore: ...

    @property
    def chat(self) -> ChatModel: ...

    @property
    def embedder(self) -> Embedder: ...

    @property
    def systems(self) -> SystemSource: ...


def asker_of(
    config: RunConfig, stage: str, system: str = "", user: str = "", item: str = ""
) -> Asker:
    """Who asks, for the ledger."""
    return Asker(
        run=config.name, suite=config.suite, stage=stage, system=system, user=user, item=item
    )


@dataclass(frozen=True, slots=True)
class RunContext:
    """All that the stages of one run of the recovery suite share in one process."""

    config: RunConfig
    dataset: Dataset
    store: RunStore
    chat: ChatModel
    embedder: Embedder
    systems: SystemSource

    def asker(self, stage: str, system: str = "", user: str = "", item: str = "") -> Asker:
        """Who asks, for the ledger."""
        return asker_of(self.config, stage, system, user, item)

    @property
    def digest(self) -> str:
        """Identifies the data set's content."""
        return self.dataset.digest

    def user(self, user_id: str) -> User:
        """A user of the data set; `--limit` keeps some tasks, spread over the categories."""
        user = self.dataset.user(user_id)
        if self.config.limit is None or self.config.limit >= len(user.tasks):
            return user
        ranked: list[tuple[int, int]] = []
        seen: Counter[Category] = Counter()
        for index, task in enumerate(user.tasks):
            ranked.append((seen[task.target_category], index))
            seen[task.target_category] += 1
        kept = sorted(index for _, index in sorted(ranked)[: self.config.limit])
        return user.model_copy(update={"tasks": tuple(user.tasks[i] for i in kept)})

    def targets(self, user: User) -> list[tuple[Category, BankEntry]]:
        """The targets that are measured: all, or under `--limit` those with a task left."""
        if self.config.limit is None:
            return user.targets()
        kept = {(task.target_category, task.target_dimension) for task in user.tasks}
        return [(c, e) for c, e in user.targets() if (c, e.dimension) in kept]

    def replicate(self, epoch: int, attempt: int = 0) -> int:
        """Keeps samples of epochs and of role-play attempts apart; epochs count from 1."""
        return (epoch - 1) * 100 + attempt


def fingerprint(
    stage: str,
    version: int,
    context: StageContext,
    *,
    prompt_names: tuple[str, ...] = (),
    roles: tuple[Role, ...] = (),
    inputs: Mapping[str, JsonValue] | None = None,
) -> str:
    """What a stage unit's result depends on: the same fingerprint, the same result.

    Covers the stage's code version, its prompts, the models of its roles, the
    data set, protocol and seed, and whatever the stage names in `inputs`.
    """
    models = {role.value: context.config.model_of(role) for role in roles}
    embedded = any(model.startswith("embedded/") for model in models.values())
    facts: dict[str, JsonValue] = {
        "stage": stage,
        "version": version,
        "prompts": [prompts.load(name).identity for name in prompt_names],
        "models": dict(models),
        "embedded": identity() if embedded else "",
        "dataset": context.digest,
        "protocol": context.config.protocol.value,
        "seed": context.config.seed,
        "limit": context.config.limit,
        "independent": context.config.independent,
        "inputs": dict(inputs or {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
