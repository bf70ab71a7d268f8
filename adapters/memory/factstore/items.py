"""Facts and observations as a dump and a search hand them out."""

from __future__ import annotations

from pydantic import JsonValue

from adapters.memory.factstore.records import Fact, Observation, Operation
from adapters.memory.factstore.retrieval import Found
from memprobe.types import MemoryItem


def of_fact(fact: Fact) -> MemoryItem:
    """A fact; a superseded one says so in its text, since a reader sees nothing else of it."""
    content = fact.statement
    if not fact.active:
        content = f"[superseded] {content}"
    fields: dict[str, JsonValue] = {
        "kind": "fact",
        "statement": fact.statement,
        "status": fact.status.value,
        "confidence": fact.confidence,
        "category": fact.category,
        "authors": list(fact.authors),
        "author_count": len(fact.authors),
        "history": [revision.model_dump(mode="json") for revision in fact.history],
        "observation_ids": list(fact.observation_ids),
        "in_conflict": bool(fact.conflicts_with),
        "conflicts_with": list(fact.conflicts_with),
        "supersedes": list(fact.supersedes),
        "superseded_by": fact.superseded_by,
        "created": fact.created.isoformat(),
        "last_update": fact.last_update.isoformat(),
    }
    return MemoryItem(id=fact.id, content=content, event_time=fact.last_update, fields=fields)


def of_found(found: Found) -> MemoryItem:
    """A fact that a search found, with the two parts of its score."""
    item = of_fact(found.fact)
    parts: dict[str, JsonValue] = {"bm25": found.words, "cosine": found.cosine}
    return item.model_copy(update={"score": found.score, "fields": {**item.fields, **parts}})


def of_observation(observation: Observation, operation: Operation) -> MemoryItem:
    """An observation with what was done with it."""
    draft = observation.draft
    fields: dict[str, JsonValue] = {
        "kind": "observation",
        **draft.model_dump(mode="json", exclude={"what", "speaker"}),
        "author": observation.author,
        "confidence": observation.confidence,
        "session": observation.session,
        "decided": operation.decided.value,
        "action": operation.action.value,
        "guarded": operation.guarded,
        "facts": list(operation.facts),
        "result": operation.result,
    }
    return MemoryItem(
        id=observation.id, content=draft.what, event_time=observation.time, fields=fields
    )
