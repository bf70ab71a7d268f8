"""A run of our own in the public layout, as the importer reads it.

The layout has one store a user and system, one layer of verdicts, one k, and no
notion of "not measured": an error is never written as a score. A record that was
not measured is left out of its file, and stands with its reason in the rest.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memprobe.ids import slug
from memprobe.types import AccessMode, AttributionLabel
from storage.importers.layout import BANK, ORACLE, PUBLISHED_RUNS, RETRIEVE, TASK_SET
from storage.runs import RunStore
from storage.schemas import ORDER, SCHEMAS, UNIQUE

Row = dict[str, Any]
_PREFERRED_K = 5
_SAFE = re.compile(r"[^\W_][\w .@+=,()\-]{0,60}(?<![ .])\Z")
_STORE = ("system", "user_id", "epoch")
_TARGET = ("category", "dimension")
_ACCESS = ("layer", "access_mode", "k")

CARRIED: dict[str, frozenset[str]] = {
    "users": frozenset({"user_id", "profile_json", "n_targets", "n_tasks"}),
    "targets": frozenset({"user_id", *_TARGET, "short", "explanation"}),
    "tasks": frozenset({"user_id", "task_index", "task", "rationale", *_TARGET}),
    "oracle_verdicts": frozenset({"user_id", *_TARGET, "can_invite", "oracle_reason", "status"}),
    "episodes": frozenset(
        {*_STORE, *_TARGET, "episode", "task", "end_reason", "n_turns", "pref_mean", "status"}
    ),
    "turns": frozenset(
        {*_STORE, "episode", "turn", "assistant_text", "feedback_type", "user_text"}
    ),
    "turn_scores": frozenset({*_STORE, "episode", "turn", "score", "summary", "status"}),
    "preference_scores": frozenset(
        {*_STORE, "episode", "turn", "idx", "dimension", "score", "judge_reason", "status"}
    ),
    "memory_items": frozenset({*_STORE, "seq", "item_id", "content", "chars", "fields_json"}),
    "retrievals": frozenset({*_STORE, *_TARGET, "rank", "item_id", "content", "score"}),
    "slot_fills": frozenset(
        {*_STORE, *_ACCESS, *_TARGET, "label", "label_reason", "n_items", "status"}
    ),
    "verdicts": frozenset(
        {*_STORE, *_ACCESS, *_TARGET, "label", "score", "judge_reason", "status"}
    ),
    "attributions": frozenset(
        {*_STORE, *_ACCESS, *_TARGET, "label", "score", "episode", "can_invite", "disclosed"}
        | {"evidence", "cause_reason", "status"}
    ),
}
"""Columns that the layout has a place for. The others of a row go to the rest, under its key."""


_BY_FOLDER = frozenset({"memory_items", "oracle_verdicts"})
"""Tables whose files tell their user by the path alone."""


def run_names(run: RunStore) -> dict[str, str]:
    """System to run name: what the importer will call the same system again."""
    manifest = run.manifest
    if manifest.origin is not None:
        return dict(manifest.origin.runs)
    published = {system: name for name, system in PUBLISHED_RUNS.items()}
    return {
        name: published.get(name) or f"{name if _SAFE.match(name) else slug(name)}_pooled_1"
        for name in manifest.system_names
    }


def _document(value: Any) -> bytes:
    """The release's own style."""
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8")


def _scored(row: Mapping[str, Any]) -> bool:
    # A reason beside a score is a published fault: scored, and kept as the layout has it.
    return bool(row["status"] == "scored")


