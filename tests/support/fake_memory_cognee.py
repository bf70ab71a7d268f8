"""How a model answers cognee's requests: a graph of what a text says, and a summary of it.

A fact is an edge from who speaks to what the fact is about, described in the
fact's own words, so that what is stored can be looked for. Only the text in the
prompt is used.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support import fake_answers
from tests.support.fake_memory_mem0 import MARKER, facts_of

GRAPH = "extracting information in structured formats to build a knowledge graph"
SUMMARY = "Summarize the chunk for retrieval."
_LINE = re.compile(r"^(User|Assistant|Tool output): ", re.MULTILINE)
_DOCUMENT = re.compile(r"\[([^,\]]+), [^\]]*\] ")
_THING = re.compile(r"[A-Za-z][A-Za-z-]{3,}")
_DULL = {"that", "this", "with", "have", "from", "they", "them", "when", "what", "which", "your"}


def answer(body: dict[str, Any]) -> str | None:
    """The graph or the summary as JSON; None when the request is not cognee's."""
    messages = body.get("messages", [])
    texts = [fake_answers.content_text(m.get("content")) for m in messages]
    if len(texts) < 2 or messages[0]["role"] != "system":
        return None
    if GRAPH in texts[0]:
        return json.dumps(_graph(texts[1]), ensure_ascii=False)
    if texts[0].startswith(SUMMARY):
        return json.dumps(_summary(texts[1]), ensure_ascii=False)
    return None


def _said(text: str) -> list[tuple[str, str]]:
    """Who said which fact."""
    parts = _LINE.split(text)
    if len(parts) > 1:
        spoken = list(zip(parts[1::2], parts[2::2], strict=True))
    else:
        found = _DOCUMENT.match(text)
        spoken = [(found[1], text[found.end() :])] if found else [("Text", text)]
    return [(who, fact) for who, said in spoken for fact in facts_of(said)]


def _about(fact: str) -> str:
    """What a fact is about: its marker, else its longest word."""
    marker = MARKER.search(fact)
    if marker is not None:
        return marker[0]
    things = [w for w in _THING.findall(fact) if w.lower() not in _DULL]
    return max(things, key=lambda word: (len(word), word), default="Something")


def _graph(text: str) -> dict[str, Any]:
    nodes: dict[str, dict[str, str]] = {}
    edges = []
    for who, fact in _said(text):
        thing = _about(fact)
        kind = "Assistant" if who == "Assistant" else "Person"
        nodes.setdefault(
            who, {"id": who, "name": who, "type": kind, "description": f"{who} of the text"}
        )
        nodes.setdefault(
            thing, {"id": thing, "name": thing, "type": "Concept", "description": fact[:200]}
        )
        edges.append(
            {
                "source_node_id": who,
                "target_node_id": thing,
                "relationship_name": "said_of",
                "description": fact,
            }
        )
    return {"nodes": list(nodes.values()), "edges": edges}


def _summary(text: str) -> dict[str, Any]:
    facts = [fact for _, fact in _said(text)]
    topics = ", ".join(dict.fromkeys(_about(fact) for fact in facts)) or "small talk"
    lines = "\n".join(f"- {fact}" for fact in facts) or "- none"
    return {"summary": f"This chunk is about:\n- Topics: {topics}\n\nFacts:\n{lines}"}
