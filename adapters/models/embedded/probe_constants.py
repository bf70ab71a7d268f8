"""The fitted constants of the extractive reader of probes, with where they come from."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Annotated, Any

from pydantic import Field, ValidationError

from memprobe.dataset import explain
from memprobe.errors import DatasetError
from memprobe.types import Frozen
from storage.bundled import data_dir

Share = Annotated[float, Field(ge=0, le=1)]

CODE_VERSION = 1
"""Raised when the reader answers differently for the same entries and constants."""


class ProbeConstants(Frozen):
    """Weights of the two models of `probe_timeline`, by feature name, and its cuts.

    `early` is how much more an early entry counts, `least` the standing below which no
    value is found, `change` the probability from which a value counts as replaced.
    """

    version: int
    holds_by_name: dict[str, float]
    holds_bias: float
    replaces_by_name: dict[str, float]
    replaces_bias: float
    early: Annotated[float, Field(ge=0)]
    least: Annotated[float, Field(ge=0)]
    change: Share
    provenance: dict[str, Any]

    @property
    def holds(self) -> list[float]:
        """The first model's weights, in the order of the features."""
        return list(self.holds_by_name.values())

    @property
    def replaces(self) -> list[float]:
        """The second model's weights, in the order of the features."""
        return list(self.replaces_by_name.values())


def identity() -> str:
    """What the reader's answers depend on beside question and entries."""
    facts = constants().model_dump_json(exclude={"provenance"})
    return f"probes/{CODE_VERSION}/{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


@cache
def constants() -> ProbeConstants:
    """The bundled constants; raises `DatasetError` when the file is broken."""
    path = data_dir() / "embedded" / "probe_reader.json"
    try:
        return ProbeConstants.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        text = explain(error) if isinstance(error, ValidationError) else str(error)
        raise DatasetError(f"{path}: {text}") from error
