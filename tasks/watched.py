"""Calls of a memory system with their latencies, and its items as rows of the tables."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from memprobe.errors import AdapterError, CallFailed, SnapshotError
from memprobe.types import MemoryItem

Rows = list[dict[str, Any]]
T = TypeVar("T")


class Watched:
    """The calls of one store: `operations` has a row for each, failed or not."""

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._base = dict(base)
        self.operations: Rows = []

    async def timed(self, phase: str, episode: int, call: Awaitable[T]) -> T:
        """Run an adapter call, note its latency, and turn any error into `AdapterError`."""
        started = time.perf_counter()
        try:
            return await call
        except (CallFailed, AdapterError, SnapshotError):
            raise
        except Exception as error:
            raise AdapterError(
                f"{self._base['system']}: {phase} failed: {type(error).__name__}: {error}"
            ) from error
        finally:
            latency = time.perf_counter() - started
            row = {**self._base, "phase": phase, "episode": episode, "latency_s": latency}
            self.operations.append(row)


def memory_rows(base: Mapping[str, Any], items: Sequence[MemoryItem]) -> Rows:
    """A dump as rows of `memory_items`, in its order."""
    return [
        {
            **base,
            "seq": seq,
            "item_id": item.id,
            "content": item.content,
            "event_time": item.event_time.isoformat() if item.event_time else None,
            "chars": len(item.content),
            "fields_json": json.dumps(item.fields, ensure_ascii=False, sort_keys=True),
        }
        for seq, item in enumerate(items)
    ]


def retrieval_rows(base: Mapping[str, Any], query: str, items: Sequence[MemoryItem]) -> Rows:
    """A search as rows of `retrievals`; `base` names store, category and dimension."""
    return [
        {
            **base,
            "query": query,
            "rank": rank,
            "item_id": item.id,
            "content": item.content,
            "score": item.score,
        }
        for rank, item in enumerate(items, 1)
    ]
