"""langmem's own library behind one store: built, driven, read out and brought back.

What the library swallows is watched where it happens. Its updater turns a failed
model call into a message to the model, and its patcher into nothing; arguments
that are no JSON and edits of a memory that is not there are dropped with a log
line. Its names for sessions and memories are random, and some stand in its
prompts; here they are counted, so that a resumed run asks what it asked before.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import logging
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from adapters.memory.calls import KEY_PREFIX, cause_of
from adapters.models.loading import LOADING
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed, MemProbeError
from memprobe.outcomes import Reason
from memprobe.systems import ModelAccess
from memprobe.text import sanitize

NAMESPACE = ("memories", "memprobe")
"""langmem's namespace. A store is an object of its own, so that one name does for all of them."""

PAGE = 200
_NAMES = uuid.UUID("6f0c4f0a-6d2b-5b8e-9f53-2f6f6d656d70")
_LOSING = frozenset({"_teardown", "filter_state"})
"""The functions of trustcall in which a log line means that an edit is dropped for good."""

_at_work: ContextVar[Watch | None] = ContextVar("memprobe_langmem", default=None)


@dataclass(frozen=True, slots=True)
class Settings:
    """How one store's library is set up; `strict` raises what the library would hide."""

    models: ModelAccess
    dimensions: int
    temperature: float
    query_limit: int
    max_steps: int
    deletes: bool
    strict: bool


def installed() -> bool:
    """Whether langmem is there; does not import it."""
    return importlib.util.find_spec("langmem") is not None


@dataclass
class Watch:
    """One store's names, and what the library swallowed during the write under way."""

    strict: bool
    names: int = 0
    faults: list[MemProbeError] = field(default_factory=list)

    def name(self) -> uuid.UUID:
        """The store's next name."""
        self.names += 1
        return uuid.uuid5(_NAMES, str(self.names))

    def raise_first(self) -> None:
        """Raise for the first fault; under the published protocol for the cost limit alone."""
        for fault in self.faults:
            if self.strict or isinstance(fault, BudgetExceeded):
                raise fault

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What the library does inside belongs to this store; nothing is traced to anywhere."""
        from langsmith import tracing_context

        token = _at_work.set(self)
        try:
            with tracing_context(enabled=False):
                yield
        finally:
            _at_work.reset(token)


class _Names:
    """The module `uuid`, except that a store of ours at work counts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)

    def uuid4(self) -> uuid.UUID:
        """The next name of the store at work; a random one where there is none."""
        watch = _at_work.get()
        return uuid.uuid4() if watch is None else watch.name()


class _Lost(logging.Handler):
    """Hears trustcall say that it drops an edit."""

    def emit(self, record: logging.LogRecord) -> None:
        watch = _at_work.get()
        if watch is not None and record.funcName in _LOSING:
            said = f"langmem: an edit was dropped: {ascii(record.getMessage())[:300]}"
            watch.faults.append(CallFailed(Reason.INVALID_OUTPUT, said))


def library() -> Any:
    """The module `langmem`, with counted names and its log heard."""
    with LOADING:
        langmem = importlib.import_module("langmem")
        extraction = sys.modules["langmem.knowledge.extraction"]
        if not isinstance(vars(extraction)["uuid"], _Names):
            vars(extraction)["uuid"] = _Names()
            logger = importlib.import_module("trustcall._base").logger
            logger.addHandler(_Lost(logging.WARNING))
            logger.setLevel(logging.WARNING)
        return langmem


def _clean(value: Any) -> Any:
    """The same value with U+FFFD for lone surrogates that an answer spells out."""
    match value:
        case str():
            return sanitize(value)[0]
        case dict():
            return {_clean(k): _clean(v) for k, v in value.items()}
        case list():
            return [_clean(v) for v in value]
        case _:
            return value


def fault_in(
    message: Any, finish: object, call_id: str | None, tools: Sequence[str], required: bool
) -> CallFailed | None:
    """What is wrong with an answer of langmem's model that the library would pass over.

    `message` is langchain's AIMessage, `finish` OpenAI's reason for its end, `tools`
    are the names that were offered, and `required` tells that one had to be called.
    An answer in words where none had to be means that there is nothing to remember.
    """
    refusal = message.additional_kwargs.get("refusal")
    if refusal:
        return CallFailed(Reason.REFUSAL, str(refusal)[:400], call_id)
    if finish == "content_filter":
        return CallFailed(Reason.REFUSAL, "langmem: stopped by a content filter", call_id)
    if finish == "length":
        return CallFailed(Reason.TRUNCATED, "langmem: the answer was cut off", call_id)
    if message.invalid_tool_calls:
        shown = ascii(message.invalid_tool_calls[0].get("args"))[:200]
        said = f"langmem: a tool's arguments are no JSON: {shown}"
        return CallFailed(Reason.INVALID_OUTPUT, said, call_id)
    unknown = [call["name"] for call in message.tool_calls if call["name"] not in tools]
    if unknown:
        said = f"langmem: there is no tool {ascii(unknown[0])[:80]}"
        return CallFailed(Reason.INVALID_OUTPUT, said, call_id)
    if not message.tool_calls and (required or not message.content):
        said = f"langmem: no tool was called: {ascii(message.content)[:200]}"
        return CallFailed(Reason.INVALID_OUTPUT, said, call_id)
    return None


