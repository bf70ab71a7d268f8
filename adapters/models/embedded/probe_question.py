"""What a question asks for: its subject's words, the form of the answer, values it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from adapters.models.embedded.probe_spans import (
    CLOCK,
    DAY,
    IDENT,
    NAME,
    QUANTITY,
    WORD,
    Span,
    spans,
)
from memprobe.leakage import stem, words
from memprobe.stopwords import STOP_WORDS

_OPEN = re.compile(r"\b(?:which|where|who|whom|whose)\b", re.IGNORECASE)
MAX_QUESTION = 2_000
_STOP = frozenset(re.findall(r"\S+", STOP_WORDS))
# Words that ask, and words of telling, changing and adopting: they are in any such
# question and say nothing of its subject.
_FRAME = frozenset(
    stem(w)
    for w in re.findall(
        r"\S+",
        """current currently present presently moment nowadays change changed changing changes
        switch switched switching swap swapped move moved moving replace replaced replacing
        replacement update updated updating previous previously former formerly earlier original
        originally initial initially prior past history mention mentioned mentions mentioning
        context question answer tell told telling describe explain story walk happen happened
        happening bring brought brings cause caused causes reason reasons motive trigger triggered
        triggers prompt prompted sequence order event events develop developed background
        accept accepted agree agreed adopt adopted adoption confirm confirmed valid settle settled
        apply applied applies hold holds true talk talked talks speak spoke spoken raise raised
        propose proposed proposal suggest suggested suggestion idea claim claimed rumour rumor
        source sources inform informed learn learnt news firm firmly certain certainly manner
        connection connected stand stands respond responded react reacted treat treated count
        counted name named appear appeared turn turned figure conversation chat chats begin began
        regular still different differ difference situation led lead leads set pick picked choose
        chose chosen decide decided decision follow followed understand understood record recorded
        user's user stay stayed stick stuck remain remained remains""",
    )
)
_NOUNS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (
        re.compile(
            r"\b(?:which|what) (?:week)?days?\b|\bday of the week\b|\bweekday\b|\bdate\b"
            r"|\b(?:the|my|our|whose) (?:[\w-]+ )?day\b(?! (?:office|trip|out|off|job|care))",
            re.I,
        ),
        frozenset((DAY,)),
    ),
    (
        re.compile(
            r"\b(?:limit|expiry|timeout|interval|size|rate|price|fee|amount|number|threshold|quota"
            r"|length|duration|period|dose|speed|weight)\b",
            re.I,
        ),
        frozenset((QUANTITY,)),
    ),
)
_ASKS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (re.compile(r"\b(?:who|whom|whose)\b|\bperson\b", re.I), frozenset((NAME,))),
    (re.compile(r"\bwhat time\b|\bo'clock\b|\bat what hour\b", re.I), frozenset((CLOCK,))),
    (re.compile(r"\bwhen\b", re.I), frozenset((DAY, CLOCK))),
    (
        re.compile(
            r"\bhow (?:long|many|much|often|big|large|high|far|fast)\b", re.I
        ),
        frozenset((QUANTITY,)),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the reader takes it.

    `subject` are the stems of what is asked for, `phrase` the same words in order
    (for similarity), `forms` the kinds of span that would answer (empty: any),
    `named` the values it names itself, in order, and `open` whether it asks for a name
    or a thing ("which", "where") and for no number, day or time.
    """

    text: str
    subject: frozenset[str]
    phrase: str
    forms: frozenset[str]
    named: tuple[Span, ...]
    open: bool = False


@lru_cache(maxsize=4_096)
def read_question(text: str, asks_value: bool = True, names_value: bool = False) -> Question:
    """Take a question apart. An empty one has no subject, and anything may answer it.

    `asks_value`: the question word stands for the value ("who approves ...?"), not for
    a source, a time or a yes ("who mentioned ...?"). `names_value`: it may name a value
    in lower case ("was the oboe ever talked of?").
    """
    text = text[:MAX_QUESTION]
    named = tuple(
        s for s in spans(text) if s.kind in (NAME, IDENT, QUANTITY, CLOCK, DAY) and s.text
    )
    if not named and names_value:
        named = _lower_case(text)
    rest = text
    for span in reversed(named):
        rest = rest[: span.start] + " " + rest[span.end :]
    kept = [w for w in words(rest) if len(w) > 1 and w not in _STOP and stem(w) not in _FRAME]
    phrase = " ".join(dict.fromkeys(kept)) or rest.strip() or text.strip()
    forms: frozenset[str] = frozenset()
    for pattern, kinds in (*_NOUNS, *(_ASKS if asks_value else ())):
        if pattern.search(rest):
            forms |= kinds
    if named and not asks_value:
        forms = frozenset(s.kind for s in named)
    return Question(
        text,
        frozenset(map(stem, kept)),
        phrase,
        forms,
        named,
        bool(_OPEN.search(rest)) and not forms,
    )


_OWN = re.compile(r"\b(?:my|our|user['’]s)\s+", re.I)
_ARTICLE = re.compile(
    r"(?:^(?:was|were|is|did|does|has|had)|\b(?:the|an?|of|about|with|for|brought up|came up with"
    r"|raised|mentioned|suggested|proposed|named|recommended))\s+(?:the |an? )?([a-z][a-z-]{2,})\b",
    re.IGNORECASE,
)


def _lower_case(text: str) -> tuple[Span, ...]:
    """The first word of content behind an article or a word of mentioning, "my ..." left out."""
    own = set()
    for found in _OWN.finditer(text):
        for word in re.finditer(r"[\w'’-]+", text[found.end() :]):
            if word.group().lower() in _STOP:
                break
            own.add(found.end() + word.start())
    for found in _ARTICLE.finditer(text):
        noun = found.group(1).lower()
        if noun not in _STOP and stem(noun) not in _FRAME and found.start(1) not in own:
            return (Span(noun, found.start(1), found.end(1), WORD),)
    return ()
