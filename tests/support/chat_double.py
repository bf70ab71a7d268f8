"""A deterministic stand-in for a remote model, behind the chat port.

Answers are texts that go through the gateway's own parser, so an unusable one
fails here as it fails there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from adapters.models.structured import InvalidAnswer, parse
from memprobe.chat import ChatReply, ChatRequest
from memprobe.errors import BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Role, Usage

Answer = str | BaseModel | dict[str, Any]
Answerer = Callable[[ChatRequest], Answer]
Choice = Callable[[ChatRequest], bool]


def where(role: Role, **variables: Any) -> Choice:
    """Requests of a role whose variables have these values."""
    return lambda request: (
        request.role is role
        and all(request.variables.get(key) == value for key, value in variables.items())
    )


def _assistant(request: ChatRequest) -> Answer:
    turn = len(request.variables["history"]) + 1  # type: ignore[arg-type]
    return f"Advice {turn} on: {request.variables['task']}"


def _simulator(request: ChatRequest) -> Answer:
    turn = request.variables["turn"]
    kind = "satisfied" if turn == 2 else "add_context"
    return {"feedback_type": kind, "text": f"Reaction {turn} to: {request.variables['task']}"}


def _preference(request: ChatRequest) -> Answer:
    count = len(request.variables["preferences"])  # type: ignore[arg-type]
    rated = [{"idx": i, "score": 4, "reason": "seen"} for i in range(1, count + 1)]
    return {"per_pref": rated}


def _slot_fill(request: ChatRequest) -> Answer:
    if not request.variables["memories"]:
        return {"label": "unknown", "reason": "nothing is there"}
    return {"label": f"some {request.variables['dimension']}", "reason": "entry 1"}


DEFAULTS: Mapping[Role, Answerer] = {
    Role.ASSISTANT: _assistant,
    Role.SIMULATOR: _simulator,
    Role.PREFERENCE: _preference,
    Role.SLOT_FILL: _slot_fill,
    Role.JUDGE: lambda _: {"score": 0.5, "reason": "half of it"},
    Role.ORACLE: lambda _: {"can_invite": True, "reason": "there is room"},
    Role.DISCLOSURE: lambda _: {"disclosed": False, "evidence": ""},
    Role.SUBCLASS: lambda _: {"cause": "unclassified", "reason": "cannot be said"},
}


@dataclass
class ChatDouble:
    """Answers by role; `fail` and `say` change the answers to chosen requests.

    `requests` holds every request in order, failed ones included; `journal` is
    shared with the recorded memory systems.
    """

    model: str = "openai/double"
    window: int | None = None
    journal: list[tuple[str, ...]] = field(default_factory=list)
    requests: list[ChatRequest] = field(default_factory=list)
    before: Callable[[ChatRequest], Any] | None = None
    _rules: list[tuple[Choice, Answerer]] = field(default_factory=list)
    _answerers: dict[Role, Answerer] = field(default_factory=lambda: dict(DEFAULTS))

    def answer(self, role: Role, answerer: Answerer) -> None:
        """Answer all of a role's requests with this."""
        self._answerers[role] = answerer

    def say(self, choice: Choice, answer: Answer) -> None:
        """Answer the chosen requests with this; the latest rule wins."""
        self._rules.insert(0, (choice, lambda _: answer))

    def fail(self, choice: Choice, reason: Reason, times: int | None = None) -> None:
        """Fail the chosen requests, the first `times` of them or all."""
        left = [times]

        def chosen(request: ChatRequest) -> bool:
            if left[0] == 0 or not choice(request):
                return False
            if left[0] is not None:
                left[0] -= 1
            return True

        def failing(request: ChatRequest) -> Answer:
            raise CallFailed(reason, f"made to fail: {reason.value}", "failed-call")

        self._rules.insert(0, (chosen, failing))

    def exhaust_budget(self, choice: Choice) -> Callable[[], None]:
        """Refuse the chosen requests for want of budget until the result is called."""
        broke = [True]

        def pay() -> None:
            broke[0] = False

        def refusing(request: ChatRequest) -> Answer:
            raise BudgetExceeded("the next call would pass --max-cost")

        self._rules.insert(0, (lambda r: broke[0] and choice(r), refusing))
        return pay

    async def ask(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        self.journal.append(("ask", request.role.value, request.asker.item))
        if self.before is not None:
            await self.before(request)
        answerer = next((a for c, a in self._rules if c(request)), self._answerers[request.role])
        answer = answerer(request)
        self.journal.append(("answered", request.role.value, request.asker.item))
        return self._reply(request, answer)

    def _reply(self, request: ChatRequest, answer: Answer) -> ChatReply:
        if isinstance(answer, BaseModel):
            text = answer.model_dump_json()
        else:
            text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        said = [m.model_dump() for m in request.messages]
        facts = json.dumps([request.role.value, said, request.replicate])
        call_id = hashlib.sha256(facts.encode()).hexdigest()[:16]
        value = None
        if request.answer is not None:
            try:
                value = parse(text, request.answer).value
            except InvalidAnswer as error:
                raise CallFailed(Reason.INVALID_OUTPUT, str(error), call_id) from error
        return ChatReply(call_id, self.model, text, value, Usage())

    def of(self, *roles: Role) -> list[ChatRequest]:
        """The requests of some roles, in order."""
        return [request for request in self.requests if request.role in roles]

    def model_for(self, role: Role) -> str:
        return self.model

    def window_for(self, role: Role) -> int | None:
        return self.window

    def count_tokens(self, role: Role, text: str) -> int:
        return (len(text) + 3) // 4
