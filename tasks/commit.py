"""Committing a unit, and telling a result that stands from one that a resume tries again.

Items that failed for a passing reason (a provider that was down, a memory
system that was broken) are readable like all others, but the unit that holds
them carries another mark: it is there for this invocation and not done for the
next one, which replays every finished call from the ledger and asks the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memprobe.errors import UsageError
from memprobe.outcomes import RETRIED
from storage.runs import RunStore, Unit

PARTIAL = "+partial"
FAILED = "+failed"
"""The mark of rows that only say why there are none: readable, and not there in any sense."""
Rows = Sequence[Mapping[str, Any]]


def to_retry(rows: Rows) -> bool:
    """Whether a row failed for a reason that may have passed by the next time.

    Looks at the reason alone: the published protocol scores a failure as 0 and
    keeps its reason.
    """
    return any(row.get("reason") in RETRIED for row in rows)


def commit(
    store: RunStore, unit: Unit, mark: str, tables: Mapping[str, Rows], *, partial: bool = False
) -> None:
    """Store a unit's rows; with failures that may pass, or `partial` inputs, not for good."""
    partial = partial or any(to_retry(rows) for rows in tables.values())
    store.commit(unit, mark + PARTIAL if partial else mark, tables)


def is_partial(store: RunStore, unit: Unit, mark: str) -> bool:
    """Whether the unit is there with items that the next invocation tries again."""
    return store.is_complete(unit, mark + PARTIAL)


def is_there(store: RunStore, unit: Unit, mark: str) -> bool:
    """Whether the unit's rows are there, for good or until the next invocation."""
    return store.is_complete(unit, mark) or is_partial(store, unit, mark)


def check_unchanged(made: Mapping[str, str], unit: Unit, mark: str) -> None:
    """Raises `UsageError` when a layer holds another result for this unit.

    `made` gives the fingerprints of a layer's units by slug, as they were found.
    """
    there = made.get(unit.slug)
    if there is not None and there.removesuffix(PARTIAL) != mark:
        raise UsageError(
            f"layer {unit.variant!r} was made with other models, access modes, k or texts, from "
            "other records or by another version, and is not written over; choose another --layer"
        )
