"""The middle memory: pages grouped by theme, kept hot by what comes in and what is read.

Functions over a `Store`, which they change; nothing is awaited in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from adapters.memory.memoryos import heat
from adapters.memory.memoryos.options import Options
from adapters.memory.memoryos.parsing import Theme
from adapters.memory.memoryos.records import Page, Placement, Segment, Store
from adapters.memory.vectors import Vectors


def add_page(store: Store, page: Page, row: Vectors, *, continues: bool) -> None:
    """Take a page in; one that goes on from the last is linked to it, both ways.

    The page's words on the exchange so far then hold for the whole chain behind it.
    """
    previous = store.pages.get(store.last.id) if continues and store.last else None
    if previous is not None:
        page = page.model_copy(update={"pre_page": previous.id})
        for link in chain(store, previous.id):
            held = store.pages[link]
            store.pages[link] = held.model_copy(update={"meta_info": page.meta_info})
        linked = store.pages[previous.id].model_copy(update={"next_page": page.id})
        store.pages[previous.id] = linked
    store.pages[page.id] = page
    store.index.put(page.id, page.embedded_text(), row)
    store.last = page


def chain(store: Store, page_id: str) -> list[str]:
    """The pages linked with one, directly or by others, first to last."""
    first = store.pages[page_id]
    while first.pre_page is not None:
        first = store.pages[first.pre_page]
    found = [first.id]
    while (following := store.pages[found[-1]].next_page) is not None:
        found.append(following)
    return found


def place(
    store: Store,
    pages: Sequence[Page],
    theme: Theme,
    row: Vectors,
    now: datetime,
    options: Options,
    *,
    spare: bool = True,
) -> Segment:
    """Put pages into the segment that fits the theme best, or into a new one.

    `row` is the vector of the theme's content. Of segments that fit equally well
    the oldest is taken. Above the capacity the segments that readers used least are
    dropped, the oldest of equals first; `spare`: not the new one, which nobody can
    have used yet. Pages that are left without a segment stay until `prune`. Returns
    the segment as it then is.
    """
    placed = tuple(Placement(page=page.id, keywords=theme.keywords) for page in pages)
    latest = max(page.pair.event_time for page in pages)
    best = _best(store, theme, row, options.similarity_threshold)
    if best is not None:
        return _touched(
            store,
            best.model_copy(
                update={
                    "details": (*best.details, *placed),
                    "interactions": best.interactions + len(placed),
                    "event_time": max(best.event_time, latest),
                }
            ),
            now,
        )
    store.segment_count += 1
    fresh = Segment(
        id=f"segment_{store.segment_count:05d}",
        theme=theme.theme,
        summary=theme.content,
        keywords=theme.keywords,
        details=placed,
        event_time=latest,
        created=now,
        last_visit=now,
        interactions=len(placed),
    )
    store.index.put(fresh.id, fresh.summary, row)
    fresh = _touched(store, fresh, now)
    while len(store.segments) > options.mid_term_capacity:
        others = [s for s in store.segments.values() if not spare or s.id != fresh.id]
        gone = min(others, key=lambda segment: segment.lfu)
        del store.segments[gone.id]
        store.index.delete(gone.id)
    return fresh


def _best(store: Store, theme: Theme, row: Vectors, threshold: float) -> Segment | None:
    if not store.segments:
        return None
    cosines = store.cosines(row)
    scored = [
        (heat.fit(cosines[s.id], theme.keywords, s.keywords), s) for s in store.segments.values()
    ]
    score, segment = max(scored, key=lambda pair: pair[0])
    return segment if score >= threshold else None


def _touched(store: Store, segment: Segment, now: datetime) -> Segment:
    return _reheated(store, segment.model_copy(update={"last_visit": now}), now)


def _reheated(store: Store, segment: Segment, now: datetime) -> Segment:
    recent = heat.recency(segment.last_visit, now)
    hot = heat.heat(segment.visits, segment.interactions, recent)
    segment = segment.model_copy(update={"recency": recent, "heat": hot})
    store.segments[segment.id] = segment
    return segment


def visit(store: Store, segment_id: str, now: datetime) -> None:
    """A reader came by: the segment is heated, and counts as used."""
    segment = store.segments[segment_id]
    counted = {"visits": segment.visits + 1, "lfu": segment.lfu + 1}
    _touched(store, segment.model_copy(update=counted), now)


def due(store: Store, threshold: float) -> Segment | None:
    """The hottest segment, if it is hot enough and holds pages that nobody has analysed.

    Cooler segments are never looked at. Heat is as of the last time each was
    touched; of equally hot ones the oldest counts.
    """
    if not store.segments:
        return None
    hottest = max(store.segments.values(), key=lambda segment: segment.heat)
    if hottest.heat < threshold or all(placement.analyzed for placement in hottest.details):
        return None
    return hottest


def cool(store: Store, segment_id: str, now: datetime) -> None:
    """After the analysis: all pages seen, counts at 0, so that recency alone is left."""
    segment = store.segments[segment_id]
    seen = tuple(p.model_copy(update={"analyzed": True}) for p in segment.details)
    counts = {"details": seen, "visits": 0, "interactions": 0}
    _reheated(store, segment.model_copy(update=counts), now)


def prune(store: Store) -> None:
    """Drop the pages that are in no segment any more, and the links to them."""
    held = {p.page for segment in store.segments.values() for p in segment.details}
    for page_id in [page_id for page_id in store.pages if page_id not in held]:
        _forget(store, page_id)


def _forget(store: Store, page_id: str) -> None:
    page = store.pages.pop(page_id)
    store.index.delete(page_id)
    for neighbour, link in ((page.pre_page, "next_page"), (page.next_page, "pre_page")):
        if neighbour is not None:
            held = store.pages[neighbour]
            store.pages[neighbour] = held.model_copy(update={link: None})
