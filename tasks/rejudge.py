"""Judge a run's stored labels again, with another judge, into a layer of its own.

The labels and what could not be measured stay as they are; only the judge's
part is new. The first verdicts (layers `base` and `chunked`) are never written
over; those of stores that were read in parts go to a layer `NAME_chunked`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import Any

from memprobe.dataset import BankEntry, User
from memprobe.errors import UsageError
from memprobe.types import Protocol, Role
from storage.runs import Unit
from tasks import chunked
from tasks.commit import commit
from tasks.context import RunContext, fingerprint
from tasks.reading import is_unknown, judged, published_fault
from tasks.recover import recover_unit
from tasks.score import BASE

VERSION = 2
Rows = list[dict[str, Any]]


def check_layer(layer: str) -> str:
    """The name itself; raises `UsageError` for one that would hide other verdicts."""
    own = layer == BASE or layer == chunked.LAYER or layer.endswith(f"_{chunked.LAYER}")
    if own or re.fullmatch(r"(.*_)?e\d+", layer):
        raise UsageError(f"a layer cannot be called {layer!r}; choose another --layer name")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_]{0,47}", layer):
        raise UsageError(f"layer {layer!r}: use up to 48 of a-z, 0-9 and _")
    return layer


def beside(layer: str) -> str:
    """The layer for what was read in parts: `chunked` itself beside `base`."""
    return chunked.LAYER if layer == BASE else f"{layer}_{chunked.LAYER}"


def rejudge_unit(system: str, user: str, layer: str, epoch: int = 1) -> Unit:
    """The unit of one user's verdicts in a layer."""
    variant = layer if epoch == 1 else f"{layer}_e{epoch}"
    return Unit("rejudge", system, user, variant)


def _fingerprint(context: RunContext, layer: str, verdicts: Rows) -> str:
    kept = ("layer", "access_mode", "k", "category", "dimension", "label", "status", "reason")
    facts = [[row[name] for name in kept] for row in verdicts]
    return fingerprint(
        "rejudge",
        VERSION,
        context,
        prompt_names=("judge",),
        roles=(Role.JUDGE,),
        inputs={
            "layer": layer,
            "verdicts": hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        },
    )


async def rejudge_user(
    context: RunContext, system: str, user_id: str, layer: str, epoch: int = 1
) -> str:
    """Judge one user's labels again; commits `verdicts` of the layer, returns the unit's slug.

    `context` holds the run's settings with the new judge. What was never measured
    (its slot-fill failed, its store did not fit) keeps its outcome and its reason.
    """
    unit = rejudge_unit(system, user_id, layer, epoch)
    source = recover_unit(system, user_id, epoch).variant
    stored = context.store.read("verdicts", system=system, user=user_id, variant=source)
    verdicts = [row for row in stored if row["layer"] in (BASE, chunked.LAYER)]
    mark = _fingerprint(context, layer, verdicts)
    if context.store.is_complete(unit, mark):
        return unit.slug
    user = context.dataset.user(user_id)
    rows = await asyncio.gather(*(_again(context, user, layer, row) for row in verdicts))
    commit(context.store, unit, mark, {"verdicts": list(rows)})
    return unit.slug


async def _again(
    context: RunContext, user: User, layer: str, row: dict[str, Any]
) -> dict[str, Any]:
    in_parts = row["layer"] == chunked.LAYER
    layer = beside(layer) if in_parts else layer
    moved = {**row, "layer": layer, "judge_model": context.chat.model_for(Role.JUDGE)}
    if row["label"] is None or (row["reason"] is not None and is_unknown(row["label"])):
        # Never measured, even where the published procedure scored it: the reason stays with it.
        return moved
    view = row["access_mode"] if row["k"] is None else f"{row['access_mode']}@{row['k']}"
    item = f"e{row['epoch']}/{layer}/{view}"
    asker = context.asker("rejudge", row["system"], user.user_id, item)
    verdict = {**moved, **await judged(context, asker, _entry(user, row), row["label"])}
    paper = context.config.protocol is Protocol.PAPER
    return published_fault(verdict) if paper and not in_parts else verdict


def _entry(user: User, row: dict[str, Any]) -> BankEntry:
    return next(
        entry
        for category, entry in user.targets()
        if category.value == row["category"] and entry.dimension == row["dimension"]
    )
