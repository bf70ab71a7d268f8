"""Reading a memory: what a prompt of it takes up, one slot-fill, and the verdict on a label.

The memory comes first in the prompt, so that a user's 31 prompts share their
prefix and all but the first can be read from the provider's cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import prompts
from memprobe.dataset import BankEntry, User
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason, Unscored
from memprobe.types import Asker, Category, Role
from prompts.answers import JudgeAnswer, SlotFillAnswer
from tasks.context import RunContext

ANSWER_RESERVE = 1024
"""Tokens of the window kept free for the answer when a prompt is held against it."""
CACHE_FLOOR = 1024
"""Prompts below this many tokens are not cached by providers; no warming call is worth it."""
UNKNOWN = "unknown"
Row = dict[str, Any]
Rows = list[Row]


def is_unknown(label: str) -> bool:
    """Whether a label says that the memory holds nothing."""
    return label.strip().strip(".\"'").casefold() == UNKNOWN


def status(failure: Unscored | None) -> Row:
    """The outcome columns of a row."""
    if failure is None:
        return {"status": "scored", "reason": None, "detail": None}
    return {"status": "unscored", "reason": failure.reason.value, "detail": failure.detail}


@dataclass(frozen=True, slots=True)
class Filled:
    """What a reader made of a memory for one dimension: a label, or why there is none."""

    label: str | None = None
    reason: str | None = None
    call_id: str | None = None
    failure: Unscored | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of a memory, and of the longest prompt that one of the targets makes of it."""

    memory: int
    prompt: int


class Reader:
    """Asks the slot-fill model about one store, and holds its prompts against the window."""

    def __init__(self, context: RunContext, system: str, user: User, epoch: int) -> None:
        self.context = context
        self.system = system
        self.user = user
        self.epoch = epoch
        self.window = context.chat.window_for(Role.SLOT_FILL)
        self.model = context.chat.model_for(Role.SLOT_FILL)
        self.targets = context.targets(user)
        self._widest: dict[str, Row] = {}
        self._sizes: dict[tuple[str, ...], Size] = {}

    def asker(self, item: str) -> Asker:
        """Who asks, by an item of this store and epoch."""
        item = f"e{self.epoch}/{item}"
        return self.context.asker("recover", self.system, self.user.user_id, item)

    @property
    def budget(self) -> int | None:
        """Tokens that a prompt may have; None without a window."""
        return None if self.window is None else self.window - ANSWER_RESERVE

    def about(self, category: Category, dimension: str) -> Row:
        """What a prompt says of the dimension asked for; nothing of the truth."""
        boundary = self.context.dataset.pool.category(category).boundary
        return {"category": category.value, "boundary": boundary, "dimension": dimension}

    def tokens(self, prompt: str, **variables: Any) -> int:
        """Tokens of a rendered prompt of that name for the target that makes it longest."""
        if prompt not in self._widest:
            empty: Row = {name: [] for name in variables}
            asked = [self.about(category, entry.dimension) for category, entry in self.targets]
            self._widest[prompt] = max(
                asked, key=lambda about: self._count(prompt, {**empty, **about}), default={}
            )
        return self._count(prompt, {**variables, **self._widest[prompt]})

    def _count(self, prompt: str, variables: Mapping[str, Any]) -> int:
        messages = prompts.load(prompt).render(**variables)
        text = "\n".join(message.content for message in messages)
        return self.context.chat.count_tokens(Role.SLOT_FILL, text)

    def size(self, memories: tuple[str, ...]) -> Size:
        """The size of a memory; its prompts are counted only where there is a window."""
        if memories not in self._sizes:
            self._sizes[memories] = self._measured(memories)
        return self._sizes[memories]

    def _measured(self, memories: tuple[str, ...]) -> Size:
        text = json.dumps(memories, ensure_ascii=False, indent=1)
        memory = self.context.chat.count_tokens(Role.SLOT_FILL, text)
        bounded = self.window is not None and bool(self.targets)
        prompt = self.tokens("slot_fill", memories=list(memories)) if bounded else memory
        return Size(memory, prompt)

    def overflow(self, size: Size) -> Unscored | None:
        """Why a memory of that size cannot be read in one prompt; None when it can."""
        if self.budget is None or size.prompt <= self.budget:
            return None
        return Unscored(
            Reason.STORE_OVERFLOW,
            f"the memory has about {size.memory} tokens and its prompt {size.prompt}, the window "
            f"of {self.model} {self.window} with {ANSWER_RESERVE} kept free",
        )

    def warms(self, tokens: int) -> bool:
        """Whether one call should go first and fill the provider's prefix cache for the rest."""
        return tokens >= CACHE_FLOOR and not self.model.startswith("embedded/")

    async def fill(
        self, item: str, memories: Sequence[str], category: Category, dimension: str
    ) -> Filled:
        """Read a memory for one dimension."""
        return await self.ask(
            "slot_fill", item, {"memories": list(memories), **self.about(category, dimension)}
        )

    async def ask(self, prompt: str, item: str, variables: Row) -> Filled:
        """One call whose answer is a label; only an exhausted budget raises."""
        request = prompts.load(prompt).request(
            Role.SLOT_FILL,
            self.asker(item),
            variables,
            replicate=self.context.replicate(self.epoch),
        )
        try:
            reply = await self.context.chat.ask(request)
        except BudgetExceeded:
            raise
        except CallFailed as error:
            return Filled(None, None, error.call_id, Unscored(error.reason, error.detail))
        answer = reply.parsed(SlotFillAnswer)
        return Filled(answer.label, answer.reason, reply.call_id)


async def judged(context: RunContext, asker: Asker, entry: BankEntry, label: str | None) -> Row:
    """The verdict fields of one label. "unknown" scores 0 by the rubric, without a call."""
    model = context.chat.model_for(Role.JUDGE)
    blank = {"label": label, "score": None, "judge_reason": None, "judge_model": model}
    if label is None:
        return {**blank, "call_id": None}
    if is_unknown(label):
        known = {**blank, "score": 0.0, "judge_reason": "the label is unknown", "call_id": None}
        return {**known, **status(None)}
    asker = asker.model_copy(update={"item": f"{asker.item}/{entry.dimension}"})
    request = prompts.load("judge").request(
        Role.JUDGE,
        asker,
        {
            "dimension": entry.dimension,
            "short": entry.short,
            "explanation": entry.explanation,
            "label": label,
        },
    )
    try:
        reply = await context.chat.ask(request)
    except BudgetExceeded:
        raise
    except CallFailed as error:
        failure = status(Unscored(error.reason, error.detail))
        return {**blank, "call_id": error.call_id, **failure}
    answer = reply.parsed(JudgeAnswer)
    return {
        **blank,
        "score": answer.score,
        "judge_reason": answer.reason,
        "call_id": reply.call_id,
        **status(None),
    }


def published_fault(verdict: Row) -> Row:
    """The published procedure scores what it could not measure as 0; the reason stays."""
    if verdict["status"] == "scored":
        return verdict
    return {
        **verdict,
        "status": "scored",
        "score": 0.0,
        "judge_reason": "scored 0 as published, although it was not measured",
    }
