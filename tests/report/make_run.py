"""Runs made without playing them: every table of a recovery run, seeded, through the run store."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memprobe.config import RunConfig
from memprobe.types import AttributionLabel, Category
from storage.manifest import Manifest, RunStatus
from storage.runs import RunStore, Unit

Row = dict[str, Any]
WORDS = [
    *("calendar", "river", "budget", "teacher", "violin", "marathon", "recipe", "garden"),
    *("deadline", "invoice", "harbour", "notebook", "chemistry", "balcony", "mortgage"),
    *("keyboard", "orchard", "festival", "medicine", "translator"),
]
SKILL = {"longctx_full": 0.85, "rag": 0.65, "nomem": 0.0}
SIZES = (
    (Category.SKILL, 7),
    (Category.KNOWLEDGE, 7),
    (Category.EPISODIC, 7),
    (Category.SELF_MODEL, 5),
    (Category.PREFERENCE, 5),
)

Edit = Callable[[str, list[Row]], list[Row]]


def dimensions() -> list[tuple[str, str]]:
    """31 (category, dimension) pairs in the proportions of the data set."""
    return [(c.value, f"{c.value}_{n}") for c, size in SIZES for n in range(size)]


def _sentence(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words))


def _user_rows(user: str, draw: random.Random) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {t: [] for t in ("users", "targets", "tasks", "oracle_verdicts")}
    pairs = dimensions()
    rows["users"].append(
        {
            "user_id": user,
            "profile_json": json.dumps({"gender": "woman", "story": _sentence(draw, 30)}),
            "n_targets": len(pairs),
            "n_tasks": len(pairs),
            "dataset_digest": "d" * 64,
        }
    )
    for number, (category, dimension) in enumerate(pairs, 1):
        at = {"user_id": user, "category": category, "dimension": dimension}
        rows["targets"].append(
            {**at, "short": f"short of {dimension} for {user}", "explanation": _sentence(draw, 35)}
        )
        rows["tasks"].append(
            {
                **at,
                "task_index": number,
                "task": f"task about {dimension}",
                "rationale": _sentence(draw, 12),
                "planted": None,
                "critic_json": "[]",
            }
        )
        rows["oracle_verdicts"].append(
            {
                **at,
                "can_invite": number % 9 != 0,
                "oracle_reason": _sentence(draw, 8),
                "status": "scored",
                "call_id": f"oracle-{user}-{number}",
            }
        )
    return rows


def _play(system: str, user: str, draw: random.Random) -> dict[str, list[Row]]:
    base = {"system": system, "user_id": user, "epoch": 1}
    rows: dict[str, list[Row]] = {
        t: [] for t in ("episodes", "turns", "preference_scores", "memory_items")
    }
    for number, (category, dimension) in enumerate(dimensions(), 1):
        time = f"2026-{1 + number % 12:02d}-{1 + number % 28:02d}T10:00:00+00:00"
        rows["episodes"].append(
            {
                **base,
                "episode": number,
                "category": category,
                "dimension": dimension,
                "task": f"task about {dimension}",
                "event_time": time,
                "end_reason": "satisfied",
                "n_turns": 2,
                "status": "scored",
            }
        )
        for turn in (1, 2):
            said = f"user turn {turn} on {dimension}: {_sentence(draw, 25)}"
            rows["turns"].append(
                {
                    **base,
                    "episode": number,
                    "turn": turn,
                    "event_time": time,
                    "assistant_text": f"reply {turn} on {dimension}: {_sentence(draw, 40)}",
                    "assistant_call": f"assistant-{user}-{number}-{turn}",
                    "feedback_type": "followup",
                    "user_text": said,
                    "simulator_call": f"simulator-{user}-{number}-{turn}",
                    "retrieved_json": "[]",
                }
            )
            rows["preference_scores"].append(
                {
                    **base,
                    "episode": number,
                    "turn": turn,
                    "idx": 0,
                    "dimension": "tone",
                    "status": "unscored",
                    "reason": "not_judged",
                }
            )
            if system != "nomem":
                rows["memory_items"].append(
                    {
                        **base,
                        "seq": len(rows["memory_items"]),
                        "item_id": f"m{number}-{turn}",
                        "content": said,
                        "event_time": time,
                        "chars": len(said),
                        "fields_json": "{}",
                    }
                )
    return rows


def _recover(
    system: str, user: str, ks: Sequence[int], stored: list[Row], draw: random.Random, judge: str
) -> dict[str, list[Row]]:
    base = {"system": system, "user_id": user, "epoch": 1}
    rows: dict[str, list[Row]] = {
        t: [] for t in ("slot_fills", "verdicts", "retrievals", "attributions", "operations")
    }
    ways: list[tuple[str, int | None]] = [("dump_all", None)]
    ways += [("retrieve", k) for k in ks] if stored else []
    for number, (category, dimension) in enumerate(dimensions(), 1):
        at = {**base, "category": category, "dimension": dimension}
        if stored:
            rows["operations"].append(
                {**base, "phase": "search", "episode": 0, "latency_s": draw.uniform(0.001, 0.01)}
            )
            for rank in range(1, max(ks) + 1):
                item = stored[(number * 2 + rank) % len(stored)]
                rows["retrievals"].append(
                    {
                        **at,
                        "query": f"what is {dimension}",
                        "rank": rank,
                        "item_id": item["item_id"],
                        "content": item["content"],
                        "score": 1.0 / rank,
                    }
                )
        for mode, k in ways:
            chance = SKILL.get(system, 0.5) * (1.0 if k is None else min(1.0, 0.4 + 0.1 * k))
            score = draw.choice((0.75, 1.0)) if draw.random() < chance else 0.0
            key = {**at, "layer": "base", "access_mode": mode, "k": k}
            label = f"answer on {dimension}" if score else "unknown"
            rows["slot_fills"].append(
                {
                    **key,
                    "label": label,
                    "label_reason": _sentence(draw, 10),
                    "n_items": len(stored) if k is None else k,
                    "prompt_tokens": 40 * (len(stored) if k is None else k),
                    "status": "scored",
                    "call_id": f"slot-{user}-{number}",
                }
            )
            rows["verdicts"].append(
                {
                    **key,
                    "label": label,
                    "score": score,
                    "judge_reason": f"because {_sentence(draw, 6)}",
                    "judge_model": judge,
                    "status": "scored",
                    "call_id": f"judge-{user}-{number}",
                }
            )
            lost = (
                AttributionLabel.TASK_DESIGN_FAILURE
                if number % 9 == 0
                else draw.choice(
                    (AttributionLabel.MEMORY_FAILURE, AttributionLabel.AGENT_ELICITATION_FAILURE)
                )
            )
            shown = lost is AttributionLabel.MEMORY_FAILURE and not score
            rows["attributions"].append(
                {
                    **key,
                    "label": "ok" if score else lost.value,
                    "score": score,
                    "episode": number,
                    "can_invite": number % 9 != 0,
                    "disclosed": shown,
                    "evidence": f"user turn 1 on {dimension}" if shown else None,
                    "cause_reason": _sentence(draw, 8),
                    "status": "scored",
                }
            )
    return rows


def _calls(systems: Sequence[str]) -> list[Row]:
    return [
        {
            "call_id": f"slot-{system}",
            "stage": "recover",
            "role": "slot_fill",
            "model": "m",
            "system": system,
            "user_id": "user_000",
            "item": "x",
            "attempt": 1,
            "ledger_hit": False,
            "outcome": "ok",
            "repaired": False,
            "prompt_tokens": 100,
            "cached_tokens": None,
            "completion_tokens": 10,
            "cost_usd": None,
            "latency_s": 0.2,
            "wait_s": 0.0,
            "retries": 0,
        }
        for system in systems
    ]


def _checks() -> list[Row]:
    rows = []
    for number in range(4):
        for kind, low, high, score in (
            ("right", 0.75, 1.0, 1.0),
            ("near", 0.25, 1.0, 0.5),
            ("wrong", 0.0, 0.5, 0.0),
            ("injection", 0.0, 0.5, 1.0 if number == 0 else 0.0),
        ):
            rows.append(
                {
                    "system": "",
                    "user_id": f"user_{number:03d}",
                    "kind": kind,
                    "category": "skill_memory",
                    "dimension": "skill_memory_0",
                    "label": "planted",
                    "expected_min": low,
                    "expected_max": high,
                    "score": score,
                    "status": "scored",
                }
            )
    return rows


def same(table: str, rows: list[Row]) -> list[Row]:
    """An edit that changes nothing."""
    return rows


def make_run(
    location: Path,
    *,
    users: int | Sequence[str] = 2,
    systems: Sequence[str] = ("nomem", "longctx_full", "rag"),
    ks: tuple[int, ...] = (5,),
    edit: Edit = same,
    name: str = "made",
    seed: int = 7,
    score: bool = True,
    **config: Any,
) -> RunStore:
    """A complete run of synthetic users. `edit(table, rows)` may change rows on the way."""
    names = [f"user_{n:03d}" for n in range(users)] if isinstance(users, int) else list(users)
    settings = RunConfig(name=name, systems=tuple(systems), k=ks, seed=seed, **config)
    manifest = Manifest.start(
        settings,
        dataset_name="synthetic",
        dataset_digest="d" * 64,
        prompts={"judge": "judge@1:abcdef"},
    )
    store = RunStore.create(location, manifest.changed(status=RunStatus.COMPLETE))
    judge = settings.model

    def commit(unit: Unit, tables: Mapping[str, list[Row]]) -> None:
        store.commit(unit, "made", {table: edit(table, rows) for table, rows in tables.items()})

    for user in names:
        draw = random.Random(f"{seed}/{user}")
        own = _user_rows(user, draw)
        oracle = own.pop("oracle_verdicts")
        commit(Unit("inputs", "", user), own)
        commit(Unit("oracle", "", user), {"oracle_verdicts": oracle})
        for system in systems:
            played = _play(system, user, draw)
            recovered = _recover(system, user, ks, played["memory_items"], draw, judge)
            blamed = recovered.pop("attributions")
            played["operations"] = [
                {
                    "system": system,
                    "user_id": user,
                    "epoch": 1,
                    "phase": "write",
                    "episode": n,
                    "latency_s": 0.002,
                }
                for n in range(1, 32)
            ]
            commit(Unit("rollout", system, user), played)
            commit(Unit("recover", system, user), recovered)
            commit(Unit("attribute", system, user), {"attributions": blamed})
    commit(Unit("judge_check"), {"judge_checks": _checks()})
    commit(Unit("calls"), {"calls": _calls(systems)})
    if score:
        from tasks.score import score_run

        score_run(store)
    return store
