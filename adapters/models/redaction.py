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


def redact(text: str) -> str:
    """The text without the values of *_API_KEY variables, bearer tokens and key-like strings."""
    for name, value in os.environ.items():
        if name.upper().endswith(("_API_KEY", "_TOKEN", "_SECRET")) and len(value) >= MIN_SECRET:
            text = text.replace(value, "[redacted]")
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1[redacted]", text)
    return text
