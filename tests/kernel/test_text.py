"""Text from outside: surrogates and content that is not a string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprobe.text import flatten_content, sanitize


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_clean_text_is_left_alone(text: str) -> None:
    assert sanitize(text) == (text, False)


@given(st.text(st.characters(categories=["Cs", "Lu", "So"]), max_size=40))
def test_what_comes_out_can_be_stored(text: str) -> None:
    clean, _ = sanitize(text)
    clean.encode("utf-8")
    assert sanitize(clean) == (clean, False)


@pytest.mark.parametrize(
    ("raw", "clean", "changed"),
    [
        ("broken \ud83d tail", "broken \ufffd tail", True),
        ("\udc00", "\ufffd", True),
        ("pair \ud83d\ude0a", "pair 😊", True),
        ("😊 אני 她", "😊 אני 她", False),
        ("", "", False),
    ],
)
def test_lone_surrogates_are_replaced(raw: str, clean: str, changed: bool) -> None:
    """Case lone-surrogate: U+FFFD in its place, and the caller is told."""
    assert sanitize(raw) == (clean, changed)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, (None, 0)),
        ("text", ("text", 0)),
        (["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {}}], ("a\nb", 1)),
        ([], ("", 0)),
        ([None, 3, {"text": None}], ("", 3)),
    ],
)
def test_content_in_parts(content: object, expected: tuple[str | None, int]) -> None:
    """Cases content-list and none-content."""
    assert flatten_content(content) == expected


@pytest.mark.parametrize("content", [3, {"text": "x"}, 1.5])
def test_other_content_is_refused(content: object) -> None:
    with pytest.raises(TypeError, match="not text"):
        flatten_content(content)
