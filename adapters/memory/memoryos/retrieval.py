"""What a query finds, and what finding does to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from adapters.memory.memoryos import midterm
from adapters.memory.memoryos.options import Options
from adapters.memory.memoryos.records import Knowledge, Segment, Store


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page in a segment, by its place there, with its cosine."""

    segment: Segment
    place: int
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a query found, each list best first, and the segments that it heats."""

    pages: tuple[FoundPage, ...]
    user_knowledge: tuple[tuple[Knowledge, float], ...]
    assistant_knowledge: tuple[tuple[Knowledge, float], ...]
    visited: tuple[str, ...]


def retrieve(store: Store, cosines: Mapping[str, float], options: Options) -> Found:
    """MemoryOS's three look-ups; `cosines` are the query's, by id. Changes nothing.

    Pages: in the best segments by their summaries, every page that is near enough,
    and of all of them the best that the queue holds. A query has no keywords.
    Knowledge: the best lines that are near enough. The profile and the short-term
    memory are not looked at.
    """
    near = [s for s in store.segments.values() if cosines[s.id] >= options.segment_similarity]
    near.sort(key=lambda segment: -cosines[segment.id])
    pages: list[FoundPage] = []
    visited = []
    for segment in near[: options.top_segments]:
        hits = [
            FoundPage(segment, place, cosines[placement.page])
            for place, placement in enumerate(segment.details)
            if cosines[placement.page] >= options.page_similarity
        ]
        if hits:
            visited.append(segment.id)
        pages += hits
    pages.sort(key=lambda page: -page.score)
    return Found(
        pages=tuple(pages[: options.retrieval_queue_capacity]),
        user_knowledge=_known(store.user_knowledge, cosines, options),
        assistant_knowledge=_known(store.assistant_knowledge, cosines, options),
        visited=tuple(visited),
    )


def _known(
    lines: Sequence[Knowledge], cosines: Mapping[str, float], options: Options
) -> tuple[tuple[Knowledge, float], ...]:
    near = [(one, cosines[one.id]) for one in lines]
    near = [pair for pair in near if pair[1] >= options.knowledge_similarity]
    near.sort(key=lambda pair: -pair[1])
    return tuple(near[: options.top_knowledge])


def heat_up(store: Store, found: Found, now: datetime) -> None:
    """Reading heats: each segment with a found page counts a visit, and is as if touched now."""
    for segment_id in found.visited:
        midterm.visit(store, segment_id, now)
