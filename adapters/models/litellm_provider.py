"""Remote models through litellm: one attempt a call, every failure as a `ProviderFault`.

Nothing is retried here, neither by litellm nor by the client below it: the
gateway knows the limits and the deadline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from adapters.models.litellm_loader import load_litellm, unaccounted
from adapters.models.prices import table_row
from adapters.models.provider import Completion, CompletionCall, FaultKind, ProviderFault
from adapters.models.tokens import count_tokens, tokenizer_of
from memprobe.text import flatten_content
from memprobe.types import Usage

# Providers whose API has `response_format: json_schema`; a server behind one of them that
# refuses it is found out by its first answer.
_SCHEMA_PREFIXES = frozenset(
    {"openai", "azure", "hosted_vllm", "openai_like", "custom_openai", "litellm_proxy", "lm_studio"}
)
_REFUSING = (
    "unsupported",
    "not support",
    "unrecognized",
    "not permitted",
    "invalid schema",
    "unknown parameter",
    "unknown_parameter",
)
_PARAM = re.compile(
    r"(response_format|json_schema|temperature|max_tokens|top_p|seed|frequency_penalty|"
    r"presence_penalty|repetition_penalty|chat_template_kwargs|min_p|top_k|logprobs|stop|"
    r"tool_choice|tools)"
)


class LitellmProvider:
    """Any model string litellm knows; unknown models are sent as they are."""

    salt = ""

    async def complete(self, call: CompletionCall) -> Completion:
        """One attempt; raises `ProviderFault`."""
        litellm = load_litellm()
        arguments: dict[str, Any] = dict(call.params)
        if call.json_schema is not None and self.takes_schema(call.model):
            arguments["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(call.json_schema), "strict": True},
            }
        messages: list[Any] = (
            [dict(m) for m in call.raw_messages]
            if call.raw_messages is not None
            else [{"role": m.role, "content": m.content} for m in call.messages]
        )
        try:
            with unaccounted():
                response = await litellm.acompletion(
                    model=call.model,
                    messages=messages,
                    timeout=call.timeout_s,
                    num_retries=0,
                    max_retries=0,
                    **arguments,
                )
        except Exception as error:
            raise fault_of(error, litellm) from error
        return _completion(response)

    @staticmethod
    @cache
    def takes_schema(model: str) -> bool:
        """Whether a JSON schema is worth sending: by provider, else by litellm's table."""
        if model.partition("/")[0] in _SCHEMA_PREFIXES:
            return True
        try:
            return bool(load_litellm().supports_response_schema(model=model))
        except Exception:
            return False

    def window(self, model: str) -> int | None:
        """The model's input window by litellm's table; None when unknown."""
        window = (table_row(model) or {}).get("max_input_tokens")
        return int(window) if window else None

    def count_tokens(self, model: str, text: str) -> int:
        """Tokens by tiktoken's bundled vocabularies (the nearest one), else 4 characters each."""
        return count_tokens(tokenizer_of(model), text)

    async def close(self) -> None:
        """Close litellm's connection pools."""
        if load_litellm.cache_info().currsize:
            closing = getattr(load_litellm(), "close_litellm_async_clients", None)
            if closing is not None:
                await closing()
            # A closed client that stays in litellm's cache fails the next run of this process.
            cache = getattr(load_litellm(), "in_memory_llm_clients_cache", None)
            if cache is not None:
                cache.flush_cache()


