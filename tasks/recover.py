"""Recovery: what a reader can rebuild of each target from the memory, whole and by top-k.

Slot-fill reads the memory and names a value; the judge compares it with the
truth. The memory comes first in the prompt, so that a user's 31 prompts share
their prefix and all but the first can be read from the provider's cache.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import prompts
from memprobe.dataset import BankEntry, User
from memprobe.errors import BudgetExceeded, CallFailed, SnapshotError
from memprobe.ids import slug
from memprobe.outcomes import Reason, Unscored
from memprobe.types import AccessMode, Category, MemoryItem, Protocol, Role, Scope
from prompts.answers import JudgeAnswer, SlotFillAnswer
from storage.runs import Unit
from tasks.checkpoint import Checkpoints
from tasks.commit import FAILED, commit, is_partial, is_there
from tasks.context import RunContext, fingerprint
from tasks.items import checked
from tasks.rollout import rollout_fingerprint, rollout_unit, rollout_user

VERSION = 1
ANSWER_RESERVE = 1024
"""Tokens of the window kept free for the answer when a store is held against it."""
CACHE_FLOOR = 1024
"""Prompts below this many tokens are not cached by providers; no warming call is worth it."""
UNKNOWN = "unknown"
Row = dict[str, Any]
Rows = list[Row]
Hits = list[MemoryItem] | Unscored


def recover_unit(system: str, user: str, epoch: int = 1) -> Unit:
    """The unit of one user's recovery with one system."""
    return Unit("recover", system, user, "" if epoch == 1 else f"e{epoch}")