class Release:
    """The files of a run and the rows that none of them holds."""

    def __init__(self, run: RunStore) -> None:
        self.run = run
        self.names = run_names(run)
        self.users = sorted(row["user_id"] for row in run.read("users"))
        self.renamed: dict[str, str] = {}
        self.paths = {user: self._path(user) for user in self.users}
        ks = sorted({row["k"] for row in run.read("verdicts") if row["k"] is not None})
        self.k = _PREFERRED_K if _PREFERRED_K in ks else ks[0] if ks else None

    def _path(self, user: str) -> str:
        """A user's id in paths: the id itself where it is safe as a name."""
        if _SAFE.match(user):
            return user
        self.renamed[user] = slug(user)
        return self.renamed[user]

    def fits(self, table: str, row: Mapping[str, Any]) -> bool:
        """Whether the layout has a place for a row."""
        if table not in CARRIED:
            return False
        if row.get("epoch", 1) != 1 or row.get("layer", "base") != "base":
            return False
        if row.get("k", None) not in (None, self.k):
            return False
        if row.get("system", "") and row["system"] not in self.names:
            return False
        if table in _BY_FOLDER and row["user_id"] in self.renamed:
            return False
        match table:
            case "retrievals":
                return bool(row["rank"] <= (self.k or 0))
            case "slot_fills" | "verdicts" | "attributions" | "oracle_verdicts":
                return _scored(row)
            case "preference_scores" | "turn_scores":
                return _scored(row)
        return True

    def rest(self) -> Iterator[tuple[str, Row]]:
        """Rows, or what of them the layout does not hold, by table.

        A slot-fill stands in the layout together with its verdict, so one whose verdict
        was not measured is in the rest as a whole.
        """
        for table in SCHEMAS:
            if table == "extras":
                continue
            carried = CARRIED.get(table, frozenset())
            key = UNIQUE.get(table, ORDER[table])
            judged = self._judged() if table in ("slot_fills", "attributions") else None
            for row in self.run.read(table):
                whole = not self.fits(table, row)
                if judged is not None and _key(row) not in judged:
                    whole = True
                if whole:
                    yield table, row
                    continue
                left = {n: v for n, v in row.items() if n not in carried and v is not None}
                if any(value not in ("", "[]") for value in left.values()):
                    yield table, {**{name: row[name] for name in key}, **left}

    def _judged(self) -> set[tuple[Any, ...]]:
        rows = self.run.read("verdicts")
        return {_key(row) for row in rows if self.fits("verdicts", row)}

    def files(self) -> Iterator[tuple[str, bytes]]:
        """All files of the layout, one user at a time."""
        bank = []
        for user in self.users:
            targets = self.run.read("targets", user=user)
            (row,) = self.run.read("users", user=user)
            banks: dict[str, list[Row]] = defaultdict(list)
            for target in targets:
                entry = {name: target[name] for name in ("dimension", "short", "explanation")}
                banks[target["category"]].append(entry)
            profile = json.loads(row["profile_json"])
            bank.append({"user_id": user, "base_profile": profile, "memory_bank": banks})
            yield self._tasks(user, targets)
            verdicts = self.run.read("oracle_verdicts", user=user)
            oracle = [row for row in verdicts if _scored(row)]
            said = {
                row["dimension"]: {"can_invite": row["can_invite"], "reason": row["oracle_reason"]}
                for row in oracle
            }
            if said and user not in self.renamed:
                yield f"output/{ORACLE}/{self.paths[user]}.json", _document(said)
            for system, name in self.names.items():
                yield from _Chain(self, user, system, name, targets, said).files()
        value = {"num_users": len(bank), "users": bank}
        yield f"Deeppersona/data/{BANK}.json", _document(value)

    def _tasks(self, user: str, targets: Sequence[Row]) -> tuple[str, bytes]:
        short = {(t["category"], t["dimension"]): t["short"] for t in targets}
        rows = sorted(self.run.read("tasks", user=user), key=lambda row: row["task_index"])
        listed = [
            {
                "task": row["task"],
                "rationale": row["rationale"],
                "target_category": row["category"],
                "target_dimension": row["dimension"],
                "target_short": short.get((row["category"], row["dimension"]), ""),
            }
            for row in rows
        ]
        value = {"user_id": user, "n_tasks": len(listed), "tasks": listed}
        return f"benchmark_data/{TASK_SET}/{self.paths[user]}.json", _document(value)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*_STORE, *_ACCESS, *_TARGET))


