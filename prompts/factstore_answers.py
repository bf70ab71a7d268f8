"""Answers of the fact store's three questions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from prompts.base import Answer, Visible

Told = Annotated[Visible, Field(min_length=1)]


class FactstoreObservation(Answer):
    """One statement of a text; empty strings where the text tells nothing."""

    what: Told
    category: Told
    who: str
    when: str
    why: str
    where: str
    confidence: Literal["High", "Medium", "Low"]
    entities: tuple[str, ...]
    speaker: str


class FactstoreExtraction(Answer):
    """The statements of a text worth keeping, in its order; there may be none."""

    observations: tuple[FactstoreObservation, ...]


class FactstoreDecision(Answer):
    """What becomes of a statement; `facts` and `agrees_with` are numbers of listed facts."""

    action: Literal["create", "update", "reinforce", "supersede", "conflict", "none"]
    facts: tuple[StrictInt, ...]
    agrees_with: StrictInt
    reason: str


class FactstoreSynthesis(Answer):
    """The statement of an updated fact."""

    statement: Told
