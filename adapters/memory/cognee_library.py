"""cognee's library made safe to load: its settings, its silence, and its wire to our models.

The library keeps one set of settings a process, reads them when it is imported,
and answers to environment variables and `.env` files. Here they are fixed, and
what it asks of a model or an embedder goes to the door of the store at work: its
own client would send other requests to other places, repeat a failed one for
four minutes, and read an answer that is missing as an empty graph.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from adapters.memory.calls import KEY_PREFIX, cause_of, failure_of
from memprobe.errors import AdapterError, CallFailed, MemProbeError
from memprobe.outcomes import Reason
from memprobe.systems import ModelAccess
from memprobe.text import sanitize

NOWHERE = "http://127.0.0.1:9/v1"
"""The model's address in cognee's own settings: what is not patched reaches nobody."""

TIDY = 25
"""Writes between two passes over the vector files."""

_loading = threading.Lock()


def installed() -> bool:
    """Whether cognee is there; does not import it."""
    return importlib.util.find_spec("cognee") is not None


@dataclass
class Wire:
    """One store's models, and what went wrong with them during the call under way."""

    models: ModelAccess
    dimensions: int
    temperature: float
    strict: bool
    faults: list[MemProbeError] = field(default_factory=list)
    client: Any = None
    http: Any = None

    def connect(self) -> None:
        """Open the client. A proxy of the environment must not come between us and loopback."""
        import openai

        self.http = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=None)
        self.client = openai.AsyncOpenAI(
            base_url=self.models.base_url,
            api_key=self.models.api_key,
            max_retries=0,
            timeout=None,
            http_client=self.http,
        )

    async def close(self) -> None:
        """Close the client."""
        if self.http is not None:
            await self.http.aclose()


_wire: Wire | None = None


def take(wire: Wire) -> None:
    """Make this process's cognee that store's; raises `AdapterError` when it is another's."""
    global _wire
    if _wire is not None:
        raise AdapterError(
            "cognee keeps one set of settings a process: this one has a store open already"
        )
    _wire = wire


def give(wire: Wire) -> None:
    """Let the next store have it."""
    global _wire
    if _wire is wire:
        _wire = None


def _at_work() -> Wire:
    if _wire is None:
        raise AdapterError("cognee: no store is open in this process")
    return _wire


