"""The case browser of recovery: one payload per user, and an index over all cases.

A store's texts are held once; retrievals and turns point at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from storage.runs import RunStore
from tasks.report.checks import CHECKS, Checks
from tasks.report.packing import (
    PAYLOAD_CAP,
    CaseBook,
    Names,
    Parts,
    ahead,
    fill,
    outcome,
    parsed,
    variant_name,
)

Row = dict[str, Any]
_STORE_TABLES = (
    "episodes",
    "turns",
    "preference_scores",
    "memory_items",
    "retrievals",
    "slot_fills",
    "verdicts",
    "attributions",
    "polarity",
)
_USER_TABLES = ("users", "targets", "tasks", "oracle_verdicts")
TABLES = (*_STORE_TABLES, *_USER_TABLES)
"""What the payloads are made of."""


def target_name(row: Mapping[str, Any]) -> str:
    """Category and dimension as one key."""
    return f"{row['category']}/{row['dimension']}"


class _Items:
    """A store's items with a way back from an id and a content to the place in the list."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [
            {
                "id": row["item_id"],
                "text": row["content"],
                "time": row["event_time"],
                "fields": parsed(row["fields_json"]) or None,
            }
            for row in rows
        ]
        self.places = {(row["id"], row["text"]): place for place, row in enumerate(self.rows)}

    def point(self, item_id: str, content: str, score: float | None) -> Row:
        place = self.places.get((item_id, content))
        hit: Row = {"id": item_id, "score": score}
        return hit | ({"text": content} if place is None else {"at": place})


