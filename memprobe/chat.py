"""The chat port: one question to a model, one answer or a typed failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pydantic import BaseModel, JsonValue

from memprobe.types import Asker, Message, Role, Usage

AnswerT = TypeVar("AnswerT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question.

    `answer` is the pydantic type of a structured answer, or None for free text.
    `prompt` names template, version and hash. `variables` are the values the
    messages were rendered from: embedded models read them instead of the text,
    so whatever they use is part of the ledger key. `replicate` keeps repeated
    samples of the same question apart (epoch, retry of an unusable role play).
    """

    role: Role
    messages: tuple[Message, ...]
    asker: Asker
    prompt: str = ""
    answer: type[BaseModel] | None = None
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    replicate: int = 0
    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ChatReply:
    """An answer.

    `value` is an instance of the request's answer type (None for free text),
    `repaired` tells that the text needed a tolerant parse, `replayed` that the
    ledger answered and nothing was sent. `call_id` is the ledger key.
    """

    call_id: str
    model: str
    text: str
    value: BaseModel | None
    usage: Usage
    repaired: bool = False
    sanitized: bool = False
    replayed: bool = False

    def parsed(self, kind: type[AnswerT]) -> AnswerT:
        """The structured answer, checked to be of the kind that was asked for."""
        if not isinstance(self.value, kind):
            raise TypeError(f"the answer is {type(self.value).__name__}, not {kind.__name__}")
        return self.value


class ChatModel(Protocol):
    """Answers requests; raises `CallFailed` with a reason when there is no usable answer."""

    async def ask(self, request: ChatRequest) -> ChatReply:
        """One answer to one request."""

    def model_for(self, role: Role) -> str:
        """The model string that answers this role."""

    def window_for(self, role: Role) -> int | None:
        """The role's context window in tokens; None when unknown or without limit."""

    def count_tokens(self, role: Role, text: str) -> int:
        """Tokens of a text as the role's model counts them (or the nearest known tokenizer)."""