def _chat_model(settings: Settings, watch: Watch, http: Any) -> Any:
    """langchain's ChatOpenAI on the door; it notes what the library would swallow."""
    from langchain_openai import ChatOpenAI

    class WatchedChat(ChatOpenAI):
        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            # The library asks again with the failure in the prompt, up to its recursion limit.
            watch.raise_first()
            try:
                result = await super()._agenerate(messages, *args, **kwargs)
            except Exception as error:
                watch.faults.append(cause_of(error, "langmem", "a model call"))
                raise
            tools = [tool["function"]["name"] for tool in kwargs.get("tools") or ()]
            for generation in result.generations:
                message: Any = generation.message
                finish = (generation.generation_info or {}).get("finish_reason")
                call_id = str((result.llm_output or {}).get("id") or "").removeprefix(KEY_PREFIX)
                required = bool(kwargs.get("tool_choice"))
                fault = fault_in(message, finish, call_id or None, tools, required)
                if fault is not None:
                    watch.faults.append(fault)
                for call in message.tool_calls:
                    call["args"] = _clean(call["args"])
            watch.raise_first()
            return result

    models = settings.models
    return WatchedChat(
        model=models.chat_model,
        api_key=models.api_key,
        base_url=models.base_url,
        temperature=settings.temperature,
        max_retries=0,
        timeout=None,
        http_async_client=http,
        openai_proxy=None,
        openai_organization=None,
        use_responses_api=False,
        streaming=False,
        cache=False,
    )


def _memory_store(settings: Settings, watch: Watch, http: Any) -> Any:
    """langgraph's InMemoryStore, its vectors from the door, its writes one after another."""
    import openai
    from langgraph.store.base import PutOp
    from langgraph.store.memory import InMemoryStore

    models = settings.models
    client = openai.AsyncOpenAI(
        base_url=models.base_url,
        api_key=models.api_key,
        max_retries=0,
        timeout=None,
        http_client=http,
    )

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        reply = await client.embeddings.create(model=models.embedding_model, input=list(texts))
        return [row.embedding for row in reply.data]

    class OrderedStore(InMemoryStore):
        # The library starts all writes of a session at once; their order must not be chance.
        __slots__ = ("_turn",)

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self._turn = asyncio.Lock()

        async def abatch(self, ops: Iterable[Any]) -> list[Any]:
            listed = list(ops)
            if not any(isinstance(op, PutOp) for op in listed):
                return await super().abatch(listed)
            # Nothing is made of a session of which something was lost.
            watch.raise_first()
            async with self._turn:
                return await super().abatch(listed)

    index = {"dims": settings.dimensions, "embed": embed, "fields": ["$"]}
    return OrderedStore(index=index)


class Engine:
    """One store's library, in the loop that made it."""

    def __init__(self, settings: Settings) -> None:
        import openai

        langmem = library()
        self._settings = settings
        self._watch = Watch(settings.strict)
        # A proxy of the environment must not come between us and loopback.
        self._http = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=None)
        self.store = _memory_store(settings, self._watch, self._http)
        self.manager = langmem.create_memory_store_manager(
            _chat_model(settings, self._watch, self._http),
            namespace=NAMESPACE,
            store=self.store,
            enable_inserts=True,
            enable_deletes=settings.deletes,
            query_limit=settings.query_limit,
        )

    @property
    def names(self) -> int:
        """How many names the library was given; part of a store's state."""
        return self._watch.names

    async def add(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """One conversation through langmem's `ainvoke`.

        Raises `CallFailed`, `BudgetExceeded` or `AdapterError`; under strict for
        what the library swallowed, too, and then nothing of it is stored.
        """
        self._watch.faults.clear()
        given = {"messages": [dict(m) for m in messages], "max_steps": self._settings.max_steps}
        try:
            with self._watch.at_work():
                await self.manager.ainvoke(given)
        except Exception as error:
            self._watch.raise_first()
            raise cause_of(error, "langmem", "ainvoke") from error
        self._watch.raise_first()

    async def search(self, query: str, k: int) -> list[tuple[str, str, float | None]]:
        """Key, text and cosine of at most `k` memories, nearest first."""
        try:
            with self._watch.at_work():
                found = await self.store.asearch(NAMESPACE, query=query, limit=k)
        except Exception as error:
            raise cause_of(error, "langmem", "search") from error
        return [(item.key, text_of(item.value), item.score) for item in found]

    async def items(self) -> dict[str, dict[str, Any]]:
        """Every memory's value by key, paged to the end.

        Raises `AdapterError` unless the pages hold what the store counts.
        """
        found: dict[str, dict[str, Any]] = {}
        offset = 0
        while True:
            page = await self.store.asearch(NAMESPACE, limit=PAGE, offset=offset)
            found.update((item.key, item.value) for item in page)
            offset += len(page)
            if len(page) < PAGE:
                break
        held = sum(len(items) for items in self.store._data.values())
        if not len(found) == offset == held:
            raise AdapterError(
                f"langmem: the dump is not complete: {offset} memories listed ({len(found)} "
                f"distinct ones), {held} in its store"
            )
        return found

    def vector(self, key: str) -> list[float]:
        """A memory's vector; raises `AdapterError` when it has none."""
        vectors = list(self.store._vectors[NAMESPACE].get(key, {}).values())
        if len(vectors) != 1:
            raise AdapterError(f"langmem: {len(vectors)} vectors of one memory")
        return list(vectors[0])

    def load(self, rows: Sequence[tuple[str, dict[str, Any], list[float]]], names: int) -> None:
        """Fill an empty store; asks no model and embeds nothing."""
        from langgraph.store.base import PutOp

        self._watch.names = names
        for key, value, vector in rows:
            self.store._vectors[NAMESPACE][key]["$"] = vector
            self.store._apply_put_ops({(NAMESPACE, key): PutOp(NAMESPACE, key, value)})

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def text_of(value: Mapping[str, Any]) -> str:
    """A memory's text: its content, or the JSON of a content that is no text."""
    content = value.get("content")
    if isinstance(content, Mapping) and isinstance(content.get("content"), str):
        return str(content["content"])
    return json.dumps(content, ensure_ascii=False, sort_keys=True)
