"""Applying a decision to evolve: links and tags for the new note, other words for its neighbours.

Pure functions over immutable notes; the store takes over what they return, whole
or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from adapters.memory.amem.model import cleaned
from adapters.memory.amem.note import Mark, Note
from prompts.answers import AmemEvolution

STRENGTHEN, UPDATE = "strengthen", "update_neighbor"


@dataclass(frozen=True, slots=True)
class Evolved:
    """The new note as it is to be stored, and the neighbours that changed."""

    note: Note
    changed: tuple[Note, ...] = ()


def evolve(
    note: Note,
    neighbours: Sequence[Note],
    decision: AmemEvolution,
    number: int,
    *,
    published: bool,
) -> Evolved:
    """Carry a decision out. `neighbours` are the live notes in the order shown.

    `number` is that of this evolution in its store. Unknown actions do nothing;
    a list for the neighbours that is too short leaves the rest as they are, one
    that is too long has its surplus left unread. `published`: links are taken
    unchecked, and empty tags and contexts replace what was there.
    """
    if not decision.should_evolve:
        return Evolved(note)
    actions = set(decision.actions)
    unknown: tuple[str, ...] = ()
    if STRENGTHEN in actions:
        note, unknown = _strengthened(note, neighbours, decision, published)
    mark = Mark(
        number=number,
        actions=decision.actions,
        neighbours=tuple(n.id for n in neighbours),
        unknown_links=unknown,
        contexts=len(decision.new_context_neighborhood),
        tags=len(decision.new_tags_neighborhood),
    )
    note = note.model_copy(update={"evolution": mark})
    changed = _updated(note.id, neighbours, decision, published) if UPDATE in actions else ()
    return Evolved(note, changed)


def _strengthened(
    note: Note, neighbours: Sequence[Note], decision: AmemEvolution, published: bool
) -> tuple[Note, tuple[str, ...]]:
    shown = {n.id for n in neighbours}
    suggested = decision.suggested_connections
    if published:
        links, tags = (*note.links, *suggested), decision.tags_to_update
    else:
        suggested = cleaned(suggested)
        links = tuple(dict.fromkeys((*note.links, *(i for i in suggested if i in shown))))
        tags = cleaned(decision.tags_to_update) or note.tags
    unknown = tuple(dict.fromkeys(i for i in suggested if i not in shown))
    return note.model_copy(update={"links": links, "tags": tags}), unknown


def _updated(
    by: str, neighbours: Sequence[Note], decision: AmemEvolution, published: bool
) -> tuple[Note, ...]:
    contexts = decision.new_context_neighborhood
    changed: list[Note] = []
    for i, (old, tags) in enumerate(zip(neighbours, decision.new_tags_neighborhood, strict=False)):
        context = contexts[i] if i < len(contexts) else old.context
        if not published:
            tags, context = cleaned(tags) or old.tags, context.strip() or old.context
        update: dict[str, JsonValue | tuple[str, ...]] = {"tags": tags, "context": context}
        new = old.model_copy(update=update)
        if new != old:
            changed.append(new.model_copy(update={"evolved_by": (*old.evolved_by, by)}))
    return tuple(changed)
