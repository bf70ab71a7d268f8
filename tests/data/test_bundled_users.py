"""The bundled users hold to the protocol, and the committed card says what is in them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from adapters.models.minilm import MiniLM
from memprobe.card import build_card, render_card
from memprobe.dataset import Dataset, User, load_dataset
from memprobe.leakage import words
from memprobe.types import Category
from memprobe.validation import validate_dataset, validate_similarity
from storage.bundled import recovery_dir

SLOTS = {
    Category.SKILL: 7,
    Category.KNOWLEDGE: 7,
    Category.EPISODIC: 7,
    Category.SELF_MODEL: 5,
    Category.PREFERENCE: 5,
}
IDS = [f"user_{i:03d}" for i in range(1, 9)]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_dataset(recovery_dir())


@pytest.fixture(scope="module")
def embedder() -> MiniLM:
    return MiniLM()


def texts(value: object) -> Iterator[str]:
    """Every text somewhere inside a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            if name not in ("generation", "target_short", "format"):
                yield from texts(getattr(value, name))
    elif isinstance(value, dict):
        for entry in value.values():
            yield from texts(entry)
    elif isinstance(value, tuple | list):
        for entry in value:
            yield from texts(entry)


def sentences(user: User) -> Iterator[str]:
    for text in texts(user):
        for sentence in re.split(r"(?<=[.!?…])[\"'”’)]*\s+|\n+", text):
            yield " ".join(words(sentence))


def test_there_are_eight_users_in_id_order(dataset: Dataset) -> None:
    assert [u.user_id for u in dataset.users] == IDS


def test_the_validator_finds_nothing(dataset: Dataset) -> None:
    assert [f"{f.where}: {f.message}" for f in validate_dataset(dataset)] == []


@pytest.mark.parametrize("user_id", IDS)
async def test_meaning_keeps_tasks_off_and_disclosures_near_their_targets(
    dataset: Dataset, embedder: MiniLM, user_id: str
) -> None:
    findings = await validate_similarity(dataset.user(user_id), embedder)
    assert [f"{f.where}: {f.message}" for f in findings] == []


def test_users_differ_in_age_country_and_work(dataset: Dataset) -> None:
    profiles = [u.profile for u in dataset.users]
    assert len({p.age_info.age for p in profiles}) == len(IDS)
    assert len({p.location.country for p in profiles}) == len(IDS)
    assert len({p.career_info.status for p in profiles}) == len(IDS)
    assert {p.gender for p in profiles} == {"female", "male"}


@pytest.mark.parametrize("user_id", IDS)
def test_every_user_has_its_targets_tasks_and_script(dataset: Dataset, user_id: str) -> None:
    user = dataset.user(user_id)
    assert {c: len(entries) for c, entries in user.memory_bank.items()} == SLOTS
    assert len(user.tasks) == 31
    assert all(t.script is not None for t in user.tasks)
    assert Counter(t.planted for t in user.tasks if t.planted) == {"poor_task": 2, "withheld": 2}


@pytest.mark.parametrize("user_id", IDS)
def test_the_critic_was_at_work(dataset: Dataset, user_id: str) -> None:
    for task in dataset.user(user_id).tasks:
        assert task.critic[-1].verdict == "neutral"
        edited = any(v.verdict == "fishing" for v in task.critic)
        assert task.pipeline_note == ("edited_after_fishing_flag" if edited else "")


@pytest.mark.parametrize("user_id", IDS)
def test_disclosures_do_not_open_alike(dataset: Dataset, user_id: str) -> None:
    openers = Counter(
        " ".join(words(disclosure)[:3])
        for task in dataset.user(user_id).tasks
        if task.script is not None
        for disclosure in task.script.disclosures
    )
    assert {opener: n for opener, n in openers.items() if n > 3} == {}


def test_no_long_sentence_is_shared_between_users(dataset: Dataset) -> None:
    owners: dict[str, set[str]] = defaultdict(set)
    for user in dataset.users:
        for sentence in sentences(user):
            if len(sentence.split()) > 8:
                owners[sentence].add(user.user_id)
    assert len(owners) > 1500
    assert {s: ids for s, ids in owners.items() if len(ids) > 1} == {}


def test_no_target_is_the_same_for_two_users(dataset: Dataset) -> None:
    shorts = Counter(e.short.casefold() for u in dataset.users for _, e in u.targets())
    assert [short for short, n in shorts.items() if n > 1] == []


def test_the_committed_card_is_the_rebuilt_one(dataset: Dataset) -> None:
    card = build_card(dataset)
    folder = recovery_dir()
    committed = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    hint = "run `python -m tasks.card`"
    assert committed == json.loads(card.model_dump_json()), hint
    assert (folder / "CARD.md").read_text(encoding="utf-8") == render_card(card), hint


def test_the_card_counts_what_is_there(dataset: Dataset) -> None:
    card = build_card(dataset)
    assert card.digest == dataset.digest
    assert (card.errors, card.warnings) == (0, 0)
    for category, spec in zip(SLOTS, dataset.pool.categories, strict=True):
        held = {e.dimension for u in dataset.users for e in u.memory_bank[category]}
        coverage = card.coverage[category.value]
        assert coverage.used == len(held)
        assert coverage.used + len(coverage.unused) == coverage.pool == len(spec.dimensions)
    shorts = [len(words(e.short)) for u in dataset.users for _, e in u.targets()]
    assert card.spreads["short, words"].least == min(shorts)
    assert card.spreads["short, words"].greatest == max(shorts)


def test_a_card_shows_no_markup_from_a_profile(dataset: Dataset) -> None:
    user = dataset.users[0]
    career = user.profile.career_info.model_copy(update={"status": "a | b <img src=x>\nrow"})
    profile = user.profile.model_copy(update={"career_info": career})
    hostile = dataset.model_copy(update={"users": (user.model_copy(update={"profile": profile}),)})
    text = render_card(build_card(hostile))
    assert "<img" not in text
    assert "a \\| b &lt;img src=x> row" in text
