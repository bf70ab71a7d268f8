"""A remote writer model behind the chat port, with a ledger in front of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from memprobe.chat import ChatReply, ChatRequest
from memprobe.errors import CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Role, Usage
from tests.support import fake_writer

Script = Callable[[ChatRequest, int], "dict[str, Any] | Exception | None"]
"""What a request is answered with: an answer, a failure, or None for the usual one.
The count is of requests of the same user and item before this one."""


class Killed(Exception):
    """The process dies here."""


@dataclass
class WriterModel:
    """A remote model with a ledger in front of it: a finished call is never sent again."""

    script: Script = lambda request, n: None
    die_after: int | None = None
    sent: Counter[str] = field(default_factory=Counter)
    ledger: dict[str, dict[str, Any] | CallFailed] = field(default_factory=dict)
    requests: list[ChatRequest] = field(default_factory=list)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def ask(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        count = self.asked[(request.asker.user, request.asker.item)]
        self.asked[(request.asker.user, request.asker.item)] += 1
        key = repr((request.role, request.messages, request.replicate, request.temperature))
        replayed = key in self.ledger
        if not replayed:
            if self.die_after is not None and sum(self.sent.values()) >= self.die_after:
                raise Killed
            self.sent[key] += 1
            answered = self._complete(request, count)
            if isinstance(answered, CallFailed) and answered.reason in (
                Reason.PROVIDER_ERROR,
                Reason.TIMEOUT,
            ):
                raise answered
            self.ledger[key] = answered
        value = self.ledger[key]
        if isinstance(value, CallFailed):
            raise value
        assert request.answer is not None
        try:
            parsed = request.answer.model_validate(value)
        except ValidationError as error:
            raise CallFailed(Reason.INVALID_OUTPUT, str(error)) from error
        return ChatReply(
            key, "double/writer", json.dumps(value), parsed, Usage(), replayed=replayed
        )

    def _complete(self, request: ChatRequest, count: int) -> dict[str, Any] | CallFailed:
        scripted = self.script(request, count)
        if isinstance(scripted, CallFailed):
            return scripted
        if isinstance(scripted, Exception):
            raise scripted
        if scripted is not None:
            return scripted
        system, user = (m.content for m in request.messages)
        answer: dict[str, Any] = json.loads(fake_writer.answer(system, user))
        return answer

    def model_for(self, role: Role) -> str:
        return "double/writer"

    def window_for(self, role: Role) -> int | None:
        return None

    def count_tokens(self, role: Role, text: str) -> int:
        return len(text.split())

    def of(self, item: str, user: str = "user_001") -> list[ChatRequest]:
        """The requests of a user whose item matches."""
        return [r for r in self.requests if r.asker.user == user and re.search(item, r.asker.item)]
