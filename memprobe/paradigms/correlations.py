"""Correlations over systems: between axes of behaviour, and between two readers.

The unit is a system, so n is small: below `MIN_SYSTEMS`, and where one side is
constant, there is no figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from memprobe.metrics import Floats

AXES = ("plasticity", "stability", "historical", "source_fidelity", "temporal", "split")
MIN_SYSTEMS = 3


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r and Spearman's rho of two columns over the n systems that have both."""

    first: str
    second: str
    n: int
    pearson: float | None
    spearman: float | None


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, ties with the mean of their places."""
    found = np.asarray(values, dtype=np.float64)
    below = (found[None, :] < found[:, None]).sum(axis=1)
    equal = (found[None, :] == found[:, None]).sum(axis=1)
    return [float(r) for r in below + (equal + 1) / 2]


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's r; None below three pairs and where a side is constant.

    Raises `ValueError` for unequal lengths.
    """
    if len(first) != len(second):
        raise ValueError("both sides have one value a system")
    if len(first) < MIN_SYSTEMS or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    a, b = _centred(first), _centred(second)
    scale = math.sqrt(math.fsum(a * a) * math.fsum(b * b))
    return max(-1.0, min(1.0, math.fsum(a * b) / scale)) if scale else None


def _centred(values: Sequence[float]) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    return found - math.fsum(found) / len(found)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: Pearson's r of the ranks."""
    return pearson(ranks(first), ranks(second))


def correlate(
    first: str,
    second: str,
    left: Mapping[str, float | None],
    right: Mapping[str, float | None],
) -> Correlation:
    """Two columns (system -> value) over the systems that have both values."""
    pairs = [
        (a, b)
        for name in sorted(left.keys() & right.keys())
        if (a := left[name]) is not None and (b := right[name]) is not None
    ]
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    return Correlation(first, second, len(pairs), pearson(x, y), spearman(x, y))


def between_axes(systems: Mapping[str, Mapping[str, float | None]]) -> list[Correlation]:
    """All pairs of `AXES` over systems (system -> axis -> value)."""
    columns = {a: {name: values.get(a) for name, values in systems.items()} for a in AXES}
    return [correlate(a, b, columns[a], columns[b]) for a, b in combinations(AXES, 2)]


def between_readers(readers: Mapping[str, Mapping[str, float | None]]) -> list[Correlation]:
    """All pairs of readers over the systems that both have read (reader -> system -> accuracy).

    `spearman` tells whether another reader would rank the systems alike.
    """
    return [correlate(a, b, readers[a], readers[b]) for a, b in combinations(readers, 2)]