class _Chain:
    """One user's records with one system."""

    def __init__(
        self,
        release: Release,
        user: str,
        system: str,
        name: str,
        targets: Sequence[Row],
        oracle: Mapping[str, Any],
    ) -> None:
        self.release = release
        self.user = user
        self.at = {"system": system, "user": user}
        self.name = name
        self.place = release.paths[user]
        self.targets = {(t["category"], t["dimension"]): t for t in targets}
        self.oracle = oracle

    def _rows(self, table: str) -> list[Row]:
        rows = self.release.run.read(table, **self.at)
        return [row for row in rows if self.release.fits(table, row)]

    def files(self) -> Iterator[tuple[str, bytes]]:
        episodes = self._rows("episodes")
        if episodes:
            yield from self._episodes(episodes)
        if episodes and self.user not in self.release.renamed:
            items = sorted(self._rows("memory_items"), key=lambda row: row["seq"])
            held = [_item(row) for row in items]
            value = {"num_memories": len(held), "memories": held}
            yield f"memory/{self.name}/{self.place}/memories.json", _document(value)
        verdicts = self._rows("verdicts")
        for mode in AccessMode:
            of_mode = [row for row in verdicts if row["access_mode"] == mode.value]
            if of_mode:
                yield from self._judged(mode, of_mode)

    def _episodes(self, episodes: Sequence[Row]) -> Iterator[tuple[str, bytes]]:
        turns: dict[int, list[Row]] = defaultdict(list)
        for row in sorted(self._rows("turns"), key=lambda row: row["turn"]):
            turns[row["episode"]].append(row)
        single: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in sorted(self._rows("preference_scores"), key=lambda row: row["idx"]):
            single[row["episode"], row["turn"]].append(row)
        means = {(r["episode"], r["turn"]): r for r in self._rows("turn_scores")}
        for episode in episodes:
            number = episode["episode"]
            said = turns[number]
            scores = [
                _judged_turn(means.get((number, turn["turn"])), single[number, turn["turn"]])
                for turn in said
            ]
            history = {
                "user_id": self.user,
                "task": episode["task"],
                "ground_truth": None,
                "end_reason": episode["end_reason"],
                "final_preference_score": episode["pref_mean"],
                "turns": [
                    {
                        "turn": turn["turn"],
                        "agent_response": turn["assistant_text"],
                        "user_simulator": {
                            "feedback_type": turn["feedback_type"],
                            "text": turn["user_text"],
                            "is_done": place == len(said) and episode["end_reason"] == "satisfied",
                        },
                        "preference_evaluator": score,
                    }
                    for place, (turn, score) in enumerate(zip(said, scores, strict=True), 1)
                ],
            }
            path = f"{self.name}/{self.place}/episode_{number}.json"
            yield f"history/{path}", _document(history)
            judged = [single[number, turn["turn"]] for turn in said]
            if any(map(_measured, judged)):
                value = self._preferences(episode, said, judged, scores)
                yield f"pref_judge/{path}", _document(value)

    def _preferences(
        self,
        episode: Row,
        turns: Sequence[Row],
        judged: Sequence[list[Row]],
        scores: Sequence[Row],
    ) -> Row:
        names = {row["idx"]: row["dimension"] for rows in judged for row in rows}
        truths = {dimension: target for (_, dimension), target in self.targets.items()}
        return {
            "user_id": self.user,
            "task": episode["task"],
            "prefs": [
                {
                    "idx": idx,
                    "dimension": name,
                    "short": truths.get(name, {}).get("short"),
                    "explanation": truths.get(name, {}).get("explanation"),
                }
                for idx, name in sorted(names.items())
            ],
            "turns": [
                {
                    "turn": turn["turn"],
                    "agent_response": turn["assistant_text"],
                    **score,
                    "per_pref": [
                        {
                            "idx": row["idx"],
                            "score": "na" if row["score"] is None else row["score"],
                            "reason": row["judge_reason"],
                        }
                        for row in rows
                        if _scored(row)
                    ],
                }
                for turn, rows, score in zip(turns, judged, scores, strict=True)
            ],
        }

    def _judged(self, mode: AccessMode, verdicts: Sequence[Row]) -> Iterator[tuple[str, bytes]]:
        retrieve = mode is AccessMode.RETRIEVE
        folder = f"output/{self.name}{RETRIEVE if retrieve else ''}"
        fills = {_key(row): row for row in self._rows("slot_fills")}
        found: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in sorted(self._rows("retrievals") if retrieve else [], key=lambda r: r["rank"]):
            found[row["category"], row["dimension"]].append(row)
        details = []
        for row in verdicts:
            key = (row["category"], row["dimension"])
            fill = fills.get(_key(row), {})
            detail = {
                "category": key[0],
                "dimension": key[1],
                "explanation": self.targets.get(key, {}).get("explanation"),
                "ground_truth": self.targets.get(key, {}).get("short"),
                "predicted": row["label"],
                "slot_fill_reason": fill.get("label_reason"),
                "score": row["score"],
                "judge_reason": row["judge_reason"],
                "scoring_mode": mode.value,
            }
            if retrieve:
                detail["retrieved_memories"] = [
                    {"id": hit["item_id"], "content": hit["content"], "score": hit["score"]}
                    for hit in found[key]
                ]
            details.append((row, detail))
        means = _means(verdicts)
        overall = math.fsum(means.values()) / len(means)
        listed = [detail for _, detail in details]
        head = {"user_id": self.user, "per_category": means, "overall": overall}
        yield f"{folder}/recon_judge/{self.place}.json", _document({**head, "details": listed})
        blamed = {_key(row): row for row in self._rows("attributions")}
        rows = [
            {**detail, "attribution": self._blame(blamed[_key(row)])}
            for row, detail in details
            if _key(row) in blamed
        ]
        if rows:
            counts: dict[str, int] = {}
            for one in rows:
                label = one["attribution"]["category"]
                counts[label] = counts.get(label, 0) + 1
            value = {"user_id": self.user, "tasks_dir": TASK_SET, "counts": counts, "details": rows}
            yield f"{folder}/attribution/{self.place}.json", _document(value)

    def _blame(self, row: Row) -> Row:
        stages: list[Row] = []
        if row["can_invite"] is not None:
            said = self.oracle.get(row["dimension"], {}).get("reason")
            reason = said if said is not None else row["cause_reason"]
            stages.append({"stage": "oracle", "can_invite": row["can_invite"], "reason": reason})
        if row["disclosed"] is not None:
            stages.append(
                {"stage": "disclosure", "disclosed": row["disclosed"], "evidence": row["evidence"]}
            )
        if row["label"] in _SUBCLASS:
            category = _SUBCLASS[row["label"]]
            reason = row["cause_reason"]
            stages.append({"stage": "disclosure_subclass", "category": category, "reason": reason})
        out = {"category": row["label"], "score": row["score"], "stages": stages}
        return {**out, "ep_index": row["episode"]} if row["episode"] is not None else out


