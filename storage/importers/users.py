"""What the users of a published release are: banks, tasks and oracle verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memprobe.outcomes import Reason
from memprobe.types import Category
from storage.importers.source import Document, Issues, objects
from storage.importers.templates import Rows, Template, storable

CATEGORIES = frozenset(c.value for c in Category)
SCORED: dict[str, Any] = {"status": "scored", "reason": None, "detail": None}
NOT_IN_BANK = "the user is not in the bank"

Row = dict[str, Any]


def unscored(reason: Reason, detail: str) -> Row:
    """The outcome columns of what has no value."""
    return {"status": "unscored", "reason": reason.value, "detail": detail}


@dataclass(frozen=True, slots=True)
class BankUser:
    """A user's place in the bank file, with its entry."""

    place: int
    user_id: str
    entry: Mapping[str, Any]


def bank_users(document: Document, issues: Issues) -> list[BankUser]:
    """The users of a bank file in its order; a second one of an id is reported and left out."""
    found: list[BankUser] = []
    listed = document.value.get("users") if isinstance(document.value, dict) else None
    if not isinstance(listed, list):
        issues.add(document.path, "users", "no list of users", "no user is taken from here")
        return found
    seen: set[str] = set()
    for place, entry in enumerate(listed):
        where = f"users[{place}]"
        user_id = entry.get("user_id") if isinstance(entry, dict) else None
        if not isinstance(user_id, str) or not user_id:
            issues.add(document.path, f"{where}.user_id", "no user id", "the entry is left out")
        elif not storable(user_id):
            issues.add(
                document.path, f"{where}.user_id", "holds half a surrogate pair",
                "the entry is left out",
            )  # fmt: skip
        elif user_id in seen:
            issues.add(
                document.path, where, "a second entry of the user", "the first counts",
                user_id=user_id,
            )  # fmt: skip
        else:
            seen.add(user_id)
            found.append(BankUser(place, user_id, entry))
    return found


def blank_user(user_id: str) -> Row:
    """A user of whom nothing is known yet."""
    return {
        "user_id": user_id,
        "profile_json": "{}",
        "n_targets": 0,
        "n_tasks": 0,
        "dataset_digest": "",
    }


def profile_text(profile: Any) -> str:
    """A profile as stored, its keys in their order."""
    return json.dumps(profile) if isinstance(profile, dict) else "{}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def add_bank(rows: Rows, user: BankUser, path: str, issues: Issues) -> None:
    """The rows of `users` and `targets`; counts are put in when the tasks are known."""
    about = {"user_id": user.user_id, "table": "targets"}
    where = f"users[{user.place}]"
    profile = user.entry.get("base_profile")
    if not isinstance(profile, dict):
        issues.add(path, f"{where}.base_profile", "no profile", "the user has none", **about)
    made = blank_user(user.user_id)
    made["profile_json"] = profile_text(profile)
    rows.add("users", made)
    bank = user.entry.get("memory_bank")
    if not isinstance(bank, dict):
        issues.add(path, f"{where}.memory_bank", "no memory bank", "no targets from it", **about)
        return
    for category, entries in bank.items():
        at = f"{where}.memory_bank.{category}"
        if category not in CATEGORIES:
            issues.add(path, at, "an unknown category", "its entries are no targets", **about)
            continue
        if not isinstance(entries, list):
            issues.add(path, at, "no list", "no targets from it", **about)
            continue
        for number, entry in enumerate(entries):
            here = f"{at}[{number}]"
            dimension = entry.get("dimension") if isinstance(entry, dict) else None
            if not isinstance(dimension, str) or not dimension:
                issues.add(path, here, "no dimension", "no target", **about)
                continue
            for name in ("short", "explanation"):
                if not isinstance(entry.get(name), str):
                    issues.add(path, f"{here}.{name}", "no text", "stored as empty", **about)
            row = {
                "user_id": user.user_id,
                "category": category,
                "dimension": dimension,
                "short": _text(entry.get("short")),
                "explanation": _text(entry.get("explanation")),
            }
            if not rows.add("targets", row):
                issues.add(path, here, f"{dimension} is there twice", "the first counts", **about)


def bank_template(rows: Rows, user: BankUser, dollar: bool) -> Any:
    """The bank's entry of one user."""
    template = Template(rows, dollar)
    parts: dict[str, Any] = {}
    bank = user.entry.get("memory_bank")
    if isinstance(user.entry.get("base_profile"), dict):
        parts["base_profile"] = {"$": ["profile"]}
    if isinstance(bank, dict):
        parts["memory_bank"] = template.object(
            bank,
            {},
            {
                category: [_entry(template, category, entry) for entry in entries]
                for category, entries in bank.items()
                if isinstance(entries, list)
            },
        )
    return template.object(user.entry, {"user_id": ("users", "user_id")}, parts)


def _entry(template: Template, category: str, entry: Any) -> Any:
    if not isinstance(entry, dict):
        return template.literal(entry)
    key = (category, entry.get("dimension"))
    if not isinstance(key[1], str):
        return template.literal(entry)
    names = ("dimension", "short", "explanation")
    return template.object(entry, {name: ("targets", name, *key) for name in names})


