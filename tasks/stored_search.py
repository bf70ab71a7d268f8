"""A search made again from what a run stored, held against what it recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from adapters.memory.stored import StoredNotes
from memprobe.types import MemoryItem
from tasks.context import RunContext
from tasks.queries import Queries
from tasks.recover import recover_unit
from tasks.rollout import rollout_unit

Row = dict[str, Any]
Target = tuple[str, str]
"""Category and dimension."""


def stored_items(context: RunContext, system: str, user_id: str, epoch: int) -> list[MemoryItem]:
    """What a store held at its end, in the order of its dump."""
    variant = rollout_unit(system, user_id, epoch).variant
    rows = context.store.read("memory_items", system=system, user=user_id, variant=variant)
    rows.sort(key=lambda row: row["seq"])
    return [
        MemoryItem(
            id=row["item_id"],
            content=row["content"],
            fields=json.loads(row["fields_json"]) if row["fields_json"] else {},
        )
        for row in rows
    ]


def recorded_searches(
    context: RunContext, system: str, user_id: str, epoch: int
) -> dict[Target, list[Row]]:
    """The recorded rows of each target that a search returned anything for, nearest first."""
    variant = recover_unit(system, user_id, epoch).variant
    rows = context.store.read("retrievals", system=system, user=user_id, variant=variant)
    found: dict[Target, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["rank"]):
        found[row["category"], row["dimension"]].append(row)
    return dict(found)


def query_of(recorded: list[Row], queries: Queries | None) -> str | None:
    """What a recorded search asked for: the stored text, or that of the given queries."""
    if recorded[0]["query"]:
        return str(recorded[0]["query"])
    return None if queries is None else queries.text(*_target(recorded[0]))


def _target(row: Row) -> Target:
    return row["category"], row["dimension"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One place of a ranking."""

    item_id: str
    score: float | None
    content: str


@dataclass(frozen=True, slots=True)
class Searched:
    """One recorded search beside the one made again.

    `outcome` is `equal` (the same items in the same order), `tied` (they differ only in
    which of several items of one text comes first), `different`, or `no query` when it is
    not known what was searched for. `score_error` is the largest difference of a score.
    """

    system: str
    user_id: str
    epoch: int
    category: str
    dimension: str
    outcome: str
    recorded: tuple[Ranked, ...]
    found: tuple[Ranked, ...]
    score_error: float | None


def agrees(recorded: list[Row], found: list[MemoryItem]) -> str:
    """`equal`, `tied` or `different`; only as many places are looked at as were recorded."""
    pairs = list(zip(recorded, found, strict=False))
    if len(found) < len(recorded):
        return "different"
    if all(row["item_id"] == item.id for row, item in pairs):
        return "equal"
    return "tied" if all(row["content"] == item.content for row, item in pairs) else "different"


async def check_searches(
    context: RunContext, system: str, user_id: str, epoch: int, queries: Queries | None
) -> list[Searched]:
    """Make every recorded search of one store again, each text encoded once."""
    recorded = recorded_searches(context, system, user_id, epoch)
    notes = StoredNotes(context.embedder, stored_items(context, system, user_id, epoch))
    out = []
    for (category, dimension), rows in sorted(recorded.items()):
        query = query_of(rows, queries)
        found = [] if query is None else await notes.search(query, len(rows))
        errors = [
            abs(row["score"] - item.score)
            for row, item in zip(rows, found, strict=False)
            if row["score"] is not None and item.score is not None
        ]
        out.append(
            Searched(
                system,
                user_id,
                epoch,
                category,
                dimension,
                "no query" if query is None else agrees(rows, found),
                tuple(Ranked(row["item_id"], row["score"], row["content"]) for row in rows),
                tuple(Ranked(item.id, item.score, item.content) for item in found),
                max(errors, default=None),
            )
        )
    return out
