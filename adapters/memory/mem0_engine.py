"""mem0's own library on one thread: built, watched, read out and brought back.

Everything here is synchronous and runs in the thread of one store. The library
is driven, not imitated; what it hides is watched at the three objects that it
asks (its model, its embedder, its vector store):

- an extraction answer that it cannot read becomes "nothing to remember";
- a memory whose embedding fails is dropped with a log line;
- the "today" of its prompt is the wall clock.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from adapters.memory.calls import KEY_PREFIX, failure_of
from memprobe.errors import AdapterError, CallFailed, MemProbeError, SnapshotError
from memprobe.outcomes import Reason
from memprobe.systems import ModelAccess

USER = "memprobe"
"""mem0's user id. A store has a folder of its own, so that one name does for all of them."""

COLLECTION = "mem0"
PAGE = 10000
MEMORIES, VECTORS, MESSAGES = "memories.jsonl", "vectors.npy", "messages.jsonl"

_TODAY = re.compile(
    r"(?<=\n\n## Observation Date\n)\S+(\n\n## Current Date\n)\S+(?=\n\n# Output:\Z)"
)
_loading = threading.Lock()


@dataclass(frozen=True, slots=True)
class Settings:
    """How one store's library is set up; `strict` raises what the library would hide."""

    models: ModelAccess
    dimensions: int
    temperature: float
    max_tokens: int
    strict: bool


def installed() -> bool:
    """Whether mem0's library is there; does not import it."""
    return importlib.util.find_spec("mem0") is not None


def library() -> Any:
    """The module `mem0.memory.main`, silenced: no telemetry, no notices, no downloads."""
    with _loading:
        if "mem0.memory.main" not in sys.modules:
            _import()
        main = sys.modules["mem0.memory.main"]
        telemetry, spacy = (
            importlib.import_module(f"mem0.{name}")
            for name in ("memory.telemetry", "utils.spacy_models")
        )
        # Someone may have imported it before us with telemetry on.
        for module in (main, telemetry):
            vars(module)["MEM0_TELEMETRY"] = False
        # It would fetch spaCy's model; as on a machine without spaCy it does without.
        vars(spacy).update(_load_failed_full=True, _load_failed_lemma=True)
        return main


def _import() -> None:
    """Both settings are read at import; the library makes a folder of `MEM0_DIR` at once."""
    home = tempfile.mkdtemp(prefix="memprobe-mem0-home-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    before = os.environ.get("MEM0_DIR")
    os.environ |= {"MEM0_DIR": home, "MEM0_TELEMETRY": "False"}
    try:
        importlib.import_module("mem0.memory.main")
    finally:
        if before is None:
            os.environ.pop("MEM0_DIR", None)
        else:
            os.environ["MEM0_DIR"] = before


def reason_of(error: BaseException, doing: str) -> MemProbeError:
    """What a run should hear of an error that came out of the library."""
    import openai

    link: BaseException | None = error
    while link is not None:
        if isinstance(link, MemProbeError):
            return link
        if isinstance(link, openai.APIStatusError):
            return failure_of(link)
        if isinstance(link, openai.APIError):
            return CallFailed(Reason.PROVIDER_ERROR, f"the model door: {link}")
        link = link.__cause__ or link.__context__
    return AdapterError(f"mem0: {doing} failed: {type(error).__name__}: {error}")


@dataclass
class Watch:
    """What the library swallowed during the call under way."""

    faults: list[BaseException] = field(default_factory=list)

    def raise_first(self, doing: str) -> None:
        """Raise for the first fault, if there was one."""
        if self.faults:
            raise reason_of(self.faults[0], doing) from self.faults[0]


class _Model:
    """mem0's model: the prompt's date is set, an unreadable answer is told from an empty one."""

    def __init__(self, inner: Any, strict: bool) -> None:
        self._inner = inner
        self._strict = strict
        self._reply: Any = None
        self.today: str | None = None
        inner.config.response_callback = self._keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _keep(self, model: object, response: object, params: object) -> None:
        self._reply = response

    def generate_response(self, messages: list[dict[str, str]], **kwargs: Any) -> Any:
        """As mem0's own; raises `CallFailed` under strict when the answer is not in its form."""
        if self.today is not None:
            last = messages[-1]
            text, found = _TODAY.subn(rf"{self.today}\g<1>{self.today}", last["content"])
            if not found:
                raise AdapterError(
                    "mem0: its extraction prompt does not end in its two dates, as version 2.2 "
                    "does; the event's day cannot be told to this version"
                )
            messages = [*messages[:-1], {**last, "content": text}]
        self._reply = None
        answer = self._inner.generate_response(messages=messages, **kwargs)
        if self._strict:
            self._check(answer)
        return answer

    def _check(self, answer: Any) -> None:
        choice = self._reply.choices[0] if self._reply is not None else None
        call_id = str(self._reply.id).removeprefix(KEY_PREFIX) if self._reply is not None else None
        if choice is not None and choice.message.refusal:
            raise CallFailed(Reason.REFUSAL, choice.message.refusal[:400], call_id)
        if readable(answer):
            return
        reason = Reason.INVALID_OUTPUT
        if choice is not None and choice.finish_reason == "length":
            reason = Reason.TRUNCATED
        shown = ascii(answer)[:200]
        raise CallFailed(reason, f"mem0: no list of memories in the answer: {shown}", call_id)


def readable(answer: object) -> bool:
    """Whether mem0 reads an answer as it was meant: an object with a list of texts."""
    utils = importlib.import_module("mem0.memory.utils")
    text = utils.remove_code_blocks(answer)
    try:
        try:
            value = json.loads(text, strict=False)
        except json.JSONDecodeError:
            value = json.loads(utils.extract_json(text), strict=False)
    except ValueError:
        return False
    rows = value.get("memory") if isinstance(value, dict) else None
    return isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("text"), str) for row in rows
    )