def add_tasks(rows: Rows, user_id: str, document: Document, issues: Issues) -> Any:
    """The rows of `tasks`; returns the file's template."""
    about = {"user_id": user_id, "table": "tasks"}
    value = document.value
    template = Template(rows, document.dollar)
    listed = value.get("tasks") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        issues.add(document.path, "tasks", "no list of tasks", "the user has none", **about)
        return template.literal(value)
    targets = rows.tables.get("targets", {})
    parts = []
    for number, task in enumerate(listed, 1):
        where = f"tasks[{number - 1}]"
        if not isinstance(task, dict) or not isinstance(task.get("task"), str):
            issues.add(document.path, where, "no task text", "no row", **about)
            parts.append(template.literal(task))
            continue
        key = (_text(task.get("target_category")), _text(task.get("target_dimension")))
        if key not in targets:
            issues.add(
                document.path, f"{where}.target_dimension",
                f"{key[0] or '?'}/{key[1] or '?'} is no target of the user",
                "the task is kept without a target", **about,
            )  # fmt: skip
        rationale = task.get("rationale")
        rows.add(
            "tasks",
            {
                "user_id": user_id,
                "task_index": number,
                "task": task["task"],
                "rationale": rationale if isinstance(rationale, str) else None,
                "category": key[0],
                "dimension": key[1],
                "planted": None,
                "critic_json": None,
            },
        )
        columns = {
            "task": ("tasks", "task", number),
            "rationale": ("tasks", "rationale", number),
            "target_category": ("tasks", "category", number),
            "target_dimension": ("tasks", "dimension", number),
            "target_short": ("targets", "short", *key),
        }
        parts.append(template.object(task, columns))
    return template.object(value, {"user_id": ("users", "user_id")}, {"tasks": parts})


def add_oracle(rows: Rows, user_id: str, document: Document, issues: Issues, known: bool) -> Any:
    """The rows of `oracle_verdicts`; returns the file's template."""
    about = {"user_id": user_id, "table": "oracle_verdicts"}
    template = Template(rows, document.dollar)
    if not isinstance(document.value, dict):
        issues.add(document.path, "", "no object", "no oracle verdict from it", **about)
        return template.literal(document.value)
    category_of = {dimension: category for category, dimension in rows.tables.get("targets", {})}
    parts: dict[str, Any] = {}
    for dimension, verdict in document.value.items():
        category = category_of.get(dimension, "")
        found = verdict if isinstance(verdict, dict) else {}
        can_invite = found.get("can_invite")
        reason = found.get("reason")
        outcome = SCORED
        if not known:
            outcome = unscored(Reason.DATASET_ERROR, NOT_IN_BANK)
        elif not category:
            issues.add(document.path, dimension, "no target of the user", "unscored", **about)
            outcome = unscored(Reason.DATASET_ERROR, "no target of the user")
        elif not isinstance(can_invite, bool):
            issues.add(
                document.path, f"{dimension}.can_invite", "not true or false", "unscored", **about
            )
            outcome = unscored(Reason.INVALID_OUTPUT, "can_invite is not true or false")
        rows.add(
            "oracle_verdicts",
            {
                "user_id": user_id,
                "category": category,
                "dimension": dimension,
                "can_invite": can_invite if isinstance(can_invite, bool) else None,
                "oracle_reason": reason if isinstance(reason, str) else None,
                **outcome,
                "call_id": None,
            },
        )
        key = (category, dimension)
        if isinstance(verdict, dict):
            parts[dimension] = template.object(
                verdict,
                {
                    "can_invite": ("oracle_verdicts", "can_invite", *key),
                    "reason": ("oracle_verdicts", "oracle_reason", *key),
                },
            )
    return template.object(document.value, {}, parts)


def complete_user(rows: Rows, user_id: str, oracle: str | None, issues: Issues) -> None:
    """Put in what follows from the rest: counts, and targets that the oracle does not speak of.

    `oracle` is the path of the oracle's file, None when the release has none at all.
    """
    user = rows.get("users", ())
    if user is not None:
        user["n_targets"] = len(rows.list("targets"))
        user["n_tasks"] = len(rows.list("tasks"))
    if oracle is None:
        return
    for row in rows.list("targets"):
        key = (row["category"], row["dimension"])
        if rows.get("oracle_verdicts", key) is not None:
            continue
        if rows.list("oracle_verdicts"):
            issues.add(
                oracle, row["dimension"], "no verdict on this target", "unscored",
                user_id=user_id, table="oracle_verdicts",
            )  # fmt: skip
        rows.add(
            "oracle_verdicts",
            {
                "user_id": user_id,
                "category": key[0],
                "dimension": key[1],
                "can_invite": None,
                "oracle_reason": None,
                **unscored(Reason.DATASET_ERROR, "no oracle verdict in the release"),
                "call_id": None,
            },
        )


def targets_from_details(rows: Rows, user_id: str, details: Any) -> int:
    """Targets as the judged records repeat them, where the bank has none; how many there are."""
    for detail in objects(details):
        values = [detail.get(n) for n in ("category", "dimension", "ground_truth", "explanation")]
        if all(isinstance(v, str) for v in values) and values[0] in CATEGORIES and values[1]:
            names = ("category", "dimension", "short", "explanation")
            rows.add("targets", {"user_id": user_id, **dict(zip(names, values, strict=True))})
    return len(rows.list("targets"))
