"""The hidden bank: one question a category, exactly as many targets as it has slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pydantic import JsonValue

from memprobe.dataset import BankEntry, Pool, PoolCategory, Profile
from memprobe.types import Category, Role
from memprobe.validation import EXPLANATION_SENTENCES, SHORT_MAX_WORDS, check_entry
from prompts.answers import BankAnswer
from tasks.generate.asking import Questioner

Bank = Mapping[Category, tuple[BankEntry, ...]]


def persona_block(profile: Profile, *, story: bool) -> dict[str, JsonValue]:
    """A persona as the prompts show it; tasks are written without the story."""
    block: dict[str, JsonValue] = {
        "age": profile.age_info.age,
        "gender": profile.gender,
        "lives in": f"{profile.location.city}, {profile.location.country}",
        "occupation": profile.career_info.status,
        "lives by": profile.personal_values.values_orientation,
        "stance": profile.life_attitude.attitude,
        "interests": list(profile.interests.interests),
    }
    if story:
        block["story"] = profile.personal_story.personal_story
    return block


def _entries(answer: BankAnswer) -> tuple[BankEntry, ...]:
    return tuple(
        BankEntry(
            dimension=d.name.strip(), short=d.short.strip(), explanation=d.explanation.strip()
        )
        for d in answer.dims
        if d.name.strip() and d.short.strip() and d.explanation.strip()
    )


def check_category(answer: BankAnswer, spec: PoolCategory, settled: Bank) -> list[str]:
    """What is wrong with a category as proposed, in words the model can act on."""
    entries = _entries(answer)
    found: list[str] = []
    if len(entries) != len(answer.dims):
        found.append("an entry has a blank name, short or explanation")
    if len(entries) != spec.slots:
        found.append(f"{len(entries)} dimensions, exactly {spec.slots} needed")
    names = {d.name for d in spec.dimensions}
    for entry in entries:
        found += [
            f"{entry.dimension}: {f.rule}: {f.message}" for f in check_entry("", entry, names)
        ]
    for name, n in Counter(e.dimension for e in entries).items():
        if n > 1:
            found.append(f"{name} is chosen {n} times")
    before = [e for kept in settled.values() for e in kept]
    for field in ("short", "explanation"):
        seen = Counter(getattr(e, field).casefold() for e in (*before, *entries))
        found += [f"the {field} {text!r} is given {n} times" for text, n in seen.items() if n > 1]
    return found


async def write_category(
    spec: PoolCategory, profile: Profile, settled: Bank, questioner: Questioner
) -> tuple[BankEntry, ...]:
    """The targets of one category; raises `UserFailed` rather than leave it short."""
    answer = await questioner.ask(
        "bank_category",
        Role.GENERATOR,
        BankAnswer,
        f"bank:{spec.name.value}",
        {
            "persona": persona_block(profile, story=True),
            "settled": {c.value: [e.model_dump() for e in kept] for c, kept in settled.items()},
            "category": spec.name.value,
            "boundary": spec.boundary,
            "slots": spec.slots,
            "short_max_words": SHORT_MAX_WORDS,
            "sentences": list(EXPLANATION_SENTENCES),
            "dimensions": [d.model_dump(mode="json") for d in spec.dimensions],
        },
        lambda a: check_category(a, spec, settled),
    )
    return _entries(answer)


def category_order(pool: Pool) -> list[PoolCategory]:
    """The categories in the order of the published tables, each seeing those before it."""
    return [pool.category(c) for c in Category]