class _Embedder:
    """mem0's embedder; it notes what fails, since mem0 then drops the memory and goes on."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def embed(self, *args: Any, **kwargs: Any) -> Any:
        """As mem0's own."""
        return self._noting(self._inner.embed, *args, **kwargs)

    def embed_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As mem0's own."""
        return self._noting(self._inner.embed_batch, *args, **kwargs)

    def _noting(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            self._watch.faults.append(error)
            raise


@dataclass(frozen=True, slots=True)
class _Row:
    vector: np.ndarray[Any, np.dtype[np.float32]]
    payload: dict[str, Any]


class _Vectors:
    """mem0's vector store; it keeps the order of creation and the vectors as they came.

    mem0 names memories by random ids, and the embedded Qdrant loads a folder in
    another order than it was written, which decides between equal scores: a
    restored store is therefore filled anew, from here, in the same order.
    """

    def __init__(self, inner: Any, watch: Watch) -> None:
        # The hub's keyword model is tried over the network unless this says it was.
        inner._bm25_encoder = False
        self._inner = inner
        self._watch = watch
        self.rows: dict[str, _Row] = {}
        self.ordinals: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def insert(
        self,
        vectors: Sequence[Any],
        payloads: Sequence[dict[str, Any]],
        ids: Sequence[str],
    ) -> None:
        """As mem0's own."""
        try:
            self._inner.insert(vectors=vectors, payloads=payloads, ids=ids)
        except Exception as error:
            self._watch.faults.append(error)
            raise
        for key, vector, payload in zip(ids, vectors, payloads, strict=True):
            self.ordinals.setdefault(key, len(self.ordinals) + 1)
            self.rows[key] = _Row(np.asarray(vector, dtype=np.float32), dict(payload))

    def count(self) -> int:
        """What Qdrant itself says that the whole collection holds."""
        return int(self._inner.client.count(COLLECTION, exact=True).count)


class Engine:
    """One store's library. Use it in the thread that made it."""

    def __init__(self, settings: Settings) -> None:
        self._strict = settings.strict
        self._folder = Path(tempfile.mkdtemp(prefix="memprobe-mem0-"))
        self._watch = Watch()
        try:
            self._memory = self._build(library(), settings)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _build(self, main: Any, settings: Settings) -> Any:
        import openai

        models = settings.models
        access = {"api_key": models.api_key, "openai_base_url": models.base_url}
        asked = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        memory = main.Memory.from_config(
            {
                "llm": {
                    "provider": "openai",
                    "config": {"model": models.chat_model, **access, **asked},
                },
                "embedder": {
                    "provider": "openai",
                    "config": {"model": models.embedding_model, **access},
                },
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "collection_name": COLLECTION,
                        "path": str(self._folder / "qdrant"),
                        "embedding_model_dims": settings.dimensions,
                        "on_disk": True,
                    },
                },
                "history_db_path": str(self._folder / "history.db"),
            }
        )
        # The library's own clients follow OPENROUTER_API_KEY and proxies, and retry.
        self._http = openai.DefaultHttpxClient(trust_env=False, timeout=None)
        client = openai.OpenAI(
            base_url=models.base_url,
            api_key=models.api_key,
            max_retries=0,
            timeout=None,
            http_client=self._http,
        )
        for part in (memory.llm, memory.embedding_model):
            part.client.close()
            part.client = client
        memory.llm = self._model = _Model(memory.llm, settings.strict)
        memory.embedding_model = _Embedder(memory.embedding_model, self._watch)
        memory.vector_store = self._vectors = _Vectors(memory.vector_store, self._watch)
        return memory

    def add(
        self, role: str, text: str, when: datetime, extra: Mapping[str, Any], infer: bool
    ) -> None:
        """One message through mem0's `add`.

        `when` becomes the memories' time and, under strict, the prompt's "today".
        Raises `CallFailed`, `BudgetExceeded` or `AdapterError`.
        """
        self._watch.faults.clear()
        self._model.today = when.astimezone(UTC).date().isoformat() if self._strict else None
        metadata = {**extra, "created_at": when.isoformat()}
        message = [{"role": role, "content": text}]
        try:
            self._memory.add(message, user_id=USER, metadata=metadata, infer=infer)
        except Exception as error:
            raise reason_of(error, "add") from error
        finally:
            self._order_messages()
        if self._strict:
            self._watch.raise_first("add")

    def _order_messages(self) -> None:
        """The order in which messages came, in place of the clock's: it decides the prompts.

        mem0 shows the model the last ten messages by their wall-clock time; after a
        restore on another machine, or a clock set back, these would be other ones.
        """
        connection = self._memory.db.connection
        with connection:
            connection.execute("UPDATE messages SET created_at = printf('%020d', rowid)")

    def search(self, query: str, k: int, threshold: float) -> list[dict[str, Any]]:
        """mem0's results, at most `k`, best first, each with its `ordinal`."""
        self._watch.faults.clear()
        try:
            found = self._memory.search(
                query, filters={"user_id": USER}, top_k=k, threshold=threshold
            )["results"]
        except Exception as error:
            raise reason_of(error, "search") from error
        if self._strict:
            self._watch.raise_first("search")
        return [self._numbered(row) for row in found[:k]]

    def _numbered(self, row: dict[str, Any]) -> dict[str, Any]:
        ordinal = self._vectors.ordinals.get(str(row["id"]))
        if ordinal is None:
            raise AdapterError(f"mem0 gave a memory that it never stored: {ascii(row)[:200]}")
        return {**row, "ordinal": ordinal}

    def dump(self) -> list[dict[str, Any]]:
        """All memories in the order of creation; raises `AdapterError` when any is missing."""
        held = self._vectors.count()
        try:
            # `show_expired`: without it the library asks for four times as many rows.
            found = self._memory.get_all(
                filters={"user_id": USER}, top_k=max(PAGE, held), show_expired=True
            )["results"]
        except Exception as error:
            raise reason_of(error, "get_all") from error
        rows = sorted((self._numbered(row) for row in found), key=lambda row: row["ordinal"])
        distinct = len({row["ordinal"] for row in rows})
        if not len(rows) == distinct == held == len(self._vectors.rows):
            raise AdapterError(
                f"mem0: the dump is not complete: {len(rows)} memories listed ({distinct} distinct "
                f"ones), {held} in Qdrant, {len(self._vectors.rows)} added"
            )
        return rows

    def state(self) -> tuple[int, dict[str, bytes]]:
        """The number of memories and all that `load` needs; equal stores give equal bytes."""
        rows = list(self._vectors.rows.values())
        buffer = io.BytesIO()
        np.save(
            buffer,
            np.stack([r.vector for r in rows]) if rows else np.zeros((0, 0), np.float32),
            allow_pickle=False,
        )
        messages = self._memory.db.connection.execute(
            "SELECT session_scope, role, content, name FROM messages ORDER BY rowid"
        ).fetchall()
        return len(rows), {
            MEMORIES: _lines([row.payload for row in rows]),
            VECTORS: buffer.getvalue(),
            MESSAGES: _lines(messages),
        }

    def load(self, count: int, parts: Mapping[str, bytes]) -> None:
        """Fill an empty store with what `state` gave; embeds nothing. Raises `SnapshotError`."""
        if self._vectors.rows:
            raise SnapshotError("mem0: only an empty store can be restored")
        try:
            payloads, messages = (_rows(parts[name]) for name in (MEMORIES, MESSAGES))
            vectors = np.load(io.BytesIO(parts[VECTORS]), allow_pickle=False)
            said = [
                (str(scope), {"role": role, "content": content, "name": name})
                for scope, role, content, name in messages
            ]
            if not len(payloads) == len(vectors) == count:
                raise ValueError(
                    f"{count} memories announced, {len(payloads)} and {len(vectors)} vectors found"
                )
            # mem0 names memories at random; a name is seen by nobody outside.
            ids = [f"00000000-0000-4000-8000-{n:012d}" for n in range(1, count + 1)]
            if ids:
                self._vectors.insert(vectors=vectors.tolist(), payloads=payloads, ids=ids)
            self._memory.db.batch_add_history(
                [
                    {
                        "memory_id": key,
                        "new_memory": payload["data"],
                        "event": "ADD",
                        "created_at": payload["created_at"],
                    }
                    for key, payload in zip(ids, payloads, strict=True)
                ]
            )
        except (ValueError, TypeError, KeyError) as error:
            raise SnapshotError(f"mem0: unreadable snapshot ({error})") from error
        for scope, message in said:
            self._memory.db.save_messages([message], scope)
            self._order_messages()

    def close(self) -> None:
        """Release the library's files and connections, and remove the store's folder."""
        try:
            self._http.close()
            self._vectors.client.close()
            self._memory.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _lines(values: Sequence[object]) -> bytes:
    return "".join(
        json.dumps(value, ensure_ascii=False, sort_keys=True) + "\n" for value in values
    ).encode()


def _rows(raw: bytes) -> list[Any]:
    return [json.loads(line) for line in raw.decode().split("\n")[:-1]]
