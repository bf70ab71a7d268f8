"""Runs and rows for the storage and scoring tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memprobe.config import RunConfig
from storage.manifest import Manifest
from storage.runs import RunStore, Unit

Row = dict[str, Any]


def new_run(location: str | Path, name: str = "t1", **config: Any) -> RunStore:
    settings = RunConfig(name=name, **config)
    manifest = Manifest.start(settings, dataset_name="made", dataset_digest="0" * 64)
    return RunStore.create(location, manifest)


def verdict(system: str, user: str, category: str, dimension: str, **changes: Any) -> Row:
    row: Row = {
        "system": system,
        "user_id": user,
        "epoch": 1,
        "layer": "base",
        "access_mode": "dump_all",
        "k": None,
        "category": category,
        "dimension": dimension,
        "label": "a value",
        "score": 1.0,
        "status": "scored",
    }
    return row | changes


def unscored(row: Row, reason: str = "timeout") -> Row:
    return row | {"score": None, "label": None, "status": "unscored", "reason": reason}


def episode(system: str, user: str, number: int, **changes: Any) -> Row:
    row: Row = {
        "system": system,
        "user_id": user,
        "epoch": 1,
        "episode": number,
        "category": "skill_memory",
        "dimension": f"d{number}",
        "task": "a task",
        "event_time": "2026-01-01T09:00:00+00:00",
        "end_reason": "satisfied",
        "n_turns": 2,
        "status": "scored",
    }
    return row | changes


def item(system: str, user: str, seq: int, content: str) -> Row:
    return {
        "system": system,
        "user_id": user,
        "epoch": 1,
        "seq": seq,
        "item_id": str(seq),
        "content": content,
        "chars": len(content),
    }


def commit_verdicts(run: RunStore, rows: list[Row], variant: str = "") -> None:
    """Commit verdicts, a unit for each system and user."""
    keys = sorted({(row["system"], row["user_id"]) for row in rows})
    for system, user in keys:
        mine = [r for r in rows if (r["system"], r["user_id"]) == (system, user)]
        run.commit(Unit("recover", system, user, variant), "f", {"verdicts": mine})
