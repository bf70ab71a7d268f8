"""mem0's own library on one thread: built, driven, read out and brought back.

Everything here is synchronous and runs in the thread of one store. What the
library hides is watched from `mem0_watch`.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from adapters.memory.mem0_watch import (
    OrderedVectors,
    Watch,
    WatchedEmbedder,
    WatchedModel,
    reason_of,
)
from adapters.models.loading import LOADING
from memprobe.errors import AdapterError, SnapshotError
from memprobe.systems import ModelAccess

USER = "memprobe"
"""mem0's user id. A store has a folder of its own, so that one name does for all of them."""

COLLECTION = "mem0"
PAGE = 10000
MEMORIES, VECTORS, MESSAGES = "memories.jsonl", "vectors.npy", "messages.jsonl"


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
    with LOADING:
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


def spare_the_disk(memory: Any) -> None:
    """Let SQLite not wait for the disk: a store's folder ends with its process.

    What lasts are snapshots. Both databases otherwise sync several times a message,
    which costs more than everything else on a busy disk.
    """
    local = getattr(memory.vector_store.client, "_client", None)
    collections = getattr(local, "collections", {}).values()
    storages = [getattr(getattr(c, "storage", None), "storage", None) for c in collections]
    for connection in (memory.db.connection, *storages):
        if connection is not None:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = MEMORY")


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
        spare_the_disk(memory)
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
        memory.llm = self._model = WatchedModel(memory.llm, settings.strict)
        memory.embedding_model = WatchedEmbedder(memory.embedding_model, self._watch)
        memory.vector_store = self._vectors = OrderedVectors(memory.vector_store, self._watch)
        return memory

    def add(
        self,
        messages: Sequence[Mapping[str, str]],
        when: datetime,
        extra: Mapping[str, Any],
        infer: bool,
    ) -> None:
        """Messages (`role` and `content`) through one `add` of mem0's.

        `when` becomes the memories' time and, under strict, the prompt's "today".
        Raises `CallFailed`, `BudgetExceeded` or `AdapterError`.
        """
        self._watch.faults.clear()
        self._model.today = when.astimezone(UTC).date().isoformat() if self._strict else None
        metadata = {**extra, "created_at": when.isoformat()}
        given = [dict(message) for message in messages]
        try:
            self._memory.add(given, user_id=USER, metadata=metadata, infer=infer)
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
            history = [
                {
                    "memory_id": key,
                    "new_memory": payload["data"],
                    "event": "ADD",
                    "created_at": payload["created_at"],
                }
                for key, payload in zip(ids, payloads, strict=True)
            ]
            if ids:
                self._vectors.insert(vectors=vectors.tolist(), payloads=payloads, ids=ids)
        except (ValueError, TypeError, KeyError) as error:
            raise SnapshotError(f"mem0: unreadable snapshot ({error})") from error
        self._memory.db.batch_add_history(history)
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
