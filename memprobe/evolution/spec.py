"""Trajectories of the evolution suite: what is true when, the documents that say it, questions.

One file holds one `Trajectory`. A system gets documents with author and time, in the
order of arrival; claims, actions, questions and answers are for the scorer alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from memprobe.types import Frozen

Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Category(StrEnum):
    """What a trajectory isolates."""

    LLM_COMPENSATION = "C1"
    RETRIEVAL = "C2"
    CLASSIFICATION = "C3"
    SYNTHESIS = "C4"
    TEMPORAL = "C5"
    AUTHORS = "C6"


class Level(StrEnum):
    """How openly a document says its claims: almost verbatim, embedded, or to be combined."""

    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


class Domain(StrEnum):
    """The technical field of a trajectory."""

    INFRASTRUCTURE = "infrastructure"
    SECURITY = "security"
    FINANCIAL_OPERATIONS = "financial_operations"
    MACHINE_LEARNING = "machine_learning"
    DATA_ENGINEERING = "data_engineering"
    CONTAINERS = "containers"


class TrajectoryType(StrEnum):
    """How the truth moves."""

    LINEAR = "linear-evolution"
    CONTRADICTION = "contradiction"
    SCOPE_EXPANSION = "scope-expansion"
    RETRACTION = "retraction"
    STABLE = "stable"
    DRIFT = "gradual-drift"


class Action(StrEnum):
    """What a sound memory does with a document. `NONE` is a system's only."""

    CREATE = "create"
    UPDATE = "update"
    REINFORCE = "reinforce"
    CONFLICT = "conflict"
    SUPERSEDE = "supersede"
    NONE = "none"


class DocumentType(StrEnum):
    """The kind of a document."""

    MEETING_NOTES = "meeting_notes"
    EMAIL = "email"
    ARCHITECTURE_REVIEW = "architecture_review"
    STATUS_UPDATE = "status_update"
    EXECUTIVE_BRIEFING = "executive_briefing"


class Author(Frozen):
    """Who wrote a document. `style` tells in a few words how this person writes."""

    name: Text
    role: Text
    style: Text


class Document(Frozen):
    """A text as a system gets it.

    `noise_claims` are statements of the text that belong to no trajectory; `host`
    tells what the text around the claims is about, for claims hidden in one.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    author: Text
    document_type: DocumentType
    time: AwareDatetime
    text: Text
    noise_claims: tuple[Text, ...] = ()
    host: str | None = None


class State(Frozen):
    """One arrival: the document, what it says that is new, and what is true after it.

    `claims` are cumulative: the memory that is expected after this document, without
    what it retired. `doc_claims` are this document's. `confidence` is that of the
    fact which holds them. Times may go back: the order of states is that of arrival.
    """

    index: Annotated[int, Field(ge=0)]
    claims: Annotated[tuple[Text, ...], Field(min_length=1)]
    doc_claims: Annotated[tuple[Text, ...], Field(min_length=1)]
    action: Action
    confidence: Share
    change_reason: str | None = None
    document: Document


class Question(Frozen):
    """A question to the system's own search, with the answer that the final claims give."""

    question: Text
    expected_answer: Text
    claims: Annotated[tuple[Text, ...], Field(min_length=1)]


class FactGroup(Frozen):
    """Claims of the final state that belong in one fact; `authors` are those who said it.

    `authors` is None where attribution is not what the trajectory is about.
    """

    claims: Annotated[tuple[Text, ...], Field(min_length=1)]
    authors: tuple[Text, ...] | None = None


class Trajectory(Frozen):
    """A topic over time. `noise_documents` arrive among the states and are about other things.

    `noise_after` says behind which state (by index) each noise document arrives. `retracted` are
    claims that were true once and must be absent or inactive at the end.
    """

    id: Annotated[str, Field(pattern=r"^c[1-6]_[a-z0-9_]+$")]
    topic: Text
    category: Category
    level: Level
    domain: Domain
    trajectory_type: TrajectoryType
    customer: Text
    authors: Annotated[tuple[Author, ...], Field(min_length=1)]
    states: Annotated[tuple[State, ...], Field(min_length=2)]
    questions: Annotated[tuple[Question, ...], Field(min_length=2)]
    expected_facts: Annotated[tuple[FactGroup, ...], Field(min_length=1)]
    retracted: tuple[Text, ...] = ()
    noise_documents: tuple[Document, ...] = ()
    noise_after: tuple[int, ...] = ()

    def arrivals(self) -> list[tuple[int | None, Document]]:
        """The documents in order of arrival, each with its state's index or None for noise."""
        found: list[tuple[int | None, Document]] = []
        for state in self.states:
            found.append((state.index, state.document))
            found += [
                (None, document)
                for document, after in zip(self.noise_documents, self.noise_after, strict=True)
                if after == state.index
            ]
        return found
