"""The embedded judge's rubric: evidence on a label, and what it comes to on the five points.

Three pieces of evidence, each about label and target together: how near they are in
meaning, how much of the label's content is the target's own, and how far they stand
on opposite sides of the dimension's axis. The last adds nothing to the first two on
users held out, so its weight is 0; it is reported apart (`tasks.polarity`). The
category and the dimension as such count for nothing: that one category scores lower
is a finding, not evidence. The constants are fitted by `benchmarks/calibrate_judge.py`;
see `data/embedded/judge.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from memprobe.dataset import explain
from memprobe.errors import DatasetError
from memprobe.leakage import content_stems
from memprobe.polarity import Axes, load_axes
from memprobe.types import Frozen
from storage.bundled import data_dir

Weight = Annotated[float, Field(ge=0, le=4)]


def _rising(cuts: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    if list(cuts) != sorted(set(cuts)):
        raise ValueError("the cuts must rise")
    return cuts


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for and against a label; `cosine` in [-1, 1], `share` in [0, 1].

    `opposition` is 0 for a dimension without two ends, and where label and target
    stand on one side of its axis.
    """

    cosine: float
    share: float
    opposition: float


class Rubric(Frozen):
    """Constants of the judge: `cosine + share * s - opposition * o`, cut into five points.

    The weights are in units of cosine and never negative, so that better evidence
    never lowers a score. `held_out` holds the figures of users that were left out of
    the fit, `provenance` what it was fitted on and by what, `polarity` how often the
    reading of directions says `opposite` of contradicting and of right labels.
    """

    version: int
    share: Weight
    opposition: Weight
    cuts: Annotated[tuple[float, float, float, float], AfterValidator(_rising)]
    provenance: dict[str, Any]
    held_out: dict[str, Any]
    polarity: dict[str, Any]

    def latent(self, evidence: Evidence) -> float:
        """The evidence in one number."""
        return evidence.cosine + self.share * evidence.share - self.opposition * evidence.opposition

    def step(self, evidence: Evidence) -> int:
        """The place on the five-point scale, 0 to 4."""
        latent = self.latent(evidence)
        return sum(latent >= cut for cut in self.cuts)


def share(label: str, *target: str) -> float:
    """The share of a label's content words that the target's texts have, too; 0 without any."""
    own = content_stems(label)
    return len(own & set().union(*map(content_stems, target))) / len(own) if own else 0.0


@cache
def rubric() -> Rubric:
    """The bundled constants; raises `DatasetError` when the file is broken."""
    path = data_dir() / "embedded" / "judge.json"
    try:
        return Rubric.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        text = explain(error) if isinstance(error, ValidationError) else str(error)
        raise DatasetError(f"{path}: {text}") from error


@cache
def axes() -> Axes:
    """The bundled directional dimensions; raises `DatasetError` when the file is broken."""
    return load_axes(data_dir() / "polarity" / "dimensions.json")
