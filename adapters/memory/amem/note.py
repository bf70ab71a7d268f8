"""The note: what A-MEM keeps of one message, and the text by which it is found.

Source: the A-MEM variant of the published recovery benchmark. Field names,
defaults and the form of the embedded text are its own.
"""

from __future__ import annotations

import json
from datetime import datetime
from uuid import NAMESPACE_URL, uuid5

from pydantic import JsonValue

from memprobe.types import Frozen

DEFAULT_CONTEXT = "General"
_NAMESPACE = uuid5(NAMESPACE_URL, "memprobe:amem:note")


class Mark(Frozen):
    """What the decision to evolve did when a note was written.

    `number` counts the store's evolutions, `neighbours` are the ids the model
    was shown, `unknown_links` what it named beside them. `contexts` and `tags`
    tell how many entries it gave for the neighbours. `consolidated` marks the
    evolution that set a consolidation off.
    """

    number: int
    actions: tuple[str, ...]
    neighbours: tuple[str, ...]
    unknown_links: tuple[str, ...] = ()
    contexts: int = 0
    tags: int = 0
    consolidated: bool = False


class Note(Frozen):
    """One note. Immutable: an evolved note is a copy, so that a failed write changes nothing.

    `session` tells the first message of an episode from later ones. `evolved_by`
    are the notes whose arrival changed this one; `defaulted` the calls that failed
    and were passed over, as the published code does. `whole`: the note is a whole
    session, which the published paradigms run prints with all it knows of it.
    """

    id: str
    content: str
    event_time: datetime
    session: str
    timestamp: str
    keywords: tuple[str, ...] = ()
    context: str = DEFAULT_CONTEXT
    tags: tuple[str, ...] = ()
    category: str = "Uncategorized"
    links: tuple[str, ...] = ()
    evolution: Mark | None = None
    evolved_by: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    whole: bool = False

    def embedded_text(self) -> str:
        """Content, then context, keywords and tags, each only where there is something."""
        text = self.content
        if self.context and self.context != DEFAULT_CONTEXT:
            text += f" context: {self.context}"
        if self.keywords:
            text += f" keywords: {', '.join(self.keywords)}"
        if self.tags:
            text += f" tags: {', '.join(self.tags)}"
        return text

    def fields(self) -> dict[str, JsonValue]:
        """The item's native fields under the published names, and the marks of evolution."""
        fields: dict[str, JsonValue] = {
            "keywords": list(self.keywords),
            "context": self.context,
            "tags": list(self.tags),
            "category": self.category,
            "timestamp": self.timestamp,
            "links": list(self.links),
            "evolution": self.evolution.model_dump(mode="json") if self.evolution else None,
            "evolved_by": list(self.evolved_by),
        }
        return {**fields, "defaulted": list(self.defaulted)} if self.defaulted else fields

    def printed(self) -> str:
        """The note as the published paradigms run shows it to a reader, tags included."""
        shown = {
            "time": self.timestamp,
            "content": self.content,
            "context": self.context,
            "keywords": ", ".join(self.keywords),
            "tags": ", ".join(self.tags),
        }
        return "\t".join(f"{name}: {value}" for name, value in shown.items())

    def line(self, *, decoded: bool) -> dict[str, JsonValue]:
        """What the evolution prompt shows of a neighbour; `decoded` as an index read gives it."""
        shown: dict[str, JsonValue] = {
            "id": self.id,
            "time": self.timestamp,
            "content": self.content,
            "context": self.context,
        }
        if decoded:
            shown = {key: as_read(str(value)) for key, value in shown.items()}
        return {**shown, "keywords": list(self.keywords), "tags": list(self.tags)}


def note_id(ordinal: int) -> str:
    """The id of a store's n-th note. Equal stores give equal prompts, so no chance is in it."""
    return str(uuid5(_NAMESPACE, str(ordinal)))


def timestamp(moment: datetime) -> str:
    """`YYYYMMDDHHMM` on the event's own clock."""
    return moment.strftime("%Y%m%d%H%M")


def as_read(value: str) -> JsonValue:
    """A text as the published index gives it back: JSON is decoded, digits become a number.

    What only looks like JSON stays as it is.
    """
    try:
        if value.startswith(("[", "{")):
            decoded: JsonValue = json.loads(value)
            return decoded
        return int(value) if value.isdecimal() else value
    except (ValueError, RecursionError):
        return value
