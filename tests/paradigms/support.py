"""A sound episode, written by rule for the tests, and ways to break it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from memprobe.paradigms.protocol import RULES, probe_order
from memprobe.paradigms.spec import Condition, Episode, Expected, ProbeType

OLD, NEW = "Harrow Baths", "Quayside Pool"
DISTRACTORS = ("Linden Centre", "Northgate Lido", "Ferris Road")
TRIGGER = "the sauna closed for repairs"
REASON = "the water there is warmer"
_ORDINARY = (
    "Soup or salad tonight, given the heat outside?",
    "Explain how tides follow the moon, briefly please.",
    "My bicycle chain squeaks after rain; remedies?",
    "Draft thanks to a neighbour who watered the ferns.",
)
_unique = count()


def _session(kind: str, day: int, *said: str, assistant: str = "Fine, noted.") -> dict[str, Any]:
    """Each text as a user's message, each with an answer; nothing in it occurs twice."""
    dialogue = []
    for text in said:
        mark = " ".join(f"w{next(_unique)}x{i}" for i in range(12))
        dialogue.append({"role": "user", "content": f"{mark} {text}"})
        dialogue.append({"role": "assistant", "content": f"{assistant} r{next(_unique)}"})
    start = datetime(2025, 3, 3, 9, tzinfo=UTC)
    return {
        "session_type": kind,
        "time": (start + timedelta(hours=36 * day)).isoformat(),
        "dialogue": dialogue,
    }


def raw(condition: str = "authoritative_update", *, split: bool = False) -> dict[str, Any]:
    """An episode as it stands in a file."""
    name = Condition(condition)
    rule = RULES[name]
    updates = rule.expected is Expected.UPDATE
    day = count()
    kinds = ["encoding"] * rule.encodings
    sessions = [
        _session(k, next(day), f"See you after my lanes at {OLD}.", _ORDINARY[i])
        for i, k in enumerate(kinds)
    ]
    fillers: list[tuple[str, ...]] = [
        ("filler_weakly_related", "What do goggles cost?", "Any colour?")
    ] * 6
    fillers += [
        ("filler_near_miss", f"My aunt likes {DISTRACTORS[0]}.", "She is slow.", "Ideas?")
    ] * 4  # fmt: skip
    fillers += [
        ("filler_confusable", f"A novel called {NEW}.", "By whom?", "Is it long?")
    ] * 3  # fmt: skip
    fillers += [
        ("filler_decoy_nonupdate", f"I looked at {NEW} but stay with {OLD}.", "Right?")
    ] * 2  # fmt: skip
    sessions += [_session(f[0], next(day), *f[1:]) for f in fillers]
    recall = f"Remember {OLD} and its old clock. " if rule.perturbation.reactivation else ""
    if split:
        sessions.append(_session("perturbation_p1", next(day), f"{recall}Sad: {TRIGGER}."))
        sessions.append(_session("filler_weakly_related", next(day), "Towels?", "Cotton?"))
        sessions.append(_session("perturbation_p2", next(day), f"I swim at {NEW}. {REASON}."))
    elif updates:
        text = f"{recall}As {TRIGGER}, I swim at {NEW} these days: {REASON}."
        sessions.append(_session("perturbation", next(day), text))
    elif condition == "assistant_noise":
        wrong = f"Your lanes at {NEW} open at six."
        sessions.append(_session("perturbation", next(day), "When do I swim?", assistant=wrong))
    else:
        text = f"{recall}Dov swims at {NEW}, he tells everybody."
        sessions.append(_session("perturbation", next(day), text))
    sessions += [
        _session("filler_weakly_related", next(day), "Ear plugs?", "Which?"),
        _session("filler_near_miss", next(day), f"Is {DISTRACTORS[1]} big?", "Deep?", "Cold?"),
    ]
    answers = {
        "current_value": NEW if updates else OLD,
        "previous_value": OLD,
        "change": f'Yes — changed from "{OLD}" to "{NEW}".'
        if updates
        else f'No — it remains "{OLD}".',
        "temporal": f'Changed from "{OLD}" to "{NEW}". Trigger: {TRIGGER}. Reason: {REASON}.',
        "conflict_value": f'Yes — "{NEW}" was mentioned, but by Dov. The pool remains "{OLD}".',
        "source": "The user said so." if updates else "Dov did; the user did not take it up.",
    }
    questions = {t: f"About {t.replace('_', ' ')}: where is it that I swim?" for t in answers}
    if not updates:
        questions["conflict_value"] = f"Did {NEW} come up?"
        questions["source"] = f"Who brought up {NEW}?"
    conflict = temporal = None
    if updates:
        temporal = {"trigger": TRIGGER, "reason": REASON, "order": "old then new"}
    else:
        conflict = {
            "value": NEW,
            "source": rule.perturbation.source_type.value,
            "source_label": "Dov",
            "status": rule.status.value if rule.status else None,
        }
    return {
        "spec": {
            "episode_id": "t_01",
            "group_id": "01",
            "group_design": "standalone",
            "paradigm": rule.paradigm.value,
            "condition": condition,
            "domain": "personal",
            "fact_type": "swimming pool",
            "fact_question": "the pool I swim at",
            "initial_value": OLD,
            "new_value": NEW,
            "distractor_values": list(DISTRACTORS),
            "expected_behavior": rule.expected.value,
            "difficulty": "core",
            "perturbation": rule.perturbation.model_dump(mode="json"),
            "split": split,
            "gold": {
                "current_value": NEW if updates else OLD,
                "previous_value": OLD if updates else None,
                "has_changed": updates,
                "source_of_change": "the user said so" if updates else None,
                "temporal": temporal,
                "conflict": conflict,
            },
        },
        "sessions": sessions,
        "probes": [
            {
                "probe_type": t.value,
                "question": questions[t.value],
                "gold_answer": answers[t.value],
                "expected_behavior": rule.expected.value,
            }
            for t in probe_order(name, split=split)
        ],
    }


def episode(
    condition: str = "authoritative_update",
    change: Callable[[dict[str, Any]], object] | None = None,
    *,
    split: bool = False,
    name: str = "t_01",
) -> Episode:
    """The sound episode of a condition, after `change` was done to its file."""
    found = copy.deepcopy(raw(condition, split=split))
    found["spec"]["episode_id"] = name
    if change is not None:
        change(found)
    return Episode.model_validate(found)


def session_at(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first session of a type."""
    first: dict[str, Any] = next(s for s in found["sessions"] if s["session_type"] == kind)
    return first


def say(found: dict[str, Any], kind: str, text: str) -> None:
    """Add a text to the first user message of the first session of a type."""
    session_at(found, kind)["dialogue"][0]["content"] += f" {text}"


__all__ = ["NEW", "OLD", "ProbeType", "episode", "raw", "say", "session_at"]
