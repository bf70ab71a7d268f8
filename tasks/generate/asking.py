"""Questions to a model whose answers are checked, with the findings fed back.

Everything goes through the chat port, so the ledger answers what was answered
before. What the replay needs to be exact is here: each attempt at a question
has a replicate of its own, and nothing depends on time or on other users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, JsonValue

import prompts
from memprobe.chat import ChatModel
from memprobe.errors import BudgetExceeded, CallFailed, MemProbeError
from memprobe.outcomes import Reason
from memprobe.types import Asker, Role

ATTEMPTS = 3
"""How often a question is asked until its answer passes the checks."""

_PASSING = frozenset({Reason.PROVIDER_ERROR, Reason.TIMEOUT})

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class UserFailed(MemProbeError):
    """One user cannot be finished.

    `step` names where. `resumable` is true when the same command may succeed
    later (an outage, the budget); false when the stored answers would give the
    same failure again, so that only another seed or model helps.
    """

    def __init__(self, step: str, reason: Reason, detail: str, *, resumable: bool = False) -> None:
        super().__init__(f"{step}: {detail}")
        self.step = step
        self.reason = reason
        self.detail = detail
        self.resumable = resumable


@dataclass(slots=True)
class Questioner:
    """Asks for one user. `calls` counts answers, `replayed` those that the ledger gave.

    `suite` and `stage` are what the ledger notes of who asks.
    """

    chat: ChatModel
    run: str
    user: str
    suite: str = "generate"
    stage: str = "generate"
    calls: int = 0
    replayed: int = 0

    async def ask(
        self,
        prompt: str,
        role: Role,
        kind: type[AnswerT],
        item: str,
        variables: dict[str, JsonValue],
        check: Callable[[AnswerT], list[str]],
        *,
        series: int = 0,
        refused: JsonValue = None,
    ) -> AnswerT:
        """An answer that `check` finds nothing wrong with.

        A refused answer is shown to the model with the findings; an unusable one
        is asked for again. Raises `UserFailed` after `ATTEMPTS`, and at once when
        the provider is out of reach. `series` keeps apart samples of the same
        question that are wanted more than once; `refused` is an earlier answer with
        what was wrong with it, for the first attempt.
        """
        template = prompts.load(prompt)
        asker = Asker(run=self.run, suite=self.suite, stage=self.stage, user=self.user, item=item)
        reason, detail = Reason.INVALID_OUTPUT, ""
        for attempt in range(ATTEMPTS):
            request = template.request(
                role,
                asker,
                {**variables, "refused": refused},
                replicate=series * ATTEMPTS + attempt,
            )
            try:
                reply = await self.chat.ask(request)
            except CallFailed as failure:
                if failure.reason in _PASSING or isinstance(failure, BudgetExceeded):
                    raise UserFailed(item, failure.reason, failure.detail, resumable=True) from None
                reason, detail = failure.reason, failure.detail
                continue
            self.calls += 1
            self.replayed += reply.replayed
            answer = reply.parsed(kind)
            findings = check(answer)
            if not findings:
                return answer
            refused = {"answer": answer.model_dump(mode="json"), "findings": list(findings)}
            reason, detail = Reason.INVALID_OUTPUT, "; ".join(findings)
        raise UserFailed(item, reason, f"no usable answer in {ATTEMPTS} attempts: {detail}")
