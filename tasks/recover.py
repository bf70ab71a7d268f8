"""Recovery: what a reader can rebuild of each target from the memory, whole and by top-k.

Slot-fill reads the memory and names a value; the judge compares it with the
truth. With `dump_reader` chunked a whole store is also read in parts that fit the
window (`tasks.chunked`), into a layer of its own beside the whole reading.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import prompts
from memprobe.dataset import BankEntry, User
from memprobe.errors import BudgetExceeded, CallFailed, SnapshotError
from memprobe.ids import slug
from memprobe.outcomes import Reason, Unscored
from memprobe.types import AccessMode, Category, MemoryItem, Protocol, Role, Scope
from storage.runs import Unit
from tasks import chunked
from tasks.checkpoint import Checkpoints
from tasks.chunks import Part
from tasks.commit import FAILED, commit, is_partial, is_there
from tasks.context import RunContext, fingerprint
from tasks.items import checked
from tasks.reading import Filled, Reader, Row, Rows, Size, judged, published_fault, status
from tasks.rollout import rollout_fingerprint, rollout_unit, rollout_user
from tasks.watched import retrieval_rows

VERSION = 2
Hits = list[MemoryItem] | Unscored


def recover_unit(system: str, user: str, epoch: int = 1) -> Unit:
    """The unit of one user's recovery with one system."""
    return Unit("recover", system, user, "" if epoch == 1 else f"e{epoch}")


def recover_fingerprint(context: RunContext, system: str, user: str, epoch: int = 1) -> str:
    """What a recovery depends on, the rollout included."""
    merging = ("slot_fill_merge",) if chunked.wanted(context.config) else ()
    return fingerprint(
        "recover",
        VERSION,
        context,
        prompt_names=("slot_fill", "judge", "retrieval_query", *merging),
        roles=(Role.SLOT_FILL, Role.JUDGE),
        inputs={
            "rollout": rollout_fingerprint(context, system, user, epoch),
            "k": list(context.config.k),
            "access": [mode.value for mode in context.config.access],
            "window": context.chat.window_for(Role.SLOT_FILL),
            "layers": list(chunked.layers(context.config)),
        },
    )


@dataclass(frozen=True, slots=True)
class View:
    """What a reader may see of a store for one target: a mode, a k, and the texts.

    `failure` is why the store could not be read for this target.
    """

    mode: AccessMode
    k: int | None
    memories: tuple[str, ...]
    failure: Unscored | None = None

    @property
    def name(self) -> str:
        return self.mode.value if self.k is None else f"{self.mode.value}@{self.k}"


def query_for(category_boundary: str, dimension: str) -> str:
    """The retrieval query of a dimension; it holds nothing of the target."""
    message = prompts.load("retrieval_query").render(
        dimension_words=dimension.replace("_", " "), boundary=category_boundary
    )
    return message[0].content


