"""The request of each target: written, criticised blind, edited until nothing leaks.

A draft is held up by the critic (`fishing`) or by measurement (a content word
shared with its target, or a cosine over the bound). Each edit faces both again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from memprobe.dataset import BankEntry, CriticVerdict, PoolCategory, Profile, TaskEntry
from memprobe.leakage import content_stems, leaked_words, stem, words
from memprobe.outcomes import Reason
from memprobe.ports import Embedder
from memprobe.types import Category, Role
from memprobe.validation import SIMILARITY_BOUND, TASK_SENTENCES, sentence_count, task_similarity
from prompts.answers import CriticAnswer, TaskAnswer
from tasks.generate.asking import Questioner, UserFailed
from tasks.generate.bank import persona_block

ROUNDS = 3
"""Fresh drafts a target gets when every edit of the one before still leaked by measurement."""

EDITED = "edited_after_fishing_flag"
BUDGET_SPENT = "edit_budget_spent"

STRATEGIES: dict[Category, str] = {
    Category.SKILL: (
        "Give them something practical to get done that lies right where this ability is put to "
        "the test, so that how far they get, or where they get stuck, comes up by itself."
    ),
    Category.KNOWLEDGE: (
        "Choose a matter of everyday life in which a correct answer must touch what they know or "
        "have wrong, so that they confirm, add to it or argue."
    ),
    Category.EPISODIC: (
        "Set up something going on now that runs along the same lines as the past event, in "
        "another place and with other people, so that it comes back to them; the event itself is "
        "never alluded to."
    ),
    Category.SELF_MODEL: (
        "Set up a choice or a tangle with other people in which ordinary advice either fits how "
        "they see themselves or grates on it."
    ),
    Category.PREFERENCE: (
        "Ask for something that an assistant would answer in its usual manner, on a subject with "
        "room for very different manners, so that they have cause to react to the way of the "
        "reply; say nothing of how it should be."
    ),
}


@dataclass(frozen=True, slots=True)
class Workbench:
    """What the writing of a user's tasks needs besides the target."""

    profile: Profile
    questioner: Questioner
    embedder: Embedder
    edit_budget: int


def forbidden_words(entry: BankEntry) -> list[str]:
    """The content words of a target, in order of appearance, one for each stem."""
    text = f"{entry.short} {entry.explanation}"
    secret = content_stems(text)
    first: dict[str, str] = {}
    for word in words(text):
        if stem(word) in secret:
            first.setdefault(stem(word), word)
    return list(first.values())


async def leaks(task: str, entry: BankEntry, embedder: Embedder) -> list[str]:
    """What measurement finds a task to give away, in words an editor can act on."""
    found: list[str] = []
    shared = set(leaked_words(task, entry.short, entry.explanation))
    if shared:
        used = dict.fromkeys(w for w in words(task) if stem(w) in shared)
        found.append(f"uses words of the hidden fact: {', '.join(used)}")
    near = await task_similarity(task, entry, embedder)
    if near > SIMILARITY_BOUND:
        found.append(
            f"says nearly the same as the hidden fact (similarity {near:.2f}, at most "
            f"{SIMILARITY_BOUND:.2f}); move it further from its subject"
        )
    return found


def _check_form(answer: TaskAnswer, earlier: Sequence[TaskEntry]) -> list[str]:
    low, high = TASK_SENTENCES
    task = answer.task.strip()
    if not task or not answer.rationale.strip():
        return ["the task or the rationale is blank"]
    found: list[str] = []
    n = sentence_count(task)
    if not low <= n <= high:
        found.append(f"the task has {n} sentences, at most {high} allowed")
    if any(task.casefold() == e.task.casefold() for e in earlier):
        found.append("an earlier request has this very text; use another scene")
    return found


def _accept(_: CriticAnswer) -> list[str]:
    return []


async def write_task(
    bench: Workbench,
    spec: PoolCategory,
    entry: BankEntry,
    earlier: Sequence[TaskEntry],
) -> TaskEntry:
    """The request of one target with every verdict on the way to it.

    A draft that the critic still calls fishing when the edits are spent is kept
    and marked; one that leaks by measurement never is. Raises `UserFailed`.
    """
    item = f"task:{len(earlier) + 1:02d}:{entry.dimension}"
    shown: dict[str, JsonValue] = {
        "persona": persona_block(bench.profile, story=False),
        "earlier": [
            {"request": e.task, "category": e.target_category.value, "target": e.target_dimension}
            for e in earlier
        ],
        "category": spec.name.value,
        "dimension": entry.dimension,
        "short": entry.short,
        "explanation": entry.explanation,
        "forbidden": list(forbidden_words(entry)),
    }

    def check(answer: TaskAnswer) -> list[str]:
        return _check_form(answer, earlier)

    verdicts: list[CriticVerdict] = []
    found: list[str] = []
    for fresh in range(ROUNDS):
        draft = await bench.questioner.ask(
            "task_write",
            Role.GENERATOR,
            TaskAnswer,
            f"{item}:write",
            {**shown, "boundary": spec.boundary, "strategy": STRATEGIES[spec.name]},
            check,
            series=fresh,
        )
        edits = 0
        while True:
            verdict = await _criticise(bench.questioner, draft.task, spec.name, item)
            verdicts.append(verdict)
            found = await leaks(draft.task, entry, bench.embedder)
            fishing = verdict.verdict == "fishing"
            if edits == bench.edit_budget or not (found or fishing):
                break
            objections = list(found)
            if fishing:
                objections.append(
                    f"a stranger guessed {verdict.inferred_trait!r} from it: {verdict.why}"
                )
            draft = await bench.questioner.ask(
                "task_edit",
                Role.EDITOR,
                TaskAnswer,
                f"{item}:edit",
                {**shown, "task": draft.task, "objections": list(objections)},
                check,
                series=fresh * bench.edit_budget + edits,
            )
            edits += 1
        if found:
            continue
        note = BUDGET_SPENT if fishing else EDITED if edits or fresh else ""
        return TaskEntry(
            task=draft.task.strip(),
            rationale=draft.rationale.strip(),
            target_category=spec.name,
            target_dimension=entry.dimension,
            target_short=entry.short,
            pipeline_note=note,
            critic=tuple(verdicts),
        )
    raise UserFailed(
        item,
        Reason.INVALID_OUTPUT,
        f"{ROUNDS} drafts with {bench.edit_budget} edits each still leak: {'; '.join(found)}",
    )


async def _criticise(
    questioner: Questioner, task: str, category: Category, item: str
) -> CriticVerdict:
    # No answer that can be read is no verdict: the check failed, it did not pass.
    answer = await questioner.ask(
        "task_critic",
        Role.CRITIC,
        CriticAnswer,
        f"{item}:critic",
        {"task": task, "category": category.value},
        _accept,
    )
    return CriticVerdict(
        inferred_trait=answer.inferred_trait, verdict=answer.verdict, why=answer.why
    )
