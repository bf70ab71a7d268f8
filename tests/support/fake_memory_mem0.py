"""How a model answers mem0's extraction prompt: facts of the new messages, in its own protocol.

Facts keep the message's words, so that what is stored can be looked for. Small
talk holds nothing; a long message several facts; a fact that mem0 shows among
the existing memories is not extracted again, but a new one links to it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support import fake_answers

ROLE = "You are a Memory Extractor"
MARKER = re.compile(r"\bmk[0-9a-f]{8}\d{5}\b")
SMALL_TALK = re.compile(
    r"(thanks|thank you|hello|hi|ok|okay|great|good morning|that settles it)\b", re.IGNORECASE
)
LONG = 160
"""Characters above which a message is cut into one fact a sentence."""
MOST = 12
"""Facts of one message; the last holds the rest, so that no word is lost."""


def answer(body: dict[str, Any]) -> str | None:
    """The extraction's JSON, or None when the request is not mem0's."""
    messages = body.get("messages", [])
    texts = [fake_answers.content_text(m.get("content")) for m in messages]
    if len(texts) != 2 or ROLE not in texts[0] or "\n\n## New Messages\n" not in texts[1]:
        return None
    known = _known(texts[1])
    rows: list[dict[str, Any]] = []
    for role, text in _new_messages(texts[1]):
        for fact in facts_of(text):
            if fact in known.values() and not MARKER.search(fact):
                continue
            row: dict[str, Any] = {"id": str(len(rows)), "text": fact, "attributed_to": role}
            linked = [k for k, t in known.items() if fake_answers.overlap(fact, t) >= 0.7]
            if linked:
                row["linked_memory_ids"] = linked[:3]
            rows.append(row)
    return json.dumps({"memory": rows}, ensure_ascii=False)


def _section(prompt: str, name: str, end: str) -> str:
    """From a heading to the next; the message between may hold anything but comes last but one."""
    start = prompt.index(f"\n\n## {name}\n") + len(f"\n\n## {name}\n")
    return prompt[start : prompt.rindex(f"\n\n## {end}\n")]


def _known(prompt: str) -> dict[str, str]:
    start = prompt.index("\n\n## Existing Memories\n") + len("\n\n## Existing Memories\n")
    try:
        rows = json.JSONDecoder().raw_decode(prompt[start:])[0]
        return {str(row["id"]): str(row["text"]) for row in rows}
    except (ValueError, KeyError, TypeError):
        return {}


def _new_messages(prompt: str) -> list[tuple[str, str]]:
    text = _section(prompt, "New Messages", "Observation Date").removesuffix("\n")
    parts = re.split(r"(?:\A|\n)(user|assistant): ", text)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def facts_of(text: str) -> list[str]:
    """What a message holds: itself, or a fact a sentence when it is long; no small talk."""
    text = text.strip()
    if not text:
        return []
    if SMALL_TALK.match(text) and len(text) < LONG and not MARKER.search(text):
        return []
    if len(text) <= LONG:
        return [text]
    parts = [p.strip() for p in re.split(r"(?<=[.!?;])\s+|\n+", text) if p.strip()]
    if len(parts) > MOST:
        parts = [*parts[: MOST - 1], " ".join(parts[MOST - 1 :])]
    return list(dict.fromkeys(parts))
