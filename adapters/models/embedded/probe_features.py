"""Every mention of every candidate value, with what speaks for its being the fact's value.

The features are the same for sessions and for facts without a speaker. They know the
order of the entries, never their number in a design, their header or their kind.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from adapters.models.embedded.probe_cues import (
    AFTER_OLD,
    CUES,
    INTO,
    NAMED_SUBJECT,
    OUT_OF,
    SWITCH_TO,
    cues,
    first_person,
    of_the_user,
    refused,
)
from adapters.models.embedded.probe_question import Question
from adapters.models.embedded.probe_spans import (
    IDENT,
    KINDS,
    NAME,
    WORD,
    Span,
    key_of,
    nouns,
    spans,
    starts,
)
from adapters.models.embedded.probe_text import (
    ASSISTANT,
    FACT,
    TOOL,
    USER,
    Turn,
    sentences,
    stems,
)
from adapters.models.minilm import MiniLM
from memprobe.metrics import Floats

OPEN = frozenset((NAME, IDENT, WORD))
"""The forms that answer a question which asks for no number, day or time."""
MAX_WORDS = 150
"""Single lower-case words that are weighed as values, the most widely used ones."""
MAX_MENTIONS = 6_000

Key = tuple[str, ...]
_OTHERS = frozenset(("third", "they", "hearsay", "hypothetical"))
_TURN_CUES = ("third", "they", "settled", "change", "now", "stale", "stay", "hearsay", "wrong")
NAMES = (
    "role_user", "role_assistant", "role_tool", "role_fact",
    "sim_turn", "sim_entry", "lex_sentence", "lex_turn", "lex_entry",
    "first", "first_turn", "third_entry", "owner_near", "named_subject", "switch_to",
    *(f"cue_{c}" for c in CUES), *(f"turn_{c}" for c in _TURN_CUES),
    "refused_after", "into", "out_of", "after_old",
    "type_sim", "asked_form", "other_form", *(f"kind_{k}" for k in KINDS),
    "entries", "own_share", "user_share",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mention:
    """A candidate where it stands: `place` is its sentence's place in the turn."""

    key: Key
    span: Span
    turn: Turn
    sentence: str
    place: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The mentions with one row of `NAMES` each, what every candidate is called, and its vector."""

    turns: Sequence[Turn]
    mentions: Sequence[Mention]
    rows: Floats
    called: dict[Key, str]
    vectors: dict[Key, Floats]
    said: dict[tuple[int, int], Floats]
    near: dict[tuple[int, int], float] = field(default_factory=dict)
    relevance: list[float] = field(default_factory=list)


def _spoken_of(turns: Sequence[Turn], span: Span, known: set[Key]) -> list[Mention]:
    """Where a value that the question names stands, if it is no candidate by its form."""
    key = key_of(span.text)
    if key in known or not key:
        return []
    pattern = re.compile(rf"(?<!\w){re.escape(span.text)}(?!\w)", re.IGNORECASE)
    return [
        Mention(key, Span(found.group(), *found.span(), span.kind), turn, sentence, place)
        for turn in turns
        for place, sentence in enumerate(sentences(turn.text))
        for found in pattern.finditer(sentence)
    ]


def find_mentions(turns: Sequence[Turn], named: Sequence[Span] = ()) -> list[Mention]:
    """The candidates of all turns: spans of any form, and the commonest lower-case words.

    What the question names (`named`) is one, too, whatever its form in the text.
    """
    found: list[Mention] = []
    words: list[Mention] = []
    for turn in turns:
        for place, sentence in enumerate(sentences(turn.text)):
            found += [Mention(key_of(s.text), s, turn, sentence, place) for s in spans(sentence)]
            words += [Mention(key_of(s.text), s, turn, sentence, place) for s in nouns(sentence)]
    formed = {m.key for m in found}
    spread: dict[Key, set[int]] = defaultdict(set)
    for m in words:
        if m.turn.role in (USER, FACT):
            spread[m.key].add(m.turn.entry)
    first = {m.key: i for i, m in reversed(list(enumerate(words)))}
    wide = sorted(spread, key=lambda k: (k not in formed, -len(spread[k]), first[k]))[:MAX_WORDS]
    kept = set(wide)
    found += [m for m in words if m.key in kept]
    found = [m for m in _plain_starts(found) if m.key]
    for span in named:
        found += _spoken_of(turns, span, {m.key for m in found})
    if len(found) > MAX_MENTIONS:
        # Names and numbers before words, and of too many the latest: they may be a change.
        found.sort(key=lambda m: (m.span.kind == WORD, -m.turn.entry))
        found = found[:MAX_MENTIONS]
    found.sort(key=lambda m: (m.turn.entry, m.turn.place, m.place, m.span.start))
    return _merge_short(found)


def _plain_starts(mentions: list[Mention]) -> list[Mention]:
    """A single word with a capital only where sentences begin is a word, not a name."""
    named = {
        m.key for m in mentions
        if m.span.kind == NAME and not (" " not in m.span.text and starts(m.sentence, m.span))
    }  # fmt: skip
    return [
        replace(m, span=replace(m.span, kind=WORD))
        if m.span.kind == NAME and m.key not in named
        else m
        for m in mentions
    ]


def _merge_short(mentions: list[Mention]) -> list[Mention]:
    """A short name stands for the one longer name that begins with it (`Bellamy`)."""
    counts = Counter(m.key for m in mentions if m.span.kind == NAME)
    longer: dict[Key, set[Key]] = defaultdict(set)
    for key in counts:
        if len(key) > 1:
            longer[key[:1]].add(key)
    alias = {
        key: next(iter(longer[key]))
        for key in counts
        if len(key) == 1 and len(longer[key]) == 1
        and counts[next(iter(longer[key]))] >= counts[key]
    }  # fmt: skip
    return [
        replace(m, key=alias[m.key]) if m.key in alias and m.span.kind == NAME else m
        for m in mentions
    ]


def _called(mentions: Sequence[Mention]) -> dict[Key, str]:
    spellings: dict[Key, Counter[str]] = defaultdict(Counter)
    for m in mentions:
        if key_of(m.span.text) == m.key:
            spellings[m.key][m.span.text] += 1
    return {k: min(c, key=lambda s, c=c: (-c[s], s)) for k, c in spellings.items()}  # type: ignore[misc]


class _Lexicon:
    """Overlap with the question's subject, rare words counting more."""

    def __init__(self, turns: Sequence[Turn], subject: frozenset[str]) -> None:
        entries: dict[int, set[str]] = defaultdict(set)
        for turn in turns:
            entries[turn.entry] |= stems(turn.text) & subject
        n = max(1, len(entries))
        held = Counter(w for words in entries.values() for w in words)
        self._weight = {w: math.log(1 + n / (0.5 + held[w])) for w in sorted(subject)}
        self._all = sum(self._weight.values())
        self._entries = entries

    def share(self, words: frozenset[str] | set[str]) -> float:
        if not self._all:
            return 0.0
        return sum(self._weight[w] for w in sorted(self._weight) if w in words) / self._all

    def entry(self, index: int) -> float:
        return self.share(self._entries[index])


