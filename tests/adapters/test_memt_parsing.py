"""The policy's text protocol: what its parsers forgive, and what they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.memory.memt.parsing import (
    ToolCall,
    closed,
    first_call,
    tool_calls,
    without_thinking,
)
from adapters.memory.memt.writing import formed
from tests.support.fake_memory_memt import call

A, B = call("add_item", document="a"), call("ignore_item", reason="b")
QUOTED = call("create_fact", fact="wrote <think>, then </think>, then <think>")


def names(text: str) -> list[str]:
    return [c.name for c in tool_calls(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{A}\n{B}", ["add_item", "ignore_item"]),
        (f"First this {A} and then {B} done.", ["add_item", "ignore_item"]),
        (f"{A}<tool_call> {{broken </tool_call>{B}", ["add_item", "ignore_item"]),
        ('<tool_call>[{"name": "x", "arguments": {}}, {"name": "y", "arguments": {}}]</tool_call>',
         ["x", "y"]),
        ('<tool_call>[{"name": "x", "arguments": {}}, 7, {"name": "y"}]</tool_call>', ["x"]),
        ('<tool_call>\n{\n"name": "x",\n"arguments": {"a": 1}\n}\n</tool_call>', ["x"]),
        ('<tool_call> {"name": "x", "arguments": {}}', ["x"]),
        ('  <tool_call> {"name": "x", "arguments": {}}  \n', ["x"]),
        ('So: <tool_call> {"name": "x", "arguments": {}}', []),
        ('<tool_call> {"name": "x", "arguments": {}', []),
        ('<tool_call> {"name": "x", "arguments": "{}"} </tool_call>', []),
        ('<tool_call> {"name": "x"} </tool_call>', []),
        ('<tool_call> {"arguments": {}} </tool_call>', []),
        ('<tool_call> {"name": 7, "arguments": {}} </tool_call>', []),
        ("<tool_call> {'name': 'x', 'arguments': {}} </tool_call>", []),
        ('{"name": "x", "arguments": {}}', []),
        ("", []),
        ("nothing to do", []),
    ],
)  # fmt: skip
def test_all_blocks_are_read(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_a_deeply_nested_block_is_no_call() -> None:
    assert tool_calls(f"<tool_call>{'[' * 100_000}</tool_call>{A}") == tool_calls(A)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"Thought: x\n{A}", "add_item"),
        (f"{A}{B}", "add_item"),
        (f"<tool_call> {{broken </tool_call>{B}", None),
        (f"<tool_call> [{A}] </tool_call>", None),
        ("Thought: x", None),
        ('<tool_call> {"name": "x", "arguments": {}}', None),
    ],
)
def test_a_search_step_is_its_first_block(text: str, found: str | None) -> None:
    step = first_call(text)
    assert (step.name if step else None) == found


def test_a_list_block_is_no_search_step() -> None:
    assert first_call('<tool_call>[{"name": "x", "arguments": {}}]</tool_call>') is None


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("Thought <tool_call> {}", "Thought <tool_call> {} </tool_call>"),
        ("Thought <tool_call> {} </tool_call>", "Thought <tool_call> {} </tool_call>"),
        ("a <tool_call> {} </tool_call> and <tool_call> more", "a <tool_call> {} </tool_call>"),
        ("no call at all", "no call at all"),
        ("", ""),
    ],
)
def test_an_answer_is_cut_at_the_stop_string_and_closed_again(sent: str, text: str) -> None:
    assert closed(sent) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"<think>\nhm\n</think>\n\n{A}", A),
        (f"<think></think>{A}", A),
        (f"{A}<think>and now {B}", A),
        (f"<think>only {A}", ""),
        (f"opened in the prompt {B}</think>{A}", A),
        (f"<think>1</think>{A}<think>2</think>{B}", f"{A}{B}"),
        (A, A),
        (QUOTED, QUOTED),
        (f"<think>{A}</think>{QUOTED}", QUOTED),
        (f"draft {QUOTED}</think>{A}", A),
        (QUOTED.partition("</tool_call>")[0].strip(), QUOTED.partition("</tool_call>")[0].strip()),
        (f"I emit <tool_call> next</think>{A}", A),
    ],
)
def test_thinking_is_taken_out(text: str, rest: str) -> None:
    assert without_thinking(text) == rest


def test_a_lone_surrogate_that_is_spelt_out_is_replaced() -> None:
    said = r'<tool_call>{"name": "create_fact", "arguments": {"fact": "tea \ud83d!"}}</tool_call>'
    assert tool_calls(said) == [ToolCall("create_fact", {"fact": "tea \ufffd!"})]


@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    for shape in (text, f"<tool_call>{text}</tool_call>", f"<tool_call>{text}"):
        assert isinstance(tool_calls(without_thinking(shape)), list)
        first_call(closed(shape))


@given(st.text(min_size=1))
def test_any_text_comes_back_as_it_was_said(text: str) -> None:
    said = call("create_fact", fact=text, start_time="", end_time="")
    if "</tool_call>" not in text:
        assert tool_calls(said)[0].arguments["fact"] == text


def test_arguments_of_another_type_are_none() -> None:
    step = ToolCall("x", {"a": 7, "b": None, "c": " y ", "k": "12", "n": 3, "t": True, "s": "-1"})
    assert [step.text(key) for key in "abcz"] == ["", "", "y", ""]
    assert [step.number(key, 5) for key in "knatsz"] == [12, 3, 7, 5, 5, 5]


def test_formation_passes_over_what_is_empty_or_unknown() -> None:
    found = formed(
        [
            ToolCall("create_fact", {"fact": "  ", "start_time": "", "end_time": ""}),
            ToolCall("create_fact", {"fact": "F", "start_time": "2023", "end_time": 7}),
            ToolCall("create_experience", {"experience": "E"}),
            ToolCall("update_persona", {"name": "", "profile": "P"}),
            ToolCall("update_persona", {"name": "Ana", "profile": ""}),
            ToolCall("update_summary", {"content": "one"}),
            ToolCall("update_summary", {"content": ""}),
            ToolCall("create_dream", {"fact": "no such tool"}),
        ]
    )
    assert [(c.kind, c.text, c.start_time, c.end_time) for c in found.candidates] == [
        ("fact", "F", "2023", ""),
        ("experience", "E", "", ""),
    ]
    assert found.personas == (("User", "P"),)
    assert found.summary == "one"
