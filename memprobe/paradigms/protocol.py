"""The protocol's tables: conditions, probes, counts of sessions, the plan of 56 episodes.

Source: the published description of the stability-plasticity suite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memprobe.paradigms.spec import (
    Condition,
    ConflictStatus,
    Domain,
    Expected,
    Paradigm,
    Perturbation,
    ProbeType,
    SessionType,
    SourceType,
    Spec,
)

_CURRENT, _PREVIOUS, _CHANGE = ProbeType.CURRENT, ProbeType.PREVIOUS, ProbeType.CHANGE
_TEMPORAL, _CONFLICT, _SOURCE = ProbeType.TEMPORAL, ProbeType.CONFLICT, ProbeType.SOURCE

_ORDERS: dict[tuple[Paradigm, Expected], tuple[ProbeType, ...]] = {
    (Paradigm.INTERFERENCE, Expected.UPDATE): (_CURRENT, _PREVIOUS, _CHANGE, _TEMPORAL),
    (Paradigm.INTERFERENCE, Expected.PRESERVE): (_CURRENT, _CONFLICT, _CHANGE, _SOURCE),
    (Paradigm.MISINFORMATION, Expected.UPDATE): (_CURRENT, _PREVIOUS, _SOURCE, _CHANGE),
    (Paradigm.MISINFORMATION, Expected.PRESERVE): (_CURRENT, _CONFLICT, _SOURCE, _CHANGE),
    (Paradigm.CONSOLIDATION, Expected.UPDATE): (_CURRENT, _PREVIOUS, _CHANGE, _TEMPORAL),
    (Paradigm.CONSOLIDATION, Expected.PRESERVE): (_CURRENT, _CONFLICT, _CHANGE, _SOURCE),
    (Paradigm.RECONSOLIDATION, Expected.UPDATE): (_CURRENT, _PREVIOUS, _CHANGE, _SOURCE),
    (Paradigm.RECONSOLIDATION, Expected.PRESERVE): (_CURRENT, _CONFLICT, _CHANGE, _SOURCE),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a condition fixes."""

    paradigm: Paradigm
    expected: Expected
    perturbation: Perturbation
    status: ConflictStatus | None
    encodings: int

    @property
    def probes(self) -> tuple[ProbeType, ...]:
        """The four probes in order, of an episode that is not split."""
        return _ORDERS[self.paradigm, self.expected]


def _update(paradigm: Paradigm, *, reactivation: bool = False, encodings: int = 3) -> Rule:
    how = Perturbation(
        source_type=SourceType.USER,
        evidence_strength="strong",
        authoritative=True,
        reactivation=reactivation,
    )
    return Rule(paradigm, Expected.UPDATE, how, None, encodings)


def _preserve(
    paradigm: Paradigm,
    status: ConflictStatus = ConflictStatus.NOT_ACCEPTED,
    source: SourceType = SourceType.THIRD_PARTY,
    *,
    reactivation: bool = False,
    encodings: int = 3,
) -> Rule:
    how = Perturbation(
        source_type=source,
        evidence_strength="weak",
        authoritative=False,
        reactivation=reactivation,
    )
    return Rule(paradigm, Expected.PRESERVE, how, status, encodings)


_INT, _MIS = Paradigm.INTERFERENCE, Paradigm.MISINFORMATION
_CON, _REC = Paradigm.CONSOLIDATION, Paradigm.RECONSOLIDATION
_OTHER = ConflictStatus.DIFFERENT_ENTITY

RULES: dict[Condition, Rule] = {
    Condition.AUTHORITATIVE_UPDATE: _update(_INT),
    Condition.DECOY_NO_UPDATE: _preserve(_INT, _OTHER),
    Condition.USER_EXPLICIT: _update(_MIS),
    Condition.ASSISTANT_NOISE: _preserve(_MIS, source=SourceType.ASSISTANT),
    Condition.THIRD_PARTY_NOISE: _preserve(_MIS, _OTHER),
    Condition.STALE_TOOL: _preserve(_MIS, ConflictStatus.STALE, SourceType.STALE_TOOL),
    Condition.HIGH: _update(_CON, encodings=4),
    Condition.LOW: _update(_CON, encodings=1),
    Condition.HIGH_WEAK_CHALLENGE: _preserve(_CON, encodings=4),
    Condition.LOW_WEAK_CHALLENGE: _preserve(_CON, encodings=1),
    Condition.REACTIVATED: _update(_REC, reactivation=True),
    Condition.DIRECT: _update(_REC),
    Condition.REACTIVATED_WEAK: _preserve(_REC, reactivation=True),
    Condition.DIRECT_WEAK: _preserve(_REC),
}

