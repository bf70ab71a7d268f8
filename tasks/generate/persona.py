"""The persona: outer facts drawn from the seed, inner ones written by a model."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import JsonValue

from memprobe.dataset import (
    AgeInfo,
    CareerInfo,
    Interests,
    LifeAttitude,
    Location,
    PersonalStory,
    PersonalValues,
    Profile,
)
from memprobe.leakage import words
from memprobe.types import Role
from prompts.answers import AttitudeAnswer, InterestsAnswer, StoryAnswer, ValuesAnswer
from storage.bundled import recovery_dir
from tasks.generate.asking import Questioner

AGES = (7, 85)
INTERESTS = 2
RETIRED_SHARE = 0.75

# What the prompts ask for is narrower: a model that misses by a few words is
# not worth a refusal, one that misses by half is.
_WORDS = {
    "values_orientation": (2, 16),
    "attitude": (3, 14),
    "attitude_details": (10, 30),
    "coping_mechanism": (3, 14),
    "story": (110, 260),
    "interest": (1, 8),
}

Tone = Literal["positive", "negative", "neutral"]
_TONES: tuple[Tone, ...] = ("positive", "negative", "neutral")


@dataclass(frozen=True, slots=True)
class Draw:
    """All of a persona that chance decides, fixed by (seed, user id) alone."""

    age: int
    gender: str
    city: str
    country: str
    occupation: str
    values_tone: Tone
    attitude_tone: Tone
    story_tone: Tone
    pieces: int

    def outer(self) -> dict[str, JsonValue]:
        """The facts as the prompts show them."""
        return {
            "age": self.age,
            "gender": self.gender,
            "lives in": f"{self.city}, {self.country}",
            "occupation": self.occupation,
        }


@cache
def _cities() -> tuple[tuple[str, str], ...]:
    raw = (recovery_dir() / "generation" / "cities.json").read_text(encoding="utf-8")
    return tuple((str(c["city"]), str(c["country"])) for c in json.loads(raw))


@cache
def _occupations() -> tuple[tuple[str, int], ...]:
    raw = (recovery_dir() / "generation" / "occupations.txt").read_text(encoding="utf-8")
    lines = [line for line in raw.splitlines() if line and not line.startswith("#")]
    return tuple((name, int(age)) for name, age in (line.split("\t") for line in lines))


def age_group(age: int) -> str:
    """The published groups: child to 12, adolescent to 19, then four of adults."""
    bounds = (
        (6, "toddler"),
        (12, "child"),
        (19, "adolescent"),
        (29, "young_adult"),
        (45, "adult"),
        (65, "middle_aged"),
    )
    return next((name for top, name in bounds if age <= top), "senior")


def _occupation(rng: random.Random, age: int) -> str:
    if age <= 12:
        return "Pupil at a primary school"
    if age < 18:
        return "Pupil at a secondary school"
    name = rng.choice([name for name, youngest in _occupations() if youngest <= age])
    if age > 65 and rng.random() < RETIRED_SHARE:
        return f"Retired; worked as {name[0].lower()}{name[1:]}"
    return name


def draw(seed: int, user_id: str) -> Draw:
    """The same person for the same seed and id, whatever else is generated with it."""
    rng = random.Random(f"memprobe:{seed}:{user_id}")
    age = rng.randint(*AGES)
    gender = rng.choice(("female", "male"))
    city, country = rng.choice(_cities())
    return Draw(
        age=age,
        gender=gender,
        city=city,
        country=country,
        occupation=_occupation(rng, age),
        values_tone=rng.choice(_TONES),
        attitude_tone=rng.choice(_TONES),
        story_tone=rng.choice(_TONES),
        pieces=rng.randint(1, 3),
    )


def _length(name: str, text: str, where: str = "") -> list[str]:
    low, high = _WORDS[name]
    n = len(words(text))
    return [] if low <= n <= high else [f"{where or name} has {n} words, {low} to {high} allowed"]


def _check_attitude(answer: AttitudeAnswer) -> list[str]:
    return [
        finding for name, text in answer.model_dump().items() for finding in _length(name, text)
    ]


def _check_stories(answer: StoryAnswer, pieces: int) -> list[str]:
    found: list[str] = []
    if len(answer.stories) != pieces:
        found.append(f"{len(answer.stories)} pieces, exactly {pieces} needed")
    for i, text in enumerate(answer.stories, 1):
        found += _length("story", text, f"piece {i}")
    return found


def _check_interests(answer: InterestsAnswer) -> list[str]:
    found: list[str] = []
    if len({i.casefold() for i in answer.interests}) != INTERESTS:
        found.append(
            f"{len(answer.interests)} interests, exactly {INTERESTS} different ones needed"
        )
    for text in answer.interests:
        found += _length("interest", text, f"{text!r}")
    return found


async def write_profile(seed: int, questioner: Questioner) -> Profile:
    """A complete persona; raises `UserFailed` when a part of it cannot be had."""
    drawn = draw(seed, questioner.user)
    outer = drawn.outer()
    values = await questioner.ask(
        "persona_values",
        Role.GENERATOR,
        ValuesAnswer,
        "persona:values",
        {"outer": outer, "tone": drawn.values_tone},
        lambda a: _length("values_orientation", a.values_orientation),
    )
    attitude = await questioner.ask(
        "persona_attitude",
        Role.GENERATOR,
        AttitudeAnswer,
        "persona:attitude",
        {"outer": outer, "values": values.values_orientation, "tone": drawn.attitude_tone},
        _check_attitude,
    )
    story = await questioner.ask(
        "persona_story",
        Role.GENERATOR,
        StoryAnswer,
        "persona:story",
        {
            "outer": outer,
            "values": values.values_orientation,
            "attitude": attitude.attitude,
            "tone": drawn.story_tone,
            "pieces": drawn.pieces,
        },
        lambda a: _check_stories(a, drawn.pieces),
    )
    told = "\n\n".join(f"Story {i}: {text.strip()}" for i, text in enumerate(story.stories, 1))
    interests = await questioner.ask(
        "persona_interests",
        Role.GENERATOR,
        InterestsAnswer,
        "persona:interests",
        {"outer": outer, "story": told, "number": INTERESTS},
        _check_interests,
    )
    return Profile(
        age_info=AgeInfo(age=drawn.age, age_group=age_group(drawn.age)),
        gender=drawn.gender,
        location=Location(country=drawn.country, city=drawn.city),
        career_info=CareerInfo(status=drawn.occupation),
        personal_values=PersonalValues(values_orientation=values.values_orientation),
        life_attitude=LifeAttitude(**attitude.model_dump()),
        personal_story=PersonalStory(personal_story=told),
        interests=Interests(interests=interests.interests),
    )
