"""Read the stored stores of a run again, with another reader, into a layer of its own.

Nothing is played and no system is asked. The whole store is read from
`memory_items`, the top k from the recorded search; where a search follows from the
dump (`longctx_full`) it is made again for a larger k. What is not there is unscored
and says so: a store that was never recorded is not an empty one, and a k beyond the
recorded search is not a worse one. Readings are measured as under `strict`, whatever
the run's protocol: a published fault is a fault of the published reading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.memory.stored import SEARCHABLE, StoredNotes
from memprobe.outcomes import Reason, Unscored
from memprobe.types import AccessMode, MemoryItem, Role
from storage.runs import RunStore, Unit
from tasks.commit import check_unchanged, commit
from tasks.context import RunContext, fingerprint
from tasks.queries import Queries
from tasks.recover import Recovery, View, recover_unit
from tasks.stored_search import Row, Target, agrees, query_of, recorded_searches, stored_items

VERSION = 1
STAGE = "reread"


@dataclass(frozen=True, slots=True)
class Rereading:
    """What is read: the layer it goes to, and how a search of the store is had.

    k and the access modes are those of the context's settings. `queries` stand in for
    texts that the run did not record; `anew` leaves the recorded searches aside and
    searches for all k by `queries`. `made` are the fingerprints of what the layer holds
    already, by unit; other work under its name is refused.
    """

    layer: str
    queries: Queries | None = None
    anew: bool = False
    made: Mapping[str, str] = field(default_factory=dict)


def reread_unit(system: str, user: str, layer: str, epoch: int = 1) -> Unit:
    """The unit of one user's reading in a layer."""
    return Unit(STAGE, system, user, layer if epoch == 1 else f"{layer}_e{epoch}")


def recorded_depth(store: RunStore) -> int:
    """The largest k that the run's own searches were made for."""
    return max(store.manifest.config.k)


def lost_stores(store: RunStore) -> set[tuple[str, str]]:
    """Systems and users whose store an import could not read."""
    return {
        (row["system"], row["user_id"])
        for row in store.read("import_issues")
        if row["table_name"] == "memory_items" and row["severity"] == "lost"
    }


