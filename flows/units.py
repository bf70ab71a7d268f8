"""The units of a run and how many of them are there. Knows no Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows.runtime import Runtime
from storage.runs import Unit
from tasks import attribute, judge_check, oracle, recover, rollout
from tasks.commit import is_partial, is_there
from tasks.context import RunContext


@dataclass(frozen=True, slots=True)
class Chain:
    """One system's way with one user in one epoch: rollout, then measurement."""

    system: str
    user: str
    epoch: int


def chains(context: RunContext, systems: Sequence[str], users: Sequence[str]) -> list[Chain]:
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


def finished(context: RunContext, chain: Chain) -> bool:
    """Whether nothing of a chain is left to do, not even items that may be tried again."""
    units = (rolled(context, chain), *measured(context, chain))
    return all(context.store.is_complete(*unit) for unit in units)


def measured(context: RunContext, chain: Chain) -> tuple[Marked, Marked]:
    """What one measuring task leaves: the recovery, and the attribution that stands on it."""
    key = (chain.system, chain.user, chain.epoch)
    return (
        (recover.recover_unit(*key), recover.recover_fingerprint(context, *key)),
        (attribute.attribute_unit(*key), attribute.attribute_fingerprint(context, *key)),
    )


def wanted(run: Runtime) -> list[tuple[Marked, ...]]:
    """What each task of a complete run leaves."""
    context = run.context
    units: list[tuple[Marked, ...]] = [
        ((judge_check.judge_check_unit(), judge_check.judge_check_fingerprint(context, run.users)),)
    ]
    for user in run.users:
        units.append(((oracle.oracle_unit(user), oracle.oracle_fingerprint(context, user)),))
    for chain in chains(context, run.systems, run.users):
        units += [(rolled(context, chain),), measured(context, chain)]
    return units


def progress_of(run: Runtime) -> tuple[int, int]:
    """Tasks whose result is there, and all tasks."""
    units = wanted(run)
    store = run.context.store
    return sum(all(is_there(store, *unit) for unit in made) for made in units), len(units)


def partial_units(run: Runtime) -> int:
    """Tasks with items that failed for a reason that may pass: the next invocation's work."""
    store = run.context.store
    return sum(any(is_partial(store, *unit) for unit in made) for made in wanted(run))
