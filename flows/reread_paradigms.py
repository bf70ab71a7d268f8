"""How far two readers of a finished run of the paradigms suite rank its systems alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.catalog import query
from storage.runs import RunStore


@dataclass(frozen=True, slots=True)
class Alike:
    """How far two readers rank the systems alike, by one scorer, over `n` systems."""

    scorer: str
    first: str
    second: str
    n: int
    pearson: float | None
    spearman: float | None


def readers_alike(store: RunStore, layer: str) -> list[Alike]:
    """The rank correlations of a layer's reader with the run's own."""
    quoted = layer.replace("'", "''")
    found = query(
        store,
        "select scorer, first, second, n, pearson, spearman from probe_correlations "
        f"where kind = 'readers' and layer = '{quoted}' order by all",
    )
    return [Alike(**row) for row in found.dicts()]


def facts_of(found: Sequence[Alike]) -> list[dict[str, Any]]:
    """For JSON."""
    return [{name: getattr(one, name) for name in Alike.__dataclass_fields__} for one in found]
