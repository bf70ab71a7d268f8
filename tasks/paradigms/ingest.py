"""Ingest: the sessions of one episode, in order and with their times, into a fresh store.

Session types and gold stay behind: a system sees messages and times. Under the
published protocol it also gets the label that the publication's adapters gave.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from memprobe.errors import AdapterError, BudgetExceeded, CallFailed
from memprobe.ids import slug
from memprobe.outcomes import Reason
from memprobe.paradigms.spec import Episode, Session
from memprobe.ports import MemorySystem
from memprobe.systems import SystemCard
from memprobe.types import Role, Scope, SessionEvent, SessionMessage
from storage.runs import Unit
from tasks.checkpoint import Checkpoints
from tasks.commit import commit, to_retry
from tasks.context import fingerprint
from tasks.items import checked
from tasks.paradigms.context import ParadigmsContext
from tasks.paradigms.inputs import session_id
from tasks.watched import Rows, Watched, memory_rows

VERSION = 1
SAVE_EVERY = 4
"""Sessions between two checkpoints; the calls of those after it are replayed from the ledger."""


def saves_at(card: SystemCard, index: int, last: int) -> bool:
    """Whether a checkpoint follows a session: writing anew costs nothing where no model works."""
    return index == last or (card.capabilities.takes_llm and index % SAVE_EVERY == 0)


def ingest_unit(system: str, episode: str, epoch: int = 1) -> Unit:
    """The unit of one episode's sessions with one system."""
    return Unit("ingest", system, episode, "" if epoch == 1 else f"e{epoch}")


def ingest_fingerprint(context: ParadigmsContext, system: str, episode: str, epoch: int = 1) -> str:
    """What an ingest depends on."""
    card = context.systems.card(system)
    return fingerprint(
        "ingest",
        VERSION,
        context,
        roles=(Role.MEMORY,),
        inputs={
            "system": system,
            "code": card.code,
            "package": card.package_version,
            "options": card.options,
            "episode": episode,
            "epoch": epoch,
            "shows_types": context.shows_types,
        },
    )


def session_event(session: Session, index: int, label: str = "") -> SessionEvent:
    """What a system sees of a session."""
    return SessionEvent(
        messages=tuple(SessionMessage(role=t.role, text=t.content) for t in session.dialogue),
        event_time=session.time,
        session_id=session_id(index),
        label=label,
    )


def scope_of(context: ParadigmsContext, system: str, episode: str, epoch: int) -> Scope:
    """The name of an episode's store; an episode's id would tell the system of the design."""
    run = context.config.name
    user = f"u{hashlib.sha256(episode.encode()).hexdigest()[:12]}"
    return Scope(run=run, system=system, user=user, key=slug(f"{run}/{system}/{user}/{epoch}"))


class _Ingest:
    def __init__(
        self, context: ParadigmsContext, system: str, episode: Episode, epoch: int
    ) -> None:
        self.context = context
        self.episode = episode
        self.base: dict[str, Any] = {"system": system, "user_id": episode.id, "epoch": epoch}
        self.watched = Watched(self.base)
        self.memory: MemorySystem = context.systems.create(system, episode.id, "ingest", epoch)
        self.scope = scope_of(context, system, episode.id, epoch)
        self.rows: Rows = []

    async def open(self, checkpoints: Checkpoints) -> None:
        """A fresh store, or the one of the last checkpoint."""
        checkpoint = checkpoints.load()
        if checkpoint is not None and to_retry(checkpoint.state["ingests"]):
            # Sessions go in in their order: one that failed for a passing reason, and all
            # after it, are written again; finished calls are replayed.
            checkpoint = None
        await self.watched.timed("open", 0, self.memory.open(self.scope))
        if checkpoint is None:
            return
        self.rows = list(checkpoint.state["ingests"])
        self.watched.operations = list(checkpoint.state["operations"])
        restoring = self.memory.restore(checkpoint.store)
        await self.watched.timed("restore", checkpoint.episode, restoring)

    async def write(self, index: int) -> None:
        """One session; a failure is recorded as its reason, and the next one is written."""
        session = self.episode.sessions[index - 1]
        label = session.session_type.value if self.context.shows_types else ""
        reason: Reason | None = None
        detail: str | None = None
        event = session_event(session, index, label)
        try:
            await self.watched.timed("write", index, self.memory.write(event))
        except BudgetExceeded:
            raise
        except CallFailed as error:
            reason, detail = error.reason, error.detail
        except AdapterError as error:
            reason, detail = Reason.ADAPTER_ERROR, str(error)
        self.rows.append(
            {
                **self.base,
                "session_index": index,
                "event_time": session.time.isoformat(),
                "status": "scored" if reason is None else "unscored",
                "reason": reason.value if reason else None,
                "detail": detail,
            }
        )

    async def save(self, checkpoints: Checkpoints, index: int) -> None:
        """Keep the store and what was done so far."""
        state = {"ingests": self.rows, "operations": self.watched.operations}
        saving = checkpoints.commit(self.memory, index, state)
        await self.watched.timed("save", index, saving)


async def ingest_episode(
    context: ParadigmsContext, system: str, episode_id: str, epoch: int = 1
) -> str:
    """Write an episode's sessions into a system's fresh store, from the last checkpoint on.

    Commits `ingests`, `memory_items` and `operations`; the last snapshot stays for
    the probes. Returns the unit's slug. Raises `BudgetExceeded` with everything up
    to the last checkpoint saved, and `SnapshotError` when it cannot be trusted.
    """
    unit = ingest_unit(system, episode_id, epoch)
    mark = ingest_fingerprint(context, system, episode_id, epoch)
    if context.store.is_complete(unit, mark):
        return unit.slug
    episode = context.suite.episode(episode_id)
    card = context.systems.card(system)
    checkpoints = Checkpoints(context.store.work_dir(unit), mark)
    run = _Ingest(context, system, episode, epoch)
    try:
        await run.open(checkpoints)
        last = len(episode.sessions)
        for index in range(len(run.rows) + 1, last + 1):
            await run.write(index)
            if saves_at(card, index, last):
                await run.save(checkpoints, index)
        dumped = await run.watched.timed("dump", last, run.memory.dump())
        tables = {
            "ingests": run.rows,
            "memory_items": memory_rows(run.base, checked(system, dumped)),
            "operations": run.watched.operations,
        }
        await asyncio.to_thread(commit, context.store, unit, mark, tables)
    finally:
        await run.memory.close()
    return unit.slug
