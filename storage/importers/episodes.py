"""One user's episodes with one system: histories, preference judgements, memories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memprobe.outcomes import Reason
from memprobe.types import EndReason
from storage.importers.source import Document, Issues, number, objects
from storage.importers.templates import Rows, Template
from storage.importers.users import NOT_IN_BANK, SCORED, unscored

ENDS = frozenset(e.value for e in EndReason)
Row = dict[str, Any]


class Owner:
    """Whose records these are."""

    def __init__(self, system: str, user_id: str, known: bool) -> None:
        self.system = system
        self.user_id = user_id
        self.known = known

    @property
    def key(self) -> Row:
        """The columns of a store."""
        return {"system": self.system, "user_id": self.user_id, "epoch": 1}

    def about(self, table: str) -> dict[str, str]:
        """For an issue."""
        return {"system": self.system, "user_id": self.user_id, "table": table}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _episode(owner: Owner, task: Row | None, episode: int, **columns: Any) -> Row:
    return {
        **owner.key,
        "episode": episode,
        "category": task["category"] if task else "",
        "dimension": task["dimension"] if task else "",
        "task": task["task"] if task else "",
        "event_time": "",
        "end_reason": None,
        "n_turns": 0,
        "pref_mean": None,
        **columns,
    }


def missing_episode(rows: Rows, owner: Owner, task: Row, detail: str) -> None:
    """A row for an episode that has no usable file: attempted, and not measured."""
    rows.add(
        "episodes",
        _episode(owner, task, task["task_index"], **unscored(Reason.DATASET_ERROR, detail)),
    )


def add_history(
    rows: Rows, owner: Owner, episode: int, task: Row | None, document: Document, issues: Issues
) -> Any:
    """The rows of an episode and its turns; returns the file's template."""
    about = owner.about("episodes")
    path, value = document.path, document.value
    template = Template(rows, document.dollar)
    if not isinstance(value, dict):
        issues.add(path, "", "no object", "the episode is unscored", **about)
        value = {}
    turns = value.get("turns")
    end = value.get("end_reason")
    outcome = SCORED
    if not owner.known:
        outcome = unscored(Reason.DATASET_ERROR, NOT_IN_BANK)
    elif not isinstance(turns, list) or not turns:
        issues.add(path, "turns", "no turns", "the episode is unscored", **about)
        outcome = unscored(Reason.DATASET_ERROR, "the file has no turns")
    elif end not in ENDS:
        issues.add(path, "end_reason", f"{end!r:.60} is unknown", "unscored", **about)
        outcome = unscored(Reason.DATASET_ERROR, "the end reason is unknown")
    parts = []
    kept = 0
    for place, turn in enumerate(turns if isinstance(turns, list) else []):
        part, stored = _turn(rows, owner, episode, place, turn, template, path, issues)
        parts.append(part)
        kept += stored
    stated = value.get("final_preference_score")
    text = _text(value.get("task"))
    row = _episode(
        owner,
        task,
        episode,
        end_reason=_text(end),
        n_turns=kept,
        pref_mean=number(stated),
        **outcome,
    )
    if text is not None:
        row["task"] = text
    rows.add("episodes", row)
    columns = {
        "user_id": ("episodes", "user_id", episode),
        "task": ("episodes", "task", episode),
        "end_reason": ("episodes", "end_reason", episode),
        "final_preference_score": ("episodes", "pref_mean", episode),
    }
    if not isinstance(document.value, dict):
        return template.literal(document.value)
    return template.object(value, columns, {"turns": parts} if isinstance(turns, list) else {})


