"""The three speakers of an episode: assistant, simulated user, preference judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import prompts
from memprobe.chat import ChatReply
from memprobe.dataset import TaskEntry, User
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Category, Role
from prompts.answers import Feedback, PreferenceAnswer
from tasks.context import RunContext

ROLE_PLAY_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Exchange:
    """A finished exchange: the assistant's reply and the user's reaction."""

    assistant: str
    user: str

    def row(self) -> dict[str, str]:
        """As the prompts take it."""
        return {"assistant": self.assistant, "user": self.user}


@dataclass(frozen=True, slots=True)
class Episode:
    """Where a call belongs: system, user, task and epoch."""

    system: str
    user: User
    task: TaskEntry
    number: int
    epoch: int

    def item(self, turn: int) -> str:
        """The name of a turn's calls in the ledger."""
        return f"e{self.epoch}/episode{self.number}/turn{turn}"


async def assistant_reply(
    context: RunContext,
    episode: Episode,
    history: Sequence[Exchange],
    memories: Sequence[str],
) -> ChatReply:
    """The assistant's answer; the scaffold is the same for every system."""
    variables: dict[str, Any] = {
        "task": episode.task.task,
        "history": [turn.row() for turn in history],
        "memories": list(memories),
    }
    turn = len(history) + 1
    request = prompts.load("assistant").request(
        Role.ASSISTANT,
        context.asker("rollout", episode.system, episode.user.user_id, episode.item(turn)),
        variables,
        replicate=context.replicate(episode.epoch),
    )
    return await context.chat.ask(request)


async def user_feedback(
    context: RunContext,
    episode: Episode,
    history: Sequence[Exchange],
    reply: str,
) -> tuple[Feedback, str]:
    """The user's reaction and its call id.

    An unusable role play is sampled again, up to three times; then the failure
    stands. Nothing is made up in the user's place.
    """
    user = episode.user
    turn = len(history) + 1
    variables: dict[str, Any] = {
        "profile": user.profile.model_dump(mode="json"),
        "bank": {
            c.value: [e.model_dump(mode="json") for e in user.memory_bank.get(c, ())]
            for c in Category
        },
        "task": episode.task.task,
        "history": [t.row() for t in history],
        "own_recent": [t.user for t in history[-3:]],
        "turn": turn,
        "reply": reply,
    }
    failure: CallFailed | None = None
    for attempt in range(ROLE_PLAY_ATTEMPTS):
        request = prompts.load("simulator").request(
            Role.SIMULATOR,
            context.asker("rollout", episode.system, user.user_id, episode.item(turn)),
            variables,
            replicate=context.replicate(episode.epoch, attempt),
        )
        try:
            answer = await context.chat.ask(request)
            return answer.parsed(Feedback), answer.call_id
        except BudgetExceeded:
            raise
        except CallFailed as error:
            if error.reason is not Reason.INVALID_OUTPUT:
                raise
            failure = error
    assert failure is not None
    raise failure


async def preference_rows(
    context: RunContext, episode: Episode, turn: int, reply: str
) -> list[dict[str, Any]]:
    """One row for each of the user's preferences: scored 1 to 5, na, or unscored with a reason.

    "na" is scored with no value: the judge said that this reply cannot show it.
    """
    preferences = episode.user.memory_bank.get(Category.PREFERENCE, ())
    if not preferences:
        return []
    base = {
        "system": episode.system,
        "user_id": episode.user.user_id,
        "epoch": episode.epoch,
        "episode": episode.number,
        "turn": turn,
    }
    variables: dict[str, Any] = {
        "preferences": [p.model_dump(mode="json") for p in preferences],
        "task": episode.task.task,
        "reply": reply,
    }
    request = prompts.load("preference").request(
        Role.PREFERENCE,
        context.asker("rollout", episode.system, episode.user.user_id, episode.item(turn)),
        variables,
        replicate=context.replicate(episode.epoch),
    )
    blank = {"score": None, "judge_reason": None, "reason": None, "detail": None, "call_id": None}
    try:
        answer = await context.chat.ask(request)
        given = answer.parsed(PreferenceAnswer).per_pref
        named = sorted(p.idx for p in given)
        if named != list(range(1, len(preferences) + 1)):
            raise CallFailed(
                Reason.INVALID_OUTPUT,
                f"ratings for {named}, 1 to {len(preferences)} once each needed",
                answer.call_id,
            )
        ratings = {p.idx: p for p in given}
    except BudgetExceeded:
        raise
    except CallFailed as error:
        failed = {
            "status": "unscored",
            "reason": error.reason.value,
            "detail": error.detail,
            "call_id": error.call_id,
        }
        return [
            {**base, **blank, "idx": i, "dimension": p.dimension, **failed}
            for i, p in enumerate(preferences, 1)
        ]
    return [
        {
            **base,
            **blank,
            "idx": i,
            "dimension": p.dimension,
            "score": None if ratings[i].score == "na" else ratings[i].score,
            "judge_reason": ratings[i].reason,
            "status": "scored",
            "call_id": answer.call_id,
        }
        for i, p in enumerate(preferences, 1)
    ]
