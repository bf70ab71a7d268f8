"""Stage 0 of attribution: could this task bring its target up at all?

The oracle sees the task and the truth, never a conversation, so its verdict
belongs to the data set: the ledger keeps it per task, target, model and prompt
version across systems, modes and runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import prompts
from memprobe.dataset import BankEntry, TaskEntry, User
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.types import Category, Role
from prompts.answers import OracleAnswer
from storage.runs import Unit
from tasks.commit import commit
from tasks.context import RunContext, fingerprint

VERSION = 1


def oracle_unit(user: str) -> Unit:
    """The unit of one user's oracle verdicts."""
    return Unit("oracle", "", user)


def oracle_fingerprint(context: RunContext, user: str) -> str:
    """What the oracle verdicts of a user depend on."""
    return fingerprint(
        "oracle",
        VERSION,
        context,
        prompt_names=("oracle",),
        roles=(Role.ORACLE,),
        inputs={"user": user},
    )


def targeted_task(user: User, category: Category, entry: BankEntry) -> tuple[int, TaskEntry] | None:
    """The task written for a target with its number (from 1), or None."""
    for number, task in enumerate(user.tasks, 1):
        if task.target_category is category and task.target_dimension == entry.dimension:
            return number, task
    return None


async def oracle_verdict(
    context: RunContext, user: User, category: Category, entry: BankEntry, task: TaskEntry
) -> dict[str, Any]:
    """The row of one target; a failed call leaves it unscored with its reason."""
    row: dict[str, Any] = {
        "user_id": user.user_id,
        "category": category.value,
        "dimension": entry.dimension,
        "can_invite": None,
        "oracle_reason": None,
        "status": "scored",
        "reason": None,
        "detail": None,
        "call_id": None,
    }
    request = prompts.load("oracle").request(
        Role.ORACLE,
        context.asker("oracle", user=user.user_id, item=entry.dimension),
        {
            "task": task.task,
            "category": category.value,
            "dimension": entry.dimension,
            "short": entry.short,
            "explanation": entry.explanation,
        },
    )
    try:
        reply = await context.chat.ask(request)
    except BudgetExceeded:
        raise
    except CallFailed as error:
        failed = {"status": "unscored", "reason": error.reason.value, "detail": error.detail}
        return {**row, **failed, "call_id": error.call_id}
    answer = reply.parsed(OracleAnswer)
    verdict = {"can_invite": answer.can_invite, "oracle_reason": answer.reason}
    return {**row, **verdict, "call_id": reply.call_id}


async def oracle_user(context: RunContext, user_id: str) -> str:
    """Judge all tasks of one user; commits `oracle_verdicts` and returns the unit's slug."""
    unit = oracle_unit(user_id)
    mark = oracle_fingerprint(context, user_id)
    if context.store.is_complete(unit, mark):
        return unit.slug
    user = context.user(user_id)
    found = [(c, e, targeted_task(user, c, e)) for c, e in context.targets(user)]
    rows = await asyncio.gather(
        *(oracle_verdict(context, user, c, e, task[1]) for c, e, task in found if task is not None)
    )
    tables = {"oracle_verdicts": list(rows)}
    await asyncio.to_thread(commit, context.store, unit, mark, tables)
    return unit.slug
