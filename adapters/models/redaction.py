"""Taking keys out of text before it is stored or logged."""

from __future__ import annotations

import os
import re

_PATTERNS = (
    re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{4,}"),
    re.compile(
        r"(?i)((?:api[-_]?key|x-api-key|access[-_]?token)[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,}]{4,}"
    ),
    re.compile(r"()\bsk-[A-Za-z0-9_*.-]{6,}"),
    re.compile(r"(?i)(://[^/\s:@]+:)[^@\s/]+(?=@)"),
)
# Shorter values (a placeholder such as "x") would blank out ordinary words.
MIN_SECRET = 6


MIN_SECRET_IN_ANSWER = 16


def redact(text: str) -> str:
    """The text without the values of *_API_KEY variables, bearer tokens and key-like strings."""
    text = _without_values(text, MIN_SECRET)
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1[redacted]", text)
    return text


def without_keys(text: str) -> str:
    """A model's answer without the values of *_API_KEY variables; nothing else is touched.

    A server may echo the header that it was sent. What only looks like a key may
    be what a user said, so it stays, and so does a value short enough to be a word.
    """
    return _without_values(text, MIN_SECRET_IN_ANSWER)


def _without_values(text: str, shortest: int) -> str:
    # By name first: every value that is read is decoded, and this runs at each call.
    for name in os.environ:
        if not name.upper().endswith(("_API_KEY", "_TOKEN", "_SECRET")):
            continue
        value = os.environ.get(name, "")
        if len(value) >= shortest:
            text = text.replace(value, "[redacted]")
    return text
