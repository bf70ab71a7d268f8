"""Validation: each rule of the protocol finds its own breach, and a sound user has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memprobe.dataset import CriticVerdict, Script, TaskEntry, User
from memprobe.types import Category
from memprobe.validation import (
    Finding,
    sentence_count,
    validate_dataset,
    validate_similarity,
    validate_user,
)
from tests.support.contexts import dataset, pool, user

Change = Callable[[User], User]
NEUTRAL = CriticVerdict(inferred_trait="none", verdict="neutral", why="no hint")


def sound(user_id: str = "user_001", number: int = 1) -> User:
    made = user(user_id, number, 6)
    tasks = tuple(
        t.model_copy(
            update={
                "critic": (NEUTRAL,),
                "script": Script(
                    disclosures=(f"d{number}{i}", f"i{number}{i}"),
                    evasion=f"e{number}{i}",
                    reply=f"r{number}{i}",
                    followup=f"f{number}{i}",
                ),
            }
        )
        for i, t in enumerate(made.tasks)
    )
    closings = tuple(f"closing {number} {i}" for i in range(4))
    return made.model_copy(update={"tasks": tasks, "closings": closings})


def entry(**changes: Any) -> Change:
    """Change the skill target, its task's copy of the short text included."""

    def apply(made: User) -> User:
        old = made.memory_bank[Category.SKILL][0]
        bank = {**made.memory_bank, Category.SKILL: (old.model_copy(update=changes),)}
        tasks = made.tasks
        if "short" in changes:
            first = tasks[0].model_copy(update={"target_short": changes["short"]})
            tasks = (first, *tasks[1:])
        return made.model_copy(update={"memory_bank": bank, "tasks": tasks})

    return apply


def task(**changes: Any) -> Change:
    def apply(made: User) -> User:
        first = made.tasks[0].model_copy(update=changes)
        return made.model_copy(update={"tasks": (first, *made.tasks[1:])})

    return apply


def tasks(edit: Callable[[tuple[TaskEntry, ...]], Sequence[TaskEntry]]) -> Change:
    return lambda made: made.model_copy(update={"tasks": tuple(edit(made.tasks))})


def script(**changes: Any) -> Change:
    def apply(made: User) -> User:
        old = made.tasks[0].script
        assert old is not None
        return task(script=old.model_copy(update=changes))(made)

    return apply


def twice(made: User) -> User:
    bank = dict(made.memory_bank)
    first, second = bank[Category.PREFERENCE]
    bank[Category.PREFERENCE] = (first, second.model_copy(update={"short": first.short.upper()}))
    last = made.tasks[5].model_copy(update={"target_short": first.short.upper()})
    return made.model_copy(update={"memory_bank": bank, "tasks": (*made.tasks[:5], last)})


def one_fewer(made: User) -> User:
    bank = {**made.memory_bank, Category.PREFERENCE: made.memory_bank[Category.PREFERENCE][:1]}
    return made.model_copy(update={"memory_bank": bank, "tasks": made.tasks[:5]})


def same_dimension(made: User) -> User:
    first, second = made.memory_bank[Category.PREFERENCE]
    second = second.model_copy(update={"dimension": first.dimension})
    bank = {**made.memory_bank, Category.PREFERENCE: (first, second)}
    return made.model_copy(update={"memory_bank": bank, "tasks": made.tasks[:5]})


def errors(found: Sequence[Finding]) -> list[str]:
    return [f.rule for f in found if f.severity == "error"]


def test_a_sound_user_has_no_findings() -> None:
    assert validate_user(sound(), pool()) == []
    assert validate_dataset(dataset(sound(), sound("user_002", 2))) == []


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        (one_fewer, "count", "1 targets, 2 needed"),
        (same_dimension, "duplicate", "'answer_length' occurs 2 times"),
        (twice, "duplicate", "short"),
        (entry(dimension="no_such"), "pool", "'no_such' is no dimension"),
        (entry(dimension="tide_knowledge"), "pool", "no dimension of this category"),
        (entry(short=" ".join(f"w{i}" for i in range(16))), "short", "16 words, at most 15"),
        (entry(explanation="Only one."), "explanation", "1 sentences, 2 to 4"),
        (entry(explanation="A1. B2. C3. D4. E5."), "explanation", "5 sentences"),
        (tasks(lambda t: t[1:]), "tasks", "knot_skill: 0 tasks, exactly 1"),
        (
            tasks(lambda t: (*t, t[0].model_copy(update={"task": "Another one please."}))),
            "tasks",
            "knot_skill: 2 tasks",
        ),
        (
            tasks(lambda t: (t[0], t[1].model_copy(update={"task": t[0].task.upper()}), *t[2:])),
            "duplicate",
            "task text occurs 2x",
        ),
        (task(target_dimension="no_such"), "tasks", "'no_such' is not in the bank"),
        (task(target_category=Category.KNOWLEDGE), "tasks", "is not in the bank"),
        (task(target_short="other"), "tasks", "target_short differs"),
        (task(task="She has gold1x1explained."), "leakage", "gold1x1explain"),
        (task(task="One. Two. Three. Four. Five."), "task", "5 sentences, 1 to 4"),
        (task(script=None), "script", "5 of 6 tasks have a script"),
        (script(evasion="closing 1 0"), "duplicate", "script line 2x"),
        (script(reply="f10"), "duplicate", "script line 2x"),
        (lambda made: made.model_copy(update={"closings": ()}), "script", "at least 4 closings"),
    ],
)
def test_each_breach_is_found(change: Change, rule: str, message: str) -> None:
    found = validate_user(change(sound()), pool())
    assert any(f.rule == rule and message in f.message for f in found), found
    assert errors(found)