def _turn(
    rows: Rows, owner: Owner, episode: int, place: int, turn: Any, template: Template,
    path: str, issues: Issues,
) -> tuple[Any, bool]:  # fmt: skip
    about = owner.about("turns")
    where = f"turns[{place}]"
    n = turn.get("turn") if isinstance(turn, dict) else None
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n < 2**31:
        issues.add(path, f"{where}.turn", "no turn number", "kept in `extras`, no row", **about)
        return template.literal(turn), False
    simulator = turn.get("user_simulator")
    said: Mapping[str, Any] = simulator if isinstance(simulator, dict) else {}
    reply = _text(turn.get("agent_response"))
    if reply is None:
        issues.add(path, f"{where}.agent_response", "no text", "stored as empty", **about)
    if _text(said.get("text")) is None or _text(said.get("feedback_type")) is None:
        issues.add(path, f"{where}.user_simulator", "no feedback", "stored without", **about)
    row = {
        **owner.key,
        "episode": episode,
        "turn": n,
        "event_time": "",
        "assistant_text": reply or "",
        "assistant_call": None,
        "feedback_type": _text(said.get("feedback_type")),
        "user_text": _text(said.get("text")),
        "simulator_call": None,
        "retrieved_json": None,
    }
    if not rows.add("turns", row):
        issues.add(path, f"{where}.turn", f"turn {n} is there twice", "the first counts", **about)
        return template.literal(turn), False
    judged = turn.get("preference_evaluator")
    raw = judged.get("score") if isinstance(judged, dict) else None
    score = number(raw)
    outcome = SCORED
    if not owner.known:
        outcome = unscored(Reason.DATASET_ERROR, NOT_IN_BANK)
    elif (raw is not None and score is None) or (score is not None and not 1 <= score <= 5):
        issues.add(
            path, f"{where}.preference_evaluator.score", f"{raw!r:.40} is off the scale 1 to 5",
            "unscored", **owner.about("turn_scores"),
        )  # fmt: skip
        outcome = unscored(Reason.INVALID_OUTPUT, "the score is off the scale 1 to 5")
    elif not isinstance(judged, dict) or "score" not in judged:
        issues.add(
            path, f"{where}.preference_evaluator", "no score", "unscored",
            **owner.about("turn_scores"),
        )  # fmt: skip
        outcome = unscored(Reason.DATASET_ERROR, "the turn has no preference score")
    rows.add(
        "turn_scores",
        {
            **owner.key, "episode": episode, "turn": n,
            "score": score if outcome["status"] == "scored" else None,
            "summary": None, **outcome,
        },
    )  # fmt: skip
    at = (episode, n)
    parts: dict[str, Any] = {}
    if isinstance(simulator, dict):
        parts["user_simulator"] = template.object(
            simulator,
            {
                "feedback_type": ("turns", "feedback_type", *at),
                "text": ("turns", "user_text", *at),
            },
        )
    if isinstance(judged, dict):
        parts["preference_evaluator"] = template.object(
            judged, {"score": ("turn_scores", "score", *at)}
        )
    columns = {"turn": ("turns", "turn", *at), "agent_response": ("turns", "assistant_text", *at)}
    return template.object(turn, columns, parts), True


def add_preferences(
    rows: Rows, owner: Owner, episode: int, document: Document, issues: Issues
) -> Any:
    """The single preferences' scores of an episode; returns the file's template."""
    about = owner.about("preference_scores")
    path, value = document.path, document.value
    template = Template(rows, document.dollar)
    if not isinstance(value, dict) or not isinstance(value.get("turns"), list):
        issues.add(path, "turns", "no turns", "the turn means of the history count", **about)
        return template.literal(value)
    names = {
        entry["idx"]: entry["dimension"]
        for entry in objects(value.get("prefs"))
        if type(entry.get("idx")) is int and isinstance(entry.get("dimension"), str)
    }
    parts = []
    for place, turn in enumerate(value["turns"]):
        where = f"turns[{place}]"
        n = turn.get("turn") if isinstance(turn, dict) else None
        if type(n) is not int or rows.get("turns", (episode, n)) is None:
            issues.add(path, f"{where}.turn", "no such turn in the history", "no rows", **about)
            parts.append(template.literal(turn))
            continue
        scored = rows.get("turn_scores", (episode, n))
        if scored is not None and scored["summary"] is None:
            scored["summary"] = _text(turn.get("summary"))
        at = (episode, n)
        columns = {
            "turn": ("turns", "turn", *at),
            "agent_response": ("turns", "assistant_text", *at),
            "score": ("turn_scores", "score", *at),
            "summary": ("turn_scores", "summary", *at),
        }
        listed = turn.get("per_pref")
        inner = {}
        if isinstance(listed, list):
            inner["per_pref"] = [
                _preference(
                    rows, owner, at, f"{where}.per_pref[{i}]", one, names, template, path, issues
                )
                for i, one in enumerate(listed)
            ]
        else:
            issues.add(path, f"{where}.per_pref", "no list", "the turn's mean counts", **about)
        parts.append(template.object(turn, columns, inner))
    prefs = value.get("prefs")
    preference = "assistance_preference"
    inner = {"turns": parts}
    if isinstance(prefs, list):
        inner["prefs"] = [
            template.object(
                one,
                {
                    name: ("targets", name, preference, one["dimension"])
                    for name in ("dimension", "short", "explanation")
                },
            )
            if isinstance(one, dict) and isinstance(one.get("dimension"), str)
            else template.literal(one)
            for one in prefs
        ]
    named = {name: ("episodes", name, episode) for name in ("user_id", "task")}
    return template.object(value, named, inner)


