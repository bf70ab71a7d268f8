"""Taking the JSON object out of a reader's text."""

from __future__ import annotations

import json
import re

from pydantic import JsonValue

_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*|\s*```\s*$")
_CLOSINGS = ("", '"}', "}", '"]}', "]}", "null}")


def parse_object(text: str) -> dict[str, JsonValue] | None:
    """The JSON object in a text, or None.

    As published: a code fence is stripped, the object goes from the first `{` to
    the last `}`; a broken one is closed in a few ways, then cut at its last comma.
    """
    bare = _FENCE.sub("", text)
    start = bare.find("{")
    if start < 0:
        return None
    end = bare.rfind("}")
    whole = bare[start : end + 1] if end > start else bare[start:]
    candidates = [whole + closing for closing in _CLOSINGS]
    rest = bare[start:].rstrip()
    candidates += [rest + closing for closing in _CLOSINGS]
    comma = rest.rfind(",")
    if comma > 0:
        candidates.append(rest[:comma] + "}")
    for candidate in candidates:
        try:
            parsed = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            return parsed
    return None


def looks_like_object(text: str) -> bool:
    """Whether a text sets out to be a JSON object, readable or not."""
    return _FENCE.sub("", text).lstrip().startswith("{")


def text_field(answer: dict[str, JsonValue], name: str) -> str:
    """A field as text; null and a missing field are empty."""
    value = answer.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
