"""A model that writes users: reads the rendered prompts as a remote model would.

Every answer is a function of the request's text. Banks and tasks draw on word
lists without a common word, so that nothing leaks unless a test makes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

HABITS = [
    "sluggish",
    "meticulous",
    "erratic",
    "stubborn",
    "cheerful",
    "gloomy",
    "frantic",
    "placid",
    "thorough",
    "careless",
    "nimble",
    "clumsy",
    "shrewd",
    "naive",
    "timid",
    "brazen",
    "frugal",
    "lavish",
    "rigid",
    "supple",
]
MARKS = [
    "amber",
    "basalt",
    "cobalt",
    "damask",
    "ebony",
    "fennel",
    "granite",
    "hazel",
    "indigo",
    "jasper",
    "kelp",
    "lilac",
    "marble",
    "nickel",
    "ochre",
    "pewter",
    "quartz",
    "russet",
    "saffron",
    "topaz",
    "umber",
    "velvet",
    "walnut",
    "xenon",
    "yarrow",
    "zinc",
]
STREETS = [
    f"{first} {last}"
    for first in ("Mill", "Abbey", "Quay", "Orchard", "Chapel", "Linden", "Fountain")
    for last in ("Lane", "Row", "Hill", "Square", "Steps")
]
SCENES = """a picnic for nine cousins|the school fair stall|a leaking garden hose|bus tickets to
the coast|a lost library card|the choir's summer programme|a squeaky gate|lunch for the removal
crew|a stray kitten in the yard|the village quiz evening|a broken umbrella|seats at the puppet
theatre|a birthday cake for twins|the flat's mouldy ceiling|a parcel stuck at customs|the ferry
timetable|an allotment hedge|a bicycle puncture|the neighbour's loud drums|a tent for heavy rain|
train seats with a toddler|the carnival costume|a wasp nest under the eaves|soup for the shelter|
a crooked bookshelf|the recycling rota|a power cut at dinner|the wedding speech|an old typewriter|
a cracked window pane|the chess club trophy|frozen pipes|a bonfire permit|the swimming gala|
the car park barrier|a mural for the underpass|a goat that escaped|the lantern parade""".replace(
    "\n", " "
).split("|")


def number(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:6])


def pick(words: list[str], *parts: str) -> str:
    return words[number(*parts) % len(words)].strip()


def by_keys(keys: set[str], user: str) -> dict[str, Any] | None:
    """The answer to a generation prompt, by the keys it asks for; None for other prompts."""
    person = user.partition("\n")[0]
    if "values_orientation" in keys:
        return {"values_orientation": f"a debt repaid in {pick(MARKS, person)} before nightfall"}
    if "coping_mechanism" in keys:
        return {
            "attitude": f"Take the {pick(MARKS, person)} road and whistle",
            "attitude_details": "Every morning the neighbours hear a spoon against a cup, a radio "
            "that crackles, and one door that closes without a word.",
            "coping_mechanism": "Polishes every kettle until the kitchen shines",
        }
    if "stories" in keys:
        found = re.search(r"^Pieces: (\d+)$", user, re.MULTILINE)
        assert found is not None
        return {"stories": [_story(person, i) for i in range(int(found.group(1)))]}
    if "interests" in keys:
        return {"interests": ["kite building", f"collecting {pick(MARKS, person)} buttons"]}
    if "dims" in keys:
        return _bank(user)
    if "verdict" in keys:
        return {"inferred_trait": "sociable", "verdict": "neutral", "why": "anybody might ask"}
    if keys == {"task", "rationale"}:
        return _task(user)
    return None


def _story(person: str, i: int) -> str:
    sentence = (
        f"In the {pick(MARKS, person, str(i))} quarter there stood a shop with a bell, where "
        "two brothers sold rope, lamp oil and nails to whoever came in from the ferry. "
    )
    return (sentence * 6).strip()


def _bank(user: str) -> dict[str, Any]:
    offered = user.partition("Dimensions to choose from:")[2].partition("Choose exactly")[0]
    names = re.findall(r"^- (\w+): ", offered, re.MULTILINE)
    found = re.search(r"^Choose exactly (\d+)\.$", user, re.MULTILINE)
    assert found is not None
    person = user.partition("Already settled")[0]
    names.sort(key=lambda name: number(name, person))
    return {"dims": [_entry(name, person) for name in names[: int(found.group(1))]]}


def _entry(name: str, person: str) -> dict[str, str]:
    axis = name.replace("_", " ")
    habit, mark = pick(HABITS, name, person), pick(MARKS, name, person)
    other = pick(MARKS, person, name)
    return {
        "name": name,
        "short": f"{habit.capitalize()} {axis}, {mark} grade",
        "explanation": f"Colleagues rate the {axis} {habit} and {mark}. "
        f"In {other} conditions it turned {pick(HABITS, person, name)} within weeks.",
    }


def _task(user: str) -> dict[str, str]:
    earlier = len(re.findall(r'^\s*"request": ', user, re.MULTILINE))
    scene = SCENES[earlier % len(SCENES)].strip()
    street = pick(STREETS, user.partition("Earlier requests")[0])
    text = f"Can you help me sort out {scene} on {street}?"
    if "The request to rewrite:" in user:
        text = f"What should happen first with {scene} on {street}, please?"
    return {"task": text, "rationale": "A reply walks into it."}


def answer(system: str, user: str) -> str:
    """The text of an answer, the keys read from the instruction."""
    asked = system.rpartition("Answer with")[2].partition("\n")[0]
    value = by_keys(set(re.findall(r'"(\w+)"\s*:', asked)), user)
    assert value is not None, asked
    return json.dumps(value)
