"""The rules that need no memory: what they answer, and what both scorers make of it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pydantic import BaseModel, ValidationError

from memprobe.paradigms.references import PICKS, reference_answer
from memprobe.paradigms.scoring import Match, key_of, score
from memprobe.paradigms.spec import Episode, Expected, ProbeType
from memprobe.paradigms.suite import load_suite
from memprobe.types import Protocol
from prompts.answers import (
    ChangeAnswer,
    ConflictAnswer,
    SourceAnswer,
    TemporalAnswer,
    ValueAnswer,
)
from storage.bundled import paradigms_dir
from tests.paradigms.support import DISTRACTORS, NEW, OLD, episode, raw

TYPES: dict[ProbeType, type[BaseModel]] = {
    ProbeType.CURRENT: ValueAnswer,
    ProbeType.PREVIOUS: ValueAnswer,
    ProbeType.CHANGE: ChangeAnswer,
    ProbeType.SOURCE: SourceAnswer,
    ProbeType.CONFLICT: ConflictAnswer,
    ProbeType.TEMPORAL: TemporalAnswer,
}


def verdicts(name: str, one: Episode, protocol: Protocol) -> list[tuple[ProbeType, Match]]:
    found = []
    for probe in one.probes:
        text = json.dumps(reference_answer(name, one, probe))
        found.append((probe.probe_type, score(key_of(one, probe), text, protocol).match))
    return found


@pytest.fixture(scope="module")
def suite() -> tuple[Episode, ...]:
    return load_suite(paradigms_dir()).episodes


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("name", list(PICKS))
def test_no_answer_is_an_error(name: str, protocol: Protocol, suite: tuple[Episode, ...]) -> None:
    matches = [match for e in suite for _, match in verdicts(name, e, protocol)]
    assert len(matches) == 224
    assert all(match.scored for match in matches)


@pytest.mark.parametrize("name", list(PICKS))
def test_answers_have_the_readers_form(name: str, suite: tuple[Episode, ...]) -> None:
    for e in suite:
        for probe in e.probes:
            kind = TYPES[probe.probe_type]
            answer = reference_answer(name, e, probe)
            assert set(answer) == set(kind.model_fields)
            if name == "latest_value" and probe.probe_type is ProbeType.TEMPORAL:
                with pytest.raises(ValidationError):
                    kind.model_validate(answer)
            else:
                kind.model_validate(answer)


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("always_update", Expected.UPDATE),
        ("always_preserve", Expected.PRESERVE),
    ],
)
def test_a_stubborn_rule_is_right_on_its_own_half(
    name: str, right: Expected, protocol: Protocol, suite: tuple[Episode, ...]
) -> None:
    """Values and changes right where it holds and wrong elsewhere; no source is ever named."""
    by_kind: Counter[tuple[ProbeType, bool, Match]] = Counter()
    for e in suite:
        for kind, match in verdicts(name, e, protocol):
            by_kind[kind, e.spec.expected_behavior is right, match] += 1
    for kind in (ProbeType.CURRENT, ProbeType.CHANGE):
        assert by_kind[kind, True, Match.CORRECT] == 28
        assert by_kind[kind, False, Match.INCORRECT] == 28
    update = name == "always_update"
    full = Match.CORRECT if update else Match.INCORRECT
    half = Match.PARTIAL if update else Match.INCORRECT
    assert by_kind[ProbeType.PREVIOUS, update, full] == 28
    assert by_kind[ProbeType.CONFLICT, not update, half] == 28
    assert by_kind[ProbeType.TEMPORAL, update, half] == 22
    sources = [by_kind[ProbeType.SOURCE, own, Match.INCORRECT] for own in (True, False)]
    assert sum(sources) == 34


WORDS = {
    # As published, in words, where the wording is known.
    ("latest_value", ProbeType.SOURCE): "Last mentioned value is {v}",
    ("latest_value", ProbeType.CONFLICT): "Last mentioned value is {v}",
    ("latest_value", ProbeType.TEMPORAL): "",
    ("always_update", ProbeType.SOURCE): "updated from {old} to {new}",
    ("always_update", ProbeType.CONFLICT): "Yes, {new} was mentioned",
    ("always_update", ProbeType.TEMPORAL): "changed from {old} to {new}",
    ("always_preserve", ProbeType.CONFLICT): "No conflicting values",
    ("always_preserve", ProbeType.TEMPORAL): "always been {old}",
}


@pytest.mark.parametrize(("name", "kind"), list(WORDS))
def test_the_form_scores_as_the_published_words(
    name: str, kind: ProbeType, suite: tuple[Episode, ...]
) -> None:
    seen = 0
    for e in suite:
        for probe in e.probes:
            if probe.probe_type is not kind:
                continue
            seen += 1
            key = key_of(e, probe)
            old, new, v = e.spec.initial_value, e.spec.new_value, PICKS[name](e)
            words = WORDS[name, kind].format(old=old, new=new, v=v)
            told = score(key, words, Protocol.PAPER).match is Match.CORRECT
            answer = json.dumps(reference_answer(name, e, probe))
            assert (score(key, answer, Protocol.PAPER).match is Match.CORRECT) == told, e.id
    assert seen > 20


def with_last(*values: str) -> Episode:
    """An episode whose last session mentions these values, and no session after it does."""
    data = raw("authoritative_update")
    talk = data["sessions"][-1]["dialogue"]
    talk[0]["content"] = " and ".join(values)
    return Episode.model_validate(data)


@pytest.mark.parametrize(
    ("last", "value"),
    [
        ((OLD,), OLD),
        ((NEW,), NEW),
        ((DISTRACTORS[1],), DISTRACTORS[1]),
        ((DISTRACTORS[1], NEW, OLD), OLD),
        ((DISTRACTORS[2], DISTRACTORS[1]), DISTRACTORS[1]),
    ],
)
def test_the_latest_session_decides_and_the_first_listed_of_equals(
    last: tuple[str, ...], value: str
) -> None:
    one = with_last(*last)
    answers = {p.probe_type: reference_answer("latest_value", one, p) for p in one.probes}
    assert answers[ProbeType.CURRENT]["answer"] == value
    assert answers[ProbeType.CHANGE]["changed"] is (value != OLD)
    assert answers[ProbeType.PREVIOUS]["answer"] == (OLD if value != OLD else "None")


def test_a_value_that_is_the_first_one_is_no_conflict() -> None:
    one = episode("third_party_noise")
    probe = next(p for p in one.probes if p.probe_type is ProbeType.CONFLICT)
    assert reference_answer("always_preserve", one, probe)["conflict_value"] is None
    assert reference_answer("always_update", one, probe)["conflict_value"] == NEW


def test_another_name_is_no_rule() -> None:
    one = episode()
    with pytest.raises(KeyError):
        reference_answer("full_context", one, one.probes[0])