class Recovery:
    """One user's recovery with one system, into a layer: views in, rows of the tables out."""

    def __init__(
        self,
        context: RunContext,
        system: str,
        user: User,
        epoch: int,
        layer: str = chunked.BASE,
    ) -> None:
        self.layer = layer
        self.context = context
        self.name = system
        self.user = user
        self.epoch = epoch
        self.paper = context.config.protocol is Protocol.PAPER
        self.reader = Reader(context, system, user, epoch)
        self.targets = self.reader.targets
        self.broken = self._broken_episodes()

    def base(self) -> Row:
        return {"system": self.name, "user_id": self.user.user_id, "epoch": self.epoch}

    def _broken_episodes(self) -> dict[str, Unscored]:
        """Targets whose own episode could not be played: nothing can be said of them."""
        unit = rollout_unit(self.name, self.user.user_id, self.epoch)
        rows = self.context.store.read(
            "episodes", system=self.name, user=self.user.user_id, variant=unit.variant
        )
        return {
            row["dimension"]: Unscored(Reason(row["reason"]), f"rollout: {row['detail']}")
            for row in rows
            if row["status"] == "unscored"
        }

    async def fill(self, view: View, category: Category, dimension: str, size: Size) -> Filled:
        failure = self.reader.overflow(size)
        if failure is not None:
            return Filled(failure=failure)
        item = f"{self.layer}/{view.name}/{dimension}"
        return await self.reader.fill(item, view.memories, category, dimension)

    async def rows(
        self,
        layer: str,
        view: View,
        target: tuple[Category, BankEntry],
        filled: Filled,
        tokens: int,
    ) -> tuple[Row, Row]:
        """The slot-fill row and the verdict row of what was read for one target."""
        category, entry = target
        key = {
            **self.base(),
            "layer": layer,
            "access_mode": view.mode.value,
            "k": view.k,
            "category": category.value,
            "dimension": entry.dimension,
        }
        slot = {
            **key,
            "label": filled.label,
            "label_reason": filled.reason,
            "n_items": len(view.memories),
            "prompt_tokens": tokens,
            "call_id": filled.call_id,
            **status(filled.failure),
        }
        asker = self.reader.asker(f"{layer}/{view.name}")
        verdict = {**key, **await judged(self.context, asker, entry, filled.label)}
        if filled.failure is not None:
            verdict |= status(filled.failure)
        return slot, verdict

    async def target(
        self, view: View, target: tuple[Category, BankEntry], size: Size
    ) -> tuple[Row, Row]:
        """The rows of one target under one view, before any published fault."""
        category, entry = target
        failure = view.failure
        if failure is None and not self.paper:
            failure = self.broken.get(entry.dimension)
        if failure is not None:
            filled = Filled(failure=failure)
        else:
            filled = await self.fill(view, category, entry.dimension, size)
        return await self.rows(self.layer, view, target, filled, size.memory)

    async def view(self, views: dict[str, View], mode: AccessMode) -> tuple[Rows, Rows]:
        """All targets under one mode and k. `views` gives each dimension's view."""
        sizes: dict[tuple[str, ...], Size] = {}
        for view in views.values():
            if view.memories not in sizes:
                sizes[view.memories] = self.reader.size(view.memories)

        def job(target: tuple[Category, BankEntry]) -> Awaitable[tuple[Row, Row]]:
            seen = views[target[1].dimension]
            return self.target(seen, target, sizes[seen.memories])

        largest = max((size.memory for size in sizes.values()), default=0)
        shared = mode is AccessMode.DUMP_ALL and self.reader.warms(largest)
        # The first call fills the provider's prefix cache for the other thirty.
        first = self.targets[:1] if shared else []
        done = [await job(target) for target in first]
        done += await asyncio.gather(*(job(target) for target in self.targets[len(first) :]))
        return [slot for slot, _ in done], [verdict for _, verdict in done]

    async def whole(self, view: View) -> tuple[Rows, Rows, Rows]:
        """The whole store read in one prompt and, where asked for, in parts beside it."""
        slots, verdicts = await self.view({e.dimension: view for _, e in self.targets}, view.mode)
        if not chunked.wanted(self.context.config):
            return slots, verdicts, []
        reading = chunked.ChunkedReader(self.reader, view.memories)
        size = self.reader.size(view.memories)
        failed = view.failure is not None
        parts = [] if failed else await asyncio.to_thread(reading.plan, size)
        if isinstance(parts, list) and len(parts) > 1:
            more = await self._in_parts(reading, view, parts, size)
        else:
            more = self._as_whole(reading, slots, verdicts, parts)
        return slots + more[0], verdicts + more[1], reading.rows

    async def _in_parts(
        self, reading: chunked.ChunkedReader, view: View, parts: list[Part], size: Size
    ) -> tuple[Rows, Rows]:
        sound = [target for target in self.targets if target[1].dimension not in self.broken]
        filled = await reading.read(parts, sound)
        filled |= {name: Filled(failure=why) for name, why in self.broken.items()}
        done = await asyncio.gather(
            *(
                self.rows(chunked.LAYER, view, target, filled[target[1].dimension], size.memory)
                for target in self.targets
            )
        )
        return [slot for slot, _ in done], [verdict for _, verdict in done]

    def _as_whole(
        self,
        reading: chunked.ChunkedReader,
        slots: Sequence[Row],
        verdicts: Sequence[Row],
        parts: list[Part] | Unscored,
    ) -> tuple[Rows, Rows]:
        """The rows of the whole reading again: a store of one part, or one not read at all."""
        more: tuple[Rows, Rows] = ([], [])
        for (category, entry), *pair in zip(self.targets, slots, verdicts, strict=True):
            failure = self.broken.get(entry.dimension)
            if isinstance(parts, Unscored):
                failure = failure or parts
            for rows, row in zip(more, pair, strict=True):
                rows.append({**row, "layer": chunked.LAYER})
                if failure is not None:
                    rows[-1] |= {"label": None, "call_id": None, **status(failure)}
                    blank = ("label_reason", "score", "judge_reason")
                    rows[-1] |= {name: None for name in blank if name in row}
            if isinstance(parts, list) and parts and failure is None:
                slot = pair[0]
                why = Unscored(Reason(slot["reason"]), slot["detail"]) if slot["reason"] else None
                filled = Filled(slot["label"], slot["label_reason"], slot["call_id"], why)
                reading.note(category, entry.dimension, 0, 1, 1, filled, parts[0])
        return more

    async def tables(
        self, whole: View | None, searches: Sequence[dict[str, View]]
    ) -> dict[str, Rows]:
        """What is read of the whole store and of each search, by the table it goes to."""
        jobs: list[Awaitable[tuple[Rows, ...]]] = [] if whole is None else [self.whole(whole)]
        jobs += [self.view(views, AccessMode.RETRIEVE) for views in searches]
        measured = await asyncio.gather(*jobs)
        verdicts = [row for rows in measured for row in rows[1]]
        if self.paper:
            # The chunked reading was never published, and has none of its faults.
            verdicts = [published_fault(v) if v["layer"] == chunked.BASE else v for v in verdicts]
        tables = {
            "slot_fills": [row for rows in measured for row in rows[0]],
            "verdicts": verdicts,
        }
        if chunked.wanted(self.context.config):
            tables["slot_fill_parts"] = [row for rows in measured for row in (*rows, [])[2]]
        return tables


