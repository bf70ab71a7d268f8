"""What a fact store keeps: observations that never change, and facts made of them.

Source: the reference system of the published evolution benchmark. Times are those
of documents, never the wall clock's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from adapters.memory.vectors import VectorIndex
from memprobe.types import Frozen

Label = Literal["High", "Medium", "Low"]
CONFIDENCE: dict[Label, float] = {"High": 0.9, "Medium": 0.7, "Low": 0.5}
"""Explicit; discussed, but not final; inferred. The numbers are ours, the labels published."""
REINFORCEMENT = 0.1
"""What a reinforcement adds to a fact's confidence, which ends at 1."""

Text = Annotated[str, Field(min_length=1)]


class Action(StrEnum):
    """What becomes of an observation. The published prompt cannot say `conflict`."""

    CREATE = "create"
    UPDATE = "update"
    REINFORCE = "reinforce"
    SUPERSEDE = "supersede"
    CONFLICT = "conflict"
    NONE = "none"


class Status(StrEnum):
    """Whether a fact still holds."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"


class Draft(Frozen):
    """One statement as it was extracted. `what` can be understood on its own.

    `speaker` is who said it: a document's author, or a role of the dialogue.
    """

    what: Text
    speaker: Text
    category: str = "other"
    who: str = ""
    when: str = ""
    why: str = ""
    where: str = ""
    label: Label = "High"
    entities: tuple[str, ...] = ()


class Observation(Frozen):
    """A draft with its id, and the time and session of the event it was taken from."""

    id: str
    draft: Draft
    time: datetime
    session: str

    @property
    def what(self) -> str:
        """The statement."""
        return self.draft.what

    @property
    def author(self) -> str:
        """Who said it."""
        return self.draft.speaker

    @property
    def confidence(self) -> float:
        """The number behind the label."""
        return CONFIDENCE[self.draft.label]


class Revision(Frozen):
    """A fact after one change. `decided` is the decision, before the temporal guard had its say."""

    statement: str
    confidence: float
    change: Action
    decided: Action
    observation_id: str
    author: str
    time: datetime
    session: str


class Fact(Frozen):
    """One fact. Immutable: a changed fact is a copy, so that a failed write changes nothing.

    `created` and `last_update` are times of documents; an older document does not set
    `last_update` back. `conflicts_with` are active facts that say otherwise.
    """

    id: str
    statement: Text
    confidence: float
    category: str
    created: datetime
    last_update: datetime
    history: tuple[Revision, ...]
    authors: tuple[str, ...]
    observation_ids: tuple[str, ...]
    status: Status = Status.ACTIVE
    conflicts_with: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None

    @property
    def active(self) -> bool:
        """Whether it still holds."""
        return self.status is Status.ACTIVE


class Operation(Frozen):
    """What was done with one observation.

    `facts` are those that the decision named, `result` the one that holds the
    statement now: None where nothing was kept.
    """

    observation_id: str
    session: str
    time: datetime
    author: str
    decided: Action
    action: Action
    facts: tuple[str, ...] = ()
    result: str | None = None

    @property
    def guarded(self) -> bool:
        """Whether the temporal guard changed the decision."""
        return self.decided is not self.action


@dataclass
class Store:
    """All of one store. Records are immutable, so that a copy is cheap and a failed write harmless.

    `index` holds the statements of all facts; ids are worked out from the order of
    arrival, so that a replay asks the same prompts.
    """

    index: VectorIndex
    facts: dict[str, Fact] = field(default_factory=dict)
    observations: dict[str, Observation] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    def copy(self) -> Store:
        """A store that changes on its own."""
        return Store(
            self.index.copy(), dict(self.facts), dict(self.observations), list(self.operations)
        )

    def active(self) -> list[Fact]:
        """The facts that hold, the oldest first."""
        return [fact for fact in self.facts.values() if fact.active]

    def observe(self, draft: Draft, time: datetime, session: str) -> Observation:
        """Keep a draft as the next observation."""
        number = f"o{len(self.observations) + 1:05d}"
        made = Observation(id=number, draft=draft, time=time, session=session)
        self.observations[made.id] = made
        return made

    def next_fact(self) -> str:
        """The id of the fact that is made next; none is ever removed."""
        return f"f{len(self.facts) + 1:05d}"

    def keep(self, facts: Iterable[Fact]) -> None:
        """Take facts over, new or changed; their rows of the index are the caller's."""
        self.facts.update((fact.id, fact) for fact in facts)
