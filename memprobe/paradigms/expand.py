"""From a mini-spec to an episode's full specification, its probes and its session plan.

Deterministic: the same mini-spec and domain give the same plan. Departing from the
published expander, distractors are never padded with placeholder names: a pool
that is too small is an error that says so.
"""

from __future__ import annotations

import random
from typing import Annotated, Literal

from pydantic import Field, model_validator

from memprobe.errors import DatasetError
from memprobe.paradigms.protocol import RULES, Tier, filler_counts, spec_probes
from memprobe.paradigms.spec import (
    Condition,
    ConflictGold,
    ConflictStatus,
    Domain,
    EpisodeId,
    Gold,
    Paradigm,
    Probe,
    ProbeType,
    SessionType,
    SourceType,
    Spec,
    TemporalGold,
    Text,
)
from memprobe.types import Frozen

_POST: dict[Tier, int] = {"short": 2, "core": 2, "long": 3}
_WORDS = 3
_LABELS: dict[SourceType, str] = {
    SourceType.THIRD_PARTY: "another person",
    SourceType.ASSISTANT: "the assistant, wrongly",
    SourceType.STALE_TOOL: "an outdated tool output",
}


class FactType(Frozen):
    """A kind of fact: how it reads in a question, where it comes up, values of its kind."""

    readable: Text
    encoding_contexts: Annotated[tuple[Text, ...], Field(min_length=3)]
    distractor_values_pool: tuple[Text, ...] = ()


class DomainConfig(Frozen):
    """A domain with its fact types by name; `tools` tells that assistants use tools there."""

    domain: Domain
    description: str
    style: str
    tools: bool = False
    fact_types: dict[str, FactType]

    @model_validator(mode="after")
    def _published(self) -> DomainConfig:
        if self.tools and self.domain in (Domain.PERSONAL, Domain.WORK):
            raise ValueError(f"tools: the published domain {self.domain} has none")
        return self


class MiniSpec(Frozen):
    """The few fields an author gives; seven are mandatory.

    `trigger`, `reason` and `source_of_change` are needed for an update, whose
    temporal gold is always structured.
    """

    episode_id: EpisodeId
    paradigm: Paradigm
    condition: Condition
    domain: Domain
    fact_type: Text
    initial_value: Text
    new_value: Text
    canonical_initial: str | None = None
    canonical_new: str | None = None
    distractor_values: tuple[Text, ...] = ()
    encoding_contexts: tuple[Text, ...] = ()
    length_tier: Tier = "core"
    group_id: str | None = None
    group_design: Literal["paired", "triplet", "quad", "standalone"] = "standalone"
    split: bool = False
    perturbation_wording: str = ""
    source_label: str | None = None
    source_of_change: str | None = None
    trigger: str | None = None
    reason: str | None = None
    probe_overrides: dict[ProbeType, str] = Field(default_factory=dict)


class PlannedSession(Frozen):
    """A session to be written: its type and a hint to the writer."""

    session_type: SessionType
    hint: str


class Blueprint(Frozen):
    """An expanded mini-spec: everything of an episode but the conversations."""

    spec: Spec
    sessions: tuple[PlannedSession, ...]
    probes: tuple[Probe, ...]


def canonical(surface: str) -> str:
    """A value's short form: up to three capitalised words in a row, else the first three words."""
    words = [w.strip(".,;:!?\"'()") for w in surface.split()]
    for i, word in enumerate(words):
        if word[:1].isupper() and (i > 0 or len(words) <= _WORDS):
            run = []
            for following in words[i : i + _WORDS]:
                if not following[:1].isupper():
                    break
                run.append(following)
            return " ".join(run)
    return " ".join(words[:_WORDS])


def _overlap(a: str, b: str) -> bool:
    return a.casefold() in b.casefold() or b.casefold() in a.casefold()


