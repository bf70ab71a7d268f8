"""What graphiti's library asks and hides, at the objects that we hand it.

Its model: answers that it cannot read are retried for minutes or, for a fact's
dates, passed over with a log line. Its embedder is the run's. Its clock and its
random ids would enter the store: a moment of the wall clock as the time at which
a fact ended, and another order of equal rows in each run.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel, ValidationError

from adapters.memory.calls import KEY_PREFIX
from memprobe.errors import CallFailed
from memprobe.outcomes import Reason
from memprobe.ports import Embedder
from memprobe.text import sanitize

NAME = "graphiti"


@dataclass
class Store:
    """What belongs to one store while its library works: time, the next id, swallowed faults."""

    ticks: int = 0
    now: datetime = field(default_factory=lambda: datetime.fromtimestamp(0, UTC))
    faults: list[BaseException] = field(default_factory=list)

    def tick(self) -> UUID:
        """Ids in the order of creation."""
        self.ticks += 1
        return UUID(int=self.ticks)


CURRENT: ContextVar[Store | None] = ContextVar("memprobe_graphiti_store", default=None)
"""The store on whose behalf the library runs; tasks that it starts inherit it."""


def utc_now() -> datetime:
    """The event's time while an event is taken in, else the wall clock's."""
    store = CURRENT.get()
    return datetime.now(UTC) if store is None else store.now


def next_id() -> UUID:
    """The store's next id."""
    store = CURRENT.get()
    return uuid4() if store is None else store.tick()


def ordinal(uuid: str) -> int:
    """The place in the order of creation that an id of ours tells."""
    return UUID(uuid).int


def take_over() -> None:
    """Put our clock and ids in the place of the library's, wherever it has taken them by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("graphiti_core") and hasattr(module, "utc_now"):
            vars(module)["utc_now"] = utc_now
    for name in ("nodes", "edges", "graphiti"):
        vars(sys.modules[f"graphiti_core.{name}"])["uuid4"] = next_id
    log = logging.getLogger("graphiti_core")
    if not any(isinstance(h, _Heard) for h in log.handlers):
        log.addHandler(_Heard(logging.WARNING))


class _Heard(logging.Handler):
    """Keeps the exceptions that the library only writes to its log."""

    def emit(self, record: logging.LogRecord) -> None:
        store = CURRENT.get()
        fault = record.exc_info[1] if record.exc_info else None
        if store is not None and fault is not None:
            store.faults.append(fault)


class RunVectors:
    """graphiti's embedder: the run's own."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def create(self, input_data: str | Sequence[str]) -> list[float]:
        """The vector of one text; of a list, that of its first."""
        text = input_data if isinstance(input_data, str) else input_data[0]
        return (await self._embedder.encode([text]))[0]

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        """A vector a text."""
        return await self._embedder.encode(input_data_list)


class NoReranker:
    """graphiti wants a reranker and would make one that asks a model; none of ours is asked."""

    async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
        """Never called by the searches that are used here."""
        raise NotImplementedError("no search of this adapter reranks by a model")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model's parameters; `strict` has unreadable answers raise with a name."""

    temperature: float
    max_tokens: int
    structured: str
    strict: bool


def watched_model(client: Any, chat_model: str, settings: ModelSettings) -> Any:
    """The library's own client for OpenAI-compatible servers; each answer is read once, by us.

    Its own retries ask the same question again after 5 to 120 seconds; the gateway
    has retried what can be, and would give the stored answer.
    """
    generic = importlib.import_module("graphiti_core.llm_client.openai_generic_client")
    config = importlib.import_module("graphiti_core.llm_client.config")
    model = generic.OpenAIGenericClient(
        config=config.LLMConfig(
            api_key="unused",
            model=chat_model,
            small_model=chat_model,
            temperature=settings.temperature,
        ),
        client=client,
        max_tokens=settings.max_tokens,
        structured_output_mode=settings.structured,
    )

    async def once(
        messages: Sequence[Any],
        response_model: type[BaseModel] | None = None,
        max_tokens: int = settings.max_tokens,
        model_size: object = None,
        *,
        model: str | None = None,
    ) -> dict[str, Any]:
        reply = await client.chat.completions.create(
            model=model or chat_model,
            messages=[{"role": m.role, "content": inner._clean_input(m.content)} for m in messages],
            temperature=settings.temperature,
            max_tokens=max_tokens,
            response_format=inner._build_response_format(response_model),
        )
        text = inner._strip_code_fences(reply.choices[0].message.content or "")
        return read(text, reply, response_model) if settings.strict else dict(json.loads(text))

    inner: Any = model
    inner._generate_response_with_retry = once
    return inner


def read(text: str, reply: Any, form: type[BaseModel] | None) -> dict[str, Any]:
    """An answer's object; raises `CallFailed` when it is not in the form that was asked for.

    The library would pass over some of these, take others for an answer without
    content, and lose a whole session to the rest.
    """
    choice = reply.choices[0]
    call_id = str(reply.id).removeprefix(KEY_PREFIX)
    if choice.message.refusal:
        raise CallFailed(Reason.REFUSAL, choice.message.refusal[:400], call_id)
    if choice.finish_reason == "content_filter":
        raise CallFailed(Reason.REFUSAL, f"{NAME}: stopped by a content filter", call_id)
    asked = form.__name__ if form is not None else "object"
    try:
        value = json.loads(sanitize_json(text))
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__name__} in place of an object")
        if form is not None:
            form.model_validate(value)
            if value and not set(value) & set(form.model_fields):
                raise KeyError(f"none of the fields {', '.join(form.model_fields)}")
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError) as error:
        cut = choice.finish_reason == "length"
        reason = Reason.TRUNCATED if cut else Reason.INVALID_OUTPUT
        said = f"{NAME}: no {asked} in the answer ({_first_line(error)}): {ascii(text)[:200]}"
        raise CallFailed(reason, said, call_id) from error
    return value


def sanitize_json(text: str) -> str:
    """The text with U+FFFD for lone surrogates, also for those that it spells out."""
    try:
        value, replaced = sanitize(json.dumps(json.loads(text), ensure_ascii=False))
    except ValueError:
        return text
    return value if replaced else text


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:160]
