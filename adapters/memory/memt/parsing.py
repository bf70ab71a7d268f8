"""Reading the policy's text protocol, exactly as tolerant as the published parsers.

Tools are no native tool calls: they stand in the answer's text as
`<tool_call> {"name": ..., "arguments": {...}} </tool_call>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memprobe.text import sanitize

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(rf"{OPEN}(.*?){CLOSE}", re.DOTALL)
_UNSTOPPED = re.compile(rf"{OPEN}(.*?)(?:{CLOSE}|\Z)", re.DOTALL)
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_TAG = re.compile(rf"{_THINK_OPEN}|{_THINK_CLOSE}")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: the tool's name and its arguments as they were written."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A text argument, stripped; "" when it is missing or is no text."""
        value = self.arguments.get(name)
        return value.strip() if isinstance(value, str) else ""

    def number(self, name: str, default: int) -> int:
        """A whole argument, also one written as text; the default when it is neither."""
        value = self.arguments.get(name)
        if isinstance(value, bool):
            return default
        if isinstance(value, int):
            return value
        if isinstance(value, str) and re.fullmatch(r"\s*\d{1,9}\s*", value):
            return int(value)
        return default


def without_thinking(text: str) -> str:
    """The answer without what a reasoning template let through.

    Closed thoughts go, an unclosed one goes to its end, and so does the head of
    an answer whose opening tag stood in the prompt. A tag inside a call is what
    the user said.
    """
    quoted = _quoted(text)
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _TAG.finditer(text):
        if any(first < tag.start() < last for first, last in quoted):
            continue
        if tag[0] == _THINK_CLOSE:
            if not thinking:
                kept.clear()
            start, thinking = tag.end(), False
        elif not thinking:
            kept.append(text[start : tag.start()])
            thinking = True
    return "".join([*kept, "" if thinking else text[start:]]).strip()


def _quoted(text: str) -> list[tuple[int, int]]:
    """Where blocks of valid JSON stand, if there is any need to know."""
    if _TAG.search(text) is None:
        return []
    blocks = _UNSTOPPED.finditer(text)
    return [block.span() for block in blocks if _loaded(block[1]) is not None]


def tool_calls(text: str) -> list[ToolCall]:
    """All calls of a formation or update answer, in order.

    A block holds an object or a list of objects; what is no valid JSON, has no
    name or no arguments object is passed over. An answer that starts with the
    open tag and ends with `}` gets the close tag that it lacks.
    """
    text = text.strip()
    if text.startswith(OPEN) and text.endswith("}"):
        text += CLOSE
    found: list[ToolCall] = []
    for block in _BLOCK.findall(text):
        value = _loaded(block)
        for entry in value if isinstance(value, list) else [value]:
            call = _call(entry)
            if call is not None:
                found.append(call)
    return found


def first_call(text: str) -> ToolCall | None:
    """The call of a retrieval step: of the first block only; None when that is no call."""
    block = _BLOCK.search(text)
    return _call(_loaded(block.group(1))) if block else None


def closed(text: str) -> str:
    """A retrieval answer as if it had not been stopped at the close tag.

    Cut at the first close tag, since a server may send more than it was asked
    for, and closed again.
    """
    head, tag, _ = text.partition(CLOSE)
    if tag or OPEN in head:
        return f"{head.rstrip()} {CLOSE}"
    return head


def _loaded(block: str) -> Any:
    """Its JSON value, None where there is none; a lone surrogate that it spells out is U+FFFD."""
    try:
        value = json.loads(block)
        text, replaced = sanitize(json.dumps(value, ensure_ascii=False))
        return json.loads(text) if replaced else value
    except (ValueError, RecursionError):
        return None


def _call(entry: Any) -> ToolCall | None:
    if not isinstance(entry, dict):
        return None
    name, arguments = entry.get("name"), entry.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(name, arguments)
