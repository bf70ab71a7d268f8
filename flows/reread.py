"""A second reader over a finished run's stores, and its searches made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flows.stored import (
    StoredChain,
    Tell,
    each,
    free_layer,
    limited,
    over_chains,
    stored_run,
)
from memprobe.config import RunConfig
from memprobe.dataset import load_pool
from memprobe.ids import slug
from memprobe.settings import Resolved
from memprobe.types import AccessMode, Protocol, Role
from storage.bundled import recovery_dir
from storage.runs import RunStore
from tasks.paradigms.reread import Rereading as ProbeRereading
from tasks.paradigms.reread import reread_episode
from tasks.queries import OWN, Queries, own_queries, read_queries
from tasks.rejudge import check_layer
from tasks.reread import STAGE, Rereading, reread_user
from tasks.stored_search import Searched, check_searches

JUDGE = "embedded/judge"


def reading_config(
    stored: RunConfig,
    resolved: Resolved,
    roles: dict[Role, str],
    k: tuple[int, ...] | None,
    access: tuple[AccessMode, ...] | None,
) -> RunConfig:
    """The run's settings with another reader and, when given, another judge.

    An embedded reader without a judge is judged by the embedded judge: what takes no
    call to read takes none to judge.
    """
    reader = roles.get(Role.SLOT_FILL, stored.model_of(Role.SLOT_FILL))
    if reader.startswith("embedded/") and Role.JUDGE not in roles:
        roles = {**roles, Role.JUDGE: JUDGE}
    config = limited(stored, resolved, roles)
    changes: dict[str, Any] = {"dump_reader": "whole", "protocol": Protocol.STRICT}
    if k:
        changes["k"] = tuple(sorted(set(k)))
    if access:
        changes["access"] = access
    return config.model_copy(update=changes)


def queries_from(text: str | None) -> Queries | None:
    """Queries of a file, MemProbe's for `own`, None when none are given."""
    if text is None:
        return None
    if text == OWN:
        return own_queries(load_pool(recovery_dir() / "pool.json"))
    return read_queries(Path(text))


def layer_name(config: RunConfig, layer: str | None) -> str:
    """The layer's name; by default that of the suite's reader."""
    reader = config.model_of(config.reading_role)
    return check_layer(layer or slug(f"reread_{reader}")[:48].rstrip("_"))


async def reread_run(
    store: RunStore,
    resolved: Resolved,
    config: RunConfig,
    reading: Rereading | ProbeRereading,
    chains: Sequence[StoredChain],
    tell: Tell,
) -> dict[str, int]:
    """Read the stores of the chains into the layer; returns what it took.

    The caller holds the run's lock. Interrupted, the same command goes on.
    """
    reading = replace(reading, made=free_layer(store, STAGE, reading.layer))

    async def work(context: Any, chain: StoredChain) -> None:
        place = (context, chain.system, chain.user)
        if isinstance(reading, Rereading):
            await reread_user(*place, reading, chain.epoch)
        else:
            await reread_episode(*place, reading, chain.epoch)

    return await over_chains(store, resolved, config, chains, work, tell)


@dataclass(frozen=True, slots=True)
class SearchCheck:
    """Recorded searches made again. `differing` are those that did not come out the same."""

    run: str
    system: str
    queries: str
    n: int
    outcomes: dict[str, int]
    score_error: float | None
    encoded: int
    differing: tuple[Searched, ...]

    @property
    def same(self) -> bool:
        """Whether every recorded search was reproduced."""
        return self.n > 0 and not self.differing

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"same": self.same, **asdict(self)}


async def check_run(
    store: RunStore,
    resolved: Resolved,
    system: str,
    queries: Queries | None,
    chains: Sequence[StoredChain],
    tell: Tell,
) -> SearchCheck:
    """Make every recorded search of a system again from its stored items."""
    found: list[Searched] = []
    async with stored_run(store, resolved, store.manifest.config) as run:

        async def job(chain: StoredChain) -> None:
            key = (chain.system, chain.user, chain.epoch)
            found.extend(await check_searches(run.context, *key, queries))

        await each(chains, job, tell, at_once=1)
        encoded = run.embedder.encoded
    outcomes = {name: sum(s.outcome == name for s in found) for name in sorted(_outcomes(found))}
    differing = [s for s in found if s.outcome not in ("equal", "tied")]
    errors = [s.score_error for s in found if s.score_error is not None]
    source = queries.source if queries is not None else "the run's own"
    return SearchCheck(
        store.name,
        system,
        source,
        len(found),
        outcomes,
        max(errors, default=None),
        encoded,
        tuple(sorted(differing, key=lambda s: (s.user_id, s.epoch, s.category, s.dimension))),
    )


def _outcomes(found: Sequence[Searched]) -> set[str]:
    return {one.outcome for one in found}