def _first(turn: Turn, text: str) -> bool:
    return of_the_user(text) or first_person(text) if turn.role == FACT else first_person(text)


async def read_mentions(embedder: MiniLM, turns: Sequence[Turn], question: Question) -> Reading:
    """All mentions of the turns with their features."""
    mentions = [
        m for m in find_mentions(turns, question.named)
        if m.span.kind != WORD or not stems(m.span.text) <= question.subject
    ]  # fmt: skip
    called = _called(mentions)
    mentions = [m for m in mentions if m.key in called]
    held = sorted({(m.turn.entry, m.turn.place) for m in mentions})
    spoken = {(t.entry, t.place): t for t in turns}
    texts = [spoken[p].text for p in held]
    keys = list(dict.fromkeys(m.key for m in mentions))
    asked = (await embedder.matrix([question.phrase or "value"]))[0].astype(np.float64)
    turn_vectors = (await embedder.matrix(texts)).astype(np.float64)
    value_vectors = (await embedder.matrix([called[k] for k in keys])).astype(np.float64)
    near = np.einsum("id,d->i", turn_vectors, asked)
    sims = {p: float(near[i]) for i, p in enumerate(held)}
    types = {
        k: float(v) for k, v in zip(keys, np.einsum("id,d->i", value_vectors, asked), strict=True)
    }
    lexicon = _Lexicon(turns, question.subject)
    entry_sim: dict[int, float] = defaultdict(float)
    for (entry, place), sim in sims.items():
        if spoken[entry, place].role in (USER, FACT):
            entry_sim[entry] = max(entry_sim[entry], sim)
    context = _Context(turns)
    spread = _spread(mentions, sims, lexicon)
    rows = [_row(m, question, sims, entry_sim, lexicon, context, types, spread) for m in mentions]
    matrix = np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))
    vectors = {k: value_vectors[i] for i, k in enumerate(keys)}
    said = {p: turn_vectors[i] for i, p in enumerate(held)}
    point = {p: sims[p] + lexicon.share(stems(spoken[p].text)) for p in held}
    last = max((t.entry for t in turns), default=-1)
    relevance = [entry_sim[i] + lexicon.entry(i) for i in range(last + 1)]
    return Reading(turns, mentions, matrix, called, vectors, said, point, relevance)


