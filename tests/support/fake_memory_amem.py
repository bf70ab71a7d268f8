"""A-MEM's two questions, answered by their content: a note described, a decision to evolve.

Recognised by the property names of the JSON schema that is asked for. Two thirds
of the decisions say "evolve": they link, they rewrite a neighbour, or both.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

ANALYSIS = {"keywords", "context", "tags"}
EVOLUTION = {
    "should_evolve",
    "actions",
    "suggested_connections",
    "tags_to_update",
    "new_context_neighborhood",
    "new_tags_neighborhood",
}
WORD = re.compile(r"\w+")
LABELS = ("everyday life", "work", "learning", "health", "people", "plans")
ACTIONS: tuple[list[str], ...] = (
    ["strengthen"],
    ["update_neighbor"],
    ["strengthen", "update_neighbor"],
)


def answer(body: dict[str, Any]) -> str | None:
    """The model's text for a request of A-MEM; None when it is another's."""
    form = (body.get("response_format") or {}).get("json_schema") or {}
    schema = form.get("schema") or _spelt_out(str(body["messages"][-1].get("content")))
    asked = set(schema.get("properties", {}))
    if asked not in (ANALYSIS, EVOLUTION):
        return None
    prompt = next(str(m["content"]) for m in body["messages"] if m["role"] == "user")
    value = _analysis(prompt) if asked == ANALYSIS else _evolution(prompt)
    return json.dumps(value, ensure_ascii=False)


def _spelt_out(text: str) -> dict[str, Any]:
    """The schema at the end of a message, as a model without response formats is told it."""
    try:
        value = json.loads(text.rpartition("JSON schema:\n")[2])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(*parts: str) -> int:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8])


def _quoted(prompt: str, name: str) -> Any:
    """The JSON value behind the last line that begins with a name."""
    found = re.findall(rf"^{re.escape(name)}: (.*)$", prompt, re.MULTILINE)
    return json.loads(found[-1])


def _keywords(text: str) -> list[str]:
    """The text's own longest words, as often as not what it is about."""
    words = list(dict.fromkeys(WORD.findall(text))) or [text[:12] or "nothing"]
    return sorted(words, key=lambda word: (-len(word), text.index(word)))[:4]


def _analysis(prompt: str) -> dict[str, Any]:
    text = _quoted(prompt, "The note")
    keywords = _keywords(text)
    first = _number("label", text) % len(LABELS)
    return {
        "keywords": keywords,
        "context": f"Someone tells of {keywords[0][:60]}, to be helped with it.",
        "tags": [LABELS[(first + step) % len(LABELS)] for step in (0, 2, 3)],
    }


def neighbours(prompt: str) -> list[dict[str, Any]]:
    """The tab-separated lines of an evolution prompt."""
    rows = []
    for line in prompt.partition("The neighbours, nearest first:\n")[2].split("\n"):
        parts = (part.partition(": ") for part in line.split("\t") if part)
        row = {name: json.loads(value) for name, _, value in parts}
        if row:
            rows.append(row)
    return rows


def _evolution(prompt: str) -> dict[str, Any]:
    text, keywords = _quoted(prompt, "The new note"), _quoted(prompt, "Its keywords")
    near = neighbours(prompt)
    draw = _number("evolve", text)
    contexts = [str(n["context"]) for n in near]
    tags = [list(n["tags"]) for n in near]
    new = [*[word.lower()[:40] for word in keywords[:2]], LABELS[draw % len(LABELS)]]
    value: dict[str, Any] = {
        "should_evolve": draw % 3 != 0,
        "actions": ACTIONS[draw // 3 % 3] if draw % 3 else [],
        "suggested_connections": [str(n["id"]) for n in near[: 1 + draw // 9 % 2]],
        "tags_to_update": new,
        "new_context_neighborhood": contexts,
        "new_tags_neighborhood": tags,
    }
    if near and draw % 3:
        spot = draw // 27 % len(near)
        contexts[spot] = f"{contexts[spot]} It comes up again."[-160:]
        tags[spot] = list(dict.fromkeys([*tags[spot], *new[:1]]))[-6:]
    return value
