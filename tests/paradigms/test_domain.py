"""A suite of one's own may live in a domain of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memprobe.errors import DatasetError
from memprobe.paradigms.checks import check_episode, check_suite, inspect_suite
from memprobe.paradigms.metrics import results_of, summarise
from memprobe.paradigms.protocol import PLANS, filler_counts
from memprobe.paradigms.scoring.results import key_of, score
from memprobe.paradigms.spec import Domain, Episode, SessionType, in_order
from memprobe.paradigms.suite import composition, load_episode, suite_digest
from memprobe.types import Protocol
from tests.paradigms.support import episode, raw

GARDEN = Domain("gardening")


def in_garden(found: dict[str, Any]) -> None:
    found["spec"]["domain"] = "gardening"


def test_an_episode_of_another_domain_is_sound_and_counted(tmp_path: Path) -> None:
    garden, own = episode(change=in_garden, name="g_01"), episode(name="p_01")
    assert check_episode(garden) == []
    assert composition((garden,)).rows[0].domains == {GARDEN: 1}
    assert list(composition((own, garden)).rows[0].domains.items()) == [
        ("personal", 1), ("work", 0), ("agentic", 0), ("gardening", 1),
    ]  # fmt: skip
    path = tmp_path / "g_01.json"
    path.write_text(garden.model_dump_json(), encoding="utf-8")
    again = load_episode(path)
    assert again == garden
    assert isinstance(again.spec.domain, Domain)
    assert suite_digest((again,)) == suite_digest((garden,))


def test_its_answers_are_scored_and_grouped() -> None:
    garden = episode(change=in_garden)
    scores = [score(key_of(garden, p), p.gold_answer, Protocol.PAPER) for p in garden.probes]
    results = results_of(garden, scores)
    assert {r.domain for r in results} == {"gardening"}
    assert summarise(results).accuracy.n == 4


@pytest.mark.parametrize("name", ["", "Garden", "2nd", "a b", "../x", "x" * 41, "garten\n", "é"])
def test_a_name_that_is_no_domain(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no name of a domain"):
        Domain(name)
    found = raw()
    found["spec"]["domain"] = name
    with pytest.raises(ValidationError):
        Episode.model_validate(found)
    path = tmp_path / "t_01.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(DatasetError, match=r"spec\.domain"):
        load_episode(path)


def test_the_published_ones_keep_their_order() -> None:
    assert in_order([Domain("zoo"), GARDEN]) == ("gardening", "zoo")
    assert in_order([Domain("zoo"), Domain.WORK]) == ("personal", "work", "agentic", "zoo")
    assert f"{Domain.WORK}/{Domain.WORK.value}" == "work/work"


def test_a_plan_of_other_domains_says_how_to_put_it_right() -> None:
    plan = {"int_01a": PLANS["suite56"]["int_01a"]}
    found = check_suite("suite56", [episode(change=in_garden, name="int_01a")], plan)
    (problem,) = [p for p in found if p.rule == "composition"]
    assert problem.severity == "error"
    assert "gardening is no domain of the plan (personal, work, agentic)" in problem.message
    assert problem.fix == "make it personal, or check the suite with --plan none"
    near = check_suite("suite56", [episode(change=_at_work, name="int_01a")], plan)
    assert [p.fix for p in near if p.rule == "composition"] == ["follow the composition table"]


def _at_work(found: dict[str, Any]) -> None:
    found["spec"]["domain"] = "work"


def test_tools_are_refused_where_the_published_domains_have_none() -> None:
    def tool(found: dict[str, Any]) -> None:
        found["sessions"][0]["dialogue"].insert(1, {"role": "tool_output", "content": "soil: dry"})

    def garden_tool(found: dict[str, Any]) -> None:
        in_garden(found)
        tool(found)

    assert any(p.rule == "roles" for p in check_episode(episode(change=tool)))
    assert check_episode(episode(change=garden_tool)) == []


def test_a_short_episode_is_sound_unless_a_plan_asks_for_the_core_length() -> None:
    def shorten(found: dict[str, Any]) -> None:
        keep = {k.value: n for k, n in filler_counts("short").items()}
        first, last = [], found["sessions"][-3:]
        for one in found["sessions"][:-3]:
            kind = one["session_type"]
            if kind == SessionType.ENCODING or keep[kind] > 0:
                first.append(one)
                keep[kind] = keep.get(kind, 0) - 1
        found["sessions"] = [*first, *last]

    short = episode(change=shorten, name="int_01a")
    assert [p for p in check_episode(short) if p.severity == "error"] == []
    found = check_suite("s", [short], {"int_01a": PLANS["suite56"]["int_01a"]})
    assert any("an episode of the plan has core length" in p.message for p in found)


def test_the_bundled_suite_is_what_it_was() -> None:
    folder = Path(__file__).parents[2] / "data/paradigms/suite56"
    found = inspect_suite(folder)
    assert found.problems == ()
    digest = "efb297d7aae8174629f72108f7d909a2ff9666a63dd08e96ed4b21762637a863"
    assert suite_digest(found.episodes) == digest