def _spread(
    mentions: Sequence[Mention], near: dict[tuple[int, int], float], lexicon: _Lexicon
) -> dict[Key, tuple[float, float, float]]:
    """How widely the user speaks of a value as of their own and to the point, and in what share."""
    entries: dict[Key, dict[int, float]] = defaultdict(dict)
    own: Counter[Key] = Counter()
    user: Counter[Key] = Counter()
    total: Counter[Key] = Counter()
    for m in mentions:
        total[m.key] += 1
        if m.turn.role not in (USER, FACT):
            continue
        user[m.key] += 1
        if _first(m.turn, m.turn.text) and not cues(m.sentence) & _OTHERS:
            own[m.key] += 1
            point = max(0.0, near[m.turn.entry, m.turn.place])
            point += lexicon.share(stems(m.turn.text))
            seen = entries[m.key]
            seen[m.turn.entry] = max(seen.get(m.turn.entry, 0.0), point)
    return {
        k: (
            math.log1p(sum(entries[k][e] for e in sorted(entries[k]))) if k in entries else 0.0,
            own[k] / max(1, user[k]),
            user[k] / n,
        )
        for k, n in total.items()
    }


def _switches(turn: Turn, before: str) -> bool:
    """Whether the user, and nobody else, changes over to what follows."""
    near = before[-80:]
    if turn.role not in (USER, FACT) or not SWITCH_TO.search(near):
        return False
    shown = cues(before)
    return _first(turn, before) and not shown & {"third", "hypothetical", "negated", "hearsay"}


class _Context:
    """What stands around a turn in its entry."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._entries: dict[int, list[Turn]] = defaultdict(list)
        for turn in turns:
            self._entries[turn.entry].append(turn)

    def third(self, turn: Turn) -> float:
        """Whether another person came up in the user's turns up to this one."""
        said = [
            t for t in self._entries[turn.entry] if t.role in (USER, FACT) and t.place <= turn.place
        ]
        return float(any("third" in cues(t.text) for t in said))

    def refused_after(self, mention: Mention) -> float:
        """Marks of refusal in the user's words after a mention: the rest of a turn, or the next."""
        turn = mention.turn
        rest = sentences(turn.text)[mention.place + 1 : mention.place + 3]
        own = sum(refused(s) for s in rest) if turn.role in (USER, FACT) else 0
        later = [t for t in self._entries[turn.entry] if t.role == USER and t.place > turn.place][
            :1
        ]
        return min(3.0, own + sum(refused(t.text) for t in later)) / 3.0


def _row(
    m: Mention,
    question: Question,
    sims: dict[tuple[int, int], float],
    entry_sim: dict[int, float],
    lexicon: _Lexicon,
    context: _Context,
    types: dict[Key, float],
    spread: dict[Key, tuple[float, float, float]],
) -> list[float]:
    turn, span = m.turn, m.span
    before, after = m.sentence[: span.start], m.sentence[span.end :]
    shown, around = cues(m.sentence), cues(turn.text)
    asked = question.forms
    fits = span.kind in asked or (not asked and span.kind in OPEN)
    return [
        *(float(turn.role == r) for r in (USER, ASSISTANT, TOOL, FACT)),
        sims[turn.entry, turn.place],
        entry_sim[turn.entry],
        lexicon.share(stems(m.sentence)),
        lexicon.share(stems(turn.text)),
        lexicon.entry(turn.entry),
        float(_first(turn, m.sentence)),
        float(_first(turn, turn.text)),
        context.third(turn),
        float("third" in cues(before[-60:])),
        float(bool(NAMED_SUBJECT.search(before))),
        float(_switches(turn, before)),
        *(float(c in shown) for c in CUES),
        *(float(c in around) for c in _TURN_CUES),
        context.refused_after(m),
        float(bool(INTO.search(before))),
        float(bool(OUT_OF.search(before))),
        float(bool(AFTER_OLD.search(after))),
        types[m.key],
        float(bool(asked) and fits),
        float(not fits) * (1.0 if asked or question.open else 0.6),
        *(float(span.kind == k) for k in KINDS),
        *spread[m.key],
    ]