Tier = Literal["short", "core", "long"]
TIERS: dict[Tier, int] = {"short": 8, "core": 15, "long": 25}
"""Fillers between the encodings and the perturbation, by length."""


def filler_counts(tier: Tier) -> dict[SessionType, int]:
    """Fillers before the perturbation: 40 % weakly related, 27 % near misses, 20 % confusable,
    decoys for the rest."""
    total = TIERS[tier]
    weak, near, conf = round(total * 0.4), round(total * 0.27), round(total * 0.2)
    return {
        SessionType.WEAKLY_RELATED: weak,
        SessionType.NEAR_MISS: near,
        SessionType.CONFUSABLE: conf,
        SessionType.DECOY: total - weak - near - conf,
    }


PRE_FILLERS = filler_counts("core")
"""The 15 fillers of an episode of core length: 6, 4, 3, 2."""

POST_FILLERS = (2, 4)
INTERLEAVED = (1, 2)
POST_TYPES = frozenset(
    {SessionType.WEAKLY_RELATED, SessionType.NEAR_MISS, SessionType.STALE_REFERENCE}
)
USER_TURNS: dict[SessionType, tuple[int, int]] = {
    SessionType.WEAKLY_RELATED: (2, 4),
    SessionType.NEAR_MISS: (3, 5),
    SessionType.CONFUSABLE: (3, 5),
    SessionType.DECOY: (2, 4),
}
"""User messages in a filler of each kind."""


def probe_order(condition: Condition, *, split: bool) -> tuple[ProbeType, ...]:
    """The four probes in order; a split episode asks `temporal` where others ask `source`."""
    order = RULES[condition].probes
    return tuple(_TEMPORAL if split and p is _SOURCE else p for p in order)


def spec_probes(spec: Spec) -> tuple[ProbeType, ...]:
    """`probe_order` of an episode."""
    return probe_order(spec.condition, split=spec.split)


@dataclass(frozen=True, slots=True)
class Planned:
    """An episode a plan asks for."""

    condition: Condition
    domain: Domain
    split: bool


_PREFIX = {_INT: "int", _MIS: "mis", _CON: "con", _REC: "rec"}

_SUITE56: dict[Condition, tuple[str, str, str]] = {
    # condition: ids of personal, work, agentic; * marks a split episode
    Condition.AUTHORITATIVE_UPDATE: ("01a 10a* 12a*", "11a* 12b*", "05a 09a 13a"),
    Condition.DECOY_NO_UPDATE: ("01b 10b", "11b", "05b 09b 13b"),
    Condition.USER_EXPLICIT: ("14a*", "02a 15a*", "06a"),
    Condition.ASSISTANT_NOISE: ("14b", "02b 15b", "06b"),
    Condition.THIRD_PARTY_NOISE: ("14c", "02c 15c", "06c"),
    Condition.STALE_TOOL: ("", "16b", "16a"),
    Condition.HIGH: ("03a 18a*", "17a*", "07a"),
    Condition.LOW: ("03b 18b", "17b", "07b"),
    Condition.HIGH_WEAK_CHALLENGE: ("03c 18c", "17c", ""),
    Condition.LOW_WEAK_CHALLENGE: ("03d", "17d", "18d"),
    Condition.REACTIVATED: ("19a*", "04a 20a*", "08a"),
    Condition.DIRECT: ("19b*", "04b", "08b 20b*"),
    Condition.REACTIVATED_WEAK: ("20c", "04c", "19c"),
    Condition.DIRECT_WEAK: ("", "04d 20d", "19d"),
}


def _plan56() -> dict[str, Planned]:
    plan = {}
    for condition, cells in _SUITE56.items():
        prefix = _PREFIX[RULES[condition].paradigm]
        for domain, ids in zip(Domain.PUBLISHED, cells, strict=True):
            for name in ids.split():
                plan[f"{prefix}_{name.rstrip('*')}"] = Planned(condition, domain, "*" in name)
    return dict(sorted(plan.items()))


PLANS: dict[str, dict[str, Planned]] = {"suite56": _plan56()}
"""Plans by name: which episodes a suite of that name has."""
