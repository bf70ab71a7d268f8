"""The types of a reader's answers to the paradigms suite's questions.

What the scorer reads must be there; texts that only explain may be missing, and
a null in their place is no text. Classes are a closed list, their spelling is
not: `Third-party` is `third_party`, and `different_entity` is `other_entity`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from prompts.base import Answer, Visible

SourceClass = Literal[
    "user", "assistant", "third_party", "tool", "stale_tool", "other_entity", "unknown"
]
"""Who brought a value up. `hypothetical`, which the published schema offers too, names nobody."""
ConflictSource = Literal["assistant", "third_party", "stale_tool", "other_entity", "unknown"]
"""As `SourceClass`, of a value that conflicts with the user's own."""
StatusClass = Literal[
    "accepted",
    "not_accepted",
    "stale",
    "hypothetical",
    "other_entity",
    "superseded",
    "unknown",
]
"""What became of a value."""

_ALIASES = {
    "thirdparty": "third_party",
    "hallucination": "assistant",
    "assistant_hallucination": "assistant",
    "different_entity": "other_entity",
    "not_confirmed": "not_accepted",
}


def _class(value: object) -> object:
    if not isinstance(value, str):
        return value
    name = re.sub(r"[\s-]+", "_", value.strip().lower())
    return _ALIASES.get(name, name)


def _text(value: object) -> object:
    return "" if value is None else value


Spelt = BeforeValidator(_class)
Told = Annotated[str, BeforeValidator(_text)]
"""A text that may be missing: null is read as none."""
Named = Annotated[Visible, Field(min_length=1)]


class ValueAnswer(Answer):
    """The current value, or the one before it; "unknown" where the memory does not tell."""

    answer: Named
    reason: Told = ""


class ChangeAnswer(Answer):
    """Whether the value changed."""

    changed: bool
    current_value: Told = ""
    previous_value: str | None = None
    reason: Told = ""


class SourceAnswer(Answer):
    """Who or what brought a value up, and whether it was taken over for the user."""

    source_description: Told = ""
    source_class: Annotated[SourceClass, Spelt]
    action: Told = ""
    accepted: bool
    current_value: Told = ""
    reason: Told = ""


class ConflictAnswer(Answer):
    """Whether a value that conflicts was mentioned, by whom, and what became of it."""

    conflict_value_mentioned: bool
    conflict_value: str | None
    source: Told = ""
    source_class: Annotated[ConflictSource, Spelt]
    status: Told = ""
    status_class: Annotated[StatusClass, Spelt]
    applies_to_target: bool
    current_value: Told = ""
    reason: Told = ""


class TemporalAnswer(Answer):
    """What changed, from what to what, when, and what set it off; null where nothing did."""

    changed: bool
    trigger: str | None
    old_value: str | None = None
    new_value: str | None
    timing: str | None = None
    reason: Told = ""
