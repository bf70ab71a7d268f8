"""A store as the parts of a snapshot, and back. Equal stores, equal bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from adapters.memory.memoryos.pairs import Pair
from adapters.memory.memoryos.records import Knowledge, Page, Profile, Segment, Store
from adapters.memory.vectors import VectorIndex
from memprobe.errors import SnapshotError
from memprobe.types import Frozen

STATE, TEXTS, VECTORS = "state.json", "texts.jsonl", "vectors.npy"
PARTS = (STATE, TEXTS, VECTORS)


class _State(Frozen):
    short: tuple[Pair, ...]
    pending: Pair | None
    pages: tuple[Page, ...]
    segments: tuple[Segment, ...]
    user_knowledge: tuple[Knowledge, ...]
    assistant_knowledge: tuple[Knowledge, ...]
    profile: Profile | None
    last: Page | None
    pairs: int
    segment_count: int
    knowledge_count: int
    now: datetime | None


_ADAPTER: TypeAdapter[_State] = TypeAdapter(_State)


def parts_of(store: Store) -> dict[str, bytes]:
    """All that `store_of` needs, heat and counters included."""
    texts, vectors = store.index.dump_rows()
    state = _State(
        short=tuple(store.short),
        pending=store.pending,
        pages=tuple(store.pages.values()),
        segments=tuple(store.segments.values()),
        user_knowledge=tuple(store.user_knowledge),
        assistant_knowledge=tuple(store.assistant_knowledge),
        profile=store.profile,
        last=store.last,
        pairs=store.pairs,
        segment_count=store.segment_count,
        knowledge_count=store.knowledge_count,
        now=store.now,
    )
    told: Any = state.model_dump(mode="json")
    raw = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    return {STATE: raw.encode(), TEXTS: texts, VECTORS: vectors}


def store_of(parts: Mapping[str, bytes], index: VectorIndex) -> Store:
    """The store that `parts_of` was given; encodes nothing.

    `index` is empty and is filled. Raises `SnapshotError` when a part cannot be
    read or the parts are not of one store.
    """
    index.load_rows(parts[TEXTS], parts[VECTORS])
    try:
        state = _ADAPTER.validate_json(parts[STATE])
    except ValidationError as error:
        raise SnapshotError(f"unreadable snapshot ({error})") from error
    store = Store(
        index=index,
        short=list(state.short),
        pending=state.pending,
        pages={page.id: page for page in state.pages},
        segments={segment.id: segment for segment in state.segments},
        user_knowledge=list(state.user_knowledge),
        assistant_knowledge=list(state.assistant_knowledge),
        profile=state.profile,
        last=state.last,
        pairs=state.pairs,
        segment_count=state.segment_count,
        knowledge_count=state.knowledge_count,
        now=state.now,
    )
    _check(store)
    return store


def _check(store: Store) -> None:
    wanted = {page.id: page.embedded_text() for page in store.pages.values()}
    wanted |= {segment.id: segment.summary for segment in store.segments.values()}
    wanted |= {one.id: one.text for one in (*store.user_knowledge, *store.assistant_knowledge)}
    found = {row: store.index.text(row) for row in store.index.ids()}
    placed = {p.page for segment in store.segments.values() for p in segment.details}
    if wanted != found or placed != set(store.pages):
        raise SnapshotError(
            f"{len(store.pages)} pages ({len(placed)} of them placed) and {len(found)} indexed "
            "texts, which do not belong together"
        )
