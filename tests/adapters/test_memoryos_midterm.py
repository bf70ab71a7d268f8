"""MemoryOS's middle memory by hand: heat, fit, links, eviction, and who is promoted."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
import pytest

from adapters.memory.memoryos import Options, heat, midterm
from adapters.memory.memoryos.pairs import Pair
from adapters.memory.memoryos.parsing import Theme
from adapters.memory.memoryos.records import Page, Segment, Store
from adapters.memory.vectors import VectorIndex, Vectors
from tests.adapters.support import WordEmbedder
from tests.support.memoryos import at

NOW = at(1)


def axis(*parts: float) -> Vectors:
    """A unit vector along the given coordinates."""
    row = np.zeros(WordEmbedder.dimensions, dtype=np.float32)
    row[: len(parts)] = parts
    return row / np.linalg.norm(row)


def theme(content: str = "c", *keywords: str) -> Theme:
    return Theme(theme="t", keywords=keywords, content=content)


class Desk:
    """A store to which pages are added by hand."""

    def __init__(self, **options: int | float) -> None:
        self.store = Store(index=VectorIndex(WordEmbedder()))
        self.options = Options.model_validate(options)

    def page(self, number: int, meta: str = "", *, continues: bool = False, day: float = 1) -> Page:
        pair = Pair(
            number=number, user=f"u{number}", assistant="a", event_time=at(day), session="s"
        )
        page = Page(id=f"page_{number}", pair=pair, meta_info=meta)
        midterm.add_page(self.store, page, axis(1.0), continues=continues)
        return page

    def place(self, page: Page, row: Vectors, *keywords: str, day: float = 1) -> Segment:
        told = theme(f"c{page.id}", *keywords)
        return midterm.place(self.store, [page], told, row, at(day), self.options)


def test_heat_is_visits_and_pages_and_recency() -> None:
    assert heat.heat(2, 3, 0.5) == 5.5
    assert heat.recency(NOW, NOW) == 1.0
    assert heat.recency(NOW, NOW + timedelta(hours=24)) == pytest.approx(math.exp(-1), abs=1e-15)
    assert heat.recency(NOW, NOW + timedelta(hours=6)) == pytest.approx(0.7788007830714049)
    assert heat.recency(NOW + timedelta(hours=6), NOW) == 1.0, "no segment is hotter than new"


def test_fit_is_the_cosine_and_the_shared_keywords() -> None:
    assert heat.jaccard(["a", "b", "c"], ["b", "c", "d"]) == 0.5
    assert heat.jaccard([], []) == 0.0
    assert heat.jaccard(["a"], []) == 0.0
    assert heat.fit(0.25, ["a", "b"], ["b", "a", "a"]) == 1.25


def test_a_page_below_the_threshold_opens_a_segment() -> None:
    desk = Desk()
    first = desk.place(desk.page(1), axis(1.0))
    assert (first.visits, first.interactions, first.recency, first.heat) == (0, 1, 1.0, 2.0)
    # cos = 0.59...: below 0.6.
    other = desk.place(desk.page(2), axis(0.59, math.sqrt(1 - 0.59**2)))
    assert other.id != first.id
    # cos = 0.61 with the first, about 0.35 with the other.
    again = desk.place(desk.page(3), axis(0.61, 0.0, math.sqrt(1 - 0.61**2)))
    assert (again.id, again.interactions, again.heat) == (first.id, 2, 3.0)
    assert [p.page for p in again.details] == ["page_1", "page_3"]
    assert again.summary == "cpage_1", "what comes in later does not rewrite the summary"


def test_keywords_make_up_for_a_distant_summary() -> None:
    desk = Desk()
    first = desk.place(desk.page(1), axis(1.0), "boat", "rope")
    joined = desk.place(desk.page(2), axis(0.0, 1.0), "rope", "boat", "sail")
    assert joined.id == first.id, "0 + 2/3 is at least 0.6"
    apart = desk.place(desk.page(3), axis(0.0, 0.0, 1.0), "rope", "tide")
    assert apart.id != first.id, "0 + 1/3 is not"


def test_of_two_segments_the_better_one_is_taken_and_of_equals_the_older() -> None:
    desk = Desk(similarity_threshold=0.5)
    one = desk.place(desk.page(1), axis(1.0))
    two = desk.place(desk.page(2), axis(0.0, 1.0))
    assert desk.place(desk.page(3), axis(0.6, 0.8)).id == two.id
    assert desk.place(desk.page(4), axis(1.0, 1.0)).id == one.id


def test_four_pages_reach_the_published_threshold() -> None:
    desk = Desk()
    for number in range(1, 4):
        desk.place(desk.page(number), axis(1.0))
        assert midterm.due(desk.store, 5.0) is None
    segment = desk.place(desk.page(4), axis(1.0))
    assert segment.heat == 5.0
    assert midterm.due(desk.store, 5.0) == segment


def test_recency_fades_until_the_analysis_and_the_heap_does_not_know_it() -> None:
    desk = Desk()
    for number in range(1, 5):
        segment = desk.place(desk.page(number), axis(1.0), day=1)
    # Two days later its heat is still the one of its last touch ...
    assert midterm.due(desk.store, 5.0) == segment
    midterm.cool(desk.store, segment.id, at(3))
    cooled = desk.store.segments[segment.id]
    # ... and the analysis leaves recency alone: exp(-48/24).
    assert (cooled.visits, cooled.interactions) == (0, 0)
    assert cooled.heat == cooled.recency == pytest.approx(math.exp(-2))
    assert all(p.analyzed for p in cooled.details)


def test_a_visit_counts_once_for_heat_and_once_for_use() -> None:
    desk = Desk()
    segment = desk.place(desk.page(1), axis(1.0), day=1)
    midterm.visit(desk.store, segment.id, at(5))
    seen = desk.store.segments[segment.id]
    assert (seen.visits, seen.lfu, seen.interactions) == (1, 1, 1)
    assert (seen.last_visit, seen.recency, seen.heat) == (at(5), 1.0, 3.0)


def test_a_segment_is_promoted_once_and_hides_the_cooler_ones() -> None:
    desk = Desk()
    hot = desk.place(desk.page(1), axis(1.0))
    for number in range(2, 7):
        hot = desk.place(desk.page(number), axis(1.0))
    for number in range(7, 11):
        cooler = desk.place(desk.page(number), axis(0.0, 1.0))
    assert (hot.heat, cooler.heat) == (7.0, 5.0)
    assert midterm.due(desk.store, 5.0) == hot
    midterm.cool(desk.store, hot.id, NOW)
    # Readers heat it again; all its pages are analysed, and nothing is due.
    for _ in range(6):
        midterm.visit(desk.store, hot.id, NOW)
    assert desk.store.segments[hot.id].heat == 7.0
    assert midterm.due(desk.store, 5.0) is None
    # A new page in it makes it due again.
    desk.place(desk.page(11), axis(1.0))
    due = midterm.due(desk.store, 5.0)
    assert due is not None
    assert [p.page for p in due.details if not p.analyzed] == ["page_11"]


def test_pages_that_go_on_are_linked_both_ways_and_share_their_words() -> None:
    desk = Desk()
    for number, (meta, goes_on) in enumerate(
        [("first", False), ("second", True), ("other", False), ("third", True)], 1
    ):
        desk.place(desk.page(number, meta, continues=goes_on), axis(1.0))
    links = [(p.pre_page, p.next_page, p.meta_info) for p in desk.store.pages.values()]
    assert links == [
        (None, "page_2", "second"),
        ("page_1", None, "second"),
        (None, "page_4", "third"),
        ("page_3", None, "third"),
    ]
    desk.place(desk.page(5, "fifth", continues=True), axis(1.0))
    assert [p.meta_info for p in desk.store.pages.values()] == ["second"] * 2 + ["fifth"] * 3
    assert midterm.chain(desk.store, "page_4") == ["page_3", "page_4", "page_5"]


def test_the_least_used_segment_is_evicted_with_its_pages_and_their_links() -> None:
    desk = Desk(mid_term_capacity=2)
    one = desk.place(desk.page(1), axis(1.0))
    two = desk.place(desk.page(2, continues=True), axis(0.0, 1.0))
    midterm.visit(desk.store, one.id, NOW)
    three = desk.place(desk.page(3, continues=True), axis(0.0, 0.0, 1.0))
    midterm.prune(desk.store)
    assert list(desk.store.segments) == [one.id, three.id]
    assert set(desk.store.pages) == {"page_1", "page_3"}
    assert two.id not in desk.store.index
    assert "page_2" not in desk.store.index
    assert desk.store.pages["page_1"].next_page is None
    assert desk.store.pages["page_3"].pre_page is None


def test_of_equally_used_segments_the_oldest_goes_and_the_newcomer_stays() -> None:
    desk = Desk(mid_term_capacity=1)
    one = desk.place(desk.page(1), axis(1.0))
    midterm.visit(desk.store, one.id, NOW)
    two = desk.place(desk.page(2), axis(0.0, 1.0))
    assert list(desk.store.segments) == [two.id]
    desk = Desk(mid_term_capacity=2)
    for number, row in enumerate((axis(1.0), axis(0.0, 1.0), axis(0.0, 0.0, 1.0)), 1):
        desk.place(desk.page(number), row)
    assert list(desk.store.segments) == ["segment_00002", "segment_00003"]


def test_a_page_of_two_segments_outlives_one_of_them() -> None:
    desk = Desk(mid_term_capacity=2)
    page = desk.page(1)
    desk.place(page, axis(1.0))
    kept = desk.place(page, axis(0.0, 1.0))
    midterm.visit(desk.store, kept.id, NOW)
    desk.place(desk.page(2), axis(0.0, 0.0, 1.0))
    midterm.prune(desk.store)
    assert list(desk.store.segments) == [kept.id, "segment_00003"]
    assert set(desk.store.pages) == {"page_1", "page_2"}
