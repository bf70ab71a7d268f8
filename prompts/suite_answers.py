"""The answer that a conversation of a suite is written in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class WrittenTurn(BaseModel):
    """One message of a written conversation."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    role: Literal["user", "assistant", "tool_output"]
    content: Annotated[str, Field(min_length=1)]


class SessionAnswer(BaseModel):
    """A conversation, its messages in order."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dialogue: Annotated[tuple[WrittenTurn, ...], Field(min_length=2)]