_SUBCLASS = {
    AttributionLabel.AGENT_ELICITATION_FAILURE.value: "A",
    AttributionLabel.SIMULATOR_TOO_STRICT.value: "B",
    AttributionLabel.UNCLASSIFIED.value: "other",
}


def _measured(rows: Sequence[Row]) -> bool:
    return any(_scored(row) for row in rows)


def _judged_turn(stored: Row | None, single: Sequence[Row]) -> Row:
    """A turn's mean; no key at all for one that nobody judged, which is not "nothing applied"."""
    if stored is not None:
        return {"score": stored["score"]}
    if not _measured(single):
        return {}
    scores = [row["score"] for row in single if _scored(row) and row["score"] is not None]
    return {"score": math.fsum(scores) / len(scores) if scores else None}


def _item(row: Row) -> Row:
    fields = json.loads(row["fields_json"] or "{}")
    head = {"id": row["item_id"], "content": row["content"]}
    # A native field of such a name must not take the place of what was stored.
    return {**head, **fields} if head.keys().isdisjoint(fields) else {**head, "fields": fields}


def _means(verdicts: Sequence[Row]) -> dict[str, float]:
    by_category: dict[str, list[float]] = defaultdict(list)
    for row in verdicts:
        by_category[row["category"]].append(row["score"])
    return {name: math.fsum(scores) / len(scores) for name, scores in by_category.items()}
