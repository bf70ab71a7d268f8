"""Checks of a recovery user against the protocol's rules.

Every rule returns findings instead of raising, so that an author sees all that
is wrong with a file at once. `errors` break the protocol; `warnings` are places
to look.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memprobe.dataset import BankEntry, Dataset, Pool, TaskEntry, User
from memprobe.leakage import leaked_words, words
from memprobe.ports import Embedder
from memprobe.types import Category

SHORT_MAX_WORDS = 15
EXPLANATION_SENTENCES = (2, 4)
TASK_SENTENCES = (1, 4)
SIMILARITY_BOUND = 0.60
"""Highest cosine (all-MiniLM-L6-v2) a task may have with its target's short or explanation."""
REVEAL_MARGIN = 0.05
"""How much nearer a disclosure must be to its target than the evasion is."""

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)]*(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong: where (`user_003/tasks[4]`), which rule, what to do."""

    where: str
    rule: str
    message: str
    severity: Literal["error", "warning"] = "error"


def sentence_count(text: str) -> int:
    """Number of sentences by end marks; a text without one counts as one sentence."""
    return max(1, len(_SENTENCE_END.findall(text.strip())))


def _check_bank(user: User, pool: Pool) -> list[Finding]:
    found: list[Finding] = []
    for category in Category:
        entries = user.memory_bank.get(category, ())
        spec = pool.category(category)
        where = f"{user.user_id}/memory_bank.{category.value}"
        if len(entries) != spec.slots:
            found.append(Finding(where, "count", f"{len(entries)} targets, {spec.slots} needed"))
        names = {d.name for d in spec.dimensions}
        for i, entry in enumerate(entries):
            found += check_entry(f"{where}[{i}]", entry, names)
        for name, n in Counter(e.dimension for e in entries).items():
            if n > 1:
                found.append(Finding(where, "duplicate", f"dimension {name!r} occurs {n} times"))
    for field in ("short", "explanation"):
        seen = Counter(getattr(e, field).casefold() for _, e in user.targets())
        for text, n in seen.items():
            if n > 1:
                found.append(Finding(user.user_id, "duplicate", f"{field} {text!r} occurs {n}x"))
    return found


def check_entry(where: str, entry: BankEntry, names: set[str]) -> list[Finding]:
    """Rules of one target: a name of the pool, the word limit, the sentence limits."""
    found: list[Finding] = []
    if entry.dimension not in names:
        found.append(
            Finding(where, "pool", f"{entry.dimension!r} is no dimension of this category")
        )
    n = len(words(entry.short))
    if n > SHORT_MAX_WORDS:
        found.append(Finding(where, "short", f"{n} words, at most {SHORT_MAX_WORDS}"))
    low, high = EXPLANATION_SENTENCES
    n = sentence_count(entry.explanation)
    if not low <= n <= high:
        found.append(Finding(where, "explanation", f"{n} sentences, {low} to {high} needed"))
    return found


def _check_tasks(user: User) -> list[Finding]:
    found: list[Finding] = []
    bank = {(c, e.dimension): e for c, e in user.targets()}
    targeted = Counter((t.target_category, t.target_dimension) for t in user.tasks)
    for key in bank:
        if targeted[key] != 1:
            found.append(
                Finding(user.user_id, "tasks", f"{key[1]}: {targeted[key]} tasks, exactly 1 needed")
            )
    for text, n in Counter(t.task.casefold() for t in user.tasks).items():
        if n > 1:
            found.append(Finding(user.user_id, "duplicate", f"task text occurs {n}x: {text[:60]}"))
    for i, task in enumerate(user.tasks):
        where = f"{user.user_id}/tasks[{i}]"
        entry = bank.get((task.target_category, task.target_dimension))
        if entry is None:
            message = f"target {task.target_dimension!r} is not in the bank"
            found.append(Finding(where, "tasks", message))
            continue
        if task.target_short != entry.short:
            found.append(Finding(where, "tasks", "target_short differs from the bank's short"))
        found += _check_task(where, task, entry)
    return found


def _check_task(where: str, task: TaskEntry, entry: BankEntry) -> list[Finding]:
    found: list[Finding] = []
    leaked = leaked_words(task.task, entry.short, entry.explanation)
    if leaked:
        message = f"shares content words with its target: {', '.join(leaked)}"
        found.append(Finding(where, "leakage", message))
    low, high = TASK_SENTENCES
    n = sentence_count(task.task)
    if not low <= n <= high:
        found.append(Finding(where, "task", f"{n} sentences, {low} to {high} needed"))
    if not task.critic:
        found.append(Finding(where, "critic", "no blind-critic verdict is stored", "warning"))
    elif task.critic[-1].verdict != "neutral":
        message = "the last critic verdict is 'fishing': edit again or replace the task"
        found.append(Finding(where, "critic", message, "warning"))
    return found


def _check_scripts(user: User) -> list[Finding]:
    found: list[Finding] = []
    scripted = [t for t in user.tasks if t.script is not None]
    if not scripted:
        return found
    if len(scripted) != len(user.tasks):
        message = f"{len(scripted)} of {len(user.tasks)} tasks have a script; all or none"
        found.append(Finding(user.user_id, "script", message))
    if len(user.closings) < 4:
        found.append(Finding(user.user_id, "script", "at least 4 closings are needed"))
    texts: Counter[str] = Counter(user.closings)
    for task in scripted:
        assert task.script is not None
        script = task.script
        texts.update([*script.disclosures, script.evasion, script.reply, script.followup])
    for text, n in texts.items():
        if n > 1:
            found.append(Finding(user.user_id, "duplicate", f"script line {n}x: {text[:60]!r}"))
    return found


def validate_user(user: User, pool: Pool) -> list[Finding]:
    """All rules that need no embedder: counts, names, word limits, leakage, duplicates."""
    return [*_check_bank(user, pool), *_check_tasks(user), *_check_scripts(user)]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


async def task_similarity(task: str, entry: BankEntry, embedder: Embedder) -> float:
    """The higher of a task's cosines with its target's short and explanation."""
    short, explanation, text = await embedder.encode([entry.short, entry.explanation, task])
    return max(_cosine(text, short), _cosine(text, explanation))


async def validate_similarity(user: User, embedder: Embedder) -> list[Finding]:
    """Rules on meaning: tasks stay away from their target, disclosures come near it."""
    bank = {(c, e.dimension): e for c, e in user.targets()}
    found: list[Finding] = []
    for i, task in enumerate(user.tasks):
        entry = bank.get((task.target_category, task.target_dimension))
        if entry is None:
            continue
        where = f"{user.user_id}/tasks[{i}]"
        near = await task_similarity(task.task, entry, embedder)
        if near > SIMILARITY_BOUND:
            message = f"cosine {near:.2f} with its target, at most {SIMILARITY_BOUND}"
            found.append(Finding(where, "similarity", message))
        if task.script is None or task.planted is not None:
            continue
        short, explanation, direct, indirect, evasion = await embedder.encode(
            [entry.short, entry.explanation, *task.script.disclosures, task.script.evasion]
        )
        reveal = {
            name: max(_cosine(v, short), _cosine(v, explanation))
            for name, v in (("direct", direct), ("indirect", indirect), ("evasion", evasion))
        }
        if reveal["direct"] < reveal["evasion"] + REVEAL_MARGIN:
            message = (
                f"direct disclosure (cosine {reveal['direct']:.2f}) is no nearer to the target "
                f"than the evasion ({reveal['evasion']:.2f})"
            )
            found.append(Finding(where, "disclosure", message))
    return found


def validate_dataset(dataset: Dataset) -> list[Finding]:
    """`validate_user` for all users, and rules across users (no shared texts)."""
    found = [f for user in dataset.users for f in validate_user(user, dataset.pool)]
    owners: dict[str, set[str]] = {}
    for user in dataset.users:
        for text in [t.task for t in user.tasks] + [e.explanation for _, e in user.targets()]:
            owners.setdefault(text.casefold(), set()).add(user.user_id)
    for text, ids in owners.items():
        if len(ids) > 1:
            message = f"shared by {', '.join(sorted(ids))}: {text[:60]!r}"
            found.append(Finding("data set", "duplicate", message))
    return found
