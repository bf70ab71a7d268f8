"""Episodes of the paradigms suite: specification, gold, sessions, probes.

One file holds one `Episode`. Session types and gold values are for the scorer
and the report only; a memory system and a reader get `Turn` texts and times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from memprobe.types import Frozen

Text = Annotated[str, Field(min_length=1)]
EpisodeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
"""Safe as a file's name."""


class Paradigm(StrEnum):
    """The four kinds of pressure on a stored fact."""

    INTERFERENCE = "interference"
    MISINFORMATION = "misinformation"
    CONSOLIDATION = "consolidation"
    RECONSOLIDATION = "reconsolidation"


class Condition(StrEnum):
    """The fourteen conditions; `protocol.RULES` tells what each one means."""

    AUTHORITATIVE_UPDATE = "authoritative_update"
    DECOY_NO_UPDATE = "decoy_no_update"
    USER_EXPLICIT = "user_explicit"
    ASSISTANT_NOISE = "assistant_noise"
    THIRD_PARTY_NOISE = "third_party_noise"
    STALE_TOOL = "stale_tool"
    HIGH = "high"
    LOW = "low"
    HIGH_WEAK_CHALLENGE = "high_weak_challenge"
    LOW_WEAK_CHALLENGE = "low_weak_challenge"
    REACTIVATED = "reactivated"
    DIRECT = "direct"
    REACTIVATED_WEAK = "reactivated_weak"
    DIRECT_WEAK = "direct_weak"


class Domain(str):
    """What the episode's life is about: the name of a domain, itself a text.

    The published suites have the three of `PUBLISHED`, in that order; a suite of
    your own may bring others. A name is lower case letters, digits, `_` and `-`,
    begins with a letter and has 40 characters at most; raises `ValueError` for
    another.
    """

    PERSONAL: ClassVar[Domain]
    WORK: ClassVar[Domain]
    AGENTIC: ClassVar[Domain]
    PUBLISHED: ClassVar[tuple[Domain, ...]]
    _NAME: ClassVar[re.Pattern[str]] = re.compile(r"[a-z][a-z0-9_-]{0,39}")

    __slots__ = ()

    def __new__(cls, name: str) -> Domain:
        if not cls._NAME.fullmatch(name):
            raise ValueError(
                f"{name!r:.60} is no name of a domain: lower case letters, digits, '_' and '-', "
                "a letter first, 40 characters at most"
            )
        return super().__new__(cls, name)

    @property
    def value(self) -> str:
        """The name as a plain text, as the other words of the design have it."""
        return str(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls,
            handler(str),
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema()
            ),
        )


Domain.PERSONAL, Domain.WORK, Domain.AGENTIC = map(Domain, ("personal", "work", "agentic"))
Domain.PUBLISHED = (Domain.PERSONAL, Domain.WORK, Domain.AGENTIC)


def in_order(domains: Iterable[Domain]) -> tuple[Domain, ...]:
    """Domains each once: the published three first, all of them when one occurs, others by name."""
    found = set(domains)
    published = Domain.PUBLISHED if found & set(Domain.PUBLISHED) else ()
    return (*published, *sorted(found - set(Domain.PUBLISHED)))


class Expected(StrEnum):
    """What a sound memory does with the perturbation."""

    UPDATE = "should_update"
    PRESERVE = "should_preserve"


class SourceType(StrEnum):
    """Who brings the new value."""

    USER = "user_explicit"
    THIRD_PARTY = "third_party"
    ASSISTANT = "assistant_hallucination"
    STALE_TOOL = "stale_tool"


class ConflictStatus(StrEnum):
    """Why a value that was mentioned does not hold for the target."""

    DIFFERENT_ENTITY = "different_entity"
    NOT_ACCEPTED = "not_accepted"
    STALE = "stale"


class ProbeType(StrEnum):
    """The six kinds of question."""

    CURRENT = "current_value"
    PREVIOUS = "previous_value"
    CHANGE = "change"
    TEMPORAL = "temporal"
    CONFLICT = "conflict_value"
    SOURCE = "source"


class SessionType(StrEnum):
    """A session's part in the design."""

    ENCODING = "encoding"
    WEAKLY_RELATED = "filler_weakly_related"
    NEAR_MISS = "filler_near_miss"
    CONFUSABLE = "filler_confusable"
    DECOY = "filler_decoy_nonupdate"
    STALE_REFERENCE = "filler_stale_reference"
    GENERIC = "filler_generic"
    PERTURBATION = "perturbation"
    P1 = "perturbation_p1"
    P2 = "perturbation_p2"

    @property
    def filler(self) -> bool:
        """Whether the session is neither encoding nor perturbation."""
        return self.value.startswith("filler_")

    @property
    def perturbs(self) -> bool:
        """Whether the session is a perturbation or a part of one."""
        return self.value.startswith("perturbation")


class TemporalGold(Frozen):
    """Why an update came: its trigger, the reason behind it, and the order of values."""

    trigger: Text
    reason: Text
    order: Text


class ConflictGold(Frozen):
    """The value that was mentioned and does not hold, whose it was, and why not."""

    value: Text
    source: Literal[SourceType.THIRD_PARTY, SourceType.ASSISTANT, SourceType.STALE_TOOL]
    source_label: Text
    status: ConflictStatus


class Gold(Frozen):
    """What is true at the end of an episode.

    An update has `previous_value`, `source_of_change` and `temporal`; an episode
    that preserves has `conflict` instead. `checks` holds files to that.
    """

    current_value: Text
    previous_value: Text | None
    has_changed: bool
    source_of_change: Text | None
    temporal: TemporalGold | None
    conflict: ConflictGold | None


class Perturbation(Frozen):
    """How the new value arrives."""

    source_type: SourceType
    evidence_strength: Literal["strong", "weak"]
    authoritative: bool
    reactivation: bool


class Spec(Frozen):
    """One episode's latent specification: the fact, its two values, and the design."""

    episode_id: EpisodeId
    group_id: Text
    group_design: Literal["paired", "triplet", "quad", "standalone"]
    paradigm: Paradigm
    condition: Condition
    domain: Domain
    fact_type: Text
    fact_question: Text
    initial_value: Text
    new_value: Text
    distractor_values: tuple[Text, Text, Text]
    expected_behavior: Expected
    difficulty: Literal["core", "easy", "medium", "hard"]
    perturbation: Perturbation
    split: bool
    gold: Gold

    @property
    def updates(self) -> bool:
        """Whether the new value is to be taken over."""
        return self.expected_behavior is Expected.UPDATE


class Turn(Frozen):
    """One message of a session."""

    role: Literal["user", "assistant", "tool_output"]
    content: Text


class Session(Frozen):
    """One conversation at one moment (with time zone)."""

    session_type: SessionType
    time: AwareDatetime
    dialogue: Annotated[tuple[Turn, ...], Field(min_length=1)]

    def text(self, *roles: str) -> str:
        """The messages of these roles (all, when none is given), one after another."""
        return "\n".join(t.content for t in self.dialogue if not roles or t.role in roles)


class Probe(Frozen):
    """A question after the last session, with its gold answer in words."""

    probe_type: ProbeType
    question: Text
    gold_answer: Text
    expected_behavior: Expected


class Episode(Frozen):
    """A specification with its realised sessions and its probes: one file."""

    spec: Spec
    sessions: Annotated[tuple[Session, ...], Field(min_length=1)]
    probes: tuple[Probe, ...]

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.spec.episode_id
