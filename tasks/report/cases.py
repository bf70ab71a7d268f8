"""The case browser's data: one compressed payload per user, and an index over all cases.

A user's texts are needed only when a reader opens one of that user's cases, so
each payload is gzip in base64, inflated in the browser on demand. A store's
texts are held once; retrievals and turns point at them.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memprobe.errors import StorageError
from storage.runs import RunStore, Unit, part_path
from tasks.report.checks import CHECKS, Checks

Row = dict[str, Any]
PAYLOAD_CAP = 48 * 1024 * 1024
"""Bytes of base64 that a report may carry; beyond it the first users are kept."""
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


def variant_name(row: Mapping[str, Any]) -> str:
    """How a way of reading is named in links and filters, e.g. `retrieve@5`.

    A later epoch or another score layer is appended: `dump_all;e2;rejudge`.
    """
    name = str(row["access_mode"])
    if row.get("k") is not None:
        name += f"@{row['k']}"
    if row.get("epoch", 1) != 1:
        name += f";e{row['epoch']}"
    if row.get("layer", "base") != "base":
        name += f";{row['layer']}"
    return name


def target_name(row: Mapping[str, Any]) -> str:
    """Category and dimension as one key."""
    return f"{row['category']}/{row['dimension']}"


def pack(value: Any) -> str:
    """JSON, compressed, in base64. The same value gives the same text."""
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def unpack(text: str) -> Any:
    """The value of a packed text."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


class _Names:
    """Distinct names in the order of their first use."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    @property
    def list(self) -> list[str]:
        return list(self.places)


def _outcome(row: Row) -> Row:
    return {key: row[key] for key in ("status", "reason", "detail") if row.get(key) is not None}


def _json(raw: str | None) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw


class _Items:
    """A store's items with a way back from an id and a content to the place in the list."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [
            {
                "id": row["item_id"],
                "text": row["content"],
                "time": row["event_time"],
                "fields": _json(row["fields_json"]) or None,
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
            critic=_json(row["critic_json"]),
        )
    for row in tables["oracle_verdicts"]:
        found.setdefault(target_name(row), {})["oracle"] = {
            "can_invite": row["can_invite"],
            "why": row["oracle_reason"],
            "call": row["call_id"],
            **_outcome(row),
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
            **_outcome(row),
        }
    preferences: dict[tuple[int, int], list[Row]] = {}
    for row in mine["preference_scores"]:
        preferences.setdefault((row["episode"], row["turn"]), []).append(
            {
                "dimension": row["dimension"],
                "score": row["score"],
                "why": row["judge_reason"],
                **_outcome(row),
            }
        )
    for row in sorted(mine["turns"], key=lambda row: (row["episode"], row["turn"])):
        seen = _json(row["retrieved_json"])
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
                **_outcome(row),
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
                **_outcome(slot),
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
            } | _outcome(blame)
        cases.append(case)
    return cases


class Parts:
    """A run's parts by folder, listed once: a listing for each user would be quadratic."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.folders: dict[str, list[str]] = {}
        for table in (*_STORE_TABLES, *_USER_TABLES):
            for path in store.parts(table):
                self.folders.setdefault(path.rsplit("/", 1)[0], []).append(path)

    def read(self, table: str, user: str, system: str = "") -> list[Row]:
        """The rows of one user, in stored order; nothing stored gives no rows."""
        folder = part_path(table, Unit("", system, user)).rsplit("/", 1)[0]
        rows: list[Row] = []
        for path in self.folders.get(folder, ()):
            source = io.BytesIO(self.store.files.read(path))
            try:
                # One small file: threads would cost more than they bring.
                rows += pq.ParquetFile(source).read(use_threads=False).to_pylist()
            except pa.ArrowException as error:
                raise StorageError(
                    f"{self.store.location}/{path} cannot be read: {error}"
                ) from error
        return rows


def user_payload(parts: Parts, user_id: str, systems: Sequence[str]) -> Row:
    """Everything the browser shows of one user, read from the stored parts."""
    own = {table: parts.read(table, user_id) for table in _USER_TABLES}
    profile = next((_json(row["profile_json"]) for row in own["users"]), None)
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


@dataclass(slots=True)
class CaseBook:
    """The packed payloads of the users that fit, and the index over their cases.

    `total` is the number of users of the run; `users` those whose cases are here.
    """

    total: int
    cap: int
    users: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)
    index: str = ""

    @property
    def complete(self) -> bool:
        """Whether every user of the run is here."""
        return len(self.users) == self.total


def _payloads(store: RunStore, users: Sequence[str], systems: Sequence[str]) -> Iterator[Row]:
    # A few readers ahead: enough to hide file latency, few enough to bound memory.
    ahead = 8
    parts = Parts(store)
    with ThreadPoolExecutor(max_workers=4) as pool:
        waiting = [pool.submit(user_payload, parts, user, systems) for user in users[:ahead]]
        for place in range(len(users)):
            done = waiting.pop(0).result()
            following = place + ahead
            if following < len(users):
                waiting.append(pool.submit(user_payload, parts, users[following], systems))
            yield done


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
    book = CaseBook(total=len(users), cap=cap)
    system_names, variants, targets, labels = _Names(), _Names(), _Names(), _Names()
    columns: dict[str, list[Any]] = {
        c: [] for c in ("u", "t", "s", "v", "score", "label", "checks")
    }
    used, full = 0, False
    payloads = _payloads(store, users, systems)
    for payload in payloads:
        if look is not None:
            look(payload)
        if full:
            continue
        text = pack(payload)
        if used + len(text) > cap:
            full = True
            if look is not None:
                continue
            payloads.close()  # type: ignore[attr-defined]
            break
        used += len(text)
        place = len(book.users)
        book.users.append(payload["user"])
        book.packed.append(text)
        for case in payload["cases"]:
            columns["u"].append(place)
            columns["t"].append(targets.place(case["target"]))
            columns["s"].append(system_names.place(case["system"]))
            columns["v"].append(variants.place(case["variant"]))
            columns["score"].append(case["verdict"]["score"])
            blame = case.get("attribution")
            columns["label"].append(labels.place(blame["label"]) if blame else -1)
            columns["checks"].append(case.get("checks", 0))
    book.index = pack(
        {
            "users": book.users,
            "systems": system_names.list,
            "variants": variants.list,
            "targets": targets.list,
            "labels": labels.list,
            "checkNames": list(CHECKS),
            **columns,
        }
    )
    return book