def _completion(response: Any) -> Completion:
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise ProviderFault(FaultKind.SERVER, "the response has no choices")
    message = choices[0].message
    text, skipped = flatten_content(message.content)
    flags = ("non_text_parts",) if skipped else ()
    calls = getattr(message, "tool_calls", None) or []
    refusal = getattr(message, "refusal", None)
    if refusal is None:
        refusal = (getattr(message, "provider_specific_fields", None) or {}).get("refusal")
    return Completion(
        text=text,
        finish_reason=choices[0].finish_reason or "stop",
        usage=_usage(getattr(response, "usage", None)),
        refusal=refusal,
        flags=flags,
        tool_calls=tuple(c.model_dump() if hasattr(c, "model_dump") else dict(c) for c in calls),
    )


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    prompt = getattr(usage, "prompt_tokens_details", None)
    completion = getattr(usage, "completion_tokens_details", None)
    return Usage(
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        cached_tokens=getattr(prompt, "cached_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
        reasoning_tokens=getattr(completion, "reasoning_tokens", None),
    )


def fault_of(error: Exception, litellm: Any) -> ProviderFault:
    """What an exception of litellm means."""
    status = getattr(error, "status_code", None)
    detail = str(getattr(error, "message", None) or error)
    kind = _kind(error, litellm, status if isinstance(status, int) else None, detail)
    param = _rejected(error, detail) if kind is FaultKind.BAD_REQUEST else None
    if param is not None:
        kind = FaultKind.REJECTED_PARAM
    return ProviderFault(
        kind,
        detail,
        status=status if isinstance(status, int) else None,
        retry_after_s=retry_after(_headers(error)),
        param=param,
    )


def _kind(error: Exception, litellm: Any, status: int | None, detail: str) -> FaultKind:
    known: tuple[tuple[Any, FaultKind], ...] = (
        (litellm.ContextWindowExceededError, FaultKind.CONTEXT_WINDOW),
        (litellm.ContentPolicyViolationError, FaultKind.CONTENT_POLICY),
        (litellm.RateLimitError, FaultKind.RATE_LIMIT),
        (litellm.Timeout, FaultKind.TIMEOUT),
        (litellm.AuthenticationError, FaultKind.AUTH),
        (litellm.exceptions.PermissionDeniedError, FaultKind.AUTH),
        (litellm.NotFoundError, FaultKind.BAD_REQUEST),
        (litellm.BadRequestError, FaultKind.BAD_REQUEST),
        (litellm.UnprocessableEntityError, FaultKind.BAD_REQUEST),
        (litellm.ServiceUnavailableError, FaultKind.SERVER),
    )
    if status == 400 and ("content_policy" in detail or "content policy" in detail.lower()):
        return FaultKind.CONTENT_POLICY
    for kind, meaning in known:
        if isinstance(error, kind):
            return meaning
    if status == 429:
        return FaultKind.RATE_LIMIT
    if isinstance(error, litellm.APIConnectionError) or "onnection error" in detail:
        return FaultKind.CONNECTION
    if status is not None and 400 <= status < 500 and status not in (408, 409):
        return FaultKind.BAD_REQUEST
    return FaultKind.SERVER


def _rejected(error: Exception, detail: str) -> str | None:
    """The parameter a 400 is about, from the provider's own field or its words."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    named = inner.get("param") if isinstance(inner, dict) else None
    code = inner.get("code") if isinstance(inner, dict) else None
    low = f"{code} {detail}".lower()
    # A value that is merely too large is not a parameter the model does not take.
    if not any(word in low for word in _REFUSING):
        return None
    if not isinstance(named, str):
        found = _PARAM.search(detail.lower())
        named = found.group(1) if found else None
    if named is None:
        return None
    top = named.partition(".")[0]
    return "response_format" if top in ("json_schema", "response_format", "text") else top


def _headers(error: Exception) -> Mapping[str, str]:
    for holder in (
        getattr(error, "response", None),
        error,
        getattr(error.__cause__, "response", None),
        getattr(error.__context__, "response", None),
    ):
        for name in ("headers", "litellm_response_headers"):
            headers = getattr(holder, name, None)
            if headers is not None and any("retry-after" in k.lower() for k in headers):
                return {str(k).lower(): str(v) for k, v in headers.items()}
    return {}


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds a Retry-After header asks for, given as seconds or as an HTTP date."""
    raw = next((v for k, v in headers.items() if k.lower().endswith("retry-after")), None)
    if raw is None:
        return None
    try:
        return max(0.0, float(raw))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(raw)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