@pytest.mark.parametrize(
    ("critic", "message"),
    [
        ((), "no blind-critic verdict"),
        ((NEUTRAL, NEUTRAL.model_copy(update={"verdict": "fishing"})), "last critic verdict"),
    ],
)
def test_critic_findings_are_warnings(critic: tuple[CriticVerdict, ...], message: str) -> None:
    (found,) = validate_user(task(critic=critic)(sound()), pool())
    assert (found.severity, found.rule) == ("warning", "critic")
    assert message in found.message


def test_a_fishing_verdict_that_was_edited_away_is_no_finding() -> None:
    fishing = NEUTRAL.model_copy(update={"verdict": "fishing"})
    assert validate_user(task(critic=(fishing, NEUTRAL))(sound()), pool()) == []


def test_all_findings_come_at_once() -> None:
    broken = task(task="She has gold1x1explained.", target_short="other")(one_fewer(sound()))
    assert {"count", "leakage", "tasks"} <= set(errors(validate_user(broken, pool())))


def test_texts_shared_by_users_are_found() -> None:
    other = sound("user_002", 2)
    shared = task(task=sound().tasks[0].task)(other)
    found = validate_dataset(dataset(sound(), shared))
    assert [(f.where, f.rule) for f in found] == [("data set", "duplicate")]
    assert "user_001, user_002" in found[0].message


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("No mark", 1),
        ("One. Two!", 2),
        ('He said "Go." Then left.', 2),
        ("It cost 3.5 million.", 1),
        ("What?! Yes…", 2),
        ("One.  \n Two.", 2),
    ],
)
def test_sentence_count(text: str, count: int) -> None:
    assert sentence_count(text) == count


class Places:
    """An embedder that puts each text where the test says; unknown texts go elsewhere."""

    name = "places"
    dimensions = 3

    def __init__(self, **at: tuple[float, float, float]) -> None:
        self.at = at

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        return [list(self.at.get(text, (0.0, 0.0, 1.0))) for text in texts]


def placed(**texts: tuple[float, float, float]) -> Places:
    made = sound()
    first = made.tasks[0]
    target = made.memory_bank[Category.SKILL][0]
    assert first.script is not None
    names = {
        "task": first.task,
        "short": target.short,
        "explanation": target.explanation,
        "direct": first.script.disclosures[0],
        "evasion": first.script.evasion,
    }
    embedder = Places()
    for other in made.tasks[1:]:
        assert other.script is not None
        embedder.at[other.task] = (0.0, 1.0, 0.0)
        embedder.at[other.script.evasion] = (0.0, 1.0, 0.0)
    embedder.at |= {names[name]: at for name, at in texts.items()}
    return embedder


async def rules(embedder: Places, made: User | None = None) -> list[str]:
    return [f.rule for f in await validate_similarity(made or sound(), embedder)]


X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)


async def test_a_task_near_its_target_is_found() -> None:
    near = {"task": X, "short": (0.61, 0.0, 0.79), "explanation": Y, "direct": Y, "evasion": X}
    assert await rules(placed(**near)) == ["similarity"]
    far = {**near, "short": (0.6, 0.0, 0.8), "evasion": (0.0, 0.0, 1.0)}
    assert await rules(placed(**far)) == []
    by_explanation = {**near, "short": Y, "explanation": (0.61, 0.0, 0.79)}
    assert await rules(placed(**by_explanation)) == ["similarity"]


async def test_a_disclosure_that_reveals_no_more_than_the_evasion_is_found() -> None:
    base = {"task": Y, "short": X, "explanation": X, "evasion": (0.5, 0.0, 0.866)}
    assert await rules(placed(**base, direct=(0.54, 0.0, 0.842))) == ["disclosure"]
    assert await rules(placed(**base, direct=(0.56, 0.0, 0.828))) == []
    withheld = task(planted="withheld")(sound())
    assert await rules(placed(**base, direct=(0.54, 0.0, 0.842)), withheld) == []
