"""Inputs: the data set as tables, and what a limit leaves of a user."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from memprobe.dataset import CriticVerdict
from tasks.inputs import store_inputs
from tests.support.contexts import LAYOUT, bench, dataset, user


def test_users_targets_and_tasks_are_the_data_set(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    store_inputs(b.context, ["user_001", "user_002"])
    users = b.rows("users")
    assert [(r["user_id"], r["n_targets"], r["n_tasks"]) for r in users] == [
        ("user_001", 6, 6),
        ("user_002", 5, 5),
    ]
    assert {r["dataset_digest"] for r in users} == {b.context.dataset.digest}
    owner = b.context.dataset.user("user_001")
    assert json.loads(users[0]["profile_json"]) == owner.profile.model_dump(mode="json")
    assert [
        (r["category"], r["dimension"], r["short"], r["explanation"])
        for r in sorted(b.rows("targets", user_id="user_001"), key=lambda r: r["dimension"])
    ] == sorted(
        [(c.value, e.dimension, e.short, e.explanation) for c, e in owner.targets()],
        key=lambda t: t[1],
    )
    assert [(r["task_index"], r["task"]) for r in b.rows("tasks", user_id="user_001")] == [
        (n, t.task) for n, t in enumerate(owner.tasks, 1)
    ]


def test_critic_and_planted_marks_are_kept(tmp_path: Path) -> None:
    made = user("user_001", 1, 5)
    verdict = CriticVerdict(inferred_trait="тихая", verdict="neutral", why="no hint")
    tasks = (
        made.tasks[0].model_copy(update={"critic": (verdict,), "planted": "poor_task"}),
        *made.tasks[1:],
    )
    b = bench(tmp_path / "run", data=dataset(made.model_copy(update={"tasks": tasks})))
    store_inputs(b.context, ["user_001"])
    first = b.rows("tasks")[0]
    assert first["planted"] == "poor_task"
    assert json.loads(first["critic_json"]) == [verdict.model_dump()]


@pytest.mark.parametrize("limit", [1, 3, 5, 6, 31])
def test_a_limit_keeps_tasks_of_all_categories_and_their_targets(
    tmp_path: Path, limit: int
) -> None:
    b = bench(tmp_path / "run", limit=limit)
    kept = b.context.user("user_001")
    assert len(kept.tasks) == min(limit, 6)
    spread = Counter(t.target_category for t in kept.tasks)
    if limit <= 5:
        assert set(spread.values()) == {1}
    order = [t.task for t in b.context.dataset.user("user_001").tasks]
    assert [t.task for t in kept.tasks] == [t for t in order if t in {k.task for k in kept.tasks}]
    measured = {e.dimension for _, e in b.context.targets(kept)}
    assert measured == {t.target_dimension for t in kept.tasks}
    store_inputs(b.context, ["user_001"])
    assert {r["dimension"] for r in b.rows("targets")} == measured


def test_a_limit_takes_no_second_task_of_a_category_before_all_had_one(tmp_path: Path) -> None:
    made = user("user_001", 1, 6)
    turned = made.model_copy(update={"tasks": tuple(reversed(made.tasks))})
    b = bench(tmp_path / "run", data=dataset(turned), limit=5)
    kept = [t.target_dimension for t in b.context.user("user_001").tasks]
    assert kept == ["tone_wish", *[d for _, d in reversed(LAYOUT[:4])]]


def test_without_a_limit_targets_without_a_task_are_measured_too(tmp_path: Path) -> None:
    made = user("user_001", 1, 6)
    b = bench(tmp_path / "run", data=dataset(made.model_copy(update={"tasks": made.tasks[:2]})))
    assert len(b.context.targets(b.context.user("user_001"))) == len(LAYOUT)


def test_stored_inputs_are_not_written_again(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    store_inputs(b.context, ["user_001"])
    assert b.context.store.path is not None
    before = {p: p.stat().st_mtime_ns for p in b.context.store.path.rglob("*.parquet")}
    store_inputs(b.context, ["user_001"])
    assert {p: p.stat().st_mtime_ns for p in b.context.store.path.rglob("*.parquet")} == before