class _Stored:
    """One user's store as the run has it, and what a reader may be shown of it."""

    def __init__(
        self, context: RunContext, system: str, user_id: str, epoch: int, reading: Rereading
    ) -> None:
        self.context = context
        self.system = system
        self.reading = reading
        self.depth = recorded_depth(context.store)
        self.items = stored_items(context, system, user_id, epoch)
        self.recorded = recorded_searches(context, system, user_id, epoch)
        self.missing = self._missing(user_id)
        self.notes = StoredNotes(context.embedder, self.items)
        self.empty = self._empty_searches(user_id, epoch)

    def _missing(self, user_id: str) -> Unscored | None:
        """Why there is no store to read; an empty one that was recorded is a store."""
        lost = lost_stores(self.context.store)
        if (self.system, user_id) not in lost and (self.system, "") not in lost:
            return None
        return Unscored(Reason.DATASET_ERROR, "the run has no whole record of this store")

    def _empty_searches(self, user_id: str, epoch: int) -> dict[Target, Unscored | None]:
        """Targets whose recorded search gave no items: None where it found none, or its error."""
        variant = recover_unit(self.system, user_id, epoch).variant
        rows = self.context.store.read(
            "slot_fills", system=self.system, user=user_id, variant=variant
        )
        return {
            (row["category"], row["dimension"]): None
            if row["reason"] is None
            else Unscored(Reason.DATASET_ERROR, f"the recorded search failed: {row['detail']}")
            for row in rows
            if row["access_mode"] == AccessMode.RETRIEVE.value and row["n_items"] == 0
        }

    @property
    def digest(self) -> str:
        """Changes with anything that a reading of this store stands on."""
        facts: list[Any] = [[item.id, item.content] for item in self.items]
        facts += [
            [*target, [[row["query"], row["item_id"], row["content"]] for row in rows]]
            for target, rows in sorted(self.recorded.items())
        ]
        facts += [self.depth, self.missing is None, sorted(self.empty)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def whole(self) -> View:
        return View(AccessMode.DUMP_ALL, None, tuple(i.content for i in self.items), self.missing)

    async def searches(self, targets: list[Target], ks: tuple[int, ...]) -> list[dict[str, View]]:
        """For each k every dimension's view."""
        return [{target[1]: await self._view(target, k) for target in targets} for k in ks]

    async def _view(self, target: Target, k: int) -> View:
        found = await self._found(target, k)
        if isinstance(found, Unscored):
            return View(AccessMode.RETRIEVE, k, (), found)
        return View(AccessMode.RETRIEVE, k, tuple(found[:k]))

    async def _found(self, target: Target, k: int) -> list[str] | Unscored:
        if self.reading.anew:
            return await self._anew(target, k)
        rows: list[Row] = self.recorded.get(target, [])
        if not rows:
            nothing = Unscored(Reason.DATASET_ERROR, "the run has no record of this search")
            return self.empty.get(target, nothing) or []
        if k <= self.depth:
            return [row["content"] for row in rows]
        if self.system not in SEARCHABLE:
            return _beyond(k, self.depth, f"the search of {self.system} needs its store")
        if self.missing is not None:
            return self.missing
        query = query_of(rows, self.reading.queries)
        if query is None:
            return _beyond(k, self.depth, "the run holds no query texts; give --queries")
        found = await self.notes.search(query, k)
        if agrees(rows, found) == "different":
            return _beyond(k, self.depth, "the search made again differs from the recorded one")
        return _contents(found)

    async def _anew(self, target: Target, k: int) -> list[str] | Unscored:
        if self.system not in SEARCHABLE:
            detail = f"the search of {self.system} needs its store and cannot be made again"
            return Unscored(Reason.DATASET_ERROR, detail)
        if self.missing is not None:
            return self.missing
        assert self.reading.queries is not None
        return _contents(await self.notes.search(self.reading.queries.text(*target), k))


def _contents(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


def _beyond(k: int, depth: int, why: str) -> Unscored:
    return Unscored(
        Reason.DATASET_ERROR, f"k={k} is beyond the {depth} items that were recorded: {why}"
    )


def _mark(context: RunContext, reading: Rereading, stored: _Stored) -> str:
    queries = reading.queries
    return fingerprint(
        STAGE,
        VERSION,
        context,
        prompt_names=("slot_fill", "judge"),
        roles=(Role.SLOT_FILL, Role.JUDGE),
        inputs={
            "layer": reading.layer,
            "k": list(context.config.k),
            "access": [mode.value for mode in context.config.access],
            "window": context.chat.window_for(Role.SLOT_FILL),
            "queries": None if queries is None else queries.digest,
            "anew": reading.anew,
            "stored": stored.digest,
        },
    )


async def reread_user(
    context: RunContext, system: str, user_id: str, reading: Rereading, epoch: int = 1
) -> str:
    """Read one user's stored store again; commits `slot_fills` and `verdicts` of the layer.

    `context` holds the run's settings with the new reader, k and access modes. A system
    that cannot be searched has no top-k rows. Returns the unit's slug.
    """
    unit = reread_unit(system, user_id, reading.layer, epoch)
    stored = _Stored(context, system, user_id, epoch, reading)
    mark = _mark(context, reading, stored)
    check_unchanged(reading.made, unit, mark)
    if context.store.is_complete(unit, mark):
        return unit.slug
    recovery = Recovery(context, system, context.user(user_id), epoch, reading.layer)
    access = context.config.access
    card = context.store.manifest.systems.get(system)
    searches: list[dict[str, View]] = []
    if AccessMode.RETRIEVE in access and (card is None or card.retrieve):
        targets = [(category.value, entry.dimension) for category, entry in recovery.targets]
        searches = await stored.searches(targets, context.config.k)
    whole = stored.whole() if AccessMode.DUMP_ALL in access else None
    tables = await recovery.tables(whole, searches)
    commit(context.store, unit, mark, tables)
    return unit.slug
