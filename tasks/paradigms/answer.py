"""Answer: each probe of an episode asked of a store, and its answer scored by both scorers.

The reader sees what the system gives it and nothing of the design. References that
are handed gold say so on their cards, and get it here and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import prompts
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed, SnapshotError
from memprobe.outcomes import Reason, Unscored
from memprobe.paradigms.references import reference_answer
from memprobe.paradigms.scoring.results import Match, Score, key_of, score
from memprobe.paradigms.spec import Episode, Probe, ProbeType
from memprobe.paradigms.taxonomy import Failure, Side, Stored, diagnose
from memprobe.types import AccessMode, MemoryItem, Protocol, Role
from prompts.answers import Answer
from storage.runs import Unit
from tasks.checkpoint import Checkpoints
from tasks.commit import FAILED, commit, is_partial, is_there
from tasks.context import asker_of, fingerprint
from tasks.items import checked
from tasks.paradigms.context import ParadigmsContext, Reading, readings
from tasks.paradigms.ingest import (
    ingest_episode,
    ingest_fingerprint,
    ingest_unit,
    scope_of,
)
from tasks.paradigms.view import entries_of, oracle_items, query_of
from tasks.reading import ANSWER_RESERVE, status
from tasks.watched import Rows, Watched, retrieval_rows

VERSION = 1
BASE = "base"
PROMPTS: dict[ProbeType, str] = {
    ProbeType.CURRENT: "probe_value",
    ProbeType.PREVIOUS: "probe_value",
    ProbeType.CHANGE: "probe_change",
    ProbeType.SOURCE: "probe_source",
    ProbeType.CONFLICT: "probe_conflict",
    ProbeType.TEMPORAL: "probe_temporal",
}


def answer_unit(system: str, episode: str, epoch: int = 1) -> Unit:
    """The unit of one episode's answers with one system."""
    return Unit("answer", system, episode, "" if epoch == 1 else f"e{epoch}")


