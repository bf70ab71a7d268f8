"""The gallery: a few cases of every rule, chosen by a stated key, with their evidence."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from memprobe.types import AccessMode
from tasks.report.charts import LABEL_NAMES
from tasks.report.gallery_rules import (
    RULES,
    Hit,
    Row,
    Rule,
    Store,
    UserRecords,
    episode_of,
    plain,
    words,
)
from tasks.report.tables import Column, Table

CASES = 3
"""Cases of one rule on the page, of different users."""
TURNS = 4
"""Turns of a transcript on the page; the case browser has all."""
LONG = 480
"""Characters of a text on the page."""
ITEM = 240


def cut(text: str | None, length: int) -> str:
    """A text on one page: its beginning, and an ellipsis for the rest."""
    whole = text or ""
    return whole if len(whole) <= length else f"{whole[:length].rstrip()}…"


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One case with what a reader needs to judge the rule; all texts are untrusted."""

    address: str
    name: str
    facts: tuple[tuple[str, str], ...]
    target: str
    explanation: str
    task: str
    transcript: tuple[tuple[str, str], ...]
    left_out: int
    stored: tuple[str, ...]
    n_stored: int
    retrieved: tuple[str, ...] | None
    answer: str
    answer_why: str
    score: str
    score_why: str
    attribution: str
    evidence: str
    cause: str


@dataclass(frozen=True, slots=True)
class Room:
    """A rule with its count and its cases."""

    rule: Rule
    n: int
    total: int
    cases: tuple[Exhibit, ...]


@dataclass(slots=True)
class Gallery:
    """Collects the cases of every rule, one user's records at a time."""

    users: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)
    best: dict[str, list[tuple[tuple[Any, ...], Exhibit]]] = field(default_factory=dict)

    def add(self, payload: Row) -> None:
        """Look at one user's records. Of each rule and user the first case by its key is kept."""
        records = UserRecords(payload)
        self.users += 1
        for rule in RULES:
            total, hits = rule.scan(records)
            count = self.counts.setdefault(rule.id, [0, 0])
            count[0] += len(hits)
            count[1] += total
            if not hits:
                continue
            first = min(hits, key=lambda hit: hit.key)
            kept = self.best.setdefault(rule.id, [])
            if len(kept) < CASES or first.key < kept[-1][0]:
                kept.append((first.key, exhibit(records, first)))
                self.best[rule.id] = heapq.nsmallest(CASES, kept, key=lambda k: k[0])

    def rooms(self) -> list[Room]:
        """Every rule, those without a case as well."""
        rooms = []
        for rule in RULES:
            n, total = self.counts.get(rule.id, [0, 0])
            shown = tuple(case for _, case in self.best.get(rule.id, []))
            rooms.append(Room(rule, n, total, shown))
        return rooms

    def table(self) -> Table:
        """How often each rule holds."""
        rows = [
            {
                "rule": room.rule.title,
                "n": room.n,
                "total": room.total,
                "share": 100 * room.n / room.total if room.total else None,
                "of": room.rule.of,
            }
            for room in self.rooms()
        ]
        return Table(
            "gallery",
            "How often each rule holds",
            (
                Column("rule", "Rule"),
                Column("n", "Cases", "int"),
                Column("total", "Of", "int"),
                Column("share", "Share", "percent"),
                Column("of", "Counted over"),
            ),
            rows,
            (
                f"Rules read stored records alone, of {self.users:,} "
                f"{'user' if self.users == 1 else 'users'}; a case can meet several. They find "
                "examples and measure nothing: a rule by words misses what is said in others.",
            ),
        )


def _transcript(
    store: Store | None, case: Row, quotes: list[str]
) -> tuple[tuple[tuple[str, str], ...], int]:
    """The first turns, the last, and those that a quotation is from."""
    episode = episode_of(store, case)
    turns = episode["turns"] if episode else []
    quoted = [at for at, t in enumerate(turns) if any(plain(q) in plain(t["user"]) for q in quotes)]
    last = len(turns) - 1
    wanted = dict.fromkeys([*quoted[:2], last, *range(len(turns))])
    shown = sorted(at for at in [*wanted][:TURNS] if at >= 0)
    lines: list[tuple[str, str]] = []
    for at in shown:
        lines.append((f"Assistant, turn {at + 1}", cut(turns[at]["assistant"], ITEM)))
        lines.append((f"User ({turns[at]['feedback']})", cut(turns[at]["user"], LONG)))
    return tuple(lines), len(turns) - len(shown)


def _stored(store: Store | None, hit: Hit, truth: str) -> tuple[str, ...]:
    if store is None:
        return ()
    wanted = words(f"{truth} {hit.case['verdict']['label'] or ''}")
    near = [at for _, at in store.best(wanted)[:2]]
    places = dict.fromkeys([*hit.shown, *near])
    return tuple(cut(store.raw["items"][at]["text"], LONG) for at in [*places][:2])


def _retrieved(store: Store | None, case: Row) -> tuple[str, ...] | None:
    if case["mode"] != AccessMode.RETRIEVE.value:
        return None
    if store is None:
        return ()
    entry = store.raw["retrieved"].get(case["target"], {"hits": []})
    items = store.raw["items"]
    return tuple(
        cut(items[hit["at"]]["text"] if "at" in hit else hit.get("text"), ITEM)
        for hit in entry["hits"][: case["k"]]
    )


def exhibit(records: UserRecords, hit: Hit) -> Exhibit:
    """The case of a hit with its evidence."""
    case = hit.case
    store = records.store(case)
    target = records.targets.get(case["target"], {})
    verdict, slot = case["verdict"], case.get("slot") or {}
    blame = case.get("attribution") or {}
    quotes = store.quotes(blame.get("evidence"), blame.get("episode")) if store else []
    lines, left_out = _transcript(store, case, quotes)
    dimension = case["target"].partition("/")[2]
    parts = (records.user, dimension, case["system"], case["variant"])
    label = blame.get("label")
    causes = [blame.get("cause_reason"), blame.get("detail")]
    return Exhibit(
        address="#" + "/".join(quote(part, safe="") for part in parts),
        name=" · ".join(parts),
        facts=tuple((name, cut(text, LONG)) for name, text in hit.facts),
        target=cut(target.get("short"), LONG),
        explanation=cut(target.get("explanation"), LONG),
        task=cut((episode_of(store, case) or {}).get("task") or target.get("task"), LONG),
        transcript=lines,
        left_out=left_out,
        stored=_stored(store, hit, records.truth(case)),
        n_stored=len(store.raw["items"]) if store else 0,
        retrieved=_retrieved(store, case),
        answer=cut(verdict["label"], LONG) or "no answer",
        answer_why=cut(slot.get("why"), LONG),
        score="not measured"
        if verdict["score"] is None
        else f"{verdict['score']:.2f}"
        + (f", not measured: {verdict['reason']}" if verdict.get("reason") else ""),
        score_why=cut(verdict["why"], LONG),
        attribution=LABEL_NAMES.get(label, str(label)) if label else "not attributed",
        evidence=cut(blame.get("evidence"), LONG),
        cause=cut(" · ".join(cause for cause in causes if cause), LONG),
    )
