"""What a reader of the paradigms suite sees: entries cut into turns and sentences.

A session's text has a line a turn (`User: ...`, `Assistant: ...`, `Tool output: ...`);
what other systems keep are facts without a speaker. Both become `Turn`s. Nothing
here knows the suite: a header is read for a date only, never for a label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memprobe.leakage import content_stems

USER, ASSISTANT, TOOL, FACT = "user", "assistant", "tool", "fact"

_SPEAKER = re.compile(
    r"^\s*(?:\[[^\]\n]{1,40}\]\s*)?(?:speaker\s+)?"
    r"(user|human|assistant|agent|ai|tool[ _]output|tool)(?:\s+says)?\s*:\s*(.*)$",
    re.IGNORECASE,
)
_TOOL_MARK = re.compile(r"^\[tool[ _]output\]\s*", re.IGNORECASE)
_DATE = re.compile(r"\b(\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?)")
_SENTENCE = re.compile(
    r"(?<=[.!?…;])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bProf\.)[\"'”’)]*\s+|\n+"
)
MAX_TEXT = 20_000
"""Characters of one entry that are read; a hostile entry must not hold up the others."""
MAX_SENTENCE = 600
"""Characters of one sentence: patterns over it take time that grows faster than it does."""
MAX_ENTRIES = 160
"""Entries that are read closely: of more, those that share most with the question."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, or one fact: `entry` and `place` are its position, from 0."""

    entry: int
    place: int
    role: str
    text: str


@lru_cache(maxsize=65_536)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text; a line break ends one, too, and a very long one is cut."""
    found = (s.strip() for s in _SENTENCE.split(text) if s and s.strip())
    return tuple(s[i : i + MAX_SENTENCE] for s in found for i in range(0, len(s), MAX_SENTENCE))


def _role(name: str) -> str:
    name = name.lower()
    if name in ("user", "human"):
        return USER
    return TOOL if name.startswith("tool") else ASSISTANT


@lru_cache(maxsize=16_384)
def turns_of(text: str) -> tuple[tuple[str, str], ...]:
    """The (role, text) pairs of one entry's text."""
    found: list[tuple[str, list[str]]] = []
    for line in text[:MAX_TEXT].splitlines():
        spoken = _SPEAKER.match(line)
        if spoken:
            found.append((_role(spoken.group(1)), [spoken.group(2)]))
        elif found:
            found[-1][1].append(line)
        else:
            found.append((FACT, [line]))
    out = []
    for role, lines in found:
        said = "\n".join(lines).strip()
        marked = _TOOL_MARK.match(said)
        if marked:
            role, said = TOOL, said[marked.end() :].strip()
        if any(c.isalnum() for c in said):
            out.append((role, said))
    return tuple(out)


def _when(entry: Mapping[str, str]) -> str:
    for field in ("header", "text"):
        found = _DATE.search(str(entry.get(field) or ""))
        if found:
            return found.group(1).replace(" ", "T")
    return ""


def in_order(entries: Sequence[Mapping[str, str]]) -> list[str]:
    """The entries' texts, oldest first when every one is dated, else as shown."""
    times = [_when(entry) for entry in entries]
    texts = [str(entry.get("text") or "") for entry in entries]
    if texts and all(times):
        order = sorted(range(len(texts)), key=lambda i: (times[i], i))
        texts = [texts[i] for i in order]
    return list(dict.fromkeys(texts))


def stems(text: str) -> frozenset[str]:
    """Content stems of a text (cached)."""
    return _stems(text[:MAX_TEXT])


@lru_cache(maxsize=65_536)
def _stems(text: str) -> frozenset[str]:
    return frozenset(content_stems(text))


def near_entries(texts: Sequence[str], wanted: frozenset[str]) -> list[str]:
    """At most `MAX_ENTRIES` texts, in their order: those that share most words with a question.

    A word counts by how few texts have it, so that one every text has says nothing.
    """
    if len(texts) <= MAX_ENTRIES:
        return list(texts)
    own = [stems(text) & wanted for text in texts]
    holders: dict[str, int] = {}
    for words in own:
        for word in words:
            holders[word] = holders.get(word, 0) + 1
    score = [sum(1.0 / holders[w] ** 0.5 for w in sorted(words)) for words in own]
    best = sorted(range(len(texts)), key=lambda i: (-round(score[i], 9), i))[:MAX_ENTRIES]
    if score[best[0]] > 0:
        best = [i for i in best if score[i] > 0]
    return [texts[i] for i in sorted(best)]


def read_turns(texts: Sequence[str]) -> list[Turn]:
    """Every turn of the texts, in order."""
    return [
        Turn(i, j, role, said)
        for i, text in enumerate(texts)
        for j, (role, said) in enumerate(turns_of(text))
    ]
