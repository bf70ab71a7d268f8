"""Spans that may be the value of a fact: numbers, times, names, identifiers, single nouns.

By form alone; what a span means is for `probe_timeline` to weigh.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from memprobe.paradigms.scoring.values import tokens
from memprobe.stopwords import STOP_WORDS

QUANTITY, CLOCK, DAY, NAME, IDENT, WORD = "quantity", "clock", "day", "name", "ident", "word"
MAX_NAME = 60
KINDS = (QUANTITY, CLOCK, DAY, NAME, IDENT, WORD)

_STOP = frozenset(STOP_WORDS.split())
_COUNT = (
    r"(?:\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?|one|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve|fifteen|twenty|thirty|forty|fifty|sixty|ninety)"
)
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (IDENT, re.compile(r"\b[A-Za-z][\w]*(?:[-/][\w.]+)*-\d[\w]*\b|\b[a-z][\w]*/[\w./-]*\w\b")),
    (IDENT, re.compile(r"\b(?:v\d+(?:\.\d+)*|\d+\.\d+\.\d+)\b")),
    (CLOCK, re.compile(r"\b\d{1,2}(?::\d{2}\s?(?:[ap]\.?m\b\.?)?|\s?[ap]\.?m\b\.?)", re.I)),
    (QUANTITY, re.compile(r"[£$€]\s?\d[\d,]*(?:\.\d+)?|\b\d+(?:\.\d+)?\s?%")),
    (
        QUANTITY,
        re.compile(
            rf"\b{_COUNT}[\s-]?(?!(?:and|or|of|to|in|at|on|for|from|by|is|the|a|an|am|pm)\b)"
            r"[a-z]+(?:\s(?:per|an?|every)\s[a-z]+)?\b",
            re.I,
        ),
    ),
    (DAY, re.compile(r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?\b", re.I)),
    (DAY, re.compile(r"\b(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b(?!['’])")),
    (
        DAY,
        re.compile(
            r"\b(?:\d{1,2}(?:st|nd|rd|th)?\s(?:of\s)?)?(?:January|February|March|April|May|June|July"
            r"|August|September|October|November|December)\b(?:\s\d{1,2}(?:st|nd|rd|th)?\b)?"
        ),
    ),
)
_CAP = r"(?!I\b)(?:[A-Z](?:[\w’']*[\w])?)(?:[-.][A-Za-z0-9]+)*"
_NAME = re.compile(rf"\b{_CAP}(?:\s(?:(?:of|the|and|de|la|&|St\.?)\s)?{_CAP})*")
_LINKS = frozenset(("of", "the", "and", "de", "la", "&"))
_UNITS = frozenset(
    re.findall(
        r"\w+",
        "second seconds minute minutes hour hours day days week weeks month months year",
    )
)
_WORD = re.compile(r"\b[a-z][a-z'’-]+[a-z]\b")
_START = re.compile(r"(?:^|[.!?…:;]|\n|[\"“'‘(*|-])\s*$")
_POSSESSIVE = re.compile(r"(?:['’]s|['’])$")
_NO_NAME = frozenset(
    re.findall(
        r"\S+",
        """i i'm i've i'd i'll ok okay yes no hi hello dear thanks please dr mr mrs ms cheers
    regards january february ai api json yaml url id ci
        user users user's assistant tool output speaker""",
    )
)


@dataclass(frozen=True, slots=True)
class Span:
    """A candidate as it stands: its text, where it begins and ends, and its form."""

    text: str
    start: int
    end: int
    kind: str


@lru_cache(maxsize=65_536)
def key_of(text: str) -> tuple[str, ...]:
    """What makes two spellings the same candidate; `Mondays` and `Mon` are `Monday`."""
    found = tuple(_DAYS.get(t, t) for t in tokens(text))
    return (_SHORT.get(found[0], found[0]),) if len(found) == 1 and text[:1].isupper() else found


