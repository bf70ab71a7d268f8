"""The direction of a run's labels, read against the axes of their dimensions."""

from __future__ import annotations

from flows.stored import StoredChain, Tell, chains_of, each, limited, stored_run
from memprobe.settings import Resolved
from memprobe.types import Role
from storage.runs import RunStore
from tasks.polarity import method_of, polarity_user

AT_ONCE = 32
"""Chains under way at a time; a label with its axis is a short prompt."""


async def polarity_run(
    store: RunStore, resolved: Resolved, model: str, tell: Tell
) -> tuple[str, dict[str, int]]:
    """Read all labels of the whole reading; returns the method's name and the calls it took.

    The caller holds the run's lock. Interrupted, the same command goes on.
    """
    config = limited(store.manifest.config, resolved, {Role.JUDGE: model})
    chains = chains_of(store, "recover")
    async with stored_run(store, resolved, config) as run:

        async def job(chain: StoredChain) -> None:
            await polarity_user(run.context, run.embedder, chain.system, chain.user, chain.epoch)

        await each(chains, job, tell, AT_ONCE)
        return method_of(model), {"new_calls": run.gateway.new_calls}
