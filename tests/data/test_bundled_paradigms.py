"""The bundled paradigms suite: as its card says, and without a problem."""

from __future__ import annotations

import re

import pytest

from memprobe.paradigms.checks import inspect_suite
from memprobe.paradigms.suite import composition, load_suite
from storage.bundled import data_dir

FOLDER = data_dir() / "paradigms" / "suite56"
CARD = (data_dir() / "paradigms" / "CARD.md").read_text(encoding="utf-8")


def test_it_is_clean() -> None:
    assert inspect_suite(FOLDER).problems == ()


def test_the_card_tells_what_is_in_it() -> None:
    suite = load_suite(FOLDER)
    made = composition(suite.episodes)
    assert f"`{suite.digest}`" in CARD
    sessions = sum(len(e.sessions) for e in suite.episodes)
    messages = sum(len(s.dialogue) for e in suite.episodes for s in e.sessions)
    split = sum(row.split for row in made.rows)
    said = (
        f"{made.episodes} episodes ({made.update} update, {made.preserve} preserve; "
        f"{split} split), "
        f"{sessions:,} sessions, {messages:,} messages"
    )
    assert said in CARD
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", CARD, re.M)
    assert [tuple(row) for row in rows] == [
        (row.paradigm, row.condition, *(str(n) for n in row.domains.values()), str(row.split))
        for row in made.rows
    ]


@pytest.mark.parametrize("word", ["FitLife", "CrossFit", "Mediterranean diet", "payment-v2"])
def test_no_published_value_is_used(word: str) -> None:
    texts = (path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json"))
    assert not any(word in text for text in texts)
