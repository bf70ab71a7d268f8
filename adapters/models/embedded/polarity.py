"""Where a text stands on an axis with two ends: by similarity, with rules for denial.

A sentence encoder hardly tells a statement from its denial. So what a text denies is
cut out by its marks (not, no, without, rather than, ...) and counts for the other end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters.models.minilm import MiniLM
from memprobe.polarity import Axis

MARGIN = 0.1
"""A text nearer to the middle than this speaks for neither end."""

_DENIAL = re.compile(
    r"\b(?:not|no|never|none|nothing|nobody|neither|nor|without|cannot|hardly|rarely|seldom"
    r"|rather than|instead of|anything but|low tolerance for|low(?= \w+ tolerance)"
    r"|over(?= [^\W\d])(?! (?:time|the|all|an?)\b)"
    r"|(?:do|does|did|is|are|was|were|wo|ca|could|would"
    r"|should|has|have|had)n['’]t)\b",
    re.IGNORECASE,
)
_END = re.compile(r"[,;:.!?…]|\b(?:but|and|though|although|yet|because|while|when|if)\b", re.I)
_NO_DENIAL = re.compile(r"\b(?:not (?:only|just|merely)\b|no matter\b|no-\w)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,}")
_FRAME = frozenset(
    re.findall(
        r"\w+",
        """the and sees see seen views view thinks think believes believe himself herself
        themselves themself self that this wants want prefers prefer likes like has have does did
        are was were being very with from about likely may can user person someone she they him
        her them his""",
    )
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says and what it denies, each a piece of the text or empty."""

    said: str
    denied: tuple[str, ...]


def _tells(text: str) -> bool:
    return any(word.lower() not in _FRAME for word in _WORD.findall(text))


def read(text: str) -> Reading:
    """Cut a text at its marks of denial; each denies up to the end of its clause."""
    said: list[str] = []
    denied: list[str] = []
    at = 0
    spared = [match.span() for match in _NO_DENIAL.finditer(text)]
    for mark in _DENIAL.finditer(text):
        if mark.start() < at or any(a <= mark.start() < b for a, b in spared):
            continue
        end = _END.search(text, mark.end())
        stop = end.start() if end else len(text)
        piece = text[mark.end() : stop].strip()
        if not _tells(piece):
            continue
        said.append(text[at : mark.start()])
        denied.append(piece)
        at = stop
    said.append(text[at:])
    kept = " ".join(part.strip(" ,;:") for part in said if part.strip(" ,;:"))
    return Reading(kept if _tells(kept) else "", tuple(denied))


async def position(embedder: MiniLM, text: str, axis: Axis) -> float:
    """Where a text stands: above 0 nearer to the first end, below 0 to the second.

    The mean, over what is said and what is denied, of the difference of the cosines
    with both ends; what is denied counts with the sign turned.
    """
    return (await positions(embedder, [text], axis))[0]


async def positions(embedder: MiniLM, texts: Sequence[str], axis: Axis) -> list[float]:
    """`position` of several texts."""
    readings = [read(text) for text in texts]
    pieces = [
        piece
        for text, reading in zip(texts, readings, strict=True)
        for piece in _pieces(text, reading)
    ]
    ends = await embedder.matrix([axis.first, axis.second])
    vectors = await embedder.matrix(pieces)
    along = np.einsum("id,d->i", vectors.astype(np.float64), (ends[0] - ends[1]).astype(np.float64))
    out: list[float] = []
    at = 0
    for text, reading in zip(texts, readings, strict=True):
        count = len(_pieces(text, reading))
        signs = np.ones(count)
        if reading.denied:
            signs[count - len(reading.denied) :] = -1.0
        out.append(float((along[at : at + count] * signs).mean()))
        at += count
    return out


def _pieces(text: str, reading: Reading) -> list[str]:
    if not reading.denied:
        return [text]
    return [*([reading.said] if reading.said else []), *reading.denied]


def opposition(first: float, second: float) -> float:
    """How far two positions lie on opposite sides: the smaller distance from the middle, or 0."""
    return min(abs(first), abs(second)) if first * second < 0 else 0.0
