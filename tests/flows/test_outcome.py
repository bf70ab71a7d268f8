"""How a run of the paradigms suite ends: a system that was not measured is not diluted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.outcome import unscored_counts, unscored_examples
from memprobe.config import RunConfig, merge_config
from memprobe.errors import AdapterError, UsageError
from tasks.paradigms.answer import answer_episode
from tasks.paradigms.ingest import ingest_episode
from tests.support.paradigms_bench import probe_bench


async def test_the_worst_system_decides(tmp_path: Path) -> None:
    systems = ("full_context", "naive_rag", "recency", "always_update")
    b = probe_bench(tmp_path / "run", systems=systems)

    def fault(call: str, detail: Any) -> None:
        if call == "write" and detail.session_id == "s0003":
            raise AdapterError("the disk is full")

    for system in systems:
        b.systems.fault = fault if system == "recency" else (lambda call, detail: None)
        for episode in b.context.suite.episodes:
            await ingest_episode(b.context, system, episode.id)
            await answer_episode(b.context, system, episode.id)
    counts, share = unscored_counts(b.context.store)
    assert share == 1.0, "recency has no score at all"
    assert counts == {"answers/adapter_error": 8, "ingests/adapter_error": 2}
    assert "the disk is full" in unscored_examples(b.context.store)["answers/adapter_error"]


@pytest.mark.parametrize("change", [{"k": (3,)}, {"access": ("dump_all",)}])
def test_a_reading_does_not_take_the_place_of_the_cards(change: dict[str, Any]) -> None:
    own = RunConfig(name="p", suite="paradigms", access=(), k=())
    with pytest.raises(UsageError, match="as each system's card says in the run"):
        merge_config(own, own.model_copy(update=change))
    named = own.model_copy(update=change)
    assert merge_config(named, own).k == named.k
