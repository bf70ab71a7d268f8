"""Rules across trajectories, the plan, reading a folder, order, digest and composition."""

import json
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import DatasetError
from memprobe.evolution import leak_checks
from memprobe.evolution.checks import check_suite, inspect_suite
from memprobe.evolution.problems import Problem
from memprobe.evolution.protocol import PLAN, Planned
from memprobe.evolution.spec import Category, Domain, Level, TrajectoryType
from memprobe.evolution.suite import (
    composition,
    holds_trajectories,
    load_suite,
    make_suite,
    spread,
    suite_digest,
)
from tests.evolution.support import CHAT, OPENINGS, raw, say, trajectory
from tests.paradigms.support import raw as raw_episode

STEPS = {"c5_x": Planned(Level.L1, Domain.INFRASTRUCTURE, TrajectoryType.LINEAR, 4)}


def renamed(made: dict[str, Any], name: str, customer: str) -> dict[str, Any]:
    """A trajectory under another id, of another firm, with a text that shares no sentence."""
    whole = json.dumps(made).replace(made["id"], name).replace("Aldermere Bakeries", customer)
    other: dict[str, Any] = json.loads(whole)
    for state in other["states"]:
        own = state["document"]
        own["text"] = " ".join(w + "en" if len(w) > 3 else w for w in own["text"].split())
    return other


def problems(made: list[dict[str, Any]], rule: str, **options: Any) -> list[Problem]:
    found = check_suite("mine", [trajectory(m) for m in made], **options)
    return [p for p in found if p.rule == rule]


def two() -> list[dict[str, Any]]:
    return [raw(), renamed(raw(), "c5_y_tide_tables", "Pell Harbour")]


def test_two_firms_with_texts_of_their_own_share_nothing() -> None:
    for rule in ("opening", "repeated", "customer", "id"):
        assert problems(two(), rule) == []


def test_an_opening_alike_is_a_place_to_look_and_a_mail_s_head_is_not() -> None:
    made = two()
    made[1]["states"][1]["document"]["text"] = OPENINGS[0] + " Then more and other words follow."
    (found,) = problems(made, "opening")
    assert (found.severity, found.trajectory, found.state) == ("warning", "c5_y_tide_tables", 1)
    assert "opens like c5_x_order_service_d0" in found.message
    made = two()
    for one in made:
        own = one["states"][0]["document"]
        own["text"] = f"To: the whole yard and all the millers\nSubject: weekly\n\n{own['text']}"
    assert problems(made, "opening") == []


def test_a_sentence_of_another_trajectory_is_an_error() -> None:
    made = two()
    say(made[1], 2, CHAT[1])
    (found,) = problems(made, "repeated")
    assert (found.severity, found.trajectory, found.state) == ("error", "c5_y_tide_tables", 2)


def test_each_trajectory_has_its_own_firm_and_id() -> None:
    made = [raw(), renamed(raw(), "c5_y_tide_tables", "ALDERMERE bakeries")]
    (found,) = problems(made, "customer")
    assert found.message == "ALDERMERE bakeries is the customer of c5_x_order_service, too"
    (twice,) = problems([raw(), raw()], "id")
    assert twice.message == "2 files have this id"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("level", "L2", "level: L2, the plan has L1"),
        ("domain", "security", "domain: security, the plan has infrastructure"),
        ("trajectory_type", "stable", "trajectory_type: stable, the plan has linear-evolution"),
    ],
)
def test_a_field_is_held_to_the_plan(field: str, value: str, message: str) -> None:
    made = raw()
    assert problems([made], "plan", plan=STEPS) == []
    made[field] = value
    (found,) = problems([made], "plan", plan=STEPS)
    assert (found.severity, found.message) == ("error", message)