async def _retrieved(
    recovery: Recovery, checkpoints: Checkpoints, episode_count: int
) -> tuple[dict[str, Hits], Rows, Rows]:
    """Search a restored store once for each target at the largest k."""
    context, user = recovery.context, recovery.user
    memory = context.systems.create(recovery.name, user.user_id, "recover", recovery.epoch)
    key = slug(f"{context.config.name}/{recovery.name}/{user.user_id}/{recovery.epoch}/recover")
    scope = Scope(run=context.config.name, system=recovery.name, user=user.user_id, key=key)
    checkpoint = checkpoints.load()
    if checkpoint is None or checkpoint.episode != episode_count:
        raise SnapshotError(f"{recovery.name}/{user.user_id}: the rolled-out store is not there")
    rows: Rows = []
    operations: Rows = []
    hits: dict[str, Hits] = {}
    most = max(context.config.k)
    try:
        await memory.open(scope)
        await memory.restore(checkpoint.store)
        for category, entry in context.targets(user):
            query = query_for(context.dataset.pool.category(category).boundary, entry.dimension)
            started = time.perf_counter()
            try:
                items = checked(recovery.name, await memory.search(query, most), most)
            except (BudgetExceeded, SnapshotError):
                raise
            except Exception as error:
                hits[entry.dimension] = _unreadable(error)
                continue
            operations.append(
                {
                    **recovery.base(),
                    "phase": "search",
                    "episode": 0,
                    "latency_s": time.perf_counter() - started,
                }
            )
            hits[entry.dimension] = items
            place = {"category": category.value, "dimension": entry.dimension}
            rows += retrieval_rows({**recovery.base(), **place}, query, items)
    finally:
        await memory.close()
    return hits, rows, operations


