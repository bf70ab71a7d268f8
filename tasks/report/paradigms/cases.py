"""The case browser of the paradigms suite: one payload per episode, and an index over all cases.

A case is one probe of an episode, asked of one system's memory in one way. The gold
side (spec, session types, gold answers) is in the payload and named as such. Texts are
held once an episode: the baselines all keep the same sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from storage.runs import RunStore
from tasks.report.packing import (
    PAYLOAD_CAP,
    CaseBook,
    Names,
    Parts,
    Row,
    ahead,
    fill,
    outcome,
    parsed,
    variant_name,
)

_STORE_TABLES = (
    "ingests",
    "memory_items",
    "retrievals",
    "answers",
    "probe_verdicts",
    "probe_failures",
)
_GOLD_TABLES = ("specs", "sessions", "probes")
TABLES = (*_STORE_TABLES, *_GOLD_TABLES)
"""What the payloads are made of."""
MATCHES = ("correct", "partial", "incorrect")


class _Texts:
    """Distinct texts; whoever needs one points at it."""

    def __init__(self) -> None:
        self.names = Names()

    def at(self, text: str | None) -> int | None:
        return None if text is None else self.names.place(text)


def _store(tables: Mapping[str, Sequence[Row]], epoch: int, texts: _Texts) -> Row:
    mine = {name: [r for r in rows if r["epoch"] == epoch] for name, rows in tables.items()}
    items = [
        {
            "id": row["item_id"],
            "text": texts.at(row["content"]),
            "time": row["event_time"],
            "fields": parsed(row["fields_json"]) or None,
        }
        for row in sorted(mine["memory_items"], key=lambda row: int(row["seq"]))
    ]
    retrieved: dict[str, Row] = {}
    for row in sorted(mine["retrievals"], key=lambda row: int(row["rank"])):
        entry = retrieved.setdefault(row["dimension"], {"query": row["query"], "hits": []})
        hit = {"id": row["item_id"], "text": texts.at(row["content"]), "score": row["score"]}
        entry["hits"].append(hit)
    lost = [
        {"session": row["session_index"], **outcome(row)}
        for row in sorted(mine["ingests"], key=lambda row: int(row["session_index"]))
        if row["status"] == "unscored"
    ]
    written = len(mine["ingests"]) - len(lost)
    return {"items": items, "retrieved": retrieved, "written": written, "lost": lost}


def _key(row: Row) -> tuple[str, str]:
    return variant_name(row), row["probe_type"]


def _cases(system: str, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    cases: dict[tuple[str, str], Row] = {}

    def case_of(row: Row) -> Row:
        return cases.setdefault(
            _key(row),
            {
                "system": system,
                "variant": variant_name(row),
                "target": row["probe_type"],
                **{name: row[name] for name in ("epoch", "layer", "k")},
                "mode": row["access_mode"],
                "verdicts": {},
                "failures": {},
            },
        )

    for row in tables["answers"]:
        case_of(row)["answer"] = {
            "json": row["answer_json"],
            "n_items": row["n_items"],
            "tokens": row["prompt_tokens"],
            "call": row["call_id"],
            **outcome(row),
        }
    for row in tables["probe_verdicts"]:
        case_of(row)["verdicts"][row["scorer"]] = {
            "match": row["match"],
            "parts": parsed(row["parts_json"]) or None,
            "why": row["why"],
            "call": row["call_id"],
            **outcome(row),
        }
    for row in tables["probe_failures"]:
        case_of(row)["failures"][row["scorer"]] = {
            "failure": row["failure"],
            "side": row["side"],
            "evidence": row["evidence"],
            "items": parsed(row["item_ids_json"]) or [],
        }
    for (variant, probe), case in cases.items():
        # A layer of verdicts alone, as an import has one, is about the answers of the base.
        if "answer" not in case:
            base = cases.get((variant.removesuffix(f";{case['layer']}"), probe))
            if base is not None and "answer" in base:
                case["answer"] = base["answer"]
    return list(cases.values())


def _gold(tables: Mapping[str, Sequence[Row]], texts: _Texts) -> Row:
    return {
        "spec": next((parsed(row["spec_json"]) for row in tables["specs"]), None),
        "sessions": [
            {
                "index": row["session_index"],
                "type": row["session_type"],
                "time": row["event_time"],
                "turns": [
                    {"role": turn.get("role"), "text": texts.at(str(turn.get("content")))}
                    for turn in parsed(row["dialogue_json"]) or []
                ],
            }
            for row in sorted(tables["sessions"], key=lambda row: int(row["session_index"]))
        ],
        "probes": {
            row["probe_type"]: {
                name: row[name]
                for name in ("question", "gold_answer", "expected", "paradigm", "condition")
            }
            for row in sorted(tables["probes"], key=lambda row: int(row["probe_index"]))
        },
    }


def episode_payload(parts: Parts, systems: Sequence[str], episode: str) -> Row:
    """Everything the browser shows of one episode, read from the stored parts."""
    texts = _Texts()
    gold = _gold({table: parts.read(table, episode) for table in _GOLD_TABLES}, texts)
    stores: dict[str, Row] = {}
    cases: list[Row] = []
    for system in systems:
        tables = {table: parts.read(table, episode, system) for table in _STORE_TABLES}
        epochs = sorted({row["epoch"] for rows in tables.values() for row in rows})
        stores[system] = {str(epoch): _store(tables, epoch, texts) for epoch in epochs}
        cases += _cases(system, tables)
    places = {probe: place for place, probe in enumerate(gold["probes"])}
    cases.sort(key=lambda c: (places.get(c["target"], 9), c["system"], c["variant"]))
    return {"user": episode, **gold, "stores": stores, "cases": cases, "texts": texts.names.list}


class _Index:
    """What the list and the filters know of each case; verdict and failure of one scorer."""

    def __init__(self, scorer: str) -> None:
        self.scorer = scorer
        self.systems, self.variants = Names(), Names()
        self.targets, self.labels, self.paradigms = Names(), Names(), Names()
        self.columns: dict[str, list[Any]] = {
            c: [] for c in ("u", "t", "s", "v", "match", "label", "paradigm", "differ")
        }

    def add(self, place: int, payload: Row) -> None:
        for case in payload["cases"]:
            verdicts = case["verdicts"]
            verdict: Row = verdicts.get(self.scorer) or next(iter(verdicts.values()), {})
            match = verdict.get("match")
            failure = case["failures"].get(self.scorer)
            probe = payload["probes"].get(case["target"], {})
            told = {verdict["match"] for verdict in verdicts.values()}
            for name, value in (
                ("u", place),
                ("t", self.targets.place(case["target"])),
                ("s", self.systems.place(case["system"])),
                ("v", self.variants.place(case["variant"])),
                ("match", MATCHES.index(match) if match in MATCHES else -1),
                ("label", -1 if failure is None else self.labels.place(_label(failure))),
                ("paradigm", self.paradigms.place(probe.get("paradigm") or "unknown")),
                ("differ", int(len(told) > 1)),
            ):
                self.columns[name].append(value)

    def value(self) -> Row:
        return {
            "systems": self.systems.list,
            "variants": self.variants.list,
            "targets": self.targets.list,
            "labels": self.labels.list,
            "paradigms": self.paradigms.list,
            "matches": list(MATCHES),
            **self.columns,
        }


def _label(failure: Row) -> str:
    return f"{failure['failure']}, {failure['side']}"


def collect(
    store: RunStore,
    episodes: Sequence[str],
    systems: Sequence[str],
    scorer: str,
    cap: int = PAYLOAD_CAP,
) -> CaseBook:
    """Pack the cases of as many episodes, in the given order, as fit under `cap` bytes."""
    parts = Parts(store, TABLES)
    payloads = ahead(partial(episode_payload, parts, systems), episodes)
    return fill(len(episodes), payloads, _Index(scorer), cap)
