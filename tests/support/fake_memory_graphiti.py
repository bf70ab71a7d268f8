"""How a model answers graphiti's prompts: from what each of them shows, in the form it asks for.

A message's speaker and the things it names are entities; each sentence that names
something is a fact about it, in the message's own words. A new fact contradicts an
old one when the two say another value of the same thing.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from tests.support import fake_answers

MARKER = re.compile(r"\bmk[0-9a-f]{8}\d{5}\b")
SMALL_TALK = re.compile(
    r"(thanks|thank you|hello|hi|ok|okay|great|good morning|that settles it|noted)\b", re.IGNORECASE
)
SPEAKER = re.compile(r"(User|Assistant|Tool output): ")
NAMED = re.compile(r"(?<![.!?:\n] )(?<!\A)\b[A-Z][\w-]+(?: [A-Z][\w-]+)*")
WORD = re.compile(r"[^\W\d_][\w'-]{3,}")
MOST = 8
"""Facts of one message; the last holds the rest, so that no word is lost."""


def answer(body: dict[str, Any]) -> str | None:
    """The answer to one of graphiti's requests, or None for any other."""
    form = (body.get("response_format") or {}).get("json_schema") or {}
    answering = ANSWERS.get(str(form.get("name")))
    texts = [fake_answers.content_text(m.get("content")) for m in body.get("messages", [])]
    if answering is None or len(texts) != 2:
        return None
    return json.dumps(answering(texts[1]), ensure_ascii=False)


def _section(prompt: str, name: str) -> str:
    """What stands between a pair of tags; the last closing one, as a message may hold tags."""
    start = prompt.index(f"<{name}>\n") + len(f"<{name}>\n")
    return prompt[start : prompt.rindex(f"\n</{name}>")]


def _lines(message: str) -> list[tuple[str, str]]:
    """Speaker and words of each turn; a document has no speaker."""
    parts = SPEAKER.split(message)
    head, turns = parts[0].strip(), list(zip(parts[1::2], parts[2::2], strict=True))
    return [("Document", head), *turns] if head else turns


def _sentences(text: str) -> list[str]:
    text = text.strip()
    if not text or (SMALL_TALK.match(text) and len(text) < 160 and not MARKER.search(text)):
        return []
    parts = [p.strip() for p in re.split(r"(?<=[.!?;])\s+|\n+", text) if p.strip()]
    if len(parts) > MOST:
        parts = [*parts[: MOST - 1], " ".join(parts[MOST - 1 :])]
    return list(dict.fromkeys(parts))


def _thing(sentence: str) -> str:
    """What a sentence is about: a code, a name, else its longest word."""
    for found in (MARKER.search(sentence), NAMED.search(sentence)):
        if found is not None:
            return found.group()
    words = WORD.findall(sentence)
    return max(words, key=lambda w: (len(w), fake_answers.number(w)), default="")


def _entities(prompt: str) -> dict[str, Any]:
    names: dict[str, None] = {}
    message = "CURRENT MESSAGE" if "<CURRENT MESSAGE>" in prompt else "TEXT"
    for speaker, text in _lines(_section(prompt, message)):
        names.setdefault(speaker)
        for sentence in _sentences(text):
            names.setdefault(_thing(sentence))
    return {
        "extracted_entities": [
            {"name": name, "entity_type_id": 0, "episode_indices": [0]} for name in names if name
        ]
    }


def _edges(prompt: str) -> dict[str, Any]:
    known = [row["name"] for row in json.loads(_section(prompt, "ENTITIES"))]
    when = _section(prompt, "REFERENCE_TIME").split(" #")[0].strip().replace(" ", "T")
    edges = []
    for speaker, text in _lines(_section(prompt, "CURRENT_MESSAGE")):
        for sentence in _sentences(text):
            thing = next((n for n in known if n.lower() == _thing(sentence).lower()), None)
            if thing is None or thing == speaker or speaker not in known:
                continue
            dated = fake_answers.number("dated", sentence) % 3 == 0
            edges.append(
                {
                    "source_entity_name": speaker,
                    "target_entity_name": thing,
                    "relation_type": "SPEAKS_OF",
                    "fact": f"{speaker} says: {sentence}",
                    # The others are left to the prompt that asks for the dates of one fact.
                    "valid_at": when.replace("+00:00", "Z") if dated else None,
                    "invalid_at": None,
                    "episode_indices": [0],
                }
            )
    return {"edges": edges}


def _resolutions(prompt: str) -> dict[str, Any]:
    known = json.loads(_section(prompt, "EXISTING ENTITIES"))
    by_name = {row["name"].lower(): row["candidate_id"] for row in known}
    return {
        "entity_resolutions": [
            {
                "id": row["id"],
                "name": row["name"],
                "duplicate_candidate_id": by_name.get(row["name"].lower(), -1),
            }
            for row in json.loads(_section(prompt, "ENTITIES"))
        ]
    }


def _facts(prompt: str, name: str) -> list[dict[str, Any]]:
    """The list as Python writes it."""
    return list(ast.literal_eval(_section(prompt, name)))


def _frame(fact: str) -> tuple[set[str], set[str]]:
    """The words of a fact that tell what it is about, and those that tell its value."""
    head, _, tail = fact.partition(" is ")
    return fake_answers.words(head), fake_answers.words(tail)


def _duplicates(prompt: str) -> dict[str, Any]:
    new = _section(prompt, "NEW FACT").strip()
    same = _facts(prompt, "EXISTING FACTS")
    other = _facts(prompt, "FACT INVALIDATION CANDIDATES")
    about, value = _frame(new)
    ended = [
        row["idx"]
        for row in [*same, *other]
        if about and value and _frame(row["fact"])[0] == about and _frame(row["fact"])[1] != value
    ]
    return {
        "duplicate_facts": [row["idx"] for row in same if row["fact"] == new],
        "contradicted_facts": ended,
    }


def _timestamps(prompt: str) -> dict[str, Any]:
    when = _section(prompt, "REFERENCE TIME").strip().replace("+00:00", "Z")
    timeless = "always" in _section(prompt, "FACT")
    return {"valid_at": None if timeless else when, "invalid_at": None}


def _summaries(prompt: str) -> dict[str, Any]:
    rows = json.loads(_section(prompt, "ENTITIES"))
    return {
        "summaries": [
            {"name": row["name"], "summary": row["summary"][:400]}
            for row in rows
            if row.get("summary")
        ]
    }


ANSWERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "ExtractedEntities": _entities,
    "ExtractedEdges": _edges,
    "NodeResolutions": _resolutions,
    "EdgeDuplicate": _duplicates,
    "EdgeTimestamps": _timestamps,
    "SummarizedEntities": _summaries,
}
"""By the name of the answer's form, which the library sends with each request."""
