"""The types of structured answers, one for each prompt that has one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, field_validator

from memprobe.types import FeedbackType
from prompts.base import Answer as Answer
from prompts.base import Visible as Visible
from prompts.factstore_answers import FactstoreDecision as FactstoreDecision
from prompts.factstore_answers import FactstoreExtraction as FactstoreExtraction
from prompts.factstore_answers import FactstoreSynthesis as FactstoreSynthesis
from prompts.probe_answers import ChangeAnswer as ChangeAnswer
from prompts.probe_answers import ConflictAnswer as ConflictAnswer
from prompts.probe_answers import SourceAnswer as SourceAnswer
from prompts.probe_answers import TemporalAnswer as TemporalAnswer
from prompts.probe_answers import ValueAnswer as ValueAnswer
from prompts.suite_answers import SessionAnswer as SessionAnswer

JUDGE_SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)


class Feedback(Answer):
    """The simulated user's reaction."""

    feedback_type: FeedbackType
    text: Annotated[Visible, Field(min_length=1)]


class SlotFillAnswer(Answer):
    """The value read out of a memory for one dimension, or "unknown"."""

    label: Annotated[Visible, Field(min_length=1)]
    reason: str = ""


class JudgeAnswer(Answer):
    """A verdict on the declared five-point scale; anything off the scale is refused."""

    score: float
    reason: str = ""

    @field_validator("score", mode="before")
    @classmethod
    def _on_scale(cls, value: object) -> float:
        if isinstance(value, bool):
            raise ValueError("a truth value is no score")
        if isinstance(value, str):
            text = value.strip()
            if text.endswith("/1") or text.endswith("/1.0"):
                text = text.rsplit("/", 1)[0].strip()
            try:
                value = float(text)
            except ValueError:
                raise ValueError(f"{value!r} is not a number") from None
        if not isinstance(value, int | float) or value not in JUDGE_SCALE:
            raise ValueError(f"{value!r} is not on the scale {JUDGE_SCALE}")
        return float(value)


class PreferenceScore(Answer):
    """One preference: an integer from 1 to 5, or "na" when it cannot show."""

    idx: int
    score: Literal[1, 2, 3, 4, 5, "na"]
    reason: str = ""

    @field_validator("score", mode="before")
    @classmethod
    def _no_truth_value(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a truth value is no rating")
        return value


class PreferenceAnswer(Answer):
    """One entry for each preference of the user."""

    per_pref: tuple[PreferenceScore, ...]


class OracleAnswer(Answer):
    """Could this task bring the target up at all?"""

    can_invite: bool
    reason: str = ""


class DisclosureAnswer(Answer):
    """Did the user let the target show in the transcript?"""

    disclosed: bool
    evidence: str = ""


class SubclassAnswer(Answer):
    """Why the target did not show: not drawn out, held back, or neither."""

    cause: Literal["agent_elicitation_failure", "simulator_too_strict", "unclassified"]
    reason: str = ""


class PolarityAnswer(Answer):
    """Which end of an axis a text speaks for."""

    pole: Literal["first", "second", "neither"]
    reason: str = ""


Filled = Annotated[str, Field(min_length=1)]


class ValuesAnswer(Answer):
    """What an invented person lives by, as one phrase."""

    values_orientation: Filled


class AttitudeAnswer(Answer):
    """How an invented person meets life; all three are needed."""

    attitude: Filled
    attitude_details: Filled
    coping_mechanism: Filled


class StoryAnswer(Answer):
    """Short pieces out of an invented person's life."""

    stories: tuple[Filled, ...]


class InterestsAnswer(Answer):
    """What an invented person spends free time on."""

    interests: tuple[Filled, ...]


class BankItem(Answer):
    """One hidden target as a model proposes it; `name` is a dimension of the pool."""

    name: Filled
    short: Filled
    explanation: Filled


class BankAnswer(Answer):
    """The hidden targets of one category."""

    dims: tuple[BankItem, ...]


class TaskAnswer(Answer):
    """A request, newly written or rewritten, and how a reply to it would meet the target."""

    task: Filled
    rationale: Filled


class CriticAnswer(Answer):
    """What a blind critic infers from a request, and whether the wording gives it away."""

    inferred_trait: str
    verdict: Literal["neutral", "fishing"]
    why: str = ""


class AmemAnalysis(Answer):
    """What an A-MEM note is about; nothing is required, what is missing keeps its default."""

    keywords: tuple[str, ...] = ()
    context: str = "General"
    tags: tuple[str, ...] = ()


class AmemEvolution(Answer):
    """Whether and how an A-MEM note and its neighbours change; lists go by neighbour order."""

    should_evolve: StrictBool
    actions: tuple[str, ...]
    suggested_connections: tuple[str, ...]
    tags_to_update: tuple[str, ...]
    new_context_neighborhood: tuple[str, ...]
    new_tags_neighborhood: tuple[tuple[str, ...], ...]