def _distractors(mini: MiniSpec, fact: FactType, old: str, new: str) -> tuple[str, str, str]:
    chosen: list[str] = []
    for value in (*mini.distractor_values, *fact.distractor_values_pool):
        if not any(_overlap(value, other) for other in (old, new, *chosen)):
            chosen.append(value)
    if len(chosen) < 3:
        raise DatasetError(
            f"{mini.episode_id}: distractor_values: {len(chosen)} of the given values and of "
            f"fact_types.{mini.fact_type}.distractor_values_pool overlap with no other value; "
            "3 are needed"
        )
    return chosen[0], chosen[1], chosen[2]


def _needed(mini: MiniSpec, field: str) -> str:
    value = getattr(mini, field)
    if not value:
        raise DatasetError(f"{mini.episode_id}: {field}: an update needs it")
    return str(value)


def _gold(mini: MiniSpec, old: str, new: str) -> Gold:
    rule = RULES[mini.condition]
    if rule.status is None:
        return Gold(
            current_value=new,
            previous_value=old,
            has_changed=True,
            source_of_change=_needed(mini, "source_of_change"),
            temporal=TemporalGold(
                trigger=_needed(mini, "trigger"),
                reason=_needed(mini, "reason"),
                order=f"{old} then {new}",
            ),
            conflict=None,
        )
    source = rule.perturbation.source_type
    conflict = ConflictGold.model_validate(
        {
            "value": new,
            "source": source,
            "source_label": mini.source_label or _LABELS[source],
            "status": rule.status,
        }
    )
    return Gold(
        current_value=old,
        previous_value=None,
        has_changed=False,
        source_of_change=None,
        temporal=None,
        conflict=conflict,
    )


def _sessions(mini: MiniSpec, fact: FactType, spec: Spec) -> list[PlannedSession]:
    contexts = (*mini.encoding_contexts, *fact.encoding_contexts)
    planned = [
        PlannedSession(session_type=SessionType.ENCODING, hint=contexts[i % len(contexts)])
        for i in range(RULES[mini.condition].encodings)
    ]
    hints = {
        SessionType.WEAKLY_RELATED: "a neighbouring topic, none of the values",
        SessionType.NEAR_MISS: f"the {fact.readable} of someone else: "
        + ", ".join(spec.distractor_values),
        SessionType.CONFUSABLE: f"{spec.new_value} in an irrelevant role",
        SessionType.DECOY: f"considers {spec.new_value} and stays with {spec.initial_value}",
    }
    fillers = [kind for kind, n in filler_counts(mini.length_tier).items() for _ in range(n)]
    random.Random(f"{mini.episode_id}/fillers").shuffle(fillers)
    planned += [PlannedSession(session_type=kind, hint=hints[kind]) for kind in fillers]
    wording = mini.perturbation_wording or f"{spec.new_value}, as {mini.condition} has it"
    if mini.split:
        weak = SessionType.WEAKLY_RELATED
        planned += [
            PlannedSession(session_type=SessionType.P1, hint=f"trigger: {mini.trigger}"),
            PlannedSession(session_type=weak, hint=hints[weak]),
            PlannedSession(session_type=SessionType.P2, hint=wording),
        ]
    else:
        planned.append(PlannedSession(session_type=SessionType.PERTURBATION, hint=wording))
    after = (SessionType.WEAKLY_RELATED, SessionType.NEAR_MISS, SessionType.WEAKLY_RELATED)
    planned += [
        PlannedSession(session_type=kind, hint=hints[kind])
        for kind in after[: _POST[mini.length_tier]]
    ]
    return planned


def _question(mini: MiniSpec, name: ProbeType, fact: str, new: str) -> str:
    return (
        mini.probe_overrides.get(name)
        or {
            ProbeType.CURRENT: f"What is the user's {fact} now?",
            ProbeType.PREVIOUS: f"What was the user's {fact} before the change?",
            ProbeType.CHANGE: f"Did the user's own {fact} change?",
            ProbeType.TEMPORAL: f"When and why did the user's {fact} change, and what set it off?",
            ProbeType.CONFLICT: f"Was {new} mentioned, in what context, and was it adopted as the "
            f"user's {fact}?",
            ProbeType.SOURCE: f"Who brought up {new}, and did the user confirm it?"
            if RULES[mini.condition].status
            else f"Who told of the change of the user's {fact}, and how?",
        }[name]
    )


