"""A planned session as a question to a writer: what is asked for, what is ruled out, when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from memprobe.paradigms.expand import Blueprint, DomainConfig, PlannedSession
from memprobe.paradigms.protocol import USER_TURNS
from memprobe.paradigms.spec import Domain, SessionType, SourceType, Spec

PROMPTS: dict[SessionType, str] = {
    SessionType.ENCODING: "suite_encoding",
    SessionType.WEAKLY_RELATED: "suite_weakly_related",
    SessionType.NEAR_MISS: "suite_near_miss",
    SessionType.CONFUSABLE: "suite_confusable",
    SessionType.DECOY: "suite_decoy",
    SessionType.PERTURBATION: "suite_perturbation",
    SessionType.P1: "suite_perturbation_p1",
    SessionType.P2: "suite_perturbation_p2",
}
"""A template for each kind of session that the expander plans."""
_TURNS = (1, 3)
_SHOWN = 40
"""Openings that a writer is shown at most: those of the longest episode."""
_FIRST = datetime(2025, 1, 6, tzinfo=UTC)
_HOURS = (7, 21)


def session_times(seed: int, episode_id: str, n: int) -> list[datetime]:
    """When each session is held: rising, at waking hours, over four to nine weeks; drawn once."""
    rng = random.Random(f"{seed}/{episode_id}/times")
    gaps = [rng.uniform(0.6, 1.4) for _ in range(n - 1)]
    days = max(rng.uniform(28, 56), float(n))
    start = _FIRST + timedelta(days=rng.randrange(200))
    times: list[datetime] = []
    passed = 0.0
    for gap in [0.0, *gaps]:
        passed += gap
        day = start + timedelta(days=int(passed / (sum(gaps) or 1.0) * days))
        moment = day + timedelta(hours=rng.randint(*_HOURS), minutes=rng.randrange(60))
        if times and moment <= times[-1]:
            moment = times[-1] + timedelta(minutes=rng.randint(25, 80))
        if moment.hour > _HOURS[1]:
            moment = moment.replace(hour=_HOURS[0]) + timedelta(days=1)
        times.append(moment)
    return times


def _named_and_absent(spec: Spec, kind: SessionType) -> tuple[list[str], list[str]]:
    old, new, others = spec.initial_value, spec.new_value, list(spec.distractor_values)
    match kind:
        case SessionType.ENCODING:
            return [old], [new]
        case SessionType.WEAKLY_RELATED:
            return [], [old, new, *others]
        case SessionType.NEAR_MISS:
            return [], [old, new]
        case SessionType.CONFUSABLE:
            return [new], [old]
        case SessionType.DECOY:
            return [old, new], []
        case SessionType.P1:
            return ([old] if spec.perturbation.reactivation else []), [new]
        case SessionType.PERTURBATION if spec.perturbation.reactivation:
            return [old, new], []
        case _:
            return [new], []


def _roles(spec: Spec, kind: SessionType, domain: DomainConfig) -> list[str]:
    stale = spec.perturbation.source_type is SourceType.STALE_TOOL and kind.perturbs
    tools = stale or domain.tools or spec.domain == Domain.AGENTIC
    return ["user", "assistant", *(["tool_output"] if tools else [])]


def variables(
    blueprint: Blueprint,
    planned: PlannedSession,
    domain: DomainConfig,
    moment: datetime,
    openings: Sequence[str],
) -> dict[str, JsonValue]:
    """What a session's template is filled with."""
    spec, kind = blueprint.spec, planned.session_type
    named, absent = _named_and_absent(spec, kind)
    gold = spec.gold
    filled: dict[str, JsonValue] = {
        "domain": {
            "name": str(domain.domain),
            "description": domain.description,
            "style": domain.style,
        },
        "date": f"{moment:%A, %d %B %Y, %H:%M}",
        "fact": spec.fact_question,
        "about": planned.hint,
        "named": list[JsonValue](named),
        "absent": list[JsonValue](absent),
        "roles": list[JsonValue](_roles(spec, kind, domain)),
        "turns": list[JsonValue](USER_TURNS.get(kind, _TURNS)),
        "openings": list[JsonValue](openings[-_SHOWN:]),
    }
    match kind:
        case SessionType.ENCODING:
            filled["value"] = spec.initial_value
        case SessionType.NEAR_MISS:
            filled["values"] = list[JsonValue](spec.distractor_values)
        case SessionType.CONFUSABLE:
            filled["value"] = spec.new_value
        case SessionType.DECOY:
            filled |= {"old": spec.initial_value, "new": spec.new_value}
        case _ if kind.perturbs:
            trigger, reason = (
                (gold.temporal.trigger, gold.temporal.reason) if gold.temporal else (None, None)
            )
            every: dict[str, JsonValue] = {
                "old": spec.initial_value,
                "new": spec.new_value,
                "how": spec.perturbation.source_type.value,
                "source": gold.conflict.source_label if gold.conflict else None,
                "trigger": trigger,
                "reason": reason,
                "recall": spec.perturbation.reactivation,
            }
            filled |= {name: every[name] for name in _PARTS[kind]}
    return filled


_PARTS: dict[SessionType, tuple[str, ...]] = {
    SessionType.PERTURBATION: ("old", "new", "how", "source", "trigger", "reason", "recall"),
    # The first part must not hold the new value, so its writer does not know it but as ruled out.
    SessionType.P1: ("old", "trigger", "recall"),
    SessionType.P2: ("old", "new", "trigger", "reason"),
}
