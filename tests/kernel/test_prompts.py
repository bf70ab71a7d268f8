"""Prompts: strict templates, data that stays data, and answers that parse strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import prompts
from memprobe.errors import PromptError
from memprobe.types import Asker, FeedbackType, Role
from prompts.answers import (
    JUDGE_SCALE,
    DisclosureAnswer,
    Feedback,
    JudgeAnswer,
    OracleAnswer,
    PreferenceAnswer,
    SlotFillAnswer,
    SubclassAnswer,
)

TEMPLATE = (
    "---\nversion: 3\nanswer: JudgeAnswer\ntemperature: 0.5\n---\n=== user ===\nSay {{ x }}\n"
)
ASKER = Asker(run="r", suite="recovery", stage="s")


def own(tmp_path: Path, text: str) -> prompts.Prompt:
    path = tmp_path / "own.md"
    path.write_text(text, encoding="utf-8")
    return prompts.load_file(path)


@pytest.mark.parametrize("name", prompts.names())
def test_bundled_prompts_load(name: str) -> None:
    prompt = prompts.load(name)
    assert prompt.sections[-1][0] == "user"
    assert prompt.identity.startswith(f"{name}@{prompt.version}:")
    # A memory system's own prompts are answered as the system wants it.
    if name not in ("assistant", "retrieval_query") and not name.startswith(
        ("amem_", "factstore_", "memt_", "memoryos_")
    ):
        assert prompt.answer is not None
        assert prompt.temperature is not None


@pytest.mark.parametrize(
    "name", ["judge", "oracle", "disclosure", "subclass", "slot_fill", "preference"]
)
def test_what_judges_is_asked_at_temperature_0(name: str) -> None:
    assert prompts.load(name).temperature == 0


def test_an_own_prompt_is_read_in_the_same_format(tmp_path: Path) -> None:
    prompt = own(tmp_path, TEMPLATE)
    assert (prompt.name, prompt.version, prompt.answer) == ("own", 3, JudgeAnswer)
    request = prompt.request(Role.JUDGE, ASKER, {"x": "{{ x }}"}, replicate=4, max_tokens=9)
    assert [(m.role, m.content) for m in request.messages] == [("user", "Say {{ x }}")]
    assert (request.temperature, request.replicate, request.max_tokens) == (0.5, 4, 9)
    assert request.prompt == prompt.identity


def test_identity_changes_with_any_letter(tmp_path: Path) -> None:
    first = own(tmp_path, TEMPLATE).identity
    assert own(tmp_path, TEMPLATE.replace("Say", "say")).identity != first
    assert own(tmp_path, TEMPLATE).identity == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no header at all", "no header"),
        (TEMPLATE.replace("version: 3\n", ""), "version"),
        (TEMPLATE.replace("version: 3", "version: new"), "version"),
        (TEMPLATE.replace("version: 3", "version 3"), "key: value"),
        (TEMPLATE.replace("temperature: 0.5", "temperature: warm"), "temperature"),
        (TEMPLATE.replace("JudgeAnswer", "NoAnswer"), "no answer type 'NoAnswer'"),
        (TEMPLATE.replace("=== user ===\n", ""), "=== user ==="),
    ],
)
def test_a_broken_file_is_a_prompt_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        own(tmp_path, text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{{ y }}", "'y' is undefined"),
        ("{{ x.missing }}", "missing"),
        ("{% if %}", "own"),
        ("{{ x.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_cannot_be_filled_is_a_prompt_error(
    tmp_path: Path, body: str, message: str
) -> None:
    prompt = own(tmp_path, TEMPLATE.replace("{{ x }}", body))
    with pytest.raises(PromptError, match=message):
        prompt.render(x="value")


def test_an_unknown_prompt_names_the_known_ones() -> None:
    with pytest.raises(PromptError, match=r"no prompt 'jugde'; there are: .*judge"):
        prompts.load("jugde")


pieces = [*'{}%<>/"\\=\n# é', "</notes>", "=== user ===", "{{ x }}", "{% raw %}", "\n- "]
hostile = st.lists(st.sampled_from(pieces), max_size=12).map("".join)


@given(st.lists(hostile, max_size=4))
def test_memories_are_one_json_list_whatever_they_hold(memories: list[str]) -> None:
    system, user = prompts.load("slot_fill").render(
        memories=memories, category="c", boundary="b", dimension="d"
    )
    assert json.loads(system.content.partition("as a JSON list:\n")[2]) == memories
    assert "Dimension: d" in user.content


@given(st.lists(hostile, min_size=1, max_size=4))
def test_notes_are_one_line_each_inside_one_block(memories: list[str]) -> None:
    system, user = prompts.load("assistant").render(task="t", history=[], memories=memories)
    block = system.content.partition("<notes>\n")[2]
    assert block.count("</notes>") == 1
    lines = block.partition("\n</notes>")[0].split("\n")
    assert [json.loads(line.removeprefix("- ")) for line in lines] == memories
    assert user.content.strip() == "t"


@given(hostile)
def test_a_label_is_one_json_string_for_the_judge(label: str) -> None:
    message = prompts.load("judge").render(dimension="d", short="s", explanation="e", label=label)
    assert json.loads(message[1].content.rsplit("\nRecovered: ", 1)[1]) == label


def refused(kind: type[BaseModel], value: Any) -> bool:
    try:
        kind.model_validate(value)
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("score", [*JUDGE_SCALE, "0.75", " 1 ", "0.75/1", "1/1", "0/1.0", 1, 0])
def test_scores_on_the_scale(score: Any) -> None:
    """Case judge-score-fraction."""
    assert JudgeAnswer.model_validate({"score": score}).score in JUDGE_SCALE


@pytest.mark.parametrize(
    "score",
    [
        0.8,
        "0.8",
        "85.5",
        8,
        9.2e124,
        float("nan"),
        "nan",
        "inf",
        True,
        None,
        [],
        "3/4",
        "7.5/10",
        "",
    ],
)
def test_scores_off_the_scale_are_refused(score: Any) -> None:
    """Cases judge-score-decimal-digits, judge-nan, judge-huge-score."""
    assert refused(JudgeAnswer, {"score": score})


@pytest.mark.parametrize("text", ["not correct", "partially correct", "incorrect", "correct", ""])
def test_verdicts_are_whole_words_of_a_closed_list(text: str) -> None:
    """Case judge-correct-substring: no part of a text is ever taken for a verdict."""
    assert refused(SubclassAnswer, {"cause": text})
    assert refused(SubclassAnswer, {"cause": f"agent_elicitation_failure {text}".strip() + "."})
    assert refused(OracleAnswer, {"can_invite": text})
    assert refused(DisclosureAnswer, {"disclosed": text})
    assert refused(JudgeAnswer, {"score": text})
    assert refused(Feedback, {"feedback_type": f"satisfied {text}!", "text": "x"})


def test_the_closed_lists_hold() -> None:
    for kind in FeedbackType:
        assert Feedback.model_validate({"feedback_type": kind.value, "text": "x"})
    for name in ("agent_elicitation_failure", "simulator_too_strict", "unclassified"):
        assert SubclassAnswer.model_validate({"cause": name})
    for other in ("memory_failure", "ok", "Unclassified"):
        assert refused(SubclassAnswer, {"cause": other})


@pytest.mark.parametrize("score", [0, 6, 3.5, "4", "NA", "n/a", None, True, [4]])
def test_ratings_are_1_to_5_or_na(score: Any) -> None:
    assert refused(PreferenceAnswer, {"per_pref": [{"idx": 1, "score": score}]})


@pytest.mark.parametrize("score", [1, 2, 3, 4, 5, "na"])
def test_ratings_on_the_scale(score: Any) -> None:
    (found,) = PreferenceAnswer.model_validate({"per_pref": [{"idx": 1, "score": score}]}).per_pref
    assert found.score == score


@pytest.mark.parametrize("blank", ["", " ", "\n", "\u200b", "\u00a0\t", None])
def test_a_blank_text_is_no_answer(blank: Any) -> None:
    """Case abstain-on-crash-credit: a blank label is not "unknown", a blank turn is no turn."""
    assert refused(SlotFillAnswer, {"label": blank})
    assert refused(Feedback, {"feedback_type": "followup", "text": blank})


@given(st.text(max_size=20))
def test_a_label_is_kept_as_it_is(label: str) -> None:
    if not refused(SlotFillAnswer, {"label": label}):
        assert SlotFillAnswer.model_validate({"label": label}).label == label
