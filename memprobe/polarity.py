"""Directional dimensions: axes with two ends that exclude each other.

A label about the right subject can say the opposite of the truth. Whether it does
is a reading beside the verdict; it never changes a score.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from memprobe.dataset import explain
from memprobe.errors import DatasetError
from memprobe.types import Frozen

FORMAT = "memprobe.polarity/1"


class Polarity(StrEnum):
    """How a label stands to its target on the dimension's axis."""

    AGREES = "agrees"
    OPPOSITE = "opposite"
    UNCLEAR = "unclear"


class Pole(StrEnum):
    """Which end of an axis a text speaks for."""

    FIRST = "first"
    SECOND = "second"
    NEITHER = "neither"


def polarity_of(target: Pole, label: Pole) -> Polarity:
    """Agreement of two readings; unclear when either speaks for no end."""
    if Pole.NEITHER in (target, label):
        return Polarity.UNCLEAR
    return Polarity.AGREES if target is label else Polarity.OPPOSITE


def _two(ends: tuple[str, ...]) -> tuple[str, ...]:
    if len(ends) != 2 or len(set(ends)) != 2 or not all(end.strip() for end in ends):
        raise ValueError("an axis has two different ends")
    return ends


class Axis(Frozen):
    """The two ends of a directional dimension."""

    first: str
    second: str


class Axes(Frozen):
    """The directional dimensions, and why the others are none.

    `not_directional` is keyed by dimension, or by category for all of its dimensions.
    """

    format: str
    origin: str
    version: int
    not_directional: dict[str, str]
    dimensions: dict[str, Annotated[tuple[str, ...], AfterValidator(_two)]] = Field(min_length=1)

    def find(self, dimension: str) -> Axis | None:
        """The axis of a dimension; None when it is not directional or not known."""
        ends = self.dimensions.get(dimension)
        return None if ends is None else Axis(first=ends[0], second=ends[1])


def load_axes(path: Path) -> Axes:
    """Read the data file; raises `DatasetError` naming what is wrong in it."""
    try:
        axes = Axes.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        text = explain(error) if isinstance(error, ValidationError) else str(error)
        raise DatasetError(f"{path}: {text}") from error
    if axes.format != FORMAT:
        raise DatasetError(f"{path}: format {axes.format!r}; this reads {FORMAT!r}")
    return axes
