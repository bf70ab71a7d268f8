"""Carrying a decision out: the temporal guard, and what each action does to facts.

Pure functions over immutable facts; the store takes over what they return, whole
or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from adapters.memory.factstore.engine import Decision
from adapters.memory.factstore.records import (
    REINFORCEMENT,
    Action,
    Fact,
    Observation,
    Revision,
    Status,
)
from memprobe.errors import AdapterError

Guard = Literal["strict", "enrich"]
CHANGING = frozenset({Action.UPDATE, Action.SUPERSEDE, Action.CONFLICT})
"""What a document older than the fact's last update may not do to it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Facts that are new or changed, and the id of the one that holds the statement now."""

    facts: tuple[Fact, ...] = ()
    result: str | None = None


def guarded(
    decision: Decision, observation: Observation, facts: Mapping[str, Fact], guard: Guard
) -> Decision:
    """The decision as the temporal guard leaves it.

    An observation older than the last update of a fact that it would change
    reinforces that fact instead. `enrich` lets an older observation append details.
    A supersede goes on with those facts that are not newer, where there are any.
    """
    if decision.action not in CHANGING:
        return decision
    older = [i for i in decision.facts if observation.time < facts[i].last_update]
    if not older or (decision.action is Action.UPDATE and guard == "enrich"):
        return decision
    rest = tuple(i for i in decision.facts if i not in older)
    if rest:
        return replace(decision, facts=rest)
    return Decision(Action.REINFORCE, (decision.agrees or older[0],))


def outdated(observation: Observation, fact: Fact) -> bool:
    """Whether the observation is older than what the fact was last told."""
    return observation.time < fact.last_update


def appended(statement: str, addition: str) -> str:
    """A statement with another behind it; nothing of either is lost or changed."""
    first, second = statement.strip(), addition.strip()
    if second in first:
        return first
    return f"{first}{'' if first[-1:] in '.!?…' else '.'} {second}"


def apply(
    decision: Decision,
    observation: Observation,
    facts: Mapping[str, Fact],
    new_id: str,
    *,
    decided: Action,
    merged: str = "",
) -> Outcome:
    """What facts become. `new_id` is for a fact that is made, `merged` an update's statement.

    Confidence: a new fact has that of its observation, an update keeps the higher
    of both, a reinforcement adds 0.1 up to 1. Raises `AdapterError` for a decision
    about a fact that is not active.
    """
    named = [_active(facts, i) for i in decision.facts]
    match decision.action:
        case Action.NONE:
            return Outcome()
        case Action.CREATE:
            made = _made(new_id, observation, observation.what, Action.CREATE, decided)
            return Outcome((made,), made.id)
        case Action.REINFORCE:
            changed = _changed(named[0], observation, named[0].statement, decision.action, decided)
            return Outcome((changed,), changed.id)
        case Action.UPDATE:
            changed = _changed(named[0], observation, merged, decision.action, decided)
            return Outcome((changed,), changed.id)
        case Action.CONFLICT:
            return _conflict(named[0], observation, new_id, decided)
        case Action.SUPERSEDE:
            return _supersede(decision, named, observation, facts, new_id, decided)


def _active(facts: Mapping[str, Fact], fact_id: str) -> Fact:
    fact = facts[fact_id]
    if not fact.active:
        raise AdapterError(f"factstore: {fact_id} is superseded and cannot change")
    return fact


def _revision(
    observation: Observation, statement: str, confidence: float, change: Action, decided: Action
) -> Revision:
    return Revision(
        statement=statement,
        confidence=confidence,
        change=change,
        decided=decided,
        observation_id=observation.id,
        author=observation.author,
        time=observation.time,
        session=observation.session,
    )


def _made(
    fact_id: str, observation: Observation, statement: str, change: Action, decided: Action
) -> Fact:
    sure = observation.confidence
    return Fact(
        id=fact_id,
        statement=statement,
        confidence=sure,
        category=observation.draft.category,
        created=observation.time,
        last_update=observation.time,
        history=(_revision(observation, statement, sure, change, decided),),
        authors=(observation.author,),
        observation_ids=(observation.id,),
    )


def _changed(
    fact: Fact, observation: Observation, statement: str, change: Action, decided: Action
) -> Fact:
    """A fact that stays the same fact: reinforced or updated."""
    if change is Action.UPDATE:
        sure = max(fact.confidence, observation.confidence)
    else:
        # Tenths do not add up in binary: ten of them must make 1.
        sure = min(1.0, round(fact.confidence + REINFORCEMENT, 9))
    revision = _revision(observation, statement, sure, change, decided)
    return fact.model_copy(
        update={
            "statement": statement,
            "confidence": sure,
            "last_update": max(fact.last_update, observation.time),
            "history": (*fact.history, revision),
            "authors": tuple(dict.fromkeys((*fact.authors, observation.author))),
            "observation_ids": (*fact.observation_ids, observation.id),
        }
    )


def _conflict(fact: Fact, observation: Observation, new_id: str, decided: Action) -> Outcome:
    """Both statements stay, each marked with the other, until a later document settles it."""
    made = _made(new_id, observation, observation.what, Action.CONFLICT, decided)
    made = made.model_copy(update={"conflicts_with": (fact.id,)})
    # The fact says what it said, so that only its history tells of the contradiction.
    revision = _revision(observation, fact.statement, fact.confidence, Action.CONFLICT, decided)
    marked = fact.model_copy(
        update={
            "conflicts_with": (*fact.conflicts_with, made.id),
            "history": (*fact.history, revision),
        }
    )
    return Outcome((marked, made), made.id)


def _supersede(
    decision: Decision,
    named: Sequence[Fact],
    observation: Observation,
    facts: Mapping[str, Fact],
    new_id: str,
    decided: Action,
) -> Outcome:
    overruled = [fact for fact in named if fact.id != decision.agrees]
    if decision.agrees is not None:
        heir = _active(facts, decision.agrees)
        heir = _changed(heir, observation, heir.statement, Action.REINFORCE, decided)
    else:
        statement = decision.statement or observation.what
        heir = _made(new_id, observation, statement, Action.SUPERSEDE, decided)
    gone = [fact.id for fact in overruled]
    heir = heir.model_copy(update={"supersedes": (*heir.supersedes, *gone)})
    changed = {heir.id: heir}
    for fact in overruled:
        revision = _revision(
            observation, fact.statement, fact.confidence, Action.SUPERSEDE, decided
        )
        changed[fact.id] = fact.model_copy(
            update={
                "status": Status.SUPERSEDED,
                "superseded_by": heir.id,
                "conflicts_with": (),
                "history": (*fact.history, revision),
            }
        )
    # A conflict with what holds no longer is none.
    for fact in (*(f for f in facts.values() if f.id not in changed), heir):
        left = tuple(i for i in fact.conflicts_with if i not in gone)
        if left != fact.conflicts_with:
            changed[fact.id] = fact.model_copy(update={"conflicts_with": left})
    return Outcome(tuple(changed.values()), heir.id)
