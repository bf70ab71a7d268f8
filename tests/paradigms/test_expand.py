"""The expander gives a whole specification that the validator's rules accept."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from memprobe.errors import DatasetError
from memprobe.paradigms.expand import (
    DomainConfig,
    FactType,
    MiniSpec,
    canonical,
    expand,
    filler_counts,
)
from memprobe.paradigms.protocol import PRE_FILLERS, RULES, probe_order
from memprobe.paradigms.spec import Condition, Domain, SessionType

DOMAIN = DomainConfig(
    domain=Domain.PERSONAL,
    description="home",
    style="chatty",
    fact_types={
        "pool": FactType(
            readable="swimming pool",
            encoding_contexts=("training plan", "lost goggles", "a lift"),
            distractor_values_pool=("Quay", "Linden Centre", "North Lido", "Linden", "Ferris Road"),
        )
    },
)


def mini(condition: str = "authoritative_update", **more: Any) -> MiniSpec:
    fields = {
        "episode_id": "t_01",
        "paradigm": RULES[Condition(condition)].paradigm,
        "condition": condition,
        "domain": "personal",
        "fact_type": "pool",
        "initial_value": "Harrow Baths",
        "new_value": "The user swims at Quayside Pool",
        "source_of_change": "the user said so",
        "trigger": "a closed sauna",
        "reason": "warmer water",
    }
    return MiniSpec.model_validate(fields | more)


def test_values_of_three_words_and_distractors_that_do_not_overlap() -> None:
    spec = expand(mini(), DOMAIN).spec
    assert (spec.initial_value, spec.new_value) == ("Harrow Baths", "Quayside Pool")
    assert spec.distractor_values == ("Linden Centre", "North Lido", "Ferris Road")
    assert canonical("a very long lower case value") == "a very long"
    assert canonical("Moved to Bristol Office Park West") == "Bristol Office Park"
    assert expand(mini(canonical_new="Quay Pool"), DOMAIN).spec.new_value == "Quay Pool"


@pytest.mark.parametrize("condition", list(Condition))
def test_every_condition_expands_to_its_design(condition: Condition) -> None:
    made = expand(mini(condition.value), DOMAIN)
    rule = RULES[condition]
    kinds = [s.session_type for s in made.sessions]
    count = Counter(kinds[: kinds.index(SessionType.PERTURBATION)])
    assert count == {SessionType.ENCODING: rule.encodings, **PRE_FILLERS}
    assert tuple(p.probe_type for p in made.probes) == probe_order(condition, split=False)
    assert made.spec.expected_behavior is rule.expected
    assert (made.spec.gold.conflict is None) == (rule.status is None)
    assert all(p.gold_answer and p.question for p in made.probes)


def test_the_same_mini_spec_gives_the_same_plan() -> None:
    assert expand(mini(), DOMAIN) == expand(mini(), DOMAIN)
    other = expand(mini(episode_id="t_02"), DOMAIN)
    assert [s.session_type for s in other.sessions] != [
        s.session_type for s in expand(mini(), DOMAIN).sessions
    ]


def test_split_and_tiers() -> None:
    made = expand(mini("direct", split=True), DOMAIN)
    kinds = [s.session_type for s in made.sessions]
    assert kinds.index(SessionType.P2) - kinds.index(SessionType.P1) == 2
    assert made.probes[-1].probe_type == "temporal"
    assert made.probes[-1].gold_answer == (
        'Changed from "Harrow Baths" to "Quayside Pool". '
        "Trigger: a closed sauna. Reason: warmer water."
    )
    assert filler_counts("core") == PRE_FILLERS
    assert sum(filler_counts("short").values()) == 8
    assert sum(filler_counts("long").values()) == 25


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"paradigm": "consolidation"}, "condition: authoritative_update is of interference"),
        ({"fact_type": "gym"}, "fact_type: 'gym' is none of pool"),
        ({"domain": "work"}, "domain: work, not personal"),
        ({"trigger": None}, "trigger: an update needs it"),
        ({"new_value": "Harrow"}, "new_value: 'Harrow Baths' and 'Harrow' overlap"),
        ({"condition": "decoy_no_update", "split": True}, "split: only updates are split"),
        ({"new_value": "Linden Road"}, None),
        ({"new_value": "Linden"}, "distractor_values: 3|distractor_values: 2"),
    ],
)
def test_what_cannot_be_expanded_is_named(fields: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert expand(mini(**fields), DOMAIN).spec.new_value == "Linden Road"
        return
    small = DOMAIN
    if "distractor" in words:
        fact = DOMAIN.fact_types["pool"].model_copy(
            update={"distractor_values_pool": ("Linden Centre", "North Lido", "Ferris Road")}
        )
        small = DOMAIN.model_copy(update={"fact_types": {"pool": fact}})
    with pytest.raises(DatasetError, match=f"t_01: (?:{words})"):
        expand(mini(**fields), small)
