"""The units of a run and how many of them are there. Knows no Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.runtime import Runtime
from storage.runs import Unit
from tasks import attribute, judge_check, oracle, recover, rollout
from tasks.commit import is_partial, is_there
from tasks.context import RunContext, StageContext
from tasks.paradigms.answer import answer_fingerprint, answer_unit
from tasks.paradigms.context import ParadigmsContext
from tasks.paradigms.ingest import ingest_fingerprint, ingest_unit


@dataclass(frozen=True, slots=True)
class Chain:
    """One system's way with one user in one epoch, from the writing to the measurement."""

    system: str
    user: str
    epoch: int


def chains(context: StageContext, systems: Sequence[str], users: Sequence[str]) -> list[Chain]:
    """All chains of a run; a user's systems stand side by side, so that they share answers."""
    return [
        Chain(system, user, epoch)
        for epoch in range(1, context.config.epochs + 1)
        for user in users
        for system in systems
    ]


Marked = tuple[Unit, str]
"""A unit and the fingerprint that it must have."""


def rolled(context: RunContext, chain: Chain) -> Marked:
    """What a chain's rollout leaves."""
    key = (chain.system, chain.user, chain.epoch)
    return rollout.rollout_unit(*key), rollout.rollout_fingerprint(context, *key)


def measured(context: RunContext, chain: Chain) -> tuple[Marked, Marked]:
    """What one measuring task leaves: the recovery, and the attribution that stands on it."""
    key = (chain.system, chain.user, chain.epoch)
    return (
        (recover.recover_unit(*key), recover.recover_fingerprint(context, *key)),
        (attribute.attribute_unit(*key), attribute.attribute_fingerprint(context, *key)),
    )


def probed(context: ParadigmsContext, chain: Chain) -> tuple[Marked, Marked]:
    """What a chain of the paradigms suite leaves: a store that took the sessions, and answers."""
    key = (chain.system, chain.user, chain.epoch)
    return (
        (ingest_unit(*key), ingest_fingerprint(context, *key)),
        (answer_unit(*key), answer_fingerprint(context, *key)),
    )


def wanted(run: Runtime[Any]) -> list[tuple[Marked, ...]]:
    """What each task of a complete run leaves."""
    context = run.context
    if isinstance(context, ParadigmsContext):
        return [probed(context, chain) for chain in chains(context, run.systems, run.users)]
    units: list[tuple[Marked, ...]] = [
        ((judge_check.judge_check_unit(), judge_check.judge_check_fingerprint(context, run.users)),)
    ]
    for user in run.users:
        units.append(((oracle.oracle_unit(user), oracle.oracle_fingerprint(context, user)),))
    for chain in chains(context, run.systems, run.users):
        units += [(rolled(context, chain),), measured(context, chain)]
    return units


def progress_of(run: Runtime[Any]) -> tuple[int, int]:
    """Tasks whose result is there, and all tasks."""
    units = wanted(run)
    store = run.context.store
    return sum(all(is_there(store, *unit) for unit in made) for made in units), len(units)


def partial_units(run: Runtime[Any]) -> int:
    """Tasks with items that failed for a reason that may pass: the next invocation's work."""
    store = run.context.store
    return sum(any(is_partial(store, *unit) for unit in made) for made in wanted(run))
