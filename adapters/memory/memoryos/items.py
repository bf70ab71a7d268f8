"""A store's records as memory items: what a reader sees, and the native fields beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from adapters.memory.memoryos.pairs import Pair
from adapters.memory.memoryos.records import (
    Knowledge,
    Page,
    Placement,
    Profile,
    Segment,
    Store,
    stamp,
)
from adapters.memory.vectors import Vectors
from memprobe.types import MemoryItem


def everything(store: Store) -> Iterator[MemoryItem]:
    """The profile, the knowledge, each segment with its pages, and the latest pairs."""
    if store.profile is not None:
        yield of_profile(store.profile)
    for one in store.user_knowledge:
        yield of_knowledge(one, "user_knowledge")
    for one in store.assistant_knowledge:
        yield of_knowledge(one, "assistant_knowledge")
    for segment in store.segments.values():
        yield of_segment(segment)
        for place in range(len(segment.details)):
            yield of_page(store, segment, place)
    for pair in store.waiting():
        yield of_pair(pair, answered=pair is not store.pending)


def of_pair(pair: Pair, *, answered: bool = True) -> MemoryItem:
    """A pair of the short-term memory."""
    return MemoryItem(
        id=f"pair_{pair.number:05d}",
        content=pair.text(),
        event_time=pair.event_time,
        fields={
            "category": "short_term",
            "timestamp": stamp(pair.event_time),
            "session_id": pair.session,
            "answered": answered,
        },
    )


def of_page(store: Store, segment: Segment, place: int) -> MemoryItem:
    """A page as it stands in a segment; in another it is another item."""
    placement = segment.details[place]
    page = store.pages[placement.page]
    before = sum(p.page == page.id for p in segment.details[:place])
    again = f"_{before + 1}" if before else ""
    fields = {
        "category": "page",
        "segment": segment.id,
        "session_id": page.pair.session,
        **_described(page, placement),
    }
    return MemoryItem(
        id=f"{page.id}_{segment.id}{again}",
        content=page.text(),
        event_time=page.pair.event_time,
        fields={**fields, "defaulted": list(page.defaulted)} if page.defaulted else fields,
    )


def _described(page: Page, placement: Placement) -> dict[str, JsonValue]:
    return {
        "page_id": page.id,
        "timestamp": stamp(page.pair.event_time),
        "preloaded": False,
        "analyzed": placement.analyzed,
        "pre_page": page.pre_page,
        "next_page": page.next_page,
        "meta_info": page.meta_info,
        "page_keywords": list(placement.keywords),
    }


def whole_page(page: Page, placement: Placement, row: Vectors) -> str:
    """A page as the published suite prints it: all of it as JSON, its embedding included."""
    told: Mapping[str, JsonValue] = {
        "page_id": page.id,
        "user_input": page.pair.user,
        "agent_response": page.pair.assistant,
        **_described(page, placement),
        "page_embedding": [float(x) for x in row],
    }
    return json.dumps(told, ensure_ascii=False)


def of_segment(segment: Segment) -> MemoryItem:
    """A segment's summary; the time is that of its latest page."""
    return MemoryItem(
        id=segment.id,
        content=segment.summary,
        event_time=segment.event_time,
        fields=segment.fields(),
    )


def of_knowledge(one: Knowledge, category: str) -> MemoryItem:
    """A line of knowledge; the time is that of the latest page it was drawn from."""
    return MemoryItem(
        id=one.id,
        content=one.text,
        event_time=one.event_time,
        fields={
            "category": category,
            "timestamp": stamp(one.event_time),
            "pages": list(one.pages),
        },
    )


def of_profile(profile: Profile) -> MemoryItem:
    """The user's profile."""
    fields: dict[str, JsonValue] = {
        "category": "profile",
        "timestamp": stamp(profile.event_time),
        "updates": profile.updates,
    }
    if profile.defaulted:
        fields["defaulted"] = list(profile.defaulted)
    return MemoryItem(
        id="profile", content=profile.text, event_time=profile.event_time, fields=fields
    )
