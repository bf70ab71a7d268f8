"""What the gateway asks of a provider of completions, remote or embedded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pydantic import JsonValue

from memprobe.types import Message, Role, Usage


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """One request as it leaves the gateway.

    `json_schema` asks for a structured answer where the provider can give one.
    `role`, `variables` and `replicate` are for embedded models; a remote
    provider sends only model, messages and parameters. `timeout_s` bounds one
    attempt. `raw_messages` are a library's own messages (with tool calls or
    content parts) and go out in place of `messages`.
    """

    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    json_schema: Mapping[str, Any] | None = None
    timeout_s: float = 120.0
    role: Role | None = None
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    replicate: int = 0
    raw_messages: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back, before any parsing.

    `text` is None when the provider sent no content (a refusal, or a reasoning
    model that spent its whole budget). `finish_reason` is the provider's word:
    `stop`, `length`, `content_filter`, `tool_calls`. `tool_calls` are the
    model's calls in OpenAI's form.
    """

    text: str | None
    finish_reason: str
    usage: Usage
    refusal: str | None = None
    flags: tuple[str, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()


class FaultKind(StrEnum):
    """How a call failed before there was a completion."""

    RATE_LIMIT = "rate_limit"
    SERVER = "server"
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    REJECTED_PARAM = "rejected_param"
    CONTENT_POLICY = "content_policy"
    AUTH = "auth"
    BAD_REQUEST = "bad_request"
    CONTEXT_WINDOW = "context_window"
    NOT_JUDGED = "not_judged"
    DATASET = "dataset"


class ProviderFault(Exception):
    """No completion. `retry_after_s` is the provider's own word, already in seconds."""

    def __init__(
        self,
        kind: FaultKind,
        detail: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.retry_after_s = retry_after_s
        self.param = param


class Provider(Protocol):
    """Answers calls for the models of one prefix; raises `ProviderFault`.

    `salt` names whatever else decides an answer (an embedded model's data and
    seed); it is part of every ledger key and empty for remote models.
    """

    salt: str

    async def complete(self, call: CompletionCall) -> Completion:
        """One attempt; retries and limits are the gateway's."""
        ...

    def window(self, model: str) -> int | None:
        """Context window in tokens, None when unknown or unlimited."""
        ...

    def count_tokens(self, model: str, text: str) -> int:
        """Tokens of a text as this model counts them."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
