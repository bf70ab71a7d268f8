"""The suite as tables of the run: gold, sessions and probes, for scorer and report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from memprobe.dataset import content_digest
from memprobe.paradigms.spec import Episode, ProbeType
from memprobe.paradigms.suite import Suite, make_suite
from storage.runs import RunStore, Unit
from tasks.paradigms.context import ParadigmsContext

Rows = list[dict[str, Any]]


def session_id(index: int) -> str:
    """A session's id in a store; sessions count from 1."""
    return f"s{index:04d}"


def episode_tables(episode: Episode, digest: str) -> dict[str, Rows]:
    """`specs`, `sessions` and `probes` of one episode."""
    spec = episode.spec
    key = {"user_id": episode.id}
    return {
        "specs": [
            {
                **key,
                "spec_json": spec.model_dump_json(),
                "n_sessions": len(episode.sessions),
                "dataset_digest": digest,
            }
        ],
        "sessions": [
            {
                **key,
                "session_index": index,
                "session_type": session.session_type.value,
                "event_time": session.time.isoformat(),
                "dialogue_json": json.dumps(
                    [turn.model_dump() for turn in session.dialogue], ensure_ascii=False
                ),
            }
            for index, session in enumerate(episode.sessions, 1)
        ],
        "probes": [
            {
                **key,
                "probe_index": index,
                "probe_type": probe.probe_type.value,
                "question": probe.question,
                "gold_answer": probe.gold_answer,
                "expected": probe.expected_behavior.value,
                "paradigm": spec.paradigm.value,
                "condition": spec.condition.value,
                "domain": str(spec.domain),
                "split": spec.split,
                "group_id": spec.group_id,
                "fact_type": spec.fact_type,
                "structured_temporal": probe.probe_type is ProbeType.TEMPORAL
                and spec.gold.temporal is not None,
            }
            for index, probe in enumerate(episode.probes, 1)
        ],
    }


def store_suite(context: ParadigmsContext, episodes: Sequence[str]) -> None:
    """Commit the tables of the run's episodes."""
    for name in episodes:
        episode = context.suite.episode(name)
        unit = Unit("inputs", "", name)
        mark = content_digest(episode.model_dump_json().encode())
        if not context.store.is_complete(unit, mark):
            context.store.commit(unit, mark, episode_tables(episode, context.digest))


def stored_suite(store: RunStore) -> Suite:
    """The suite of a run from its own tables, wherever the files are now."""
    manifest = store.manifest
    episodes = stored_episodes(*(store.read(name) for name in ("specs", "sessions", "probes")))
    suite = make_suite(manifest.dataset_name, episodes)
    # A part of a suite has another digest; what was measured stands on that of the whole.
    return suite.model_copy(update={"digest": manifest.dataset_digest})


def stored_episodes(specs: Rows, session_rows: Rows, probe_rows: Rows) -> list[Episode]:
    """Episodes from the rows of `specs`, `sessions` and `probes`."""
    sessions: dict[str, Rows] = {}
    probes: dict[str, Rows] = {}
    for rows, found in ((session_rows, sessions), (probe_rows, probes)):
        for row in rows:
            found.setdefault(row["user_id"], []).append(row)
    return [
        Episode.model_validate(
            {
                "spec": json.loads(row["spec_json"]),
                "sessions": [
                    {
                        "session_type": s["session_type"],
                        "time": s["event_time"],
                        "dialogue": json.loads(s["dialogue_json"]),
                    }
                    for s in sorted(sessions[row["user_id"]], key=lambda s: s["session_index"])
                ],
                "probes": [
                    {
                        "probe_type": p["probe_type"],
                        "question": p["question"],
                        "gold_answer": p["gold_answer"],
                        "expected_behavior": p["expected"],
                    }
                    for p in sorted(probes[row["user_id"]], key=lambda p: p["probe_index"])
                ],
            }
        )
        for row in specs
    ]