def test_states_strangers_and_doubles_are_held_to_the_plan() -> None:
    made = raw()
    made["states"].pop()
    (found,) = problems([made], "plan", plan=STEPS)
    assert found.message == "states: 3, the plan has 4"
    stranger, double = two()[1], renamed(raw(), "c5_x_tide_tables", "Pell Harbour")
    (found,) = problems([raw(), stranger], "plan", plan=STEPS)
    assert (found.trajectory, found.message) == (stranger["id"], "no trajectory of the plan")
    (found,) = problems([raw(), double], "plan", plan=STEPS)
    assert found.message == "c5_x_order_service is c5_x, too"


def test_a_suite_may_grow_and_is_counted_when_it_is_whole() -> None:
    (found,) = problems([raw()], "composition", plan=PLAN)
    assert found.severity == "warning"
    assert found.message.startswith("30 of 30 trajectories are missing: c1_a, c1_b")
    late = raw("C4")
    late["states"][2]["document"]["time"] = "2024-03-20T09:00:00+00:00"
    plan = {
        "c2_x": Planned(Level.L1, Domain.INFRASTRUCTURE, TrajectoryType.LINEAR, 4),
        "c4_x": Planned(Level.L1, Domain.INFRASTRUCTURE, TrajectoryType.LINEAR, 4),
    }
    assert problems([raw("C2"), late], "composition", plan=plan) == []
    (found,) = problems([raw("C2"), raw("C4")], "composition", plan=plan)
    assert found.message == "no trajectory of C4 has an older document that arrives late"
    short = raw("C2")
    short["noise_documents"].pop()
    short["noise_after"].pop()
    (found,) = problems([short, late], "composition", plan=plan)
    assert found.message == "3 noise documents, the plan has 4"
    late["states"].pop()
    (found,) = problems([raw("C2"), late], "composition", plan=plan)
    assert found.message == "7 documents of states, the plan has 8"


def test_the_bundled_plan_has_the_published_counts() -> None:
    assert len(PLAN) == 30
    assert sum(p.documents for p in PLAN.values()) == 127
    levels = [p.level for p in PLAN.values()]
    assert {level: levels.count(level) for level in Level} == dict.fromkeys(Level, 10)


def test_a_rare_word_of_a_later_claim_is_a_place_to_look() -> None:
    made = raw()
    claim = "The order service of Aldermere Bakeries hides its blobs in a granary."
    made = json.loads(
        json.dumps(made).replace(
            "The order service of Aldermere Bakeries keeps orders for 400 days.", claim
        )
    )
    say(made, 0, "The granary is full of mice.")
    one = trajectory(made)
    assert leak_checks.check(one) == []
    (found,) = leak_checks.check(one, frozenset({"blob"}))
    assert (found.severity, found.state) == ("warning", 0)
    assert "holds granary, new with a claim of state 1" in found.message
    assert leak_checks.check(one, frozenset({"granary"})) == []


def test_a_word_is_common_when_three_others_use_it_and_few_trajectories_tell_nothing() -> None:
    made = [renamed(raw(), f"c5_{name}_copy", f"Firm {name}") for name in "abcdef"]
    assert leak_checks.common_stems([trajectory(m) for m in made[:5]]) is None
    for k in (0, 1, 2):
        say(made[k], 0, "granary")
    for k in (0, 1, 2, 3):
        say(made[k], 0, "windmill")
    common = leak_checks.common_stems([trajectory(m) for m in made])
    assert common is not None
    assert "windmill" in common
    assert "granary" not in common


def write(folder: Path, made: dict[str, Any], name: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name or made['id']}.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def test_a_folder_is_read_in_id_order_without_its_card(tmp_path: Path) -> None:
    for made in reversed(two()):
        write(tmp_path, made)
    (tmp_path / "card.json").write_text("[", encoding="utf-8")
    suite = load_suite(tmp_path)
    assert [t.id for t in suite.trajectories] == ["c5_x_order_service", "c5_y_tide_tables"]
    assert suite.trajectory("c5_y_tide_tables").customer == "Pell Harbour"
    with pytest.raises(DatasetError, match="no trajectory 'c9'"):
        suite.trajectory("c9")
    with pytest.raises(DatasetError, match="more than one trajectory c5_x"):
        make_suite("twice", [trajectory(), trajectory()])
    with pytest.raises(DatasetError, match="is this the folder of an evolution suite"):
        load_suite(tmp_path / "none")
    write(tmp_path, {"id": "c1_x"}, "a_bad")
    with pytest.raises(DatasetError, match=r"a_bad\.json: topic: Field required"):
        load_suite(tmp_path)


