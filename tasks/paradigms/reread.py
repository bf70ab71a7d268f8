"""Another reader over what a run of the paradigms suite has stored, into a layer of its own.

Nothing is ingested and no system is asked: whole stores come from `memory_items`, the
items of a search from `retrievals`. What was not recorded is unscored and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memprobe.outcomes import Reason, Unscored
from memprobe.paradigms.spec import ProbeType
from memprobe.types import AccessMode, MemoryItem, Role
from storage.runs import Unit
from tasks.commit import check_unchanged, commit
from tasks.context import fingerprint
from tasks.paradigms.answer import (
    BASE,
    PROMPTS,
    Asking,
    Seen,
    Tables,
    answer_unit,
    broken_ingest,
    stored_items,
    views,
)
from tasks.paradigms.context import ParadigmsContext, Reading
from tasks.reread import STAGE
from tasks.watched import Rows

VERSION = 1


@dataclass(frozen=True, slots=True)
class Rereading:
    """The layer that is written, and the fingerprints of what it holds already, by unit.

    `k` and `access` narrow the recorded readings; None takes them all.
    """

    layer: str
    k: tuple[int, ...] | None = None
    access: tuple[AccessMode, ...] | None = None
    made: Mapping[str, str] = field(default_factory=dict)


def reread_unit(system: str, episode: str, layer: str, epoch: int = 1) -> Unit:
    """The unit of one episode's answers in a layer."""
    return Unit(STAGE, system, episode, layer if epoch == 1 else f"{layer}_e{epoch}")


class _Recorded:
    """One episode's store and searches as the run has them."""

    def __init__(self, context: ParadigmsContext, system: str, episode_id: str, epoch: int) -> None:
        self.items = stored_items(context, system, episode_id, epoch)
        self.broken = broken_ingest(context, system, episode_id, epoch)
        place: dict[str, Any] = {
            "system": system,
            "user": episode_id,
            "variant": answer_unit(system, episode_id, epoch).variant,
        }
        self.answers = [
            row for row in context.store.read("answers", **place) if row["layer"] == BASE
        ]
        self.searches: dict[str, Rows] = {}
        for row in context.store.read("retrievals", **place):
            self.searches.setdefault(row["dimension"], []).append(row)

    def readings(self, reading: Rereading) -> list[Reading]:
        """The recorded readings, or smaller k of a recorded search."""
        modes = {AccessMode(row["access_mode"]) for row in self.answers}
        depth = max((row["k"] or 0 for row in self.answers), default=0)
        recorded = sorted({row["k"] for row in self.answers if row["k"] is not None})
        found = []
        for mode in AccessMode:
            if mode not in modes or (reading.access and mode not in reading.access):
                continue
            if mode is AccessMode.DUMP_ALL:
                found.append(Reading(mode, None))
            else:
                found += [Reading(mode, k) for k in reading.k or recorded if k <= depth]
        return found

    def whole(self) -> Seen:
        """The whole store; an import may know its size and not what was in it."""
        told = [
            row["n_items"]
            for row in self.answers
            if row["access_mode"] == AccessMode.DUMP_ALL.value
        ]
        if self.broken is None and not self.items and any(n != 0 for n in told):
            detail = "what the store held is not recorded"
            return Seen(failure=Unscored(Reason.DATASET_ERROR, detail))
        return Seen(tuple(self.items), self.broken)

    def found(self) -> dict[ProbeType, Seen]:
        """What each probe's search gave, in its order; items keep the times of the store."""
        times = {item.id: item.event_time for item in self.items}
        fields = {item.id: item.fields for item in self.items}
        found: dict[ProbeType, Seen] = {}
        for row in self.answers:
            if row["access_mode"] != AccessMode.RETRIEVE.value:
                continue
            probe = ProbeType(row["probe_type"])
            if row["n_items"] is None:
                why = row["detail"]
                detail = f"the recorded search failed: {why}" if why else "no search is recorded"
                found[probe] = Seen(failure=Unscored(Reason.DATASET_ERROR, detail))
                continue
            rows = sorted(self.searches.get(row["probe_type"], []), key=lambda r: r["rank"])
            found[probe] = Seen(
                tuple(
                    MemoryItem(
                        id=r["item_id"],
                        content=r["content"],
                        event_time=times.get(r["item_id"]),
                        score=r["score"],
                        fields=fields.get(r["item_id"], {}),
                    )
                    for r in rows
                )
            )
        return found

    @property
    def digest(self) -> str:
        """Changes with anything that a reading of this store stands on."""
        facts: list[Any] = [[item.id, item.content] for item in self.items]
        facts += [
            [name, [[row["item_id"], row["content"]] for row in rows]]
            for name, rows in sorted(self.searches.items())
        ]
        facts.append(self.broken is None)
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


async def reread_episode(
    context: ParadigmsContext, system: str, episode_id: str, reading: Rereading, epoch: int = 1
) -> str:
    """Ask an episode's probes again of what is stored; returns the unit's slug.

    Commits `answers`, `probe_verdicts` and `probe_failures` of the layer. `context`
    holds the run's settings with the new reader.
    """
    unit = reread_unit(system, episode_id, reading.layer, epoch)
    recorded = _Recorded(context, system, episode_id, epoch)
    ways = recorded.readings(reading)
    mark = fingerprint(
        STAGE,
        VERSION,
        context,
        prompt_names=tuple(sorted(set(PROMPTS.values()))),
        roles=(Role.READER,),
        inputs={
            "layer": reading.layer,
            "readings": [way.name for way in ways],
            "window": context.chat.window_for(Role.READER),
            "stored": recorded.digest,
        },
    )
    check_unchanged(reading.made, unit, mark)
    if context.store.is_complete(unit, mark):
        return unit.slug
    asking = Asking(context, system, context.suite.episode(episode_id), epoch, reading.layer)
    whole = recorded.whole()
    tables = Tables()
    shown = views(asking, ways, recorded.found(), whole)
    await asyncio.gather(*(asking.rows(tables, *view, recorded.items) for view in shown))
    commit(context.store, unit, mark, tables.as_dict())
    return unit.slug
