"""The data set of an imported run, made of its own tables: no file but the run is needed."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from memprobe.dataset import BankEntry, Dataset, Profile, TaskEntry, User, load_pool
from memprobe.types import Category
from storage.bundled import recovery_dir
from storage.importers.users import CATEGORIES
from storage.runs import RunStore


def stored_dataset(run: RunStore) -> Dataset:
    """Users with banks and tasks as they were imported, over the bundled pool of dimensions.

    The texts were checked when they were imported, so odd profiles and empty
    texts stand; `digest` is the run's own. Tasks without a target are left out.
    """
    targets: dict[str, dict[Category, list[BankEntry]]] = defaultdict(lambda: defaultdict(list))
    for row in run.read("targets"):
        entry = BankEntry.model_construct(
            **{name: row[name] for name in ("dimension", "short", "explanation")}
        )
        targets[row["user_id"]][Category(row["category"])].append(entry)
    tasks: dict[str, list[TaskEntry]] = defaultdict(list)
    for row in run.read("tasks"):
        if row["category"] in CATEGORIES and row["dimension"]:
            tasks[row["user_id"]].append(_task(row))
    users = tuple(
        User.model_construct(
            user_id=row["user_id"],
            profile=_profile(row["profile_json"]),
            memory_bank={c: tuple(entries) for c, entries in targets[row["user_id"]].items()},
            tasks=tuple(tasks[row["user_id"]]),
        )
        for row in run.read("users")
    )
    manifest = run.manifest
    return Dataset(
        name=manifest.dataset_name,
        users=users,
        pool=load_pool(recovery_dir() / "pool.json"),
        digest=manifest.dataset_digest,
    )


def _task(row: dict[str, Any]) -> TaskEntry:
    return TaskEntry.model_construct(
        task=row["task"],
        rationale=row["rationale"] or "",
        target_category=Category(row["category"]),
        target_dimension=row["dimension"],
        target_short="",
    )


def _profile(text: str) -> Profile:
    return Profile.model_construct(**json.loads(text))
