"""Making outside text safe to store: lone surrogates and content that is not a string."""

from __future__ import annotations

from collections.abc import Sequence


def sanitize(text: str) -> tuple[str, bool]:
    """Replace lone surrogates by U+FFFD; tells whether anything was replaced."""
    try:
        text.encode("utf-8")
        return text, False
    except UnicodeEncodeError:
        paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return paired, True


def flatten_content(content: object) -> tuple[str | None, int]:
    """Text of a chat message's content, and how many parts were not text.

    Content may be a string, None (a tool call), or a list of strings and typed
    parts; text parts are joined by a line break and the others are counted.
    """
    if content is None:
        return None, 0
    if isinstance(content, str):
        return content, 0
    if isinstance(content, Sequence):
        texts: list[str] = []
        skipped = 0
        for part in content:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
            else:
                skipped += 1
        return "\n".join(texts), skipped
    raise TypeError(f"message content is {type(content).__name__}, not text")