def _settings(root: Path, dimensions: int, chunk_tokens: int) -> dict[str, str]:
    import litellm

    tokenizers = Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers"
    env_file = root / "none.env"
    env_file.touch()
    return {
        # A `.env` of the user's would win over all of this.
        "COGNEE_ENV_FILE": str(env_file),
        "TELEMETRY_DISABLED": "1",
        "COGNEE_TRACING_ENABLED": "false",
        "ENV": "dev",
        "LOG_LEVEL": "CRITICAL",
        "COGNEE_LOG_FILE": "false",
        "COGNEE_LOGS_DIR": str(root / "logs"),
        "COGNEE_REPOS_DIR": str(root / "repos"),
        "SYSTEM_ROOT_DIRECTORY": str(root / "system"),
        "DATA_ROOT_DIRECTORY": str(root / "data"),
        "CACHE_ROOT_DIRECTORY": str(root / "cache"),
        "DB_PROVIDER": "sqlite",
        "GRAPH_DATABASE_PROVIDER": "ladybug",
        "VECTOR_DB_PROVIDER": "lancedb",
        "ENABLE_BACKEND_ACCESS_CONTROL": "false",
        "GRAPH_DATABASE_SUBPROCESS_ENABLED": "false",
        "VECTOR_DB_SUBPROCESS_ENABLED": "false",
        "STRUCTURED_OUTPUT_FRAMEWORK": "litellm_native",
        "GRAPH_EXTRACTOR": "llm",
        "SUMMARY_METHOD": "llm",
        "LLM_PROVIDER": "custom",
        "LLM_MODEL": "openai/door",
        "LLM_ENDPOINT": NOWHERE,
        "LLM_API_KEY": "none",
        "LLM_RATE_LIMIT_ENABLED": "false",
        "EMBEDDING_RATE_LIMIT_ENABLED": "false",
        "EMBEDDING_PROVIDER": "openai_compatible",
        "EMBEDDING_MODEL": "door",
        "EMBEDDING_ENDPOINT": NOWHERE,
        "EMBEDDING_API_KEY": "none",
        "EMBEDDING_DIMENSIONS": str(dimensions),
        "EMBEDDING_MAX_COMPLETION_TOKENS": str(chunk_tokens),
        "EMBEDDING_ENCODING_FORMAT": "float",
        "MOCK_EMBEDDING": "false",
        "COGNEE_SKIP_CONNECTION_TEST": "true",
        "CACHING": "false",
        "AUTO_FEEDBACK": "false",
        "PERSONALIZATION_ENABLED": "false",
        # The tokenizer that sizes chunks: litellm carries it, others are on a hub.
        "TIKTOKEN_CACHE_DIR": str(tokenizers),
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def library(root: Path, dimensions: int, chunk_tokens: int) -> Any:
    """The module `cognee`, keeping what it stores in `root`.

    The environment stays as the library needs it: it reads parts of it again
    and again.
    """
    with _loading:
        loaded = "cognee" in sys.modules
        os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True")
        os.environ.update(_settings(root, dimensions, chunk_tokens))
        if not loaded:
            # A migration imports it for data of older versions; loading it would crash
            # the process, since cognee's own graph database is a fork of it.
            sys.modules.setdefault("kuzu", ModuleType("kuzu"))
        cognee = importlib.import_module("cognee")
        if not loaded:
            _patch()
        _move(root, dimensions, chunk_tokens)
        return cognee


def _move(root: Path, dimensions: int, chunk_tokens: int) -> None:
    """Let the settings that were read point to this store."""
    config = importlib.import_module("cognee.api.v1.config.config").config
    config.system_root_directory(str(root / "system"))
    config.data_root_directory(str(root / "data"))
    base = importlib.import_module("cognee.base_config").get_base_config()
    base.cache_root_directory = str(root / "cache")
    embeddings = importlib.import_module(
        "cognee.infrastructure.databases.vector.embeddings.config"
    ).get_embedding_config()
    embeddings.embedding_dimensions = dimensions
    embeddings.embedding_max_completion_tokens = chunk_tokens


def _patch() -> None:
    adapter = importlib.import_module(
        "cognee.infrastructure.llm.structured_output_framework.litellm_native.native_adapter"
    )
    litellm = vars(adapter)["litellm"]
    vars(adapter)["litellm"] = _Wired(litellm)
    vars(adapter)["_supports_native_schema"] = lambda model: True
    kind = adapter.NativeLiteLLMAdapter
    kind.acreate_structured_output = _once(inspect.unwrap(kind.acreate_structured_output))
    engine = importlib.import_module(
        "cognee.infrastructure.databases.vector.embeddings.OpenAICompatibleEmbeddingEngine"
    ).OpenAICompatibleEmbeddingEngine
    engine.embed_text = _noting(inspect.unwrap(engine.embed_text))
    engine._client = property(lambda self: _embedder(), lambda self, value: None)
    cognify = importlib.import_module("cognee.api.v1.cognify.cognify")
    vars(cognify)["compact_vector_store"] = _seldom(vars(cognify)["compact_vector_store"])
    search = importlib.import_module("cognee.modules.retrieval.utils.brute_force_triplet_search")
    vars(search)["logger"] = _Raising(vars(search)["logger"])


class _Wired:
    """The module `litellm`, except that a completion is had from the store's door."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def acompletion(self, **given: Any) -> Any:
        """A chat completion in OpenAI's form."""
        return await _complete(_at_work(), given)


async def _complete(wire: Wire, given: Mapping[str, Any]) -> Any:
    import openai

    form = given.get("response_format")
    if isinstance(form, type):
        utils = importlib.import_module("litellm.llms.base_llm.base_utils")
        form = utils.type_to_response_format_param(form)
    asked: dict[str, Any] = {"temperature": wire.temperature}
    if form is not None:
        asked["response_format"] = form
    try:
        reply = await wire.client.chat.completions.create(
            model=wire.models.chat_model, messages=given["messages"], extra_body=asked
        )
    except openai.APIStatusError as error:
        raise failure_of(error) from error
    except openai.APIError as error:
        raise CallFailed(Reason.PROVIDER_ERROR, f"the model door: {error}") from error
    choice = reply.choices[0]
    call_id = str(reply.id).removeprefix(KEY_PREFIX)
    if wire.strict:
        if choice.message.refusal:
            raise CallFailed(Reason.REFUSAL, choice.message.refusal[:400], call_id)
        if choice.finish_reason == "content_filter":
            raise CallFailed(Reason.REFUSAL, "cognee: stopped by a content filter", call_id)
        if choice.finish_reason == "length":
            raise CallFailed(Reason.TRUNCATED, "cognee: the answer was cut off", call_id)
        if not (choice.message.content or "").strip():
            raise CallFailed(Reason.INVALID_OUTPUT, "cognee: the answer is empty", call_id)
    return reply


def _once(ask: Any) -> Any:
    """A structured answer without the library's own repetitions, which last four minutes."""

    async def asked(
        self: Any, text_input: str, system_prompt: str, response_model: Any, **more: Any
    ) -> Any:
        wire = _at_work()
        try:
            result = await ask(self, text_input, system_prompt, response_model, **more)
        except Exception as error:
            wire.faults.append(reason_of(error, "a model call"))
            raise
        a_graph = "nodes" in getattr(response_model, "model_fields", {})
        if wire.strict and a_graph and "nodes" not in result.model_fields_set:
            # The library takes any JSON object for a graph, one without nodes for an empty one.
            fault = CallFailed(Reason.INVALID_OUTPUT, "cognee: no list of nodes in the answer")
            wire.faults.append(fault)
            raise fault
        return _clean(result)

    return asked


def _clean(result: Any) -> Any:
    """The answer with U+FFFD for lone surrogates that it spells out: none can be stored."""
    if not hasattr(result, "model_dump_json"):
        return sanitize(result)[0] if isinstance(result, str) else result
    try:
        result.model_dump_json()
    except (ValueError, UnicodeError):
        plain = _sanitized(result.model_dump(mode="python"))
        return type(result).model_validate(plain)
    return result


def _sanitized(value: Any) -> Any:
    match value:
        case str():
            return sanitize(value)[0]
        case dict():
            return {key: _sanitized(each) for key, each in value.items()}
        case list():
            return [_sanitized(each) for each in value]
        case _:
            return value


def _noting(embed: Any) -> Any:
    """An embedding request without repetitions; a failure is kept with its own reason."""

    async def embedded(self: Any, text: list[str]) -> Any:
        wire = _at_work()
        try:
            return await embed(self, text)
        except Exception as error:
            wire.faults.append(reason_of(error, "an embedding"))
            raise

    return embedded


def _seldom(compact: Any) -> Any:
    """Tidy the vector files now and then: each pass reads them all, and a store is short-lived."""
    calls = count(1)

    async def compacted() -> Any:
        return await compact() if next(calls) % TIDY == 0 else None

    return compacted


def _embedder() -> Any:
    """What the library's embedding engine takes for its client."""
    wire = _at_work()

    async def create(**given: Any) -> Any:
        return await wire.client.embeddings.create(
            **{**given, "model": wire.models.embedding_model}
        )

    return SimpleNamespace(embeddings=SimpleNamespace(create=create))


class _Raising:
    """A logger of the library's where `exception` means that an error is passed over."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def exception(self, said: str, *args: Any, **more: Any) -> None:
        """Raise it under strict."""
        error = sys.exc_info()[1]
        if error is not None and _at_work().strict:
            raise AdapterError(f"cognee: {said}: {error!r}") from error


def reason_of(error: BaseException, doing: str) -> MemProbeError:
    """What a run should hear of an error that came out of the library."""
    import openai

    link: BaseException | None = error
    while link is not None and not isinstance(link, MemProbeError | openai.APIError):
        if type(link).__name__ == "ValidationError":
            return CallFailed(Reason.INVALID_OUTPUT, f"cognee: {ascii(str(link))[:300]}")
        link = link.__cause__ or link.__context__
    return cause_of(error, "cognee", doing)
