"""A second judge over a finished run: a layer of verdicts beside the first."""

from __future__ import annotations

from flows.stored import (
    StoredChain,
    Tell,
    chains_of,
    free_layer,
    limited,
    over_chains,
)
from memprobe.config import RunConfig
from memprobe.ids import slug
from memprobe.settings import Resolved
from memprobe.types import Role
from storage.runs import RunStore
from tasks.context import RunContext
from tasks.rejudge import check_layer, rejudge_user

AT_ONCE = 32
"""Chains under way at a time; a label with its target is a short prompt."""


def second_config(stored: RunConfig, resolved: Resolved, judge: str) -> RunConfig:
    """The run's settings with another judge and the limits that were given."""
    return limited(stored, resolved, {Role.JUDGE: judge})


async def rejudge_run(
    store: RunStore, resolved: Resolved, judge: str, layer: str | None, tell: Tell
) -> tuple[str, dict[str, int]]:
    """Judge all recovered users of a run again; returns the layer and the calls it took.

    The caller holds the run's lock. Interrupted, the same command goes on: users
    that are done are skipped, finished calls are in the ledger. Raises
    `UsageError` when the data set is not the run's any more.
    """
    name = check_layer(layer or slug(f"judge_{judge}")[:48].rstrip("_"))
    free_layer(store, "rejudge", name)
    chains = chains_of(store, "recover")
    config = second_config(store.manifest.config, resolved, judge)

    async def work(context: RunContext, chain: StoredChain) -> None:
        await rejudge_user(context, chain.system, chain.user, name, chain.epoch)

    return name, await over_chains(store, resolved, config, chains, work, tell, AT_ONCE)
