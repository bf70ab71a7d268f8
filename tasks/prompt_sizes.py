"""How long a user's prompts are, from the data set's own texts.

Each prompt is rendered once a user with a task and a target of middling length,
without what grows in a dialogue; four characters count as a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import prompts
from memprobe.config import RunConfig
from memprobe.dataset import Pool, User
from memprobe.types import Category, Role

CHARS_PER_TOKEN = 4
REPLY_TOKENS = 590
"""A model's reply in the published release; the embedded assistant's are in the data set."""
USER_TOKENS = 45


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of one user, and tokens: of its prompts without what grows, and of the talk."""

    tasks: int
    targets: int
    preferences: int
    task: float
    reply: float
    message: float
    base: dict[Role, float]


def _tokens(name: str, **variables: Any) -> float:
    messages = prompts.load(name).render(**variables)
    return sum(len(message.content) for message in messages) / CHARS_PER_TOKEN


def _middle(texts: Sequence[Any], size: Callable[[Any], int]) -> Any:
    return sorted(texts, key=size)[len(texts) // 2]


def _mean(lengths: Iterable[int], otherwise: float) -> float:
    values = list(lengths)
    return sum(values) / len(values) / CHARS_PER_TOKEN if values else otherwise


def sizes_of(user: User, pool: Pool, config: RunConfig) -> Sizes:
    """The sizes of one user's prompts; `--limit` bounds the tasks."""
    tasks = min(config.limit or len(user.tasks), len(user.tasks))
    task = _middle([t.task for t in user.tasks], len)
    category, entry = _middle(user.targets(), lambda t: len(t[1].explanation))
    about = {"dimension": entry.dimension, "short": entry.short, "explanation": entry.explanation}
    bank = {
        c.value: [e.model_dump(mode="json") for e in user.memory_bank.get(c, ())] for c in Category
    }
    preferences = bank[Category.PREFERENCE.value]
    named = {"category": category.value, "task": task, **about}
    base = {
        Role.ASSISTANT: _tokens("assistant", task=task, history=[], memories=[]),
        Role.SIMULATOR: _tokens(
            "simulator",
            profile=user.profile.model_dump(mode="json"),
            bank=bank,
            task=task,
            history=[],
            own_recent=[],
            turn=1,
            reply="",
        ),
        Role.PREFERENCE: _tokens("preference", preferences=preferences, task=task, reply=""),
        Role.SLOT_FILL: _tokens(
            "slot_fill",
            memories=[],
            category=category.value,
            boundary=pool.category(category).boundary,
            dimension=entry.dimension,
        ),
        Role.JUDGE: _tokens("judge", label=entry.short, **about),
        Role.ORACLE: _tokens("oracle", **named),
        Role.DISCLOSURE: _tokens("disclosure", transcript=[], **named),
        Role.SUBCLASS: _tokens("subclass", transcript=[], **named),
    }
    scripts = [t.script for t in user.tasks if t.script is not None]
    embedded = config.model_of(Role.ASSISTANT).startswith("embedded/")
    played = scripts if embedded else []
    return Sizes(
        tasks=tasks,
        targets=min(tasks, len(user.targets())),
        preferences=len(preferences),
        task=_mean((len(t.task) for t in user.tasks), 0.0),
        reply=_mean((len(r) for s in played for r in (s.reply, s.followup)), REPLY_TOKENS),
        message=_mean((len(d) for s in played for d in s.disclosures), USER_TOKENS),
        base=base,
    )
