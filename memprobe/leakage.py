"""Word-level leakage: does a task give away the target it was written for?

A task leaks when it shares a content word with the target's short or
explanation. Words are compared by a light stem, so "planner" and "planning"
count as the same word and "plan" hidden in "plane" does not.
"""

from __future__ import annotations

import re
import unicodedata

from memprobe.stopwords import STOP_WORDS

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?", re.UNICODE)

_STOP = frozenset(re.findall(r"\S+", STOP_WORDS))

_SUFFIXES = ("ingly", "ings", "ing", "edly", "ed", "ers", "er", "ies", "es", "s", "ly")


def stem(word: str) -> str:
    """A crude stem: one common ending off, if at least four letters stay."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            base = word[: -len(suffix)]
            if suffix == "ies":
                return base + "y"
            if base.endswith("i") and not suffix.startswith("ing"):
                return base[:-1] + "y"
            return base[:-1] if len(base) > 4 and base[-1] == base[-2] else base.removesuffix("e")
    return word.removesuffix("e") if len(word) > 4 else word


def words(text: str) -> list[str]:
    """Lower-case words of a text, typographic apostrophes normalised."""
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold()
    return [w.removesuffix("'s") for w in _WORD.findall(plain)]


def content_stems(text: str) -> set[str]:
    """Stems of the words that carry content: no stop word, no single letter."""
    return {stem(w) for w in words(text) if w not in _STOP and len(w) > 1}


def leaked_words(task: str, *hidden: str) -> list[str]:
    """Stems that the task shares with the hidden texts, sorted; empty when it leaks nothing."""
    secret = set().union(*(content_stems(h) for h in hidden))
    return sorted(content_stems(task) & secret)