async def recover_user(context: RunContext, system: str, user_id: str, epoch: int = 1) -> str:
    """Recover one user's targets from one system's store, in all modes in one pass.

    Commits `slot_fills`, `verdicts`, `retrievals` and the search latencies.
    A search that fails leaves its target unscored with `adapter_error` in that
    mode; the other targets and the other mode are measured all the same. Returns
    the unit's slug. Raises `SnapshotError` when the rolled-out store is missing or
    was changed.
    """
    unit = recover_unit(system, user_id, epoch)
    mark = recover_fingerprint(context, system, user_id, epoch)
    if context.store.is_complete(unit, mark):
        return unit.slug
    user = context.user(user_id)
    roll = rollout_unit(system, user_id, epoch)
    rolled = rollout_fingerprint(context, system, user_id, epoch)
    checkpoints = Checkpoints(context.store.work_dir(roll), rolled)
    searched = (
        AccessMode.RETRIEVE in context.config.access and context.systems.card(system).retrieve
    )
    if searched and checkpoints.load() is None:
        # A work folder is no artifact: one that is gone is made again from the ledger.
        context.store.reset(roll)
        await rollout_user(context, system, user_id, epoch)
    recovery = Recovery(context, system, user, epoch)
    variant = unit.variant
    retrieved: Rows = []
    operations: Rows = []
    whole: View | None = None
    if AccessMode.DUMP_ALL in context.config.access:
        stored = context.store.read("memory_items", system=system, user=user_id, variant=variant)
        stored.sort(key=lambda row: row["seq"])
        whole = View(AccessMode.DUMP_ALL, None, tuple(row["content"] for row in stored))
    searches: list[dict[str, View]] = []
    if searched:
        try:
            hits, retrieved, operations = await _retrieved(recovery, checkpoints, len(user.tasks))
        except (BudgetExceeded, SnapshotError):
            # A store that is not the rolled-out one is no answer of the system's.
            raise
        except Exception as error:
            hits = {entry.dimension: _unreadable(error) for _, entry in context.targets(user)}
        searches = [_views(hits, k) for k in context.config.k]
    tables = await recovery.tables(whole, searches)
    commit(
        context.store,
        unit,
        mark,
        {**tables, "retrievals": retrieved, "operations": operations},
        partial=is_partial(context.store, roll, rolled),
    )
    return unit.slug


async def give_up_user(
    context: RunContext, system: str, user_id: str, epoch: int, failure: Unscored
) -> None:
    """Commit every target of a user as unscored, when its rollout or recovery broke off.

    Without rows the user would leave the denominator, and the system be judged by
    those that went well. The unit stays undone, so a resume measures it. Rows
    that are there already stay.
    """
    unit = recover_unit(system, user_id, epoch)
    mark = recover_fingerprint(context, system, user_id, epoch)
    if is_there(context.store, unit, mark):
        return
    user = context.user(user_id)
    recovery = Recovery(context, system, user, epoch)
    whole: View | None = None
    ks: tuple[int, ...] = ()
    if AccessMode.DUMP_ALL in context.config.access:
        whole = View(AccessMode.DUMP_ALL, None, (), failure)
    if AccessMode.RETRIEVE in context.config.access and context.systems.card(system).retrieve:
        ks = context.config.k
    searches = [
        {e.dimension: View(AccessMode.RETRIEVE, k, (), failure) for _, e in recovery.targets}
        for k in ks
    ]
    tables = await recovery.tables(whole, searches)
    context.store.commit(unit, mark + FAILED, tables)


def _unreadable(error: Exception) -> Unscored:
    """Why a store could not be searched; a model call of the system's keeps its own reason."""
    if isinstance(error, CallFailed):
        return Unscored(error.reason, f"search: {error.detail}")
    return Unscored(Reason.ADAPTER_ERROR, f"search: {type(error).__name__}: {error}")


def _views(hits: dict[str, Hits], k: int) -> dict[str, View]:
    return {
        dimension: View(AccessMode.RETRIEVE, k, (), found)
        if isinstance(found, Unscored)
        else View(AccessMode.RETRIEVE, k, tuple(item.content for item in found[:k]))
        for dimension, found in hits.items()
    }
