"""A finished run's verdicts attributed again, with a model and the real transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.models.prices import price_of
from flows.stored import StoredChain, Tell, free_layer, limited, over_chains, stored_run
from memprobe.config import RunConfig
from memprobe.settings import Resolved
from memprobe.types import Protocol, Role
from storage.runs import RunStore
from tasks.context import RunContext
from tasks.reattribute import (
    ROLES,
    STAGE,
    Estimate,
    Reattribution,
    estimate_user,
    reattribute_user,
)


def attributing_config(
    stored: RunConfig, resolved: Resolved, model: str | None, roles: dict[Role, str]
) -> RunConfig:
    """The run's settings with the models of the attribution's roles, under `strict`."""
    chosen = {role: model for role in ROLES if model is not None} | roles
    config = limited(stored, resolved, chosen)
    return config.model_copy(update={"protocol": Protocol.STRICT})


@dataclass(frozen=True, slots=True)
class PlannedCalls:
    """An estimate with its price; `cost_usd` None = unknown price."""

    role: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


def _priced(estimate: Estimate) -> PlannedCalls:
    price = price_of(estimate.model)
    tokens = estimate.prompt_tokens, estimate.completion_tokens
    cost = None if price is None else price.estimate(*tokens)
    return PlannedCalls(estimate.role, estimate.model, estimate.calls, *tokens, cost)


async def planned(
    store: RunStore,
    resolved: Resolved,
    config: RunConfig,
    what: Reattribution,
    chains: Sequence[StoredChain],
) -> list[PlannedCalls]:
    """The calls that are left, at most, a line for each role. Makes none."""
    free_layer(store, STAGE, what.layer)
    sums: dict[str, Estimate] = {}
    async with stored_run(store, resolved, config) as run:
        for chain in chains:
            key = (chain.system, chain.user)
            for one in estimate_user(run.context, *key, what, chain.epoch):
                sums[one.role] = sums[one.role] + one if one.role in sums else one
    return [_priced(estimate) for estimate in sums.values()]


async def reattribute_run(
    store: RunStore,
    resolved: Resolved,
    config: RunConfig,
    what: Reattribution,
    chains: Sequence[StoredChain],
    tell: Tell,
) -> dict[str, int]:
    """Attribute the chains' verdicts into the layer; returns what it took.

    The caller holds the run's lock. Interrupted, the same command goes on.
    """
    what = replace(what, made=free_layer(store, STAGE, what.layer))

    async def work(context: RunContext, chain: StoredChain) -> None:
        await reattribute_user(context, chain.system, chain.user, what, chain.epoch)

    return await over_chains(store, resolved, config, chains, work, tell)
