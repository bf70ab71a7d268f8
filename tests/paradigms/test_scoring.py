"""The two scorers on cases of our own: what both say, and each documented departure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memprobe.paradigms.scoring import Key, Match, key_of, paper, score, strict
from memprobe.paradigms.scoring.parsing import parse_object
from memprobe.paradigms.scoring.results import parts_of_reason
from memprobe.paradigms.scoring.values import named, same_value, tokens
from memprobe.paradigms.spec import Condition, ProbeType
from memprobe.types import Protocol
from tests.paradigms.support import NEW, OLD, REASON, TRIGGER, episode

C, P, I, E = Match.CORRECT, Match.PARTIAL, Match.INCORRECT, Match.EXECUTION_ERROR  # noqa: E741


def key(probe: str, condition: str = "authoritative_update") -> Key:
    one = episode(condition)
    return next(key_of(one, p) for p in one.probes if p.probe_type == probe)


def value_key(gold: str, other: str) -> Key:
    return Key(ProbeType.CURRENT, gold, Condition.LOW, other, gold)


def says(**fields: Any) -> str:
    return json.dumps(fields)


def conflict(**changed: Any) -> str:
    right = {
        "conflict_value_mentioned": True,
        "conflict_value": NEW,
        "source_class": "third_party",
        "status_class": "other_entity",
        "applies_to_target": False,
        "current_value": OLD,
    }
    return json.dumps(right | changed)


def temporal(**changed: Any) -> str:
    right = {"changed": True, "trigger": TRIGGER, "old_value": OLD, "new_value": NEW, "reason": ""}
    return json.dumps(right | changed)


NOISE, TOOL = "third_party_noise", "stale_tool"
UNCHANGED = temporal(changed=False, trigger="none", new_value="none")
VERDICTS = [
    # probe, condition, answer, paper, strict
    ("current_value", "direct", says(answer=NEW), C, C),
    ("current_value", "direct", f"It is the {NEW.lower()}.", C, C),
    ("current_value", "direct", says(answer=OLD), I, I),
    ("current_value", "direct", says(answer=f"{OLD} or {NEW}"), C, P),
    ("current_value", "direct", "", I, I),
    ("current_value", NOISE, says(answer=OLD), C, C),
    ("previous_value", "direct", says(answer=OLD), C, C),
    ("previous_value", "direct", says(answer=NEW), I, I),
    ("change", "direct", says(changed=True), C, C),
    ("change", "direct", says(changed="true"), I, C),
    ("change", "direct", says(changed=False), I, I),
    ("change", "direct", "Yes, it changed.", C, C),
    ("change", NOISE, "No, it did not change.", C, C),
    ("change", NOISE, "I know nothing of that.", C, I),
    ("change", NOISE, says(changed=True), I, I),
    ("temporal", "low", temporal(), C, C),
    ("temporal", "low", temporal(trigger="unknown"), P, P),
    ("temporal", "low", temporal(new_value="Northgate Lido"), C, P),
    ("temporal", "low", UNCHANGED, I, I),
    ("source", "direct", says(source_class="user", accepted=True), C, C),
    ("source", "direct", says(source_class="user", accepted=False), C, P),
    ("source", "direct", says(source_class="assistant", accepted=True), P, P),
    ("source", "direct", says(source_class="unknown", accepted=True), I, I),
    ("source", NOISE, says(source_class="third_party", accepted=False), C, C),
    ("source", NOISE, says(source_class="other_entity", accepted=False), P, C),
    ("source", NOISE, says(source_class="hypothetical", accepted=False), P, P),
    ("source", TOOL, says(source_class="tool", accepted=False), P, C),
    ("source", TOOL, says(source_class="assistant", accepted=True), I, I),
    ("conflict_value", NOISE, conflict(), C, C),
    ("conflict_value", NOISE, conflict(conflict_value="Pine Court"), C, I),
    ("conflict_value", NOISE, conflict(conflict_value_mentioned=False), I, I),
    ("conflict_value", NOISE, conflict(applies_to_target=True), C, P),
    ("conflict_value", NOISE, conflict(source_class="user"), C, C),
    ("conflict_value", NOISE, conflict(source_class="user", status_class="stale"), P, P),
]


@pytest.mark.parametrize(("probe", "condition", "answer", "published", "corrected"), VERDICTS)
def test_verdicts(
    probe: str, condition: str, answer: str, published: Match, corrected: Match
) -> None:
    for protocol, wanted in ((Protocol.PAPER, published), (Protocol.STRICT, corrected)):
        found = score(key(probe, condition), answer, protocol)
        assert found.match is wanted, (protocol, found)
        assert found.reason


@pytest.mark.parametrize(
    ("gold", "other", "answer", "published", "corrected"),
    [
        ("weekly", "daily", "bi-weekly", C, I),
        ("11 PM", "9 PM", "house 11", C, I),
        ("11 PM", "9 PM", "23:00", I, C),
        ("6 hours", "45 minutes", "six hours", C, C),
        ("3 retries", "5 retries", "3", C, C),
        ("3 retries", "5 retries", "the retry count is 3", C, C),
        ("3 retries", "5 retries", "3 seconds", C, I),
        ("14 May", "2 June", "May 14th", I, C),
        ("the subway", "cycling", "subway", I, C),
        ("oboe", "cello", "cello or oboe", C, P),
    ],
)
def test_values(gold: str, other: str, answer: str, published: Match, corrected: Match) -> None:
    one = value_key(gold, other)
    assert paper.score(one, answer).match is published
    assert strict.score(one, answer).match is corrected


def test_without_structured_gold_the_keys_of_an_answer_earn_points_as_published_only() -> None:
    one = Key(ProbeType.TEMPORAL, "user explicitly stated the switch", Condition.HIGH, OLD, NEW)
    answer = says(changed=False, trigger="none", new_value="none", reason="the user stays")
    assert paper.score(one, answer).match is C
    assert strict.score(one, answer).match is I
    assert strict.score(one, says(changed=True, trigger="a closure", new_value=NEW)).match is C
    assert strict.score(one, says(changed=True, trigger="unknown", new_value=NEW)).match is P


def test_repeating_the_values_tells_no_trigger() -> None:
    told = temporal(trigger=f"The user went from {OLD} to {NEW}")
    found = strict.score(key("temporal"), told)
    assert found.match is P
    assert found.parts == {"direction": True, "trigger": False, "old_value": True}
    assert strict.score(key("temporal"), temporal(trigger="a closed sauna")).match is C


def test_free_text_counts_by_the_right_list_only() -> None:
    one = key("conflict_value", "third_party_noise")
    wrong = f"Yes, {NEW} was a mistake of the assistant; it remains {OLD}."
    assert paper.score(one, wrong).parts["source"]
    assert not strict.score(one, wrong).parts["source"]
    right = f"Yes, a friend swims at {NEW}, a different person; the user's remains {OLD}."
    assert strict.score(one, right).match is C
    source = key("source", "third_party_noise")
    assert strict.score(source, "A colleague brought it up.").match is C
    assert strict.score(source, "Dov did.").match is C
    assert strict.score(source, "Dov did, or the assistant made it up.").match is P
    assert strict.score(source, "The assistant made it up.").match is I


def test_errors_and_missing_gold_are_no_verdicts() -> None:
    for form in (paper, strict):
        failed = form.score(key("change"), "[ERROR: timeout]")
        assert failed.match is E
        assert not failed.match.scored
        none = Key(ProbeType.PREVIOUS, "None", Condition.LOW, OLD, NEW)
        assert form.score(none, "x").match is Match.SKIP
    assert strict.score(key("change"), '{"changed": tru').match is E
    lacking = strict.score(key("source", "direct"), says(source_class="user"))
    assert (lacking.match, lacking.reason) == (E, "unreadable: no field accepted")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure: {"a": "x"} done', {"a": "x"}),
        ('{"a": "x', {"a": "x"}),
        ('{"a": 1, "b": "x', {"a": 1, "b": "x"}),
        ('{"a": 1, "b', {"a": 1}),
        ("no object", None),
        ("[1]", None),
        ("{" * 3000, None),
    ],
)
def test_objects_are_read_and_mended(text: str, found: object) -> None:
    assert parse_object(text) == found


def test_tokens() -> None:
    assert tokens("the Café's bi-weekly plan, at 7:40 a.m.") == [
        "cafe",
        "bi-weekly",
        "plan",
        "07:40",
    ]
    assert tokens("120 requests/min") == tokens("120 requests per minute")
    assert tokens("14th of May") == tokens("May 14") == tokens("14 May") == ["14", "may"]
    assert same_value("Alder & Sons", "alder sons")
    assert not named(("Max",), "HBO Max", ("HBO Max",))
    assert named(("Max",), "HBO Max and Max", ("HBO Max",))
    assert not named(("",), "anything")
    assert not named((OLD,), f"no longer {OLD}")
    assert named((OLD,), f"No, it is {OLD}")
    found = strict.score(key("current_value"), f"{NEW}, not {OLD}")
    assert found.match is C
    assert paper.score(key("current_value"), f"not {NEW}").match is C
    assert strict.score(key("current_value"), f"not {NEW}").match is I


def test_the_key_holds_the_gold_of_the_episode() -> None:
    update = key("temporal")
    assert update.temporal is not None
    assert (update.temporal.trigger, update.temporal.reason) == (TRIGGER, REASON)
    assert update.conflict is None
    kept = key("conflict_value", "third_party_noise")
    assert kept.conflict is not None
    assert (kept.conflict.value, kept.conflict.remains) == (NEW, OLD)


def test_parts_are_recovered_from_an_older_reason() -> None:
    reason = "value=True, source=False, status=True, applicability=False"
    assert parts_of_reason(reason) == {
        "value": True, "source": False, "status": True, "applicability": False,
    }  # fmt: skip
    assert parts_of_reason("matched") == {}


CLASSES = {"assistant_hallucination": "assistant"}
STATUSES = {"different_entity": "other_entity"}


def perfect(one: Key) -> dict[str, Any]:
    """The structured answer of a reader that knows the gold."""
    update = one.conflict is None
    if one.probe_type in ("current_value", "previous_value"):
        return {"answer": one.gold}
    if one.probe_type == "change":
        return {"changed": update}
    if one.temporal is not None and one.probe_type == "temporal":
        gold = one.temporal
        return {"changed": True, "trigger": gold.trigger, "new_value": gold.new}
    if one.conflict is None:
        return {"source_class": "user", "accepted": True}
    source = CLASSES.get(one.conflict.source, one.conflict.source)
    return {
        "source_class": source,
        "accepted": False,
        "conflict_value_mentioned": True,
        "conflict_value": one.conflict.value,
        "status_class": STATUSES.get(one.conflict.status, one.conflict.status),
        "applies_to_target": False,
    }


@pytest.mark.parametrize("condition", list(Condition))
def test_a_perfect_reader_gets_everything_and_a_wrong_one_nothing(condition: Condition) -> None:
    """The other condition's answers are the wrong ones: always updating, always preserving."""
    one = episode(condition.value)
    swap = {one.spec.new_value: one.spec.initial_value, one.spec.initial_value: one.spec.new_value}
    for probe in one.probes:
        for form in (paper, strict):
            right = perfect(key_of(one, probe))
            assert form.score(key_of(one, probe), json.dumps(right)).match is C
            wrong = {
                k: (not v if isinstance(v, bool) else swap.get(v, "unknown"))
                for k, v in right.items()
            }
            found = form.score(key_of(one, probe), json.dumps(wrong)).match
            assert found is I, (form, probe.probe_type)