def answer_fingerprint(context: ParadigmsContext, system: str, episode: str, epoch: int = 1) -> str:
    """What the answers depend on, the ingest included."""
    card = context.systems.card(system)
    return fingerprint(
        "answer",
        VERSION,
        context,
        prompt_names=tuple(sorted(set(PROMPTS.values()))),
        roles=(Role.READER,),
        inputs={
            "ingest": ingest_fingerprint(context, system, episode, epoch),
            "readings": [way.name for way in readings(context.config, card)],
            "window": context.chat.window_for(Role.READER),
        },
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader gets of a store for one probe, or why it gets nothing."""

    items: tuple[MemoryItem, ...] = ()
    failure: Unscored | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """An answer as it is scored, or why there is none."""

    text: str | None = None
    call_id: str | None = None
    tokens: int | None = None
    failure: Unscored | None = None


@dataclass
class Tables:
    """The rows of one episode's probes."""

    answers: Rows = field(default_factory=list)
    verdicts: Rows = field(default_factory=list)
    failures: Rows = field(default_factory=list)

    def as_dict(self) -> dict[str, Rows]:
        """By table."""
        return {
            "answers": self.answers,
            "probe_verdicts": self.verdicts,
            "probe_failures": self.failures,
        }


def items_of(rows: Sequence[Mapping[str, Any]]) -> list[MemoryItem]:
    """Rows of `memory_items` as the items they were."""
    return [
        MemoryItem(
            id=row["item_id"],
            content=row["content"],
            event_time=datetime.fromisoformat(row["event_time"]) if row["event_time"] else None,
            fields=json.loads(row["fields_json"] or "{}"),
        )
        for row in sorted(rows, key=lambda row: row["seq"])
    ]


def stored_items(
    context: ParadigmsContext, system: str, episode: str, epoch: int
) -> list[MemoryItem]:
    """What an episode's store holds, from the ingest's rows."""
    variant = ingest_unit(system, episode, epoch).variant
    return items_of(
        context.store.read("memory_items", system=system, user=episode, variant=variant)
    )


def broken_ingest(
    context: ParadigmsContext, system: str, episode: str, epoch: int
) -> Unscored | None:
    """Why nothing can be said of a store: a session that never went in; None when all did.

    The published protocol counted such sessions and went on.
    """
    if context.config.protocol is Protocol.PAPER:
        return None
    variant = ingest_unit(system, episode, epoch).variant
    rows = context.store.read("ingests", system=system, user=episode, variant=variant)
    lost = sorted(
        (row for row in rows if row["status"] == "unscored"), key=lambda row: row["session_index"]
    )
    if not lost:
        return None
    first = lost[0]
    more = "" if len(lost) == 1 else f", and {len(lost) - 1} more"
    return Unscored(
        Reason(first["reason"]), f"session {first['session_index']}{more}: {first['detail']}"
    )


class Asking:
    """The probes of one episode asked of one store, into a layer."""

    def __init__(
        self,
        context: ParadigmsContext,
        system: str,
        episode: Episode,
        epoch: int,
        layer: str = BASE,
    ) -> None:
        self.context = context
        self.system = system
        self.card = context.systems.card(system)
        self.episode = episode
        self.epoch = epoch
        self.layer = layer
        self.base: dict[str, Any] = {"system": system, "user_id": episode.id, "epoch": epoch}

    def shown(self, items: Sequence[MemoryItem]) -> list[MemoryItem]:
        """The items that may be read: for a reference that is told, those of the fact."""
        if self.card.sees_gold == "sessions":
            return oracle_items(self.episode, items)
        return list(items)

    async def give(self, way: Reading, probe: Probe, seen: Seen) -> Given:
        """An answer to one probe."""
        if seen.failure is not None:
            return Given(failure=seen.failure)
        if self.card.sees_gold == "values":
            return Given(
                json.dumps(
                    reference_answer(self.card.name, self.episode, probe), ensure_ascii=False
                )
            )
        entries = entries_of(
            self.card,
            seen.items,
            self.episode,
            self.context.config.protocol,
            hide_session_type=self.context.config.hide_session_type,
        )
        return await self._asked(way, probe, entries)

    async def _asked(
        self, way: Reading, probe: Probe, entries: Sequence[Mapping[str, str]]
    ) -> Given:
        chat = self.context.chat
        item = f"e{self.epoch}/{self.layer}/{way.name}/{probe.probe_type.value}"
        request = prompts.load(PROMPTS[probe.probe_type]).request(
            Role.READER,
            asker_of(self.context.config, "answer", self.system, self.episode.id, item),
            {
                "probe_type": probe.probe_type.value,
                "question": probe.question,
                "entries": [dict(entry) for entry in entries],
            },
            replicate=(self.epoch - 1) * 100,
            max_tokens=4096,
        )
        tokens = chat.count_tokens(
            Role.READER, "\n".join(message.content for message in request.messages)
        )
        window = chat.window_for(Role.READER)
        if window is not None and tokens > window - ANSWER_RESERVE:
            return Given(
                tokens=tokens,
                failure=Unscored(
                    Reason.STORE_OVERFLOW,
                    f"the prompt has about {tokens} tokens, the window of "
                    f"{chat.model_for(Role.READER)} {window} with {ANSWER_RESERVE} kept free",
                ),
            )
        try:
            reply = await chat.ask(request)
        except BudgetExceeded:
            raise
        except CallFailed as error:
            return Given(None, error.call_id, tokens, Unscored(error.reason, error.detail))
        return Given(reply.parsed(Answer).model_dump_json(), reply.call_id, tokens)

    async def rows(
        self, tables: Tables, way: Reading, probe: Probe, seen: Seen, stored: Sequence[MemoryItem]
    ) -> None:
        """Ask one probe and add its rows."""
        given = await self.give(way, probe, seen)
        key = {
            **self.base,
            "layer": self.layer,
            "access_mode": way.mode.value,
            "k": way.k,
            "probe_type": probe.probe_type.value,
        }
        tables.answers.append(
            {
                **key,
                "n_items": len(seen.items) if seen.failure is None else None,
                "prompt_tokens": given.tokens,
                "answer_json": given.text,
                "call_id": given.call_id,
                **status(given.failure),
            }
        )
        for scorer in Protocol:
            verdict, failure = self.verdict(scorer, probe, given, seen, stored)
            tables.verdicts.append({**key, "scorer": scorer.value, **verdict})
            if failure is not None:
                tables.failures.append({**key, "scorer": scorer.value, **failure})

    def verdict(
        self,
        scorer: Protocol,
        probe: Probe,
        given: Given,
        seen: Seen,
        stored: Sequence[MemoryItem],
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The verdict fields of an answer, and those of its failure when it is not right."""
        if given.text is None:
            assert given.failure is not None
            blank = {"match": None, "parts_json": None, "why": None, "call_id": given.call_id}
            return {**blank, **status(given.failure)}, None
        made = score(key_of(self.episode, probe), given.text, scorer)
        fields = verdict_fields(made, given.call_id)
        if not made.match.scored or made.match is Match.CORRECT or self.card.sees_gold == "values":
            return fields, None
        found = diagnose(
            self.episode,
            probe,
            json.loads(given.text),
            made,
            [Stored(item.id, item.content) for item in stored],
            [Stored(item.id, item.content) for item in seen.items],
        )
        if found is None:
            return fields, None
        failure, evidence = found.failure, found.evidence
        side: str | None = found.side.value
        if found.side is Side.STORAGE and not self.card.capabilities.full_dump:
            # Whether it is stored cannot be told of a store that nobody can read whole.
            side, evidence = None, "not shown; the store cannot be read whole"
            if failure in (Failure.HISTORICAL_ERASURE, Failure.SOURCE_LOSS):
                failure = Failure.RETRIEVAL_MISS
        return fields, {
            "failure": failure.value,
            "side": side,
            "evidence": evidence,
            "item_ids_json": json.dumps(list(found.item_ids), ensure_ascii=False),
        }


def verdict_fields(made: Score, call_id: str | None) -> dict[str, Any]:
    """A score as the columns of `probe_verdicts`; what cannot be scored is no verdict."""
    failure = None
    if made.match is Match.SKIP:
        failure = Unscored(Reason.DATASET_ERROR, made.reason)
    elif made.match is Match.EXECUTION_ERROR:
        failure = Unscored(Reason.INVALID_OUTPUT, made.reason)
    return {
        "match": None if made.match is Match.EXECUTION_ERROR else made.match.value,
        "parts_json": json.dumps(dict(made.parts), sort_keys=True),
        "why": made.reason,
        "call_id": call_id,
        **status(failure),
    }


async def _searched(
    asking: Asking, checkpoints: Checkpoints, most: int
) -> tuple[dict[ProbeType, Seen], Rows, Rows]:
    """One search a probe, in the order of the probes: a system may change by being read."""
    context, episode = asking.context, asking.episode
    watched = Watched(asking.base)
    found: dict[ProbeType, Seen] = {}
    rows: Rows = []
    memory = context.systems.create(asking.system, episode.id, "answer", asking.epoch)
    try:
        await memory.open(scope_of(context, asking.system, episode.id, asking.epoch))
        checkpoint = checkpoints.load()
        if checkpoint is None:
            raise SnapshotError(f"{asking.system}, {episode.id}: the ingested store is gone")
        await watched.timed("restore", checkpoint.episode, memory.restore(checkpoint.store))
        for probe in episode.probes:
            query = query_of(episode, probe, context.config.protocol, asking.card)
            try:
                hits = await watched.timed("search", 0, memory.search(query, most))
                items = checked(asking.system, hits, most)
            except (BudgetExceeded, SnapshotError):
                raise
            except (CallFailed, AdapterError) as error:
                found[probe.probe_type] = Seen(failure=_unreadable(error))
                continue
            place = {
                "category": episode.spec.paradigm.value,
                "dimension": probe.probe_type.value,
            }
            rows += retrieval_rows({**asking.base, **place}, query, items)
            found[probe.probe_type] = Seen(tuple(items))
    finally:
        await memory.close()
    return found, rows, watched.operations


def _unreadable(error: Exception) -> Unscored:
    if isinstance(error, CallFailed):
        return Unscored(error.reason, f"search: {error.detail}")
    return Unscored(Reason.ADAPTER_ERROR, f"search: {error}")


def _cut(seen: Seen, k: int | None) -> Seen:
    return Seen(seen.items[:k], seen.failure)


def views(
    asking: Asking, ways: Sequence[Reading], found: Mapping[ProbeType, Seen], stored: Seen
) -> list[tuple[Reading, Probe, Seen]]:
    """What each reading shows of a store to each probe."""
    out = []
    for way in ways:
        for probe in asking.episode.probes:
            if way.mode is AccessMode.DUMP_ALL:
                seen = Seen(tuple(asking.shown(stored.items)), stored.failure)
            else:
                seen = _cut(found[probe.probe_type], way.k)
            out.append((way, probe, seen))
    return out


async def answer_episode(
    context: ParadigmsContext, system: str, episode_id: str, epoch: int = 1
) -> str:
    """Ask an episode's probes of its ingested store, in every reading of the run.

    Commits `answers`, `probe_verdicts`, `probe_failures`, `retrievals` and the
    search latencies. A search or a call that fails leaves its probe unscored; the
    others are measured all the same. Returns the unit's slug. Raises
    `SnapshotError` when the ingested store is missing or was changed.
    """
    unit = answer_unit(system, episode_id, epoch)
    mark = answer_fingerprint(context, system, episode_id, epoch)
    if context.store.is_complete(unit, mark):
        return unit.slug
    written = ingest_unit(system, episode_id, epoch)
    ingested = ingest_fingerprint(context, system, episode_id, epoch)
    asking = Asking(context, system, context.suite.episode(episode_id), epoch)
    ways = readings(context.config, asking.card)
    found: dict[ProbeType, Seen] = {}
    retrieved: Rows = []
    operations: Rows = []
    most = max((way.k or 0 for way in ways), default=0)
    checkpoints = Checkpoints(context.store.work_dir(written), ingested)
    if most and checkpoints.load() is None:
        # A work folder is no artifact: one that is gone is made again from the ledger.
        context.store.reset(written)
        await ingest_episode(context, system, episode_id, epoch)
    broken = broken_ingest(context, system, episode_id, epoch)
    if broken is not None:
        found = {probe.probe_type: Seen(failure=broken) for probe in asking.episode.probes}
    elif most:
        found, retrieved, operations = await _searched(asking, checkpoints, most)
    stored = stored_items(context, system, episode_id, epoch)
    whole = Seen(tuple(stored), broken)
    tables = Tables()
    await asyncio.gather(
        *(asking.rows(tables, *view, stored) for view in views(asking, ways, found, whole))
    )
    commit(
        context.store,
        unit,
        mark,
        {**tables.as_dict(), "retrievals": retrieved, "operations": operations},
        partial=is_partial(context.store, written, ingested),
    )
    return unit.slug


async def give_up_episode(
    context: ParadigmsContext, system: str, episode_id: str, epoch: int, failure: Unscored
) -> None:
    """Commit every probe of an episode as unscored, when it broke off.

    Without rows the episode would leave the denominator, and the system be judged by
    those that went well. The unit stays undone, so a resume measures it.
    """
    unit = answer_unit(system, episode_id, epoch)
    mark = answer_fingerprint(context, system, episode_id, epoch)
    if is_there(context.store, unit, mark):
        return
    asking = Asking(context, system, context.suite.episode(episode_id), epoch)
    ways = readings(context.config, asking.card)
    gone = Seen(failure=failure)
    found = {probe.probe_type: gone for probe in asking.episode.probes}
    tables = Tables()
    for view in views(asking, ways, found, gone):
        await asking.rows(tables, *view, ())
    context.store.commit(unit, mark + FAILED, tables.as_dict())
