"""Another reader over a finished run of the paradigms suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flows.stored import StoredChain, Tell, free_layer, over_chains
from memprobe.config import RunConfig
from memprobe.ids import slug
from memprobe.settings import Resolved
from memprobe.types import Role
from storage.catalog import query
from storage.runs import RunStore
from tasks.paradigms.context import ParadigmsContext
from tasks.paradigms.reread import STAGE, Rereading, reread_episode
from tasks.rejudge import check_layer


def layer_name(config: RunConfig, layer: str | None) -> str:
    """The layer's name; by default that of the reader."""
    return check_layer(layer or slug(f"reread_{config.model_of(Role.READER)}")[:48].rstrip("_"))


async def reread_paradigms(
    store: RunStore,
    resolved: Resolved,
    config: RunConfig,
    reading: Rereading,
    chains: Sequence[StoredChain],
    tell: Tell,
) -> dict[str, int]:
    """Ask the probes of the chains again into the layer; returns what it took.

    The caller holds the run's lock. Interrupted, the same command goes on.
    """
    reading = replace(reading, made=free_layer(store, STAGE, reading.layer))

    async def work(context: ParadigmsContext, chain: StoredChain) -> None:
        await reread_episode(context, chain.system, chain.user, reading, chain.epoch)

    return await over_chains(store, resolved, config, chains, work, tell)


@dataclass(frozen=True, slots=True)
class Alike:
    """How far two readers rank the systems alike, by one scorer, over `n` systems."""

    scorer: str
    first: str
    second: str
    n: int
    pearson: float | None
    spearman: float | None


def readers_alike(store: RunStore, layer: str) -> list[Alike]:
    """The rank correlations of a layer's reader with the run's own."""
    quoted = layer.replace("'", "''")
    found = query(
        store,
        "select scorer, first, second, n, pearson, spearman from probe_correlations "
        f"where kind = 'readers' and layer = '{quoted}' order by all",
    )
    return [Alike(**row) for row in found.dicts()]


def facts_of(found: Sequence[Alike]) -> list[dict[str, Any]]:
    """For JSON."""
    return [{name: getattr(one, name) for name in Alike.__dataclass_fields__} for one in found]
