"""Reading answers; each case names its id in the collection of known pitfalls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from adapters.models.structured import InvalidAnswer, parse, strict_schema
from prompts.answers import DisclosureAnswer, Feedback, JudgeAnswer, PreferenceAnswer


class Facts(BaseModel):
    facts: list[str]


class VerdictAnswer(BaseModel):
    verdict: bool
    reason: str | None


class Grade(BaseModel):
    grade: str


@pytest.mark.parametrize(
    ("case", "text", "score", "repaired"),
    [
        ("plain", '{"score": 0.75, "reason": "close"}', 0.75, False),
        ("json-fence-lower", '```json\n{"score": 0.75, "reason": "close"}\n```', 0.75, True),
        ("json-fence-upper", '```JSON\n{"score": 1.0}\n```', 1.0, True),
        ("json-fence-after-prose", 'Here you go:\n```json\n{"score": 1.0}\n```', 1.0, True),
        ("fence without a tag", '```\n{"score": 1}\n```', 1.0, True),
        ("byte order mark", '\ufeff{"score": 0.5}', 0.5, True),
        ("prose around", 'Sure. {"score": 0.25, "reason": "a } in it"} Done.', 0.25, True),
        ("trailing comma", '{"score": 0.5, "reason": "a, }",}', 0.5, True),
        ("single quotes", "{'score': 0.5, 'reason': 'it\\'s near'}", 0.5, True),
        ("same object twice", '{"score": 0.5} or, once more, {"score": 0.5}', 0.5, True),
        ("braces in prose", 'Of the set {a, b} I say {"score": 0.5}', 0.5, True),
        ("footnote", 'As in [1], {"score": 0.5}', 0.5, True),
        ("judge-score-fraction", '{"score": "0.75/1", "reason": "minor omission"}', 0.75, False),
    ],
)
def test_a_usable_answer_is_read_and_flagged_when_it_was_repaired(
    case: str, text: str, score: float, repaired: bool
) -> None:
    parsed = parse(text, JudgeAnswer)
    assert isinstance(parsed.value, JudgeAnswer)
    assert (parsed.value.score, parsed.repaired) == (score, repaired)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("judge-nan", '{"score": NaN}'),
        ("judge-nan", '{"score": Infinity}'),
        ("judge-nan", '{"score": -Infinity, "reason": "x"}'),
        ("judge-nan", '{"score": "NaN"}'),
        ("judge-nan", '{"score": 1e999}'),
        ("judge-huge-score", '{"score": 9.2e+124}'),
        ("judge-score-decimal-digits", '{"score": 0.8}'),
        ("judge-score-decimal-digits", '{"score": "85.5"}'),
        ("judge-score-decimal-digits", '{"score": 8}'),
        ("judge-score-decimal-digits", "1.0"),
        ("judge-score-fraction", '{"score": "3/4"}'),
        ("judge-first-number", "There are 5 reasons why this is a score of 9"),
        ("judge-regex-miss", "**Score: 0.75**"),
        ("judge-regex-miss", "GRID: C"),
        ("a truth value", '{"score": true}'),
        ("nothing", ""),
        ("a list", '[{"score": 1.0}]'),
        ("a list in prose", 'Here: [{"score": 1.0}]'),
        ("a string", '"0.75"'),
        ("two different answers", '{"score": 0.5} no, rather {"score": 1.0}'),
        ("contradicting keys", '{"score": 0.5, "score": 1.0}'),
        ("contradicting keys in Python", "{'score': 0.5, 'score': 1.0}"),
        ("json-truncated-length", '{"answers": [{"score": 1.0}, {"sco'),
        ("code, not data", "{'score': float('1.0')}"),
        ("a bottomless nest", "[" * 100_000),
        ("a bottomless nest", '{"a":' * 100_000),
    ],
)
def test_nothing_is_guessed(case: str, text: str) -> None:
    with pytest.raises(InvalidAnswer):
        parse(text, JudgeAnswer)


def test_json_python_literals() -> None:
    parsed = parse('```json\n{"verdict": True, "reason": None}\n```', VerdictAnswer)
    assert parsed.value == VerdictAnswer(verdict=True, reason=None)
    assert parsed.repaired


def test_python_words_inside_strings_stay_as_they_are() -> None:
    parsed = parse('{"disclosed": True, "evidence": "None of it is True, ok,}"}', DisclosureAnswer)
    assert parsed.value == DisclosureAnswer(disclosed=True, evidence="None of it is True, ok,}")


def test_json_fence_removed_with_content() -> None:
    text = '```json\n{"facts": ["The sky is blue."]}\n```\nExplanation: one fact.'
    assert parse(text, Facts).value == Facts(facts=["The sky is blue."])
    with pytest.raises(InvalidAnswer):
        parse("```json\n```\nExplanation: no fact.", Facts)


@pytest.mark.parametrize("text", ["not correct", "partially correct", "incorrect"])
def test_judge_correct_substring(text: str) -> None:
    with pytest.raises(InvalidAnswer):
        parse(text, Grade)


def test_the_reason_for_a_refusal_names_the_field() -> None:
    with pytest.raises(InvalidAnswer, match="score"):
        parse('{"score": 0.8}', JudgeAnswer)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.text(alphabet="abc .,:!\n", max_size=20),
)
def test_any_object_survives_prose_and_fences(value: Any, prose: str) -> None:
    class Anything(BaseModel):
        value: Any

    wrapped = {"value": value}
    text = json.dumps(wrapped)
    for form in (text, f"{prose}{text}{prose}", f"{prose}\n```json\n{text}\n```\n{prose}"):
        assert parse(form, Anything).value.model_dump() == wrapped


@given(st.text(max_size=200))
def test_no_text_makes_the_parser_crash(text: str) -> None:
    try:
        parsed = parse(text, JudgeAnswer)
    except InvalidAnswer:
        return
    assert isinstance(parsed.value, JudgeAnswer)


@pytest.mark.parametrize("kind", [JudgeAnswer, Feedback, PreferenceAnswer])
def test_a_strict_schema_closes_every_object_and_requires_every_key(kind: type[BaseModel]) -> None:
    def check(node: Any) -> None:
        if isinstance(node, dict):
            if "properties" in node:
                assert node["additionalProperties"] is False
                assert set(node["required"]) == set(node["properties"])
            assert "default" not in node or "properties" not in node
            for value in node.values():
                check(value)
        elif isinstance(node, list):
            for value in node:
                check(value)

    check(strict_schema(kind))
