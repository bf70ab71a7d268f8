"""Cutting a store into parts that fit a prompt, with nothing left out.

Items stay whole and in dump order. An item that is larger than a part is cut
where its text allows it (paragraph, line, sentence, word, and only then between
two characters), and neighbouring pieces overlap, so that what stands at a cut is
whole in one of them. A piece that goes on begins with who speaks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

OVERLAP = 200
"""Characters that two neighbouring pieces of one item share at most."""
CLOSE = 0.02
"""A cut need not be the last possible one; within this share of it is near enough."""

_LEAD = re.compile(r"(?:\[[^\]\n]{1,40}\]|[^\W\d]\w{0,20}:)\s+")
_BREAKS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?。！？…]+[\"')\]»”’]*(?:\s+|(?<=[。！？]))"),
    re.compile(r"\s+"),
)

Measure = Callable[[Sequence[str]], int]
"""Tokens of the prompt that is made of these texts."""


class NoRoom(Exception):
    """Not even one character fits beside the rest of the prompt."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Code points `start` to `end` of the item at a place in the dump, and the text shown."""

    item: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """What one prompt holds, and its tokens."""

    pieces: tuple[Piece, ...]
    tokens: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts as the prompt lists them."""
        return tuple(piece.text for piece in self.pieces)


def parts_of(items: Sequence[str], measure: Measure, budget: int | None) -> list[Part]:
    """The parts of a store, one when it fits; `budget` is the tokens a prompt may have.

    Raises `NoRoom` when the prompt alone fills the budget.
    """
    whole = [Piece(place, 0, len(text), text) for place, text in enumerate(items)]
    tokens = measure(items) if budget is not None else 0
    if budget is None or tokens <= budget:
        return [Part(tuple(whole), tokens)]
    if not items:
        raise NoRoom
    made: list[Part] = []
    waiting = whole
    at = 0
    while at < len(waiting):
        texts = [piece.text for piece in waiting]
        sizes = [len(text) for text in texts]
        end, tokens = reach(sizes, at, partial(_slice, measure, texts), budget)
        if end == at:
            first, rest = _cut(waiting[at], items[waiting[at].item], measure, budget)
            waiting = [*waiting[:at], first, rest, *waiting[at + 1 :]]
            end, tokens = at + 1, measure([first.text])
        made.append(Part(tuple(waiting[at:end]), tokens))
        at = end
    check_cover(items, made)
    return made


def check_cover(items: Sequence[str], parts: Sequence[Part]) -> None:
    """Raises `AssertionError` unless the parts hold every character of every item, in order."""
    done = [0] * len(items)
    seen = 0
    for piece in (piece for part in parts for piece in part.pieces):
        said = items[piece.item][piece.start : piece.end]
        gap = piece.start > done[piece.item] or piece.end < done[piece.item]
        if piece.item not in (seen, seen - 1) or gap or not piece.text.endswith(said):
            raise AssertionError(f"item {piece.item} is not read as it is stored: {piece}")
        done[piece.item] = piece.end
        seen = max(seen, piece.item + 1)
    if seen != len(items) or done != [len(text) for text in items]:
        raise AssertionError("a part of the store would not be read")


def _slice(measure: Measure, texts: Sequence[str], start: int, end: int) -> int:
    return measure(texts[start:end])


def reach(
    lengths: Sequence[int], start: int, measure: Callable[[int, int], int], budget: int
) -> tuple[int, int]:
    """The largest `end` such that the entries `start` to `end` fit, and their tokens.

    `lengths` are the entries' characters, `measure` counts the tokens of the
    prompt that holds some of them. `start` itself when not even one fits.
    """
    chars = list(accumulate((size + 4 for size in lengths[start:]), initial=0))
    count, tokens = _largest(
        len(lengths) - start,
        lambda n: measure(start, start + n),
        budget,
        lambda n: chars[n],
        lambda size: bisect_right(chars, size) - 1,
    )
    return start + count, tokens


def _largest(
    most: int,
    measured: Callable[[int], int],
    budget: int,
    chars: Callable[[int], int],
    place: Callable[[float], int],
    close: float = 0.0,
) -> tuple[int, int]:
    """The largest n in 0..most that fits, and its tokens; found by guesses and halving.

    A guess takes the tokens for proportional to the characters; every second
    step halves what is left, so that a bad guess costs little.
    """
    base = measured(0)
    low, high, tokens = 0, most + 1, base
    rate = 0.25
    halve = False
    while high - low > 1 + close * low:
        guess = (low + high) // 2 if halve else place(chars(low) + (budget - tokens) / rate)
        n = min(max(guess, low + 1), high - 1)
        found = measured(n)
        if found <= budget:
            low, tokens = n, found
        else:
            high = n
        rate = max((found - base) / chars(n), 1e-3) if chars(n) else rate
        halve = not halve
    return low, tokens


def _cut(piece: Piece, source: str, measure: Measure, budget: int) -> tuple[Piece, Piece]:
    """The longest beginning of a piece that fits, cut well, and what is left of it."""
    lead = lead_of(source) if piece.start else ""
    most = piece.end - piece.start
    fitting, _ = _largest(
        most,
        lambda n: measure([lead + source[piece.start : piece.start + n]]),
        budget,
        lambda n: n,
        lambda chars: int(chars),
        CLOSE,
    )
    if fitting == 0:
        raise NoRoom
    end = piece.start + _boundary(source[piece.start : piece.start + fitting])
    # What a cut falls into is whole in one of two neighbours that overlap.
    back = end - min(OVERLAP, (end - piece.start) // 4)
    start = _start(source, back, end)
    rest = lead_of(source) + source[start : piece.end]
    return (
        Piece(piece.item, piece.start, end, lead + source[piece.start : end]),
        Piece(piece.item, start, piece.end, rest),
    )


def _start(text: str, back: int, end: int) -> int:
    """Where to go on between two places: at a sentence, else at a word."""
    for kind in _BREAKS[2:]:
        found = kind.search(text, back, end)
        if found and found.end() < end:
            return found.end()
    return back


def _boundary(text: str) -> int:
    """Where to cut in the second half of a text: after its last paragraph, sentence or word."""
    for kind in _BREAKS:
        ends = [found.end() for found in kind.finditer(text, len(text) // 2)]
        if ends:
            return ends[-1]
    return len(text)


def lead_of(text: str) -> str:
    """How an item begins that names its speaker or source, e.g. `User: `; else nothing."""
    found = _LEAD.match(text)
    return found.group() if found else ""
