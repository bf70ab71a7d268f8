"""Made trajectories that keep every rule, to plant faults in."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from memprobe.evolution.protocol import NOISE_CLAIMS, NOISE_WORDS, WORDS
from memprobe.evolution.spec import Level, Trajectory

ENGINE = "Aldermere Bakeries runs its order service on PostgreSQL 14."
BACKUP = "The order service of Aldermere Bakeries is backed up every 6 hours."
RETENTION = "The order service of Aldermere Bakeries keeps orders for 400 days."
REPLACED = "Aldermere Bakeries runs its order service on CockroachDB."
CHATTY, TERSE = "Ines Halloran", "Ruben Stoltz"

OPENINGS = (
    "Hello everybody, it's me again with the weekly letter and I've got flour on my sleeves!",
    "Minutes, Tuesday. Present: five. Absent: the miller.",
    "Dear friends, you won't believe what we've seen in the yard this morning!",
    "Minutes, late shift. Present: four and a dog.",
)
CHAT = (
    "I've spent half the morning looking for the tall ladder, and I can't say that it was fun!",
    "We'll bring plum cake on Friday, so please don't eat before you come and see us.",
    "My neighbour's cat has moved into the flour store, and we're told that it isn't for sale!",
    "It's raining through the canteen roof again, I'm afraid, and we've put a bucket under it.",
    "I don't know who painted the gate green, but we all think it's rather handsome!",
    "You'd laugh if you saw our new van: it's so small that I can't stand up in it.",
)
NOTES = (
    "Gate: green.",
    "Roof: leaks, bucket placed.",
    "Van: small, returned to dealer.",
    "Ladder: found behind oven.",
    "Cat: stays.",
    "Plum cake: Friday, canteen.",
)
NOISE = (
    "The canteen gets a new roof in autumn.",
    "The green van goes back to its dealer.",
    "Plum cake is on sale at the gate.",
    "The miller retires after Easter.",
    "Two apprentices won a prize for rye bread.",
)


def _text(state: int, chatty: bool, said: list[str], least: int) -> str:
    pool = CHAT if chatty else NOTES
    parts = [OPENINGS[state], *said]
    n = state
    while len(" ".join(parts).split()) < least:
        parts.append(pool[n % len(pool)])
        n += 1
    return (" " if chatty else "\n").join(parts)


def document(name: str, state: int, said: list[str], least: int) -> dict[str, Any]:
    """A document of enough words that says the given sentences."""
    chatty = state % 2 == 0
    return {
        "id": name,
        "author": CHATTY if chatty else TERSE,
        "document_type": "email" if chatty else "meeting_notes",
        "time": (datetime(2024, 3, 4, 9, tzinfo=UTC) + timedelta(days=21 * state)).isoformat(),
        "text": _text(state, chatty, said, least),
        "noise_claims": [],
    }


def raw(category: str = "C5", level: str = "L1") -> dict[str, Any]:
    """A sound trajectory of four states: create, update, supersede, reinforce."""
    name = f"{category.lower()}_x_order_service"
    noise = list(NOISE[: NOISE_CLAIMS[Level(level)][0]])
    steps: list[tuple[str, list[str], list[str], float]] = [
        ("create", [ENGINE, BACKUP], [ENGINE, BACKUP], 0.9),
        ("update", [ENGINE, BACKUP, RETENTION], [RETENTION], 0.9),
        ("supersede", [BACKUP, RETENTION, REPLACED], [REPLACED], 0.9),
        ("reinforce", [BACKUP, RETENTION, REPLACED], [BACKUP], 1.0),
    ]
    states = []
    for i, (action, claims, said, confidence) in enumerate(steps):
        own = document(f"{name}_d{i}", i, [*said, *noise], WORDS[Level(level)][0] + 5)
        own["noise_claims"] = list(noise)
        own["host"] = "letters of a bakery" if level == "L3" else None
        states.append(
            {
                "index": i,
                "claims": claims,
                "doc_claims": said,
                "action": action,
                "confidence": confidence,
                "change_reason": "The bakery outgrew its engine."
                if action == "supersede"
                else None,
                "document": own,
            }
        )
    made: dict[str, Any] = {
        "id": name,
        "topic": "What the order service of Aldermere Bakeries stands on",
        "category": category,
        "level": level,
        "domain": "infrastructure",
        "trajectory_type": "linear-evolution",
        "customer": "Aldermere Bakeries",
        "authors": [
            {"name": CHATTY, "role": "Letter writer", "style": "chatty, with marvels"},
            {"name": TERSE, "role": "Keeper of minutes", "style": "clipped notes"},
        ],
        "states": states,
        "questions": [
            {
                "question": "How old can a purchase get before it disappears?",
                "expected_answer": "400 days, the time for which orders are kept.",
                "claims": [RETENTION],
            },
            {
                "question": "How much work is lost in the worst accident?",
                "expected_answer": "6 hours of it, as backups are made that often.",
                "claims": [BACKUP],
            },
            {
                "question": "Which engine would a newcomer have to learn?",
                "expected_answer": "CockroachDB.",
                "claims": [REPLACED],
            },
        ],
        "expected_facts": [{"claims": [BACKUP, RETENTION]}, {"claims": [REPLACED]}],
        "retracted": [],
        "noise_documents": [],
        "noise_after": [],
    }
    if category == "C2":
        made["noise_documents"] = [
            document(f"{name}_n{k + 1}", k, [], NOISE_WORDS[0] + 5) for k in range(4)
        ]
        made["noise_after"] = [0, 1, 2, 3]
    if category == "C6":
        made["expected_facts"] = [
            {"claims": [BACKUP, RETENTION], "authors": [CHATTY, TERSE]},
            {"claims": [REPLACED], "authors": [CHATTY]},
        ]
    return made


def trajectory(made: dict[str, Any] | None = None, **options: str) -> Trajectory:
    """The trajectory of a made or given dictionary."""
    return Trajectory.model_validate(copy.deepcopy(made) if made else raw(**options))


def say(made: dict[str, Any], state: int, more: str) -> None:
    """Add a sentence at the end of a state's document."""
    made["states"][state]["document"]["text"] += f"\n{more}"
