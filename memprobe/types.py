"""Domain words shared by every suite, store and report.

All models are immutable and refuse unknown fields, so a misspelt key in a file
is an error with a name and not a silently ignored setting.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Frozen(BaseModel):
    """Base of the immutable records."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Category(StrEnum):
    """The five kinds of hidden user state, in the order of the published tables."""

    SKILL = "skill_memory"
    KNOWLEDGE = "knowledge_memory"
    EPISODIC = "episodic_memory"
    SELF_MODEL = "self_model"
    PREFERENCE = "assistance_preference"


class AccessMode(StrEnum):
    """How a reader reaches a store: all of it, or the best k items for a query."""

    DUMP_ALL = "dump_all"
    RETRIEVE = "retrieve"


class Protocol(StrEnum):
    """`strict` measures soundly; `paper` reproduces a published procedure, faults included."""

    STRICT = "strict"
    PAPER = "paper"


class Role(StrEnum):
    """What a model call is for; `--model-role ROLE=MODEL` sets one of them."""

    ASSISTANT = "assistant"
    SIMULATOR = "simulator"
    PREFERENCE = "preference"
    SLOT_FILL = "slot_fill"
    JUDGE = "judge"
    ORACLE = "oracle"
    DISCLOSURE = "disclosure"
    SUBCLASS = "subclass"
    GENERATOR = "generator"
    CRITIC = "critic"
    EDITOR = "editor"
    READER = "reader"
    MEMORY = "memory"
    ANSWERER = "answerer"


SuiteName = Literal["recovery", "paradigms"]
SUITES: tuple[SuiteName, ...] = ("recovery", "paradigms")
"""The suites there are."""


class FeedbackType(StrEnum):
    """The seven ways a simulated user reacts to a reply."""

    SATISFIED = "satisfied"
    TOO_SHALLOW = "too_shallow"
    TOO_DEEP = "too_deep"
    FOLLOWUP = "followup"
    CORRECTION = "correction"
    ADD_CONTEXT = "add_context"
    EXPOSE_GAP = "expose_gap"


class EndReason(StrEnum):
    """Why an episode ended."""

    SATISFIED = "satisfied"
    MAX_TURNS = "max_turns"


class AttributionLabel(StrEnum):
    """Who lost a target that was not recovered (or `ok`, or what we could not measure)."""

    OK = "ok"
    NO_TARGETED_TASK = "no_targeted_task"
    TASK_DESIGN_FAILURE = "task_design_failure"
    MEMORY_FAILURE = "memory_failure"
    AGENT_ELICITATION_FAILURE = "agent_elicitation_failure"
    SIMULATOR_TOO_STRICT = "simulator_too_strict"
    UNCLASSIFIED = "unclassified"
    HARNESS_FAILURE = "harness_failure"


class Message(Frozen):
    """One chat message; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class Scope(Frozen):
    """Names one store: one system's memory of one user in one run.

    `key` is opaque, unique across runs and safe as a path or a collection name.
    """

    run: str
    system: str
    user: str
    key: str


class MessageEvent(Frozen):
    """A dialogue message as a memory system sees it.

    `event_time` is the simulated moment of the episode (timezone-aware), never
    the wall clock. `episode` counts a user's tasks from 1, `turn` the exchanges
    of an episode from 1 (0 for the task itself). Nothing in an event tells which
    hidden target its task was written for.
    """

    role: str
    text: str
    event_time: datetime
    session_id: str
    episode: int = 0
    turn: int = 0


class SessionMessage(Frozen):
    """One message of a session; `role` is `user`, `assistant` or `tool_output`."""

    role: str
    text: str


class SessionEvent(Frozen):
    """A whole conversation at one moment, for systems that take in a session at a time.

    A system whose capabilities do not name sessions gets its messages one by one
    instead. `label` is what a published procedure told a system of a session's
    part in its design: empty under the strict protocol.
    """

    messages: Annotated[tuple[SessionMessage, ...], Field(min_length=1)]
    event_time: datetime
    session_id: str
    label: str = ""

    @property
    def text(self) -> str:
        """The conversation as lines of `User:`, `Assistant:` and `Tool output:`."""
        names = {"user": "User", "assistant": "Assistant", "tool_output": "Tool output"}
        return "\n".join(f"{names.get(m.role, m.role)}: {m.text}" for m in self.messages)


class DocumentEvent(Frozen):
    """A document with its author and the time it was written."""

    text: str
    author: str
    event_time: datetime
    session_id: str


Event = MessageEvent | SessionEvent | DocumentEvent


class MemoryItem(Frozen):
    """One thing a store holds.

    `score` is set by a search only: higher is nearer, on a scale that the
    system's card documents. `fields` keeps what is native to the system.
    """

    id: str
    content: str
    event_time: datetime | None = None
    score: float | None = None
    fields: dict[str, JsonValue] = Field(default_factory=dict)


class Usage(Frozen):
    """Tokens of one call; `cached_tokens` are part of `prompt_tokens`. None = not reported."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None


class Asker(Frozen):
    """Who makes a call, so that every figure leads back to it."""

    run: str
    suite: str
    stage: str
    system: str = ""
    user: str = ""
    item: str = ""


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Extras = dict[str, Any]