def _targets(tables: Mapping[str, Sequence[Row]]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in tables["targets"]:
        found[target_name(row)] = {"short": row["short"], "explanation": row["explanation"]}
    for row in tables["tasks"]:
        found.setdefault(target_name(row), {}).update(
            task=row["task"],
            rationale=row["rationale"],
            task_index=row["task_index"],
            planted=row["planted"],
            critic=parsed(row["critic_json"]),
        )
    for row in tables["oracle_verdicts"]:
        found.setdefault(target_name(row), {})["oracle"] = {
            "can_invite": row["can_invite"],
            "why": row["oracle_reason"],
            "call": row["call_id"],
            **outcome(row),
        }
    return found


def _store(tables: Mapping[str, Sequence[Row]], epoch: int) -> Row:
    mine = {name: [r for r in rows if r["epoch"] == epoch] for name, rows in tables.items()}
    items = _Items(sorted(mine["memory_items"], key=lambda row: int(row["seq"])))
    episodes: dict[int, Row] = {}
    for row in sorted(mine["episodes"], key=lambda row: int(row["episode"])):
        episodes[row["episode"]] = {
            "target": target_name(row),
            "task": row["task"],
            "time": row["event_time"],
            "end": row["end_reason"],
            "turns": [],
            **outcome(row),
        }
    preferences: dict[tuple[int, int], list[Row]] = {}
    for row in mine["preference_scores"]:
        preferences.setdefault((row["episode"], row["turn"]), []).append(
            {
                "dimension": row["dimension"],
                "score": row["score"],
                "why": row["judge_reason"],
                **outcome(row),
            }
        )
    for row in sorted(mine["turns"], key=lambda row: (row["episode"], row["turn"])):
        seen = parsed(row["retrieved_json"])
        turn = {
            "time": row["event_time"],
            "assistant": row["assistant_text"],
            "assistant_call": row["assistant_call"],
            "feedback": row["feedback_type"],
            "user": row["user_text"],
            "user_call": row["simulator_call"],
            "read": [
                items.point(str(hit.get("id")), str(hit.get("content")), hit.get("score"))
                for hit in (seen if isinstance(seen, list) else [])
            ],
            "preferences": preferences.get((row["episode"], row["turn"]), []),
        }
        episodes.setdefault(row["episode"], {"turns": []})["turns"].append(turn)
    retrieved: dict[str, Row] = {}
    for row in sorted(mine["retrievals"], key=lambda row: int(row["rank"])):
        entry = retrieved.setdefault(target_name(row), {"query": row["query"], "hits": []})
        entry["hits"].append(items.point(row["item_id"], row["content"], row["score"]))
    return {"items": items.rows, "episodes": episodes, "retrieved": retrieved}


def _cases(system: str, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    slots = {(variant_name(r), target_name(r)): r for r in tables["slot_fills"]}
    blames = {(variant_name(r), target_name(r)): r for r in tables["attributions"]}
    checks = Checks(tables["verdicts"], tables["polarity"])
    cases: list[Row] = []
    for row in tables["verdicts"]:
        key = (variant_name(row), target_name(row))
        base = (variant_name({**row, "layer": "base"}), target_name(row))
        slot = slots.get(key) or slots.get(base)
        blame = blames.get(key)
        case: Row = {
            "system": system,
            "variant": key[0],
            "target": key[1],
            "mode": row["access_mode"],
            "k": row["k"],
            "epoch": row["epoch"],
            "verdict": {
                "score": row["score"],
                "label": row["label"],
                "why": row["judge_reason"],
                "model": row["judge_model"],
                "call": row["call_id"],
                **outcome(row),
            },
            **checks.of(row),
        }
        if slot is not None:
            case["slot"] = {
                "label": slot["label"],
                "why": slot["label_reason"],
                "n_items": slot["n_items"],
                "prompt_tokens": slot["prompt_tokens"],
                "call": slot["call_id"],
                **outcome(slot),
            }
        if blame is not None:
            case["attribution"] = {
                key: blame[key]
                for key in (
                    "label",
                    "episode",
                    "can_invite",
                    "disclosed",
                    "evidence",
                    "cause_reason",
                    "oracle_call",
                    "disclosure_call",
                    "subclass_call",
                )
            } | outcome(blame)
        cases.append(case)
    return cases


def user_payload(parts: Parts, user_id: str, systems: Sequence[str]) -> Row:
    """Everything the browser shows of one user, read from the stored parts."""
    own = {table: parts.read(table, user_id) for table in _USER_TABLES}
    profile = next((parsed(row["profile_json"]) for row in own["users"]), None)
    payload: Row = {
        "user": user_id,
        "profile": profile,
        "targets": _targets(own),
        "stores": {},
        "cases": [],
    }
    for system in systems:
        tables = {table: parts.read(table, user_id, system) for table in _STORE_TABLES}
        epochs = sorted({row["epoch"] for rows in tables.values() for row in rows})
        payload["stores"][system] = {str(epoch): _store(tables, epoch) for epoch in epochs}
        payload["cases"] += _cases(system, tables)
    payload["cases"].sort(key=lambda c: (c["target"], c["system"], c["variant"]))
    return payload


class _Index:
    """What the browser's list and filters know of each case."""

    def __init__(self) -> None:
        self.systems, self.variants = Names(), Names()
        self.targets, self.labels = Names(), Names()
        self.columns: dict[str, list[Any]] = {
            c: [] for c in ("u", "t", "s", "v", "score", "label", "checks")
        }

    def add(self, place: int, payload: Row) -> None:
        columns = self.columns
        for case in payload["cases"]:
            columns["u"].append(place)
            columns["t"].append(self.targets.place(case["target"]))
            columns["s"].append(self.systems.place(case["system"]))
            columns["v"].append(self.variants.place(case["variant"]))
            columns["score"].append(case["verdict"]["score"])
            blame = case.get("attribution")
            columns["label"].append(self.labels.place(blame["label"]) if blame else -1)
            columns["checks"].append(case.get("checks", 0))

    def value(self) -> Row:
        return {
            "systems": self.systems.list,
            "variants": self.variants.list,
            "targets": self.targets.list,
            "labels": self.labels.list,
            "checkNames": list(CHECKS),
            **self.columns,
        }


def collect(
    store: RunStore,
    users: Sequence[str],
    systems: Sequence[str],
    cap: int = PAYLOAD_CAP,
    look: Callable[[Row], None] | None = None,
) -> CaseBook:
    """Pack the cases of as many users, in the given order, as fit under `cap` bytes.

    `look` is shown every user's records, those that do not fit as well.
    """
    parts = Parts(store, TABLES)
    payloads = ahead(partial(_of_systems, parts, systems), users)
    return fill(len(users), payloads, _Index(), cap, look)


def _of_systems(parts: Parts, systems: Sequence[str], user: str) -> Row:
    return user_payload(parts, user, systems)