def test_the_digest_is_of_words_and_not_of_files(tmp_path: Path) -> None:
    one, other = (trajectory(m) for m in two())
    assert suite_digest([one, other]) == suite_digest([other, one])
    path = write(tmp_path, raw())
    before = load_suite(tmp_path).digest
    path.write_text(json.dumps(raw(), indent=4), encoding="utf-8")
    path.rename(tmp_path / "elsewhere.json")
    assert load_suite(tmp_path).digest == before == suite_digest([one])
    changed = raw()
    say(changed, 0, "One word more.")
    assert suite_digest([trajectory(changed)]) != before


def test_every_beginning_is_spread_over_categories_and_levels() -> None:
    made = []
    for category in Category:
        for k, level in enumerate(["L1", "L1", "L2", "L2", "L3"]):
            own = raw(category, level)
            own["id"] = f"{category.lower()}_{'abcde'[k]}_copy"
            made.append(trajectory(own))
    ordered = spread(made)
    assert sorted(t.id for t in ordered) == sorted(t.id for t in made)
    for n in range(5):
        turn = ordered[6 * n : 6 * n + 6]
        assert [t.category for t in turn] == list(Category)
    for n in (3, 6, 9, 12):
        assert {t.level for t in ordered[:n]} == set(Level)
    assert [t.level for t in ordered[:3]] == ["L1", "L2", "L3"]
    assert spread(list(reversed(made))) == ordered


def test_a_composition_counts_documents_levels_and_actions() -> None:
    found = composition([trajectory(category="C2"), trajectory(category="C5", level="L3")])
    assert [(r.category, r.n, r.state_documents, r.noise_documents) for r in found.rows] == [
        ("C2", 1, 4, 4),
        ("C5", 1, 4, 0),
    ]
    assert found.rows[1].levels == {"L1": 0, "L2": 0, "L3": 1}
    assert (found.trajectories, found.state_documents, found.noise_documents) == (2, 8, 4)
    assert (found.final_claims, found.questions) == (6, 6)
    assert found.actions["supersede"] == 2
    assert found.actions["conflict"] == 0
    assert found.domains["infrastructure"] == found.types["linear-evolution"] == 2


def test_what_cannot_be_read_is_a_problem_beside_the_others(tmp_path: Path) -> None:
    write(tmp_path, raw())
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    write(tmp_path, two()[1], "other_name")
    found = inspect_suite(tmp_path)
    rules = {(p.trajectory, p.rule) for p in found.problems}
    assert ("broken", "file") in rules
    assert ("c5_y_tide_tables", "id") in rules
    assert len(found.trajectories) == 2
    assert found.plan is None
    with pytest.raises(DatasetError, match="there are evolution"):
        inspect_suite(tmp_path, "other")


def test_a_folder_tells_which_suite_it_holds(tmp_path: Path) -> None:
    trajectories, episodes, nothing = (tmp_path / n for n in ("t", "e", "n"))
    write(trajectories, raw())
    (trajectories / "a_broken.json").write_text("{", encoding="utf-8")
    write(episodes, raw_episode(), "t_01")
    nothing.mkdir()
    (nothing / "card.json").write_text(json.dumps({"states": []}), encoding="utf-8")
    assert holds_trajectories(trajectories)
    assert not holds_trajectories(episodes)
    assert not holds_trajectories(nothing)
    assert not holds_trajectories(tmp_path / "none")
