"""Runs of the paradigms suite for the tests of its report: ingested, answered and scored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from memprobe.chat import ChatRequest
from memprobe.paradigms.references import reference_answer
from memprobe.paradigms.spec import Episode, Expected, Probe, ProbeType
from memprobe.paradigms.suite import Suite
from memprobe.types import Role
from storage.catalog import build_catalog, query
from storage.manifest import RunStatus
from storage.runs import RunStore
from tasks.paradigms.answer import answer_episode
from tasks.paradigms.ingest import ingest_episode
from tasks.paradigms.score import score_paradigms
from tests.support.chat_double import ChatDouble
from tests.support.paradigms_bench import KNOWN, ProbeBench, probe_bench, small_suite

Row = dict[str, Any]
SYSTEMS = ("full_context", "naive_rag", "always_update", "always_preserve")


def mixed_reader(suite: Suite) -> Callable[[ChatRequest], Any]:
    """A reader that is right, keeps the old state, names both values or knows nothing.

    Of the whole memory it takes over what is new; of a part it keeps what was. A
    current value that should be kept it does not settle: both values are named.
    """
    asked: dict[str, tuple[Episode, Probe]] = {
        probe.question: (episode, probe) for episode in suite.episodes for probe in episode.probes
    }

    def answer(request: ChatRequest) -> Any:
        episode, probe = asked[str(request.variables["question"])]
        kind = probe.probe_type
        blank = KNOWN[kind.value]
        assert isinstance(blank, dict)
        entries = request.variables["entries"]
        assert isinstance(entries, list)
        if kind is ProbeType.CURRENT and episode.spec.expected_behavior is Expected.PRESERVE:
            both = f"{episode.spec.initial_value} or {episode.spec.new_value}"
            return {**blank, "answer": both}
        if kind not in (ProbeType.CURRENT, ProbeType.CHANGE):
            return blank
        behind = "always_update" if len(entries) > 5 else "always_preserve"
        return {**blank, **reference_answer(behind, episode, probe), "reason": "it stands there"}

    return answer


async def measure(b: ProbeBench, system: str, episode: str, epoch: int = 1) -> None:
    """One episode through one system."""
    await ingest_episode(b.context, system, episode, epoch)
    await answer_episode(b.context, system, episode, epoch)


def bench(
    location: Path,
    episodes: int | Suite = 4,
    systems: Sequence[str] = SYSTEMS,
    **settings: Any,
) -> ProbeBench:
    """A run with the mixed reader, nothing of it measured yet."""
    suite = small_suite(episodes) if isinstance(episodes, int) else episodes
    b = probe_bench(location, ChatDouble(), suite, systems=tuple(systems), **settings)
    b.chat.answer(Role.READER, mixed_reader(suite))
    return b


def play(b: ProbeBench, *, score: bool = True, status: RunStatus = RunStatus.COMPLETE) -> RunStore:
    """Every system through every episode and epoch, scored."""

    async def all_of_it() -> None:
        for episode in b.context.suite.episodes:
            for system in b.context.config.systems:
                for epoch in range(1, b.context.config.epochs + 1):
                    await measure(b, system, episode.id, epoch)

    # A thread of its own: a browser driven in this one has a loop running here.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, all_of_it()).result()
    if score:
        score_paradigms(b.context.store)
    b.context.store.update_manifest(status=status)
    return b.context.store


def view(store: RunStore, sql: str) -> list[Row]:
    """Rows of a view of the run's own catalog."""
    build_catalog(store)
    return query(store, sql).dicts()
