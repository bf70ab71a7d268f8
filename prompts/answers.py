"""The types of structured answers, one for each prompt that has one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from memprobe.types import FeedbackType


class Answer(BaseModel):
    """Base of the answers: extra keys are ignored, since models like to add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


JUDGE_SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)


class Feedback(Answer):
    """The simulated user's reaction."""

    feedback_type: FeedbackType
    text: Annotated[str, Field(min_length=1)]


class SlotFillAnswer(Answer):
    """The value read out of a memory for one dimension, or "unknown"."""

    label: Annotated[str, Field(min_length=1)]
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
