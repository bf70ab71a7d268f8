"""The bundled paradigms suites: as their card says, and without a problem."""

from __future__ import annotations

import re
from statistics import mean

import pytest

from memprobe.paradigms.checks import check_suite, frequent_value, inspect_suite, latest_value
from memprobe.paradigms.spec import Condition, SessionType
from memprobe.paradigms.suite import composition, load_suite
from storage.bundled import data_dir, paradigms_dir

CARD = (data_dir() / "paradigms" / "CARD.md").read_text(encoding="utf-8")
SUITES = ("homestead14", "suite56")


def _section(name: str) -> str:
    """What the card says of one suite."""
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", CARD, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_card_has_every_suite() -> None:
    folders = {path.name for path in (data_dir() / "paradigms").iterdir() if path.is_dir()}
    assert folders == set(SUITES)
    assert set(re.findall(r"^## (\S+)$", CARD, re.MULTILINE)) == folders


@pytest.mark.parametrize("name", SUITES)
def test_it_is_clean(name: str) -> None:
    assert inspect_suite(paradigms_dir(name)).problems == ()


@pytest.mark.parametrize("name", SUITES)
def test_the_card_tells_what_is_in_it(name: str) -> None:
    suite, card = load_suite(paradigms_dir(name)), _section(name)
    made = composition(suite.episodes)
    assert f"`{suite.digest}`" in card
    sessions = sum(len(e.sessions) for e in suite.episodes)
    messages = sum(len(s.dialogue) for e in suite.episodes for s in e.sessions)
    split = sum(row.split for row in made.rows)
    said = (
        f"{made.episodes} episodes ({made.update} update, {made.preserve} preserve; "
        f"{split} split), "
        f"{sessions:,} sessions, {messages:,} messages"
    )
    assert said in card
    rows = re.findall(r"^\| (\w+) \| (\w+) \|((?: \d+ \|)+)$", card, re.MULTILINE)
    assert [(p, c, re.findall(r"\d+", counts)) for p, c, counts in rows] == [
        (
            row.paradigm,
            row.condition,
            [*(str(n) for n in row.domains.values()), str(row.split)],
        )
        for row in made.rows
    ]
    spoken = re.search(r"^Probes: (.*?)\. Sessions: ", card, re.MULTILINE)
    assert spoken is not None
    told = dict(re.findall(r"([a-z ]+?) (\d+)", spoken.group(1)))
    assert {k.strip(): int(n) for k, n in told.items()} == {
        kind.value.replace("_", " "): n for kind, n in made.probes.items() if n
    }


def test_homestead_is_of_its_own() -> None:
    """One episode for each condition; no fact, value, opening or message of the other suite."""
    ours = load_suite(paradigms_dir("homestead14")).episodes
    others = load_suite(paradigms_dir("suite56")).episodes
    assert sorted(e.spec.condition for e in ours) == sorted(Condition)
    assert {e.spec.domain for e in ours} == {"homestead"}
    assert not {e.spec.fact_type for e in ours} & {e.spec.fact_type for e in others}
    taken = {v for e in others for v in (e.spec.initial_value, e.spec.new_value)}
    assert not taken & {v for e in ours for v in (e.spec.initial_value, e.spec.new_value)}
    across = ("id", "opening", "repeated")
    assert [p for p in check_suite("both", [*others, *ours]) if p.rule in across] == []


def test_homestead_has_no_short_way_to_the_answer() -> None:
    """Neither where and how often a value stands nor a session's length gives it away."""
    episodes = load_suite(paradigms_dir("homestead14")).episodes
    for pick in (latest_value, frequent_value):
        right = {e.id: pick(e) == e.spec.gold.current_value for e in episodes}
        assert sum(right.values()) <= len(right) / 2
        # Right now and then in both directions, so that it does not tell an update either.
        assert {right[e.id] for e in episodes if e.spec.updates} == {True, False}
        assert {right[e.id] for e in episodes if not e.spec.updates} == {True, False}
    words: dict[bool, list[int]] = {True: [], False: []}
    for episode in episodes:
        for session in episode.sessions:
            if session.session_type is not SessionType.ENCODING:
                words[session.session_type.perturbs].append(len(session.text().split()))
    assert mean(words[True]) < 1.1 * mean(words[False])


@pytest.mark.parametrize("word", ["FitLife", "CrossFit", "Mediterranean diet", "payment-v2"])
@pytest.mark.parametrize("name", SUITES)
def test_no_published_value_is_used(name: str, word: str) -> None:
    texts = (path.read_text(encoding="utf-8") for path in paradigms_dir(name).glob("*.json"))
    assert not any(word in text for text in texts)
