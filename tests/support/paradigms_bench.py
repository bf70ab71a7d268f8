"""A context of the paradigms suite with its doubles at hand, over bundled episodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.memory.registry import Registry
from memprobe.chat import ChatRequest
from memprobe.config import SUITE_DEFAULTS, RunConfig
from memprobe.paradigms.suite import Suite, load_suite, make_suite, spread
from memprobe.types import Role
from storage.bundled import paradigms_dir
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.paradigms.context import ParadigmsContext
from tasks.paradigms.inputs import store_suite
from tests.support.chat_double import Answer, ChatDouble
from tests.support.contexts import RecordedSystems, WordEmbedder

KNOWN: dict[str, Answer] = {
    "current_value": {"answer": "nobody knows", "reason": ""},
    "previous_value": {"answer": "nobody knows", "reason": ""},
    "change": {"changed": False, "current_value": "x", "previous_value": None, "reason": ""},
    "temporal": {
        "changed": False,
        "trigger": "",
        "old_value": "",
        "new_value": "",
        "timing": "",
        "reason": "",
    },
    "source": {
        "source_description": "",
        "source_class": "unknown",
        "action": "",
        "accepted": False,
        "current_value": "",
        "reason": "",
    },
    "conflict_value": {
        "conflict_value_mentioned": False,
        "conflict_value": None,
        "source": "",
        "source_class": "unknown",
        "status": "",
        "status_class": "unknown",
        "applies_to_target": False,
        "current_value": "",
        "reason": "",
    },
}
"""Answers of a reader that found nothing."""


def reader(request: ChatRequest) -> Answer:
    """A reader that found nothing."""
    return KNOWN[str(request.variables["probe_type"])]


@dataclass
class ProbeBench:
    """A context with its doubles at hand."""

    context: ParadigmsContext
    chat: ChatDouble
    systems: RecordedSystems

    def rows(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """Rows of a table with these values, in stored order."""
        found = self.context.store.read(table)
        return [r for r in found if all(r[k] == v for k, v in where.items())]


def small_suite(n: int = 2) -> Suite:
    """The first bundled episodes in the order of a count; the first two are one of each way."""
    suite = load_suite(paradigms_dir())
    return make_suite(suite.name, spread(suite.episodes)[:n])


def probe_bench(
    location: Path, chat: ChatDouble | None = None, suite: Suite | None = None, **settings: Any
) -> ProbeBench:
    """A run at a location; one that is there already is opened, as a resumed process would."""
    chat = chat or ChatDouble()
    chat.answer(Role.READER, reader)
    suite = suite or small_suite()
    fields = {**SUITE_DEFAULTS["paradigms"], "model": chat.model, **settings}
    config = RunConfig(name="p1", suite="paradigms", **fields)
    embedder = WordEmbedder()
    systems = RecordedSystems(Registry(embedder, config.protocol, guarded=True), chat.journal)
    if RunStore.exists(location):
        store = RunStore.open(location)
    else:
        cards = {name: systems.card(name) for name in config.systems}
        manifest = Manifest.start(
            config, dataset_name=suite.name, dataset_digest=suite.digest, systems=cards
        )
        store = RunStore.create(location, manifest)
    context = ParadigmsContext(config, suite, store, chat, embedder, systems)
    store_suite(context, [episode.id for episode in suite.episodes])
    return ProbeBench(context, chat, systems)