_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = {f"{day}s": day for day in _WEEK}
_SHORT = {day[:n]: day for day in _WEEK for n in (3, 4, 5)}


def _names(sentence: str) -> list[Span]:
    found = []
    for match in _NAME.finditer(sentence):
        start, end = match.span()
        words = sentence[start:end].split(" ")
        # A capital at the start of a sentence says nothing of a common word.
        while words and (
            words[0].lower().replace("’", "'") in _NO_NAME
            or (
                _START.search(sentence[:start])
                and words[0].lower().replace("’", "'") in _STOP | _COMMON_STARTS
            )
        ):
            start += len(words[0]) + 1
            words = words[1:]
            while words and words[0] in _LINKS:
                start += len(words[0]) + 1
                words = words[1:]
        if not words or start >= end:
            continue
        text = sentence[start:end]
        trimmed = _POSSESSIVE.sub("", text)
        if not 2 <= len(trimmed) <= MAX_NAME or trimmed.lower() in _STOP | _NO_NAME:
            continue
        found.append(Span(trimmed, start, start + len(trimmed), NAME))
    return found


def starts(sentence: str, span: Span) -> bool:
    """Whether a span begins a sentence, a line, a quotation or a clause after a colon."""
    return bool(_START.search(sentence[: span.start]))


def _no_unit(text: str) -> bool:
    """Whether a number word is followed by a word that counts nothing ("one than")."""
    words = text.lower().split()
    return len(words) > 1 and words[1] in _STOP and words[1] not in _UNITS


@lru_cache(maxsize=65_536)
def spans(sentence: str) -> tuple[Span, ...]:
    """The candidates of a sentence, in order, none inside another of a stronger form."""
    found: list[Span] = []

    def free(start: int, end: int) -> bool:
        return all(end <= s.start or start >= s.end for s in found)

    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(sentence):
            text = match.group().strip()
            if kind == QUANTITY and _no_unit(text):
                continue
            if free(match.start(), match.end()):
                found.append(Span(text, match.start(), match.start() + len(text), kind))
    for span in _names(sentence):
        if free(span.start, span.end):
            found.append(span)
    return tuple(sorted(found, key=lambda s: s.start))


@lru_cache(maxsize=65_536)
def nouns(sentence: str) -> tuple[Span, ...]:
    """Single lower-case words of content: the widest net, for values like an instrument's name."""
    taken = [(s.start, s.end) for s in spans(sentence)]
    return tuple(
        Span(m.group(), m.start(), m.end(), WORD)
        for m in _WORD.finditer(sentence)
        if m.group() not in _STOP
        and m.group() not in _COMMON_STARTS
        and len(m.group()) > 2
        and all(m.end() <= a or m.start() >= b for a, b in taken)
    )


_COMMON_STARTS = frozenset(
    re.findall(
        r"\S+",
        """add added adding write wrote writing draft drafted send sent sending put book booked
    booking check checked checking fix fixed change changed changing run ran running build built
    create created update updated updating remove removed removing delete deleted open close closed
    morning afternoon evening tonight today news back need quick question short long same new old
    done good great lovely perfect nice ha hm hmm oh ah well right sure fine true exactly agreed
    understood noted deal sorry thank thx ta ok yep nope nah poor big small last next other both
    either neither half turns turn guess good-bye instead otherwise anyway honestly actually
    tell told telling ask asked remind explain describe show list give keep kept make made
    rewrite help could would should shall let's does did has have had is are was were am been
    being what which who whose whom when where why how if while until since because though
    although unless whether and or but so then than that this these those there here it its he she
    they we you my our your his her their me us him them someone everybody nobody everyone
    anyone something nothing everything anything not never no yes up down in out on off over under
    again further once two three four five six seven eight nine ten first second third one
    apparently basically currently finally usually still just only even also too very much many
    most more less few little lot lots bit kind sort thing things way ways""",
    )
)