def gold_answer(spec: Spec, name: ProbeType, fact: str) -> str:
    """The gold answer of a probe in words, by the published patterns."""
    gold, old, new = spec.gold, spec.initial_value, spec.new_value
    match name:
        case ProbeType.CURRENT:
            return gold.current_value
        case ProbeType.PREVIOUS:
            return str(gold.previous_value)
        case ProbeType.CHANGE if gold.has_changed:
            return f'Yes — changed from "{old}" to "{new}".'
        case ProbeType.CHANGE:
            return f'No — it remains "{old}".'
    if name is ProbeType.TEMPORAL and gold.temporal is not None:
        why = gold.temporal
        return f'Changed from "{old}" to "{new}". Trigger: {why.trigger}. Reason: {why.reason}.'
    if gold.conflict is None:
        return str(gold.source_of_change)
    label = gold.conflict.source_label
    if name is ProbeType.SOURCE:
        return f'"{new}" came from {label}; the user did not take it up.'
    why_not = {
        ConflictStatus.DIFFERENT_ENTITY: "for someone or something else",
        ConflictStatus.NOT_ACCEPTED: "and it was not accepted",
        ConflictStatus.STALE: "and it was out of date",
    }[gold.conflict.status]
    return (
        f'Yes — "{new}" was mentioned, but by {label}, {why_not}. '
        f'The user\'s {fact} remains "{old}".'
    )


def expand(mini: MiniSpec, domain: DomainConfig) -> Blueprint:
    """Expand a mini-spec in its domain.

    Raises `DatasetError` naming the field: another domain, an unknown fact type, a
    condition of another paradigm, overlapping values, too few distractors, an update
    without trigger, reason or source.
    """
    rule = RULES[mini.condition]
    if mini.domain != domain.domain:
        raise DatasetError(f"{mini.episode_id}: domain: {mini.domain}, not {domain.domain}")
    if rule.paradigm is not mini.paradigm:
        raise DatasetError(f"{mini.episode_id}: condition: {mini.condition} is of {rule.paradigm}")
    if mini.split and rule.status is not None:
        raise DatasetError(f"{mini.episode_id}: split: only updates are split")
    fact = domain.fact_types.get(mini.fact_type)
    if fact is None:
        known = ", ".join(domain.fact_types)
        raise DatasetError(f"{mini.episode_id}: fact_type: {mini.fact_type!r} is none of {known}")
    old = mini.canonical_initial or canonical(mini.initial_value)
    new = mini.canonical_new or canonical(mini.new_value)
    if _overlap(old, new):
        raise DatasetError(f"{mini.episode_id}: new_value: {old!r} and {new!r} overlap")
    spec = Spec(
        episode_id=mini.episode_id,
        group_id=mini.group_id or mini.episode_id,
        group_design=mini.group_design,
        paradigm=mini.paradigm,
        condition=mini.condition,
        domain=mini.domain,
        fact_type=mini.fact_type,
        fact_question=f"the user's {fact.readable}",
        initial_value=old,
        new_value=new,
        distractor_values=_distractors(mini, fact, old, new),
        expected_behavior=rule.expected,
        difficulty="core",
        perturbation=rule.perturbation,
        split=mini.split,
        gold=_gold(mini, old, new),
    )
    probes = tuple(
        Probe(
            probe_type=name,
            question=_question(mini, name, fact.readable, new),
            gold_answer=gold_answer(spec, name, fact.readable),
            expected_behavior=rule.expected,
        )
        for name in spec_probes(spec)
    )
    return Blueprint(spec=spec, sessions=tuple(_sessions(mini, fact, spec)), probes=probes)