def recover_fingerprint(context: RunContext, system: str, user: str, epoch: int = 1) -> str:
    """What a recovery depends on, the rollout included."""
    return fingerprint(
        "recover",
        VERSION,
        context,
        prompt_names=("slot_fill", "judge", "retrieval_query"),
        roles=(Role.SLOT_FILL, Role.JUDGE),
        inputs={
            "rollout": rollout_fingerprint(context, system, user, epoch),
            "k": list(context.config.k),
            "access": [mode.value for mode in context.config.access],
            "window": context.chat.window_for(Role.SLOT_FILL),
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


@dataclass(frozen=True, slots=True)
class _Filled:
    label: str | None
    reason: str | None
    call_id: str | None
    tokens: int
    failure: Unscored | None


def is_unknown(label: str) -> bool:
    """Whether a label says that the memory holds nothing."""
    return label.strip().strip(".\"'").casefold() == UNKNOWN


def query_for(category_boundary: str, dimension: str) -> str:
    """The retrieval query of a dimension; it holds nothing of the target."""
    message = prompts.load("retrieval_query").render(
        dimension_words=dimension.replace("_", " "), boundary=category_boundary
    )
    return message[0].content


class _Recovery:
    def __init__(self, context: RunContext, system: str, user: User, epoch: int) -> None:
        self.context = context
        self.name = system
        self.user = user
        self.epoch = epoch
        self.paper = context.config.protocol is Protocol.PAPER
        self.window = context.chat.window_for(Role.SLOT_FILL)
        self.broken = self._broken_episodes()

    def base(self) -> dict[str, Any]:
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

    async def fill(self, view: View, category: Category, dimension: str, tokens: int) -> _Filled:
        if self.window is not None and tokens + ANSWER_RESERVE > self.window:
            detail = (
                f"the memory has about {tokens} tokens, the window of "
                f"{self.context.chat.model_for(Role.SLOT_FILL)} {self.window}"
            )
            return _Filled(None, None, None, tokens, Unscored(Reason.STORE_OVERFLOW, detail))
        boundary = self.context.dataset.pool.category(category).boundary
        request = prompts.load("slot_fill").request(
            Role.SLOT_FILL,
            self.asker(f"{view.name}/{dimension}"),
            {
                "memories": list(view.memories),
                "category": category.value,
                "boundary": boundary,
                "dimension": dimension,
            },
            replicate=self.context.replicate(self.epoch),
        )
        try:
            reply = await self.context.chat.ask(request)
        except BudgetExceeded:
            raise
        except CallFailed as error:
            return _Filled(None, None, error.call_id, tokens, Unscored(error.reason, error.detail))
        answer = reply.parsed(SlotFillAnswer)
        return _Filled(answer.label, answer.reason, reply.call_id, tokens, None)

    def asker(self, item: str) -> Any:
        return self.context.asker(
            "recover", self.name, self.user.user_id, f"e{self.epoch}/base/{item}"
        )

    async def target(
        self, view: View, category: Category, entry: BankEntry, tokens: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The slot-fill row and the verdict row of one target under one view."""
        failure = view.failure
        if failure is None and not self.paper:
            failure = self.broken.get(entry.dimension)
        if failure is not None:
            filled = _Filled(None, None, None, tokens, failure)
        else:
            filled = await self.fill(view, category, entry.dimension, tokens)
        key = {
            **self.base(),
            "layer": "base",
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
            **_status(filled.failure),
        }
        verdict = {**key, **await judged(self.context, self.asker(view.name), entry, filled.label)}
        if filled.failure is not None:
            verdict |= _status(filled.failure)
        if self.paper:
            verdict = published_fault(verdict)
        return slot, verdict

    async def view(
        self, views: dict[str, View], mode: AccessMode, k: int | None
    ) -> tuple[Rows, Rows]:
        """All targets under one mode and k. `views` gives each dimension's view."""
        targets = self.context.targets(self.user)
        counted: dict[tuple[str, ...], int] = {}
        for view in views.values():
            if view.memories not in counted:
                text = json.dumps(view.memories, ensure_ascii=False, indent=1)
                counted[view.memories] = self.context.chat.count_tokens(Role.SLOT_FILL, text)

        def job(category: Category, entry: BankEntry) -> Awaitable[tuple[Row, Row]]:
            seen = views[entry.dimension]
            return self.target(seen, category, entry, counted[seen.memories])

        shared = mode is AccessMode.DUMP_ALL and max(counted.values(), default=0) >= CACHE_FLOOR
        remote = not self.context.chat.model_for(Role.SLOT_FILL).startswith("embedded/")
        # The first call fills the provider's prefix cache for the other thirty.
        first = targets[:1] if shared and remote else []
        done = [await job(*target) for target in first]
        done += await asyncio.gather(*(job(*target) for target in targets[len(first) :]))
        return [slot for slot, _ in done], [verdict for _, verdict in done]


def _status(failure: Unscored | None) -> dict[str, Any]:
    if failure is None:
        return {"status": "scored", "reason": None, "detail": None}
    return {"status": "unscored", "reason": failure.reason.value, "detail": failure.detail}


async def judged(
    context: RunContext, asker: Any, entry: BankEntry, label: str | None
) -> dict[str, Any]:
    """The verdict fields of one label. "unknown" scores 0 by the rubric, without a call."""
    model = context.chat.model_for(Role.JUDGE)
    blank = {"label": label, "score": None, "judge_reason": None, "judge_model": model}
    if label is None:
        return {**blank, "call_id": None}
    if is_unknown(label):
        known = {**blank, "score": 0.0, "judge_reason": "the label is unknown", "call_id": None}
        return {**known, **_status(None)}
    asker = asker.model_copy(update={"item": f"{asker.item}/{entry.dimension}"})
    request = prompts.load("judge").request(
        Role.JUDGE,
        asker,
        {
            "dimension": entry.dimension,
            "short": entry.short,
            "explanation": entry.explanation,
            "label": label,
        },
    )
    try:
        reply = await context.chat.ask(request)
    except BudgetExceeded:
        raise
    except CallFailed as error:
        failure = _status(Unscored(error.reason, error.detail))
        return {**blank, "call_id": error.call_id, **failure}
    answer = reply.parsed(JudgeAnswer)
    return {
        **blank,
        "score": answer.score,
        "judge_reason": answer.reason,
        "call_id": reply.call_id,
        **_status(None),
    }


def published_fault(verdict: dict[str, Any]) -> dict[str, Any]:
    """The published procedure scores what it could not measure as 0; the reason stays."""
    if verdict["status"] == "scored":
        return verdict
    return {
        **verdict,
        "status": "scored",
        "score": 0.0,
        "judge_reason": "scored 0 as published, although it was not measured",
    }


async def _retrieved(
    recovery: _Recovery, checkpoints: Checkpoints, episode_count: int
) -> tuple[dict[str, Hits], Rows, Rows]:
    """Search a restored store once for each target at the largest k."""
    context, user = recovery.context, recovery.user
    memory = context.systems.create(recovery.name, user.user_id)
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
            rows += [
                {
                    **recovery.base(),
                    "category": category.value,
                    "dimension": entry.dimension,
                    "query": query,
                    "rank": rank,
                    "item_id": item.id,
                    "content": item.content,
                    "score": item.score,
                }
                for rank, item in enumerate(items, 1)
            ]
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
    recovery = _Recovery(context, system, user, epoch)
    variant = unit.variant
    slots: Rows = []
    verdicts: Rows = []
    retrieved: Rows = []
    operations: Rows = []
    parts: list[tuple[dict[str, View], AccessMode, int | None]] = []
    if AccessMode.DUMP_ALL in context.config.access:
        stored = context.store.read("memory_items", system=system, user=user_id, variant=variant)
        stored.sort(key=lambda row: row["seq"])
        whole = View(AccessMode.DUMP_ALL, None, tuple(row["content"] for row in stored))
        views = {e.dimension: whole for _, e in context.targets(user)}
        parts.append((views, AccessMode.DUMP_ALL, None))
    if searched:
        try:
            hits, retrieved, operations = await _retrieved(recovery, checkpoints, len(user.tasks))
        except (BudgetExceeded, SnapshotError):
            # A store that is not the rolled-out one is no answer of the system's.
            raise
        except Exception as error:
            hits = {entry.dimension: _unreadable(error) for _, entry in context.targets(user)}
        parts += [(_views(hits, k), AccessMode.RETRIEVE, k) for k in context.config.k]
    measured = await asyncio.gather(*(recovery.view(*part) for part in parts))
    for slot_rows, verdict_rows in measured:
        slots += slot_rows
        verdicts += verdict_rows
    commit(
        context.store,
        unit,
        mark,
        {
            "slot_fills": slots,
            "verdicts": verdicts,
            "retrievals": retrieved,
            "operations": operations,
        },
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
    recovery = _Recovery(context, system, user, epoch)
    ways: list[tuple[AccessMode, int | None]] = []
    if AccessMode.DUMP_ALL in context.config.access:
        ways.append((AccessMode.DUMP_ALL, None))
    if AccessMode.RETRIEVE in context.config.access and context.systems.card(system).retrieve:
        ways += [(AccessMode.RETRIEVE, k) for k in context.config.k]
    slots: Rows = []
    verdicts: Rows = []
    for mode, k in ways:
        view = View(mode, k, (), failure)
        views = {entry.dimension: view for _, entry in context.targets(user)}
        slot_rows, verdict_rows = await recovery.view(views, mode, k)
        slots += slot_rows
        verdicts += verdict_rows
    context.store.commit(unit, mark + FAILED, {"slot_fills": slots, "verdicts": verdicts})


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
