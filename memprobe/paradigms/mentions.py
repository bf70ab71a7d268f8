"""Where values, update phrases and label words stand in a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from memprobe.paradigms.spec import Condition, Expected, ProbeType, SessionType, SourceType

_EDGE = r"(?<![\w-]){}(?![\w-])"
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+|\n+")
_UPDATE = re.compile(
    r"\b(?:switched (?:over )?to|moved (?:over )?to|changed (?:it |that |this )?to"
    r"|migrated to|transferred to|went over to|swapped to|updated to|now us(?:e|es|ing)"
    r"|now (?:at|on|with|go(?:es)? to)|(?:'m|'re|am|are|is) now|is the new|as of (?:now|today)"
    r"|from now on)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:not|never|no|nobody|none|without|isn't|cannot|instead of|rather than|almost|nearly"
    r"|if|unless|whether|should|would|could|might|(?-i:may)|hardly|neither|nor)\b|n['’]t\b",
    re.IGNORECASE,
)
NEAR = 60
"""Characters between an update phrase and a value that still count as near."""

LABELS = tuple(
    sorted(
        {
            *(t.value for t in SessionType if "_" in t.value),
            *(c.value for c in Condition if "_" in c.value),
            *(e.value for e in Expected),
            *(p.value for p in ProbeType if "_" in p.value),
            *(s.value for s in SourceType if "_" in s.value),
            "episode_id",
            "gold_answer",
            "near_miss",
        }
    )
)
"""Identifiers of the design: none may stand in a text."""
WORDS = (
    "perturbation", "distractor", "decoy", "confusable", "near miss", "near-miss",
    "filler session", "encoding session", "reconsolidation", "ground truth",
)  # fmt: skip
"""Words of the design that may be natural: places to look."""


def mentions(value: str, text: str, *, exact: bool = True) -> int:
    """How often a value stands in a text as a whole; `exact` asks for its own spelling."""
    flags = re.NOFLAG if exact else re.IGNORECASE
    return len(re.findall(_EDGE.format(re.escape(value)), text, flags))


def position(value: str, text: str) -> int | None:
    """Where a value first stands, in characters, or None."""
    found = re.search(_EDGE.format(re.escape(value)), text)
    return found.start() if found else None


def update_phrases(value: str, text: str) -> list[str]:
    """Sentences in which an update phrase stands near a value, with no negation and no question."""
    found = []
    pattern = re.compile(_EDGE.format(re.escape(value)), re.IGNORECASE)
    for sentence in _SENTENCE.split(text):
        if _NEGATED.search(sentence) or sentence.rstrip("\"'”’) ").endswith("?"):
            continue
        for here in pattern.finditer(sentence):
            around = sentence[max(0, here.start() - NEAR) : here.end() + NEAR]
            if _UPDATE.search(around):
                found.append(sentence.strip())
                break
    return found


def labels(text: str) -> tuple[list[str], list[str]]:
    """Identifiers of the design in a text, and words that may be natural."""
    low = text.lower()
    return (
        [label for label in LABELS if re.search(rf"\b{label}\b", low)],
        [word for word in WORDS if re.search(rf"\b{word}s?\b", low)],
    )


OPENING_WORDS = 20
SHORTEST = 4


def opening(text: str) -> tuple[str, ...]:
    """The first words of a text, lower case."""
    return tuple(re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text.lower())[:OPENING_WORDS])


def similar_pairs(
    openings: Sequence[tuple[str, ...]], bound: float
) -> Iterator[tuple[int, int, float]]:
    """Pairs of openings whose similarity reaches the bound: twice the words in common,
    in order, by all words (difflib's ratio over words). Openings of fewer than
    `SHORTEST` words are compared for equality only.

    A pair at the bound shares at least bound / (2 - bound) of the shorter one's
    words, so it shares one of the rarest words; only such pairs are compared.
    """
    from difflib import SequenceMatcher

    frequency = Counter(w for o in openings for w in set(o))
    holders: dict[tuple[str, int], list[int]] = {}
    for i, words in enumerate(openings):
        if not words:
            continue
        seen: Counter[str] = Counter()
        marked = []
        for word in words:
            seen[word] += 1
            marked.append((word, seen[word]))
        marked.sort(key=lambda m: (frequency[m[0]], m))
        keep = len(words) - int(len(words) * bound / (2 - bound)) + 1
        near = {j for m in marked[:keep] for j in holders.get(m, ())}
        matcher = SequenceMatcher(None, autojunk=False)
        matcher.set_seq2(words)
        for j in sorted(near):
            other = openings[j]
            if min(len(words), len(other)) < SHORTEST:
                if words == other:
                    yield j, i, 1.0
                continue
            matcher.set_seq1(other)
            if (
                matcher.real_quick_ratio() >= bound
                and matcher.quick_ratio() >= bound
                and (ratio := matcher.ratio()) >= bound
            ):
                yield j, i, ratio
        for m in marked[:keep]:
            holders.setdefault(m, []).append(i)
