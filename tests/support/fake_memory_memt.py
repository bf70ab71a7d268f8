"""A policy for Mem-T's text protocol: what a trained one would say, decided by content alone.

It knows its three tasks by the tools in the system prompt, answers with tagged
JSON in the text, and keeps the user's words.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

LIMIT = 300
WORD = re.compile(r"\w{4,}")


def number(*parts: str) -> int:
    """A stable number of some texts."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()[:8])


def call(tool: str, /, **arguments: Any) -> str:
    """One tagged call."""
    body = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call> {body} </tool_call>"


def answer(body: dict[str, Any]) -> str | None:
    """The policy's text for one of its requests; None for any other request."""
    messages = body.get("messages") or []
    system = "\n".join(str(m.get("content")) for m in messages if m.get("role") == "system")
    user = [str(m.get("content")) for m in messages if m.get("role") == "user"]
    if not user:
        return None
    if '"create_fact"' in system and '"update_summary"' in system:
        return _formation(user[0])
    if '"add_item"' in system and '"ignore_item"' in system:
        return _update(user[0])
    if '"search_facts"' in system and '"finish"' in system:
        return _retrieval(user, body)
    return None


def _value(text: str, label: str) -> Any:
    """The JSON value after a label."""
    start = text.index(f"{label}:") + len(label) + 1
    return json.JSONDecoder().raw_decode(text[start:].lstrip())[0]


def _formation(user: str) -> str:
    summary = _value(user, "Previous summary")
    personas = _value(user, "Previous personas")
    turn = _value(user, "Current turn")
    said = turn.partition(" said: ")[2] or turn
    draw = number("formation", turn)
    calls = [call("create_fact", fact=said[:LIMIT], start_time="", end_time="")]
    topics = " ".join(WORD.findall(said)[:6])
    if draw % 3 == 0 and topics:
        calls.append(
            call(
                "create_experience",
                experience=f"It helps to start from {topics}.",
                start_time="15 July, 2023" if draw % 2 else "",
                end_time="",
            )
        )
    if draw % 4 == 0 or not personas:
        name = "Maya" if draw % 16 == 0 else "User"
        calls.append(
            call("update_persona", name=name, profile=f"Someone who cares about {topics}.")
        )
    lines = (
        [*summary.split("\n")[-2:], f"They spoke of {topics}."]
        if summary
        else [topics or said[:40]]
    )
    calls.append(call("update_summary", content="\n".join(lines)))
    return "\n".join(calls)


def _overlap(a: str, b: str) -> float:
    mine, other = set(WORD.findall(a.lower())), set(WORD.findall(b.lower()))
    return len(mine & other) / len(mine | other) if mine | other else 0.0


def _update(user: str) -> str:
    new = _value(user, "New item")
    related = _value(user, "Related items")
    text = new["document"]
    times = {key: new[key] for key in ("turn_time", "start_time", "end_time")}
    if any(row["document"] == text for row in related):
        return call("ignore_item", reason="the same is stored already")
    near = max(related, key=lambda row: _overlap(text, row["document"]), default=None)
    if near is not None and _overlap(text, near["document"]) >= 0.3 and len(near["document"]) < 600:
        match number("update", text) % 4:
            case 0:
                enriched = f"{text} (before: {near['document']})"
                return call("update_item", id=near["id"], document=enriched, **times)
            case 1 if new["type"] == "experience":
                added = call("add_item", document=text, **times)
                return f"{call('delete_item', id=near['id'])}\n{added}"
    return call("add_item", document=text, **times)


def _retrieval(user: list[str], body: dict[str, Any]) -> str:
    query = _value(user[0], "Answer this question from the memory")
    step = sum(m.get("role") == "assistant" for m in body["messages"])
    draw = number("search", query)
    plan = [call("search_facts", query=query)]
    if draw % 2:
        plan.append(call("search_experiences", query=query))
    if draw % 3 == 0:
        plan.append(call("search_personas", query=query, name="User"))
    if draw % 5 == 0:
        plan.append(call("search_summary", query=query))
    plan.append(call("search_turns", query=query, top_k=5))
    plan.append(call("finish", answer=" ".join(query.split()[:5]) or "nothing"))
    said = plan[min(step, len(plan) - 1)]
    # A server that was given a stop string ends before it.
    if "</tool_call>" in (body.get("stop") or ()):
        said = said.removesuffix("</tool_call>").rstrip()
    return f"Thought: step {step + 1} of the search.\n{said}"
