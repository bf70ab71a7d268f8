"""Cutting a store into parts: everything is in some part, and every part fits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.chunks import OVERLAP, NoRoom, Part, Piece, check_cover, lead_of, parts_of

FRAME = 40


def measure(texts: Sequence[str]) -> int:
    """Tokens of a prompt: a frame, and each text's words and signs."""
    return FRAME + sum(2 + len(text.split()) + len(text) // 3 for text in texts)


def read(items: Sequence[str], parts: Sequence[Part]) -> list[str]:
    """The items as they can be put together again from what the parts show."""
    found = [""] * len(items)
    for piece in (piece for part in parts for piece in part.pieces):
        said = piece.text[len(piece.text) - (piece.end - piece.start) :]
        found[piece.item] += said[len(found[piece.item]) - piece.start :]
    return found


texts = st.lists(st.text(max_size=400) | st.text("ab. \n", max_size=400), max_size=12)


@settings(deadline=None, max_examples=150)
@given(items=texts, room=st.integers(8, 400))
def test_parts_hold_everything_and_fit(items: list[str], room: int) -> None:
    parts = parts_of(items, measure, FRAME + room)
    assert read(items, parts) == items
    assert all(part.tokens == measure(part.texts) <= FRAME + room for part in parts)
    places = [piece.item for part in parts for piece in part.pieces]
    assert places == sorted(places)
    assert parts_of(items, measure, FRAME + room) == parts


@settings(deadline=None, max_examples=60)
@given(items=st.lists(st.text("abc ", max_size=60), min_size=2, max_size=12))
def test_items_that_fit_are_never_cut(items: list[str]) -> None:
    parts = parts_of(items, measure, max(measure([text]) for text in items))
    assert [text for part in parts for text in part.texts] == items


def test_a_part_is_as_full_as_it_can_be() -> None:
    items = [f"item {n} of the store" for n in range(50)]
    budget = 200
    parts = parts_of(items, measure, budget)
    for part, after in pairwise(parts):
        assert measure([*part.texts, after.texts[0]]) > budget


def test_a_store_that_fits_is_one_part() -> None:
    items = ["a", "", "b"]
    tokens = measure(items)
    assert [part.texts for part in parts_of(items, measure, tokens)] == [("a", "", "b")]
    assert [part.texts for part in parts_of(items, measure, None)] == [("a", "", "b")]
    assert [part.texts for part in parts_of(items, measure, tokens - 1)] == [("a", ""), ("b",)]
    assert [part.texts for part in parts_of([], measure, FRAME)] == [()]


@pytest.mark.parametrize("items", [[], [""], ["x"], ["x" * 100]])
def test_a_prompt_without_room_is_no_part(items: list[str]) -> None:
    with pytest.raises(NoRoom):
        parts_of(items, measure, FRAME - 1)


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("One two three four five six.\n\nSeven. Eight nine " + "ten " * 40, ".\n\n"),
        ("One two three four. Five six! " + "seven " * 40, "! "),
        ("これは一つ目の文です。" * 30, "。"),
        ("word " * 60, " "),
        ("x" * 300, "x"),
    ],
    ids=["paragraph", "sentence", "wide sentence", "word", "character"],
)
def test_a_long_item_is_cut_where_its_text_allows_it(text: str, ending: str) -> None:
    parts = parts_of([text], measure, FRAME + 30)
    assert len(parts) > 1
    first, second = parts[0].pieces[0], parts[1].pieces[0]
    assert first.text.endswith(ending)
    assert second.start <= first.end
    assert first.end - second.start <= OVERLAP


def test_a_cut_falls_into_no_word_that_both_pieces_lack() -> None:
    names = [f"name{n:03}" for n in range(300)]
    for text in (" ".join(names), "x".join(names)):
        parts = parts_of([text], measure, FRAME + 60)
        shown = [piece.text for part in parts for piece in part.pieces]
        assert all(any(name in piece for piece in shown) for name in names)


def test_a_piece_that_goes_on_says_who_speaks() -> None:
    text = "Agent: " + "Start with the knots. " * 60
    parts = parts_of(["User: hello", text], measure, FRAME + 120)
    shown = [piece.text for part in parts for piece in part.pieces if piece.item == 1]
    assert len(shown) > 2
    assert all(piece.startswith("Agent: Start") for piece in shown)
    assert lead_of("[Task 3] Help me") == "[Task 3] "
    assert lead_of("I said so: yes") == ""


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(0, 0, 4, "abcd")],
        [Piece(0, 0, 4, "abcd"), Piece(1, 0, 2, "ef")],
        [Piece(0, 0, 2, "ab"), Piece(0, 3, 4, "d"), Piece(1, 0, 3, "efg")],
        [Piece(1, 0, 3, "efg"), Piece(0, 0, 4, "abcd")],
        [Piece(0, 0, 4, "abxd"), Piece(1, 0, 3, "efg")],
    ],
    ids=["item lost", "end lost", "gap", "order", "other text"],
)
def test_a_cover_with_a_fault_is_noticed(pieces: list[Piece]) -> None:
    with pytest.raises(AssertionError):
        check_cover(["abcd", "efg"], [Part(tuple(pieces), 0)])
