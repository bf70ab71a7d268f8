"""Calibrated constants of the embedded reader and judge, with where they come from."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Annotated

from pydantic import Field, ValidationError

from adapters.models.embedded.rubric import axes, rubric
from memprobe.dataset import explain
from memprobe.errors import DatasetError
from memprobe.types import Frozen
from storage.bundled import data_dir

Cosine = Annotated[float, Field(ge=-1, le=1)]


class Thresholds(Frozen):
    """Cosines of all-MiniLM-L6-v2; the judge's own constants are in `rubric`.

    `oracle` is the least similarity of a task to its target at which the task
    can invite it, `disclosure` that of a user's message to the target it shows,
    `invitation` that of an assistant's question to the target it asks after,
    `reader` that of a memory to a dimension below which the reader says unknown.
    """

    version: int
    oracle: Cosine
    disclosure: Cosine
    invitation: Cosine
    reader: Cosine
    provenance: dict[str, str]


CODE_VERSION = 3
"""Raised when a player, the reader or the judge answers differently for the same input."""


def identity() -> str:
    """What the embedded models' answers depend on beside their input: code and constants."""
    # Of the judge only what it answers by: figures and provenance change no answer.
    judge = rubric().model_dump_json(include={"version", "share", "opposition", "cuts"})
    facts = [thresholds().model_dump_json(), judge]
    if rubric().opposition:
        facts.append(axes().model_dump_json())
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    return f"{CODE_VERSION}/{digest[:16]}"


@cache
def thresholds() -> Thresholds:
    """The bundled constants; raises `DatasetError` when the file is broken."""
    path = data_dir() / "embedded" / "thresholds.json"
    try:
        return Thresholds.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        text = explain(error) if isinstance(error, ValidationError) else str(error)
        raise DatasetError(f"{path}: {text}") from error
