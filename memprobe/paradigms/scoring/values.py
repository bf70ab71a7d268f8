"""Values compared as whole tokens: the ground of the strict rules.

A token is a word with what is glued into it: `bi-weekly`, `eu-west-3`,
`release/aurora` and `6:15` are one token each. Articles and `at`, `on`, `in` are left
out; number words, clock times, dates and units are brought to one form, so that
`6 hours` is `six hours`, `11 PM` is `23:00`, and `14 May` is `May 14th`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)  # fmt: skip
_TO_DIGITS = {word: str(i) for i, word in enumerate(_NUMBERS)}
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTH = {name: name for name in _MONTHS} | {name[:3]: name for name in _MONTHS}
_MONTH["sept"] = "september"
_UNITS = {
    "sec": "second", "secs": "second", "s": "second", "min": "minute", "mins": "minute",
    "hr": "hour", "hrs": "hour", "h": "hour", "req": "request", "reqs": "request",
    "retries": "retry", "tries": "try",
}  # fmt: skip
_UNITS |= {f"{u}s": u for u in ("second", "minute", "hour", "day", "week", "month", "request")}
_UNITS["times"] = "time"
_KNOWN_UNITS = frozenset(_UNITS.values()) | {"ms", "gb", "mb", "kb", "tb", "px", "pt", "em", "%"}
_LEFT_OUT = frozenset(("the", "a", "an", "at", "on", "in"))
_DENIES = frozenset(("not", "never", "longer", "than", "isn't", "wasn't", "aren't"))
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d{2}))?\s*([ap])\.?m\b\.?|\b(\d{1,2}):(\d{2})\b")
_PER = re.compile(r"\s*/\s*(sec|second|s|min|minute|hour|hr|h|day)\b")
_GLUED = re.compile(r"\b(\d+(?:\.\d+)?)(ms|s|secs?|mins?|hrs?|h|gb|mb|kb|tb|px|pt|em)\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TOKEN = re.compile(r"%|[^\W_]+(?:[-/.:'_+@][^\W_]+)*")


def _clock(found: re.Match[str]) -> str:
    if found.group(4):
        return f"{int(found.group(4)):02d}:{found.group(5)}"
    hour = int(found.group(1)) % 12 + (12 if found.group(3) == "p" else 0)
    return f"{hour:02d}:{found.group(2) or '00'} "


def tokens(text: str) -> list[str]:
    """The comparable tokens of a text."""
    plain = unicodedata.normalize("NFKD", text).replace("\u2019", "'").casefold()
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    plain = re.sub(r"[\u2010-\u2013\u2212]", "-", plain)
    plain = _PER.sub(r" per \1", _GLUED.sub(r"\1 \2", _CLOCK.sub(_clock, plain)))
    plain = re.sub(r"\bpercent\b", "%", plain)
    found = []
    for word in _TOKEN.findall(plain):
        if word in _LEFT_OUT:
            continue
        word = word.removesuffix("'s")
        word = _UNITS.get(word, _TO_DIGITS.get(word, word))
        found.append(word)
    return _dates(found)


def _dates(found: list[str]) -> list[str]:
    """`may 14th` and `14th of may` become `14 may`."""
    out: list[str] = []
    i = 0
    while i < len(found):
        day = _day(found[i])
        if day and i + 2 < len(found) and found[i + 1] == "of" and found[i + 2] in _MONTH:
            out += [day, _MONTH[found[i + 2]]]
            i += 3
        elif day and i + 1 < len(found) and found[i + 1] in _MONTH:
            out += [day, _MONTH[found[i + 1]]]
            i += 2
        elif found[i] in _MONTH and i + 1 < len(found) and (day := _day(found[i + 1])):
            out += [day, _MONTH[found[i]]]
            i += 2
        else:
            out.append(found[i])
            i += 1
    return out


def _day(word: str) -> str | None:
    found = re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?", word)
    return str(int(found.group(1))) if found and 1 <= int(found.group(1)) <= 31 else None


def _spans(value: Sequence[str], text: Sequence[str]) -> list[tuple[int, int]]:
    n = len(value)
    if not n:
        return []
    return [(i, i + n) for i in range(len(text) - n + 1) if list(text[i : i + n]) == list(value)]


def _only_number(value: Sequence[str], text: Sequence[str]) -> bool:
    """Whether a text's only number is the value's, its unit elsewhere or left out.

    `3`, and `the retry count is 3`, name `3 retries`; `3 seconds` does not.
    """
    if len(value) != 2 or not _NUMBER.fullmatch(value[0]) or value[1] not in _KNOWN_UNITS:
        return False
    numbers = [word for word in text if _NUMBER.fullmatch(word)]
    return numbers == [value[0]] and (len(text) == 1 or value[1] in text)


def _denied(text: Sequence[str], at: int) -> bool:
    """Whether what stands at a place is ruled out by the word before it."""
    before = text[at - 1] if at else ""
    return before in _DENIES or (before == "of" and at > 1 and text[at - 2] == "instead")


def named(
    values: Sequence[str], text: str, others: Sequence[str] = (), *, ruled_out: bool = False
) -> bool:
    """Whether a text names one of the values as whole tokens.

    An occurrence inside a longer value of `others` does not count: `Max` is not
    named by `HBO Max` when that is another value of the fact. One that is ruled out
    by the word before it does not count either: `no longer X`, `not X`, `instead of X`;
    with `ruled_out` it does, as for an item that tells what a value once was.
    """
    words = tokens(text)
    longer = [span for other in others for span in _spans(tokens(other), words)]
    for value in values:
        wanted = tokens(value)
        if _only_number(wanted, words):
            return True
        for lo, hi in _spans(wanted, words):
            inside = any(a <= lo and hi <= b and b - a > hi - lo for a, b in longer)
            if not inside and (ruled_out or not _denied(words, lo)):
                return True
    return False


def same_value(first: str, second: str) -> bool:
    """Whether two values are the same tokens."""
    return tokens(first) == tokens(second)
