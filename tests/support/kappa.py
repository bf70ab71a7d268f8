"""Quadratic weighted kappa from its definition, to hold the fast one to."""

from collections.abc import Sequence


def quadratic_kappa(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Mean squared distance of the items over that of all pairs of items."""
    if len({*a, *b}) < 2:
        return None
    observed = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / len(a)
    chance = sum((x - y) ** 2 for x in a for y in b) / len(a) ** 2
    return 1 - observed / chance
