"""Leakage: content words that a task shares with what it must not give away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprobe.leakage import content_stems, leaked_words, stem, words


@pytest.mark.parametrize(
    "forms",
    [
        ("studied", "studies", "study"),
        ("happier", "happily", "happy"),
        ("planner", "planners", "planning", "planned"),
        ("paint", "painted", "painting", "paintings", "painter", "paints"),
        ("ferry", "ferries"),
        ("organise", "organised", "organises", "organising"),
    ],
)
def test_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


@pytest.mark.parametrize(
    ("task", "hidden", "found"),
    [
        ("Help me with a painting.", "Paints at night", ["paint"]),
        ("I STUDIED it", "studies hard", ["study"]),
        ("The sister\u2019s kettle", "my sister", ["sist"]),
        ("Ｋｅｔｔｌｅ", "kettle", ["kettl"]),
        ("a cart on the road", "a cartoon", []),
        ("I have it and you had it", "having had it", []),
        ("x y z", "x y z", []),
        ("Ich trinke Tee", "Sie trinkt Kaffee", []),
        ("我 在 哈伊法", "哈伊法", ["哈伊法"]),
        ("", "anything", []),
        ("anything", "", []),
    ],
)
def test_leaked_words(task: str, hidden: str, found: list[str]) -> None:
    assert leaked_words(task, hidden) == found


def test_all_hidden_texts_count() -> None:
    assert leaked_words("kettle and harbour", "a kettle", "the harbour") == ["harbour", "kettl"]
    assert leaked_words("kettle") == []


def test_words_are_folded_and_possessives_cut() -> None:
    assert words("Don\u2019t touch Ana's KETTLE_7!") == ["don't", "touch", "ana", "kettle", "7"]


@given(st.text(max_size=60))
def test_a_text_leaks_all_of_its_content(text: str) -> None:
    assert leaked_words(text, text) == sorted(content_stems(text))
    assert content_stems(text.upper().lower()) == content_stems(text.lower())
