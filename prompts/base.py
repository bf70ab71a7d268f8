"""What the answer types share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Answer(BaseModel):
    """Base of the answers: extra keys are ignored, since models like to add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _visible(text: str) -> str:
    if not any(char.isprintable() and not char.isspace() for char in text):
        raise ValueError("the text is blank")
    return text


Visible = Annotated[str, AfterValidator(_visible)]
"""A text that shows something: a blank one is no answer, and no "unknown" either."""
