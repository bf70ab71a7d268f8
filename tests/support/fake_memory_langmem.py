"""How a model answers LangMem's requests: by tool calls, from the conversation alone.

Facts keep the message's words, so that what is stored can be looked for. A fact
that says nearly the same as a memory shown patches it, one that takes something
back removes what it takes back, and one that is known is not kept twice. Where a
tool must be called and there is nothing to do, a memory is patched with nothing.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from tests.support import fake_answers
from tests.support.fake_memory_mem0 import MARKER, facts_of

ROLE = "You are a memory subroutine for an AI."
_SESSION = re.compile(r"<session_([0-9a-f-]{36})>\n(.*)\n</session_\1>", re.DOTALL)
_SPEAKER = re.compile(r"^=+ (Human|Ai|Tool|System) Message =+\n(?:Name: [^\n]*\n)?\n", re.MULTILINE)
_INSTANCE = re.compile(
    r'<instance id=(\S+) schema_type="(\w+)">\n(.*?)\n</instance>(?=\n<instance id=|\n</existing>)',
    re.DOTALL,
)
_BACK = re.compile(r"\b(no longer|not any ?more|forget that)\b", re.IGNORECASE)
_BROKEN = re.compile(r"json_doc_id=\[(.*?)\]")
NEAR = 0.75
"""Share of words at which two texts say the same."""


def calls(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]] | None:
    """Tool calls as (name, arguments); None when the request is not LangMem's."""
    messages = body.get("messages", [])
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if "PatchFunctionErrors" in names and messages[-1]["role"] == "tool":
        return [_repair(fake_answers.content_text(messages[-1]["content"]))]
    texts = [fake_answers.content_text(m.get("content")) for m in messages]
    if len(texts) < 2 or not texts[0].startswith(ROLE) or "Memory" not in names:
        return None
    session = _SESSION.search(texts[1])
    if session is None:
        return None
    found = _changes(_new(session[2]), _known(texts[0]), "RemoveDoc" in names)
    if not found and body.get("tool_choice") == "required":
        (first, _), *_ = _known(texts[0]).items()
        found = [("PatchDoc", {"json_doc_id": first, "planned_edits": "none", "patches": []})]
    if len(texts) > 2 and "Done" in names:
        return [("Done", {})]
    return found


def _repair(said: str) -> tuple[str, dict[str, Any]]:
    """The answer to an invalid call: its content becomes text."""
    broken = _BROKEN.search(said)
    patch = {"op": "add", "path": "/content", "value": "I could not say it better."}
    edit = {"json_doc_id": broken[1] if broken else "", "planned_edits": "-", "patches": [patch]}
    return "PatchFunctionErrors", edit


def _known(system: str) -> dict[str, str]:
    """The memories that the prompt shows, by id."""
    found = {}
    for key, _, shown in _INSTANCE.findall(system):
        try:
            found[key] = str(ast.literal_eval(shown)["content"])
        except (ValueError, SyntaxError, KeyError, TypeError):
            continue
    return found


def _new(conversation: str) -> list[str]:
    """Facts of what the user said and what tools put out; the assistant's where it is alone."""
    parts = _SPEAKER.split(conversation)[1:]
    said = [(who, text.strip()) for who, text in zip(parts[::2], parts[1::2], strict=True)]
    voices = {who for who, _ in said}
    heard = {"Human", "Tool"} if voices & {"Human", "Tool"} else {"Ai"}
    facts = [fact for who, text in said if who in heard for fact in facts_of(text)]
    return list(dict.fromkeys(facts))


def _same(a: str, b: str) -> bool:
    return min(fake_answers.overlap(a, b), fake_answers.overlap(b, a)) >= NEAR


def _changes(
    facts: list[str], known: dict[str, str], removable: bool
) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    used: set[str] = set()
    for fact in facts:
        free = {k: t for k, t in known.items() if k not in used and not MARKER.search(t)}
        if MARKER.search(fact):
            found.append(("Memory", {"content": fact}))
            continue
        if fact in known.values():
            continue
        taken = [k for k, t in free.items() if fake_answers.overlap(t, fact) >= NEAR]
        if removable and taken and _BACK.search(fact):
            used.add(taken[0])
            found.append(("RemoveDoc", {"json_doc_id": taken[0]}))
            continue
        near = [k for k, t in free.items() if _same(fact, t)]
        if near:
            used.add(near[0])
            patch = {"op": "replace", "path": "/content", "value": fact}
            edit = {"json_doc_id": near[0], "planned_edits": "say it anew", "patches": [patch]}
            found.append(("PatchDoc", edit))
            continue
        found.append(("Memory", {"content": fact}))
    return found


def tool_calls(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """`calls` in OpenAI's form."""
    found = calls(body)
    if found is None:
        return None
    seed = json.dumps(body.get("messages"), sort_keys=True)
    return [
        {
            "id": f"call_{fake_answers.number(seed, str(place)):016x}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given, ensure_ascii=False)},
        }
        for place, (name, given) in enumerate(found)
    ]
