"""How a new sentence stands to an old one, by words, numbers, names and the cosine of both.

Rules and bounds are our own, for an embedder such as all-MiniLM-L6-v2. Each errs where
only meaning could tell: two unlike values may both hold, and one value has many words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from memprobe.evolution.wording import MONTHS, names, numbers
from memprobe.leakage import content_stems, stem, words

NEAR = 0.75
ABOUT = 0.6
"""Cosine from which two sentences may be about one thing; `NEAR` where no word is the judge."""
FRAME = 0.6
"""Share of the shorter sentence's words that both have, names left out, to be about one thing."""
CHANGED_FRAME = 0.75
ENOUGH = 3
"""A sentence that tells of a change is about what shares this share, or this many words with it."""
SUBJECT = 3
"""Content words at a sentence's beginning that tell what it is about."""


class Relation(IntEnum):
    """The stronger, the higher."""

    UNRELATED = 0
    ADDS = 1
    CONTRADICTS = 2
    SAME = 3


_LEADING = re.compile(
    rf"^(?:since|as of|from|until|by|on|in|now|also|but|and|so|today),? "
    rf"(?:(?:\d{{1,2}}\.? )?(?:{'|'.join(sorted(MONTHS))})(?: \d{{1,2}},)?(?: \d{{4}})?,? )?",
    re.IGNORECASE,
)
_QUANTITY = re.compile(r"(?<![^\W_])(\d+(?:[.,:/]\d+)*)\s*([^\W\d]+|[%€$£°])?")
_TOKEN = re.compile(r"[^\W_]+(?:[.:,/]\d+)*|%")
_NEGATED = re.compile(r"\b(?:not|never|no|none|nobody|without|neither)\b|n['’]t\b", re.IGNORECASE)
_EXTENT = re.compile(r"\b(?:once|twice|every|each|all|some|only|always|rarely|often)\b")


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared of a sentence. `numbered` are things with a number for a name, `line 2`,
    with whether they stand at the beginning; `units` what is counted, by number."""

    head: str
    plain: frozenset[str]
    names: frozenset[str]
    numbers: frozenset[str]
    units: tuple[tuple[str, str], ...]
    numbered: tuple[tuple[str, str, bool], ...]
    negated: bool
    extent: frozenset[str]


@lru_cache(maxsize=4096)
def profile(sentence: str) -> Profile:
    """The profile of a sentence."""
    text = _LEADING.sub("", sentence, count=1)
    tokens = [t.casefold() for t in _TOKEN.findall(text)]
    stems = content_stems(text)
    named = names(sentence)
    ordered = [stem(w) for w in words(text) if stem(w) in stems]
    name_stems = {stem(w) for name in named for w in words(name)} | {stem(m) for m in MONTHS}
    plain = {s for s in stems if s not in name_stems and not s.isdigit()}
    return Profile(
        head=next((s for s in ordered if not s.isdigit()), ""),
        plain=frozenset(plain),
        names=frozenset(named),
        numbers=frozenset(numbers(text)),
        units=tuple(
            (n.replace(",", "."), stem(unit.casefold()) if unit else "")
            for n, unit in _QUANTITY.findall(text)
        ),
        numbered=tuple(_numbered(tokens, stems)),
        negated=bool(_NEGATED.search(sentence)),
        extent=frozenset(_EXTENT.findall(sentence.casefold())),
    )


def _numbered(tokens: list[str], stems: set[str]) -> list[tuple[str, str, bool]]:
    """Numbers right behind a content word and before none: they name a thing, and count nothing."""
    found = []
    seen = 0
    for at, token in enumerate(tokens):
        before = stem(tokens[at - 1]) if at else ""
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        counts = after == "%" or stem(after) in stems
        if token.isdigit() and before in stems and not before.isdigit() and not counts:
            found.append((before, token, seen <= SUBJECT))
        seen += stem(token) in stems and not token.isdigit()
    return found


def relation(old: str, new: str, cosine: float, *, changes: bool) -> Relation:
    """How `new` stands to `old`; `changes`: its words say that something changed."""
    a, b = profile(old), profile(new)
    fresh = (b.names - a.names) | (b.numbers - a.numbers)
    shared = len(a.plain & b.plain)
    frame = shared / min(len(a.plain), len(b.plain)) if a.plain and b.plain else 0.0
    # Where both have words of their own, they may be true side by side.
    turned = not _two_ways(a, b) and a.negated != b.negated
    told = a.extent and b.extent and a.extent != b.extent
    turned = turned or (bool(told) and len(a.plain ^ b.plain) <= 1)
    if old == new:
        return Relation.SAME
    if _other_thing(a, b):
        return Relation.UNRELATED
    if not fresh and not turned and cosine >= ABOUT and b.plain <= a.plain:
        return Relation.SAME
    alike = a.head == b.head and cosine >= ABOUT and frame >= FRAME
    moved = changes and (frame >= CHANGED_FRAME or shared >= ENOUGH)
    if alike and (moved or turned or _replaced(a, b)):
        return Relation.CONTRADICTS
    if alike and cosine >= NEAR:
        return Relation.ADDS
    return Relation.UNRELATED


def _other_thing(a: Profile, b: Profile) -> bool:
    """Whether the two begin with things told apart by a number: `box 3` and `box 4`."""
    mine = {noun: number for noun, number, first in a.numbered if first}
    return any(first and mine.get(noun, number) != number for noun, number, first in b.numbered)


def _two_ways(a: Profile, b: Profile) -> bool:
    """Whether each has words, names and numbers left aside, that the other has not."""
    return bool(a.plain - b.plain and b.plain - a.plain)


def _replaced(a: Profile, b: Profile) -> bool:
    """Whether one number or one name stands where another stood, all else being equal."""
    if _two_ways(a, b) or (len(a.plain & b.plain) < ENOUGH and a.plain != b.plain):
        return False
    places = {(noun, number) for noun, number, _ in (*a.numbered, *b.numbered)}
    old = {(n, unit) for n, unit in a.units if n not in b.numbers}
    new = {(n, unit) for n, unit in b.units if n not in a.numbers}
    counted = {unit for n, unit in old if not any(n == p for _, p in places)} & {
        unit for n, unit in new if not any(n == p for _, p in places)
    }
    gone, come = a.names - b.names, b.names - a.names
    if old or new:
        return bool(counted) and not (gone and come)
    return bool(gone and come)
