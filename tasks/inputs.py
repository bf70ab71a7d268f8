"""The data set as tables of the run."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memprobe.dataset import User, content_digest
from storage.runs import Unit
from tasks.context import RunContext


def _user_tables(context: RunContext, user: User) -> dict[str, list[dict[str, object]]]:
    return {
        "users": [
            {
                "user_id": user.user_id,
                "profile_json": user.profile.model_dump_json(),
                "n_targets": len(context.targets(user)),
                "n_tasks": len(user.tasks),
                "dataset_digest": context.dataset.digest,
            }
        ],
        "targets": [
            {
                "user_id": user.user_id,
                "category": category.value,
                "dimension": entry.dimension,
                "short": entry.short,
                "explanation": entry.explanation,
            }
            for category, entry in context.targets(user)
        ],
        "tasks": [
            {
                "user_id": user.user_id,
                "task_index": number,
                "task": task.task,
                "rationale": task.rationale,
                "category": task.target_category.value,
                "dimension": task.target_dimension,
                "planted": task.planted,
                "critic_json": json.dumps(
                    [verdict.model_dump() for verdict in task.critic], ensure_ascii=False
                ),
            }
            for number, task in enumerate(user.tasks, 1)
        ],
    }


def store_inputs(context: RunContext, user_ids: Sequence[str]) -> None:
    """Commit `users`, `targets` and `tasks` of the run's users."""
    for user_id in user_ids:
        user = context.user(user_id)
        unit = Unit("inputs", "", user_id)
        mark = content_digest(user.model_dump_json().encode(), str(context.config.limit).encode())
        if not context.store.is_complete(unit, mark):
            context.store.commit(unit, mark, _user_tables(context, user))