def _preference(
    rows: Rows, owner: Owner, at: tuple[int, int], where: str, one: Any,
    names: dict[int, str], template: Template, path: str, issues: Issues,
) -> Any:  # fmt: skip
    about = owner.about("preference_scores")
    idx = one.get("idx") if isinstance(one, dict) else None
    if type(idx) is not int or not 0 <= idx < 2**31:
        issues.add(path, f"{where}.idx", "no index", "no row", **about)
        return template.literal(one)
    score = one.get("score")
    outcome, stored = SCORED, None
    if not owner.known:
        outcome = unscored(Reason.DATASET_ERROR, NOT_IN_BANK)
    elif type(score) is int and 1 <= score <= 5:
        stored = score
    elif score != "na":
        issues.add(path, f"{where}.score", f"{score!r:.40} is no 1 to 5", "unscored", **about)
        outcome = unscored(Reason.INVALID_OUTPUT, "the score is off the scale 1 to 5")
    row = {
        **owner.key,
        "episode": at[0],
        "turn": at[1],
        "idx": idx,
        "dimension": names.get(idx, ""),
        "score": stored,
        "judge_reason": _text(one.get("reason")),
        **outcome,
        "call_id": None,
    }
    if not rows.add("preference_scores", row):
        issues.add(path, f"{where}.idx", f"{idx} is there twice", "the first counts", **about)
        return template.literal(one)
    key = (*at, idx)
    columns = {
        "idx": ("preference_scores", "idx", *key),
        "score": ("preference_scores", "score", *key),
        "reason": ("preference_scores", "judge_reason", *key),
    }
    return template.object(one, columns)


def item_key(item: Mapping[str, Any]) -> str:
    """What identifies an item that has no id: all of it but its score."""
    return json.dumps({k: v for k, v in item.items() if k != "score"}, sort_keys=True)


def add_memories(rows: Rows, owner: Owner, document: Document, issues: Issues) -> Any:
    """The rows of `memory_items`; returns the file's template.

    The release's timestamps are wall clock, not the episode's time, so they stay in `fields_json`.
    """
    about = owner.about("memory_items")
    path, value = document.path, document.value
    template = Template(rows, document.dollar)
    listed = value.get("memories") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        issues.add(path, "memories", "no list of memories", "the store is unknown", **about)
        return template.literal(value)
    stated = value.get("num_memories")
    if stated != len(listed):
        issues.add(
            path, "num_memories", f"{stated!r:.40} stated, {len(listed)} there", "all are taken",
            **about,
        )  # fmt: skip
    parts = []
    for seq, item in enumerate(listed):
        content = item.get("content") if isinstance(item, dict) else None
        if not isinstance(content, str):
            issues.add(path, f"memories[{seq}].content", "no text", "kept in `extras`", **about)
            parts.append(template.literal(item))
            continue
        own = item.get("id")
        fields = {k: v for k, v in item.items() if k not in ("id", "content")}
        if not isinstance(own, str):
            fields = {k: v for k, v in item.items() if k != "content"}
        rows.add(
            "memory_items",
            {
                **owner.key,
                "seq": seq,
                "item_id": own if isinstance(own, str) else f"n{seq:05d}",
                "content": content,
                "event_time": None,
                "chars": len(content),
                "fields_json": _fields(fields),
            },
        )
        parts.append(_item(template, item, seq, isinstance(own, str), fields))
    return template.object(value, {}, {"memories": parts})


def _fields(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(fields)
    return text


def _item(
    template: Template, item: Mapping[str, Any], seq: int, has_id: bool, fields: Mapping[str, Any]
) -> Any:
    order = [*(("id",) if has_id else ()), "content", *fields]
    texts = [item["content"], *((item["id"],) if has_id else ())]
    plain = all(t.isascii() or t.encode("utf-8", "replace").decode() == t for t in texts)
    if list(item) == order and plain:
        return {"$": ["item", seq, has_id]}
    columns: dict[str, tuple[Any, ...]] = {"content": ("memory_items", "content", seq)}
    if has_id:
        columns["id"] = ("memory_items", "item_id", seq)
    return template.object(item, columns)
