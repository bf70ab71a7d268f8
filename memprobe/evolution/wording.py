"""What the checks read in a text: words, numbers, names, sentences, and how claims are phrased."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memprobe.leakage import content_stems, words

_THOUSANDS = re.compile(r"(?:(?<=\b\d)|(?<=\b\d\d)|(?<=\b\d\d\d))[ \u00a0\u202f,'’](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"(?:(?<![^\W_])|(?<=\b[vV]))\d+(?:[.,:/]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+|\n+")
_ABBREVIATED = re.compile(
    r"(?:\b(?:St|No|Nr|Dr|Mr|Mrs|Ms|Inc|Ltd|Co|vs|approx|e\.g|i\.e|etc|Prof|Art|Sec|Fig)|\b[A-Z])\.$"
)
_NAME = re.compile(r"[^\W\d_][\w'’&.+-]*[\w+]|[^\W\d_]")

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTH_OF = {name: str(n) for n, month in enumerate(_MONTHS, 1) for name in (month, month[:3])}
_MONTH_OF["sept"] = "9"
MONTHS = frozenset(
    [*_MONTHS, "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
)
_HEADER = re.compile(r"^(?:to|cc|bcc|from|date|sent|subject|re):.*$", re.IGNORECASE | re.MULTILINE)


def numbers(text: str) -> list[str]:
    """Numbers in digits, in order, thousands separators taken out: `25,000` is `25000`.

    Digits inside a name (`EC2`, `x86`) are none; a version after `v` is one.
    """
    joined = _THOUSANDS.sub("", text)
    return [n.replace(",", ".") for n in _NUMBER.findall(joined)]


def number_parts(text: str) -> set[str]:
    """The numbers of a text together with the parts of dates, times and versions."""
    found = set(numbers(text))
    for number in tuple(found):
        found.update(re.split(r"[./:]", number))
    found.update(re.findall(r"\d+", text))
    return found | {n.lstrip("0") for n in found if n.lstrip("0")}


def sentences(text: str) -> list[str]:
    """The sentences of a text; a line break ends one, an abbreviation's point does not."""
    found: list[str] = []
    for line in text.split("\n"):
        joined = ""
        for piece in _SENTENCE.split(line):
            joined = f"{joined} {piece}".strip()
            if joined and not _ABBREVIATED.search(joined):
                found.append(joined)
                joined = ""
        if joined:
            found.append(joined)
    return found


def windows(text: str) -> Iterator[str]:
    """Every sentence of a text with the one behind it."""
    found = sentences(text)
    for i, sentence in enumerate(found):
        yield " ".join([sentence, *found[i + 1 : i + 2]])


def _bare(word: str) -> str:
    return re.sub(r"['’]s$", "", word.casefold())


def capitalised(text: str) -> set[str]:
    """Words with a capital or a digit in them wherever they stand, casefolded."""
    return {_bare(w) for w in _NAME.findall(text) if w != w.lower() or any(map(str.isdigit, w))}


def names(text: str) -> set[str]:
    """Words written as names, casefolded: a capital or digit-mixed word that opens no sentence.

    Months and weekdays are none, and neither is `I`.
    """
    found = set()
    for sentence in sentences(text):
        for at, word in enumerate(_NAME.findall(sentence)):
            named = word[0].isupper() and at > 0
            # A capital inside the word or a digit makes a name wherever it stands.
            named = named or any(c.isupper() or c.isdigit() for c in word[1:])
            low = _bare(word)
            if named and low not in MONTHS and len(low) > 1:
                found.add(low)
    return found


def dated(text: str) -> set[str]:
    """The numbers (1 to 12) of the months that a text names, May aside: it is a verb, too."""
    return {_MONTH_OF[w] for w in words(text) if w in _MONTH_OF and w != "may"}


def plain(text: str) -> str:
    """A text for comparison: words and numbers alone, casefolded, one space between."""
    return " ".join(words(_THOUSANDS.sub("", text)))


def told(statement: str, text: str) -> float:
    """How far a text tells a statement: 1.0 verbatim, else the best share of its content
    words that two neighbouring sentences hold."""
    if plain(statement) in plain(text):
        return 1.0
    wanted = content_stems(statement)
    if not wanted:
        return 0.0
    return max((len(wanted & content_stems(w)) / len(wanted) for w in windows(text)), default=0.0)


def body(text: str) -> str:
    """A text without the header lines of a mail."""
    return _HEADER.sub("", text).strip()
