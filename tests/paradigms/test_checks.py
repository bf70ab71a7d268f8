"""A sound episode passes; each planted fault is found where it was planted."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import DatasetError
from memprobe.paradigms.checks import (
    Problem,
    check_episode,
    check_suite,
    frequent_value,
    inspect_suite,
    latest_value,
    validate_suite,
)
from memprobe.paradigms.mentions import labels, mentions, similar_pairs, update_phrases
from memprobe.paradigms.protocol import PLANS, RULES, probe_order
from memprobe.paradigms.spec import Condition, Domain, Expected, Paradigm, ProbeType
from memprobe.paradigms.suite import composition, load_episode, load_suite, suite_digest
from tests.paradigms.support import DISTRACTORS, NEW, OLD, episode, raw, say, session_at

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("condition", [c.value for c in Condition])
def test_a_sound_episode_of_every_condition_passes(condition: str) -> None:
    assert check_episode(episode(condition)) == []


@pytest.mark.parametrize("condition", [c for c in Condition if not RULES[c].status])
def test_a_sound_split_episode_passes(condition: str) -> None:
    assert check_episode(episode(condition, split=True)) == []


def spec(field: str, value: object) -> Change:
    return lambda e: e["spec"].update({field: value})


def gold(field: str, value: object) -> Change:
    return lambda e: e["spec"]["gold"].update({field: value})


def text(kind: str, more: str) -> Change:
    return lambda e: say(e, kind, more)


def silence(kind: str, value: str) -> Change:
    def change(e: dict[str, Any]) -> None:
        for turn in session_at(e, kind)["dialogue"]:
            turn["content"] = turn["content"].replace(value, "that one")

    return change


def drop(kind: str) -> Change:
    return lambda e: e["sessions"].remove(session_at(e, kind))


def swap_times(e: dict[str, Any]) -> None:
    a, b = e["sessions"][4], e["sessions"][5]
    a["time"], b["time"] = b["time"], a["time"]


def late_encoding(e: dict[str, Any]) -> None:
    a, b = e["sessions"][2], e["sessions"][3]
    a["session_type"], b["session_type"] = b["session_type"], a["session_type"]


UPDATE, DECOY, SPLIT = "authoritative_update", "decoy_no_update", "split"
PLANTED: list[tuple[str, Change, str, str]] = [
    (UPDATE, drop("encoding"), "count", "2 encodings"),
    (UPDATE, drop("perturbation"), "count", "perturbation sessions are []"),
    (SPLIT, drop("perturbation_p2"), "count", "perturbation sessions are"),
    (UPDATE, drop("filler_confusable"), "count", "2 filler_confusable"),
    (UPDATE, lambda e: e["sessions"].pop(), "count", "1 sessions after"),
    (UPDATE, late_encoding, "order", "after a filler"),
    (UPDATE, swap_times, "time", "is not after"),
    (UPDATE, spec("paradigm", "misinformation"), "spec", "paradigm is misinformation"),
    (UPDATE, spec("expected_behavior", "should_preserve"), "spec", "expected_behavior"),
    (DECOY, spec("split", True), "spec", "a split episode preserves"),
    (UPDATE, spec("new_value", "Harrow"), "overlap", "'Harrow Baths' and 'Harrow'"),
    (UPDATE, gold("current_value", OLD), "gold", "gold.current_value"),
    (UPDATE, gold("temporal", None), "gold", "gold.temporal is missing"),
    (DECOY, gold("has_changed", True), "gold", "gold.has_changed"),
    (DECOY, gold("conflict", None), "gold", "gold.conflict is missing"),
    (DECOY, lambda e: e["spec"]["gold"]["conflict"].update(status="stale"), "gold", "status"),
    (UPDATE, lambda e: e["probes"].pop(), "probes", "missing probe temporal"),
    (UPDATE, lambda e: e["probes"].reverse(), "probes", "probes are temporal"),
    (UPDATE, lambda e: e["probes"][0].update(gold_answer=OLD), "gold", "gold_answer is"),
    (UPDATE, lambda e: e["probes"][0].update(question=f"Is it {NEW}?"), "probes", "names"),
    (DECOY, lambda e: e["probes"][1].update(question="Did one come up?"), "probes", "not name"),
    (UPDATE, text("encoding", f"Or {NEW}."), "misplaced value", "the new value"),
    (UPDATE, silence("encoding", OLD), "missing value", "the initial value"),
    (UPDATE, text("filler_weakly_related", NEW), "misplaced value", "the new value"),
    (UPDATE, text("filler_near_miss", NEW), "misplaced value", "the new value"),
    (UPDATE, silence("filler_near_miss", DISTRACTORS[0]), "missing value", "no distractor"),
    (UPDATE, silence("filler_confusable", NEW), "missing value", "the new value"),
    (UPDATE, silence("filler_decoy_nonupdate", NEW), "missing value", "the new value"),
    (UPDATE, silence("perturbation", NEW), "missing value", "by user"),
    (SPLIT, text("perturbation_p1", NEW), "misplaced value", "perturbation_p1"),
    ("reactivated", silence("perturbation", OLD), "reactivation", "not recalled"),
    ("assistant_noise", silence("perturbation", NEW), "missing value", "by assistant"),
    (DECOY, text("perturbation", f"I switched to {NEW}."), "accidental update", "switched"),
    (DECOY, text("perturbation", "This is a decoy_no_update."), "label", "decoy_no_update"),
    (
        UPDATE,
        lambda e: e["probes"][0].update(question="Tell the current_value."),
        "label",
        "current_value",
    ),
    (
        UPDATE,
        lambda e: e["sessions"][4]["dialogue"].insert(0, {"role": "assistant", "content": "Hm"}),
        "roles",
        "not the user's",
    ),
    (
        UPDATE,
        lambda e: e["sessions"][4]["dialogue"].append({"role": "tool_output", "content": "{}"}),
        "roles",
        "tool_output in a personal episode",
    ),
    (
        UPDATE,
        lambda e: e["sessions"][4].update(dialogue=e["sessions"][4]["dialogue"][:2]),
        "turns",
        "1 user messages",
    ),
]


@pytest.mark.parametrize(("condition", "change", "rule", "words"), PLANTED)
def test_a_planted_fault_is_found(condition: str, change: Change, rule: str, words: str) -> None:
    split = condition == SPLIT
    broken = episode(UPDATE if split else condition, change, split=split)
    found = [p for p in check_episode(broken) if p.rule == rule and words in p.message]
    assert found
    assert all(p.severity == "error" and p.fix and p.episode == "t_01" for p in found)


def test_a_problem_names_the_session_it_is_in() -> None:
    broken = episode(UPDATE, lambda e: say(e, "filler_near_miss", NEW))
    (found,) = (p for p in check_episode(broken) if p.rule == "misplaced value")
    assert found.session is not None
    assert broken.sessions[found.session].session_type == "filler_near_miss"


def test_a_negated_update_and_a_question_are_no_accident() -> None:
    assert update_phrases(NEW, f"We moved to {NEW}.") == [f"We moved to {NEW}."]
    for fine in (
        f"I have not moved to {NEW}.",
        f"I didn't switch; nobody is now at {NEW}.",
        f"Have you moved to {NEW}?",
        f"{NEW} has a slide.",
        f"We moved to Ferris Road. {NEW} is shut.",
    ):
        assert update_phrases(NEW, fine) == []


def test_an_accident_in_a_filler_is_a_place_to_look() -> None:
    broken = episode(DECOY, lambda e: say(e, "filler_confusable", f"They moved to {NEW}."))
    (found,) = check_episode(broken)
    assert (found.rule, found.severity) == ("accidental update", "warning")
    update = episode(UPDATE, lambda e: say(e, "filler_confusable", f"They moved to {NEW}."))
    assert check_episode(update) == []


def test_mentions_are_whole_words() -> None:
    assert mentions("weekly", "bi-weekly, weekly.") == 1
    assert mentions("Quay", "Quayside") == 0
    assert mentions("6:15", "at 6:15, not 16:15 or 6:155") == 1
    assert mentions("Linear", "linear algebra") == 0
    assert mentions("Linear", "linear algebra", exact=False) == 1
    n = 5
    broken = episode(UPDATE, lambda e: say(e, "filler_confusable", f"{NEW}, " * n))
    assert [p.rule for p in check_episode(broken)] == ["mentions"]


def test_words_of_the_design_that_may_be_natural_are_warnings() -> None:
    assert labels("A wooden duck decoy in UTF-8 encoding") == ([], ["decoy"])
    broken = episode(UPDATE, lambda e: say(e, "filler_confusable", "A decoy duck."))
    assert [(p.rule, p.severity) for p in check_episode(broken)] == [("label", "warning")]


def test_openings_alike_are_found_across_episodes() -> None:
    def begin(words: str) -> Change:
        return lambda e: session_at(e, "encoding")["dialogue"][0].update(content=f"{words} {OLD}.")

    a = episode(UPDATE, begin("could you please help me plan a small party for my sister at"))
    b = episode(
        UPDATE, begin("could you please help me plan a large party for my brother at"), name="t_02"
    )
    (found,) = check_suite("s", [a, b])
    assert (found.rule, found.episode, found.session) == ("opening", "t_02", 0)
    assert "t_01 session 0" in found.message


def test_the_fast_search_for_openings_finds_all_pairs() -> None:
    from difflib import SequenceMatcher
    from random import Random

    random = Random(1)
    openings = [tuple(random.choices("abcdefg", k=random.randint(4, 12))) for _ in range(120)]
    fast = {(j, i) for j, i, _ in similar_pairs(openings, 0.65)}
    slow = {
        (j, i)
        for i in range(len(openings))
        for j in range(i)
        if SequenceMatcher(None, openings[j], openings[i], autojunk=False).ratio() >= 0.65
    }
    assert fast == slow
    assert len(slow) > 20


def test_a_message_that_occurs_twice_is_found() -> None:
    same = "This sentence is long enough that nobody would write it twice by chance."
    a = episode(UPDATE, lambda e: e["sessions"][4]["dialogue"][1].update(content=same))
    b = episode(UPDATE, lambda e: e["sessions"][7]["dialogue"][1].update(content=same), name="t_2")
    (found,) = check_suite("s", [a, b])
    assert (found.rule, found.episode, found.session) == ("repeated", "t_2", 7)


def test_shortcuts_give_a_suite_away() -> None:
    updates = [episode(UPDATE, name=f"t_{i:02}") for i in range(12)]
    assert latest_value(updates[0]) == DISTRACTORS[1]
    assert frequent_value(updates[0]) == NEW
    rules = [p.message for p in check_suite("s", updates) if p.rule == "shortcut"]
    assert rules == ["the value mentioned most often is the current one in 12/12"]


def write(folder: Path, name: str, content: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_folder_with_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, "card", {"no": "episode"})
    with pytest.raises(DatasetError, match="no \\*\\.json"):
        validate_suite(tmp_path)
    (tmp_path / "t_05.json").mkdir()
    half = raw()
    half["sessions"][0]["dialogue"][0]["content"] = "half a pair: \ud83d"
    write(tmp_path, "t_06", half)
    write(tmp_path, "t_01", raw())
    odd = raw(DECOY)
    odd["spec"]["colour"] = "red"
    write(tmp_path, "t_02", odd)
    (tmp_path / "t_03.json").write_text("{", encoding="utf-8")
    write(tmp_path, "t_04", raw() | {"spec": raw()["spec"] | {"episode_id": "t_01"}})
    found: list[Problem] = validate_suite(tmp_path)
    assert {(p.episode, p.rule) for p in found} >= {
        (name, "file") for name in ("t_02", "t_03", "t_05", "t_06")
    }
    assert not {"card", "t_01"} & {p.episode for p in found if p.rule == "file"}
    assert any("spec.colour" in p.message for p in found)
    assert [p.message for p in found if p.rule == "id"] == [
        "the file t_04.json holds episode t_01",
        "2 files have this id",
    ]
    with pytest.raises(DatasetError, match=r"t_02\.json: spec\.colour"):
        load_episode(tmp_path / "t_02.json")
    with pytest.raises(DatasetError, match="no plan 'x'"):
        inspect_suite(tmp_path, "x")


def test_a_plan_names_what_is_missing_and_what_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "suite56"
    folder.mkdir()
    one = raw("direct")
    one["spec"]["episode_id"] = "int_01a"
    write(folder, "int_01a", one)
    extra = raw()
    extra["spec"]["episode_id"] = "int_99"
    write(folder, "int_99", extra)
    found = [p for p in validate_suite(folder) if p.rule == "composition"]
    assert len([p for p in found if p.message.startswith("missing")]) == 55
    assert [(p.episode, p.message) for p in found if "missing" not in p.message] == [
        ("int_01a", "spec.condition is direct, the plan has authoritative_update"),
        ("int_99", "no episode of the plan"),
    ]
    assert inspect_suite(folder, None).plan is None


def test_digest_and_composition(tmp_path: Path) -> None:
    a, b = episode(UPDATE, name="a"), episode(DECOY, name="b")
    assert suite_digest((a, b)) == suite_digest((b, a))
    changed = episode(UPDATE, lambda e: say(e, "encoding", "Yes."), name="a")
    assert suite_digest((changed, b)) != suite_digest((a, b))
    made = composition((a, b))
    assert [(r.condition, r.n, r.domains[Domain.PERSONAL]) for r in made.rows] == [
        ("authoritative_update", 1, 1),
        ("decoy_no_update", 1, 1),
    ]
    assert (made.update, made.preserve, made.episodes) == (1, 1, 2)
    assert made.probes[ProbeType.CURRENT] == 2
    assert made.probes[ProbeType.SOURCE] == 1
    assert sum(made.sessions.values()) == len(a.sessions) + len(b.sessions) == 42
    write(tmp_path, "z", a.model_dump(mode="json"))
    suite = load_suite(tmp_path)
    assert suite.episode("a") == a
    assert suite.digest == suite_digest((a,))
    with pytest.raises(DatasetError, match="no episode 'q'"):
        suite.episode("q")


def test_the_plan_of_56_has_the_published_counts() -> None:
    plan = PLANS["suite56"]
    rules = {name: RULES[p.condition] for name, p in plan.items()}
    assert len(plan) == 56
    assert Counter(p.domain for p in plan.values()) == {"personal": 18, "work": 20, "agentic": 18}
    assert sum(p.split for p in plan.values()) == 12
    assert Counter((r.paradigm, r.expected) for r in rules.values()) == {
        (Paradigm.INTERFERENCE, Expected.UPDATE): 8,
        (Paradigm.INTERFERENCE, Expected.PRESERVE): 6,
        (Paradigm.MISINFORMATION, Expected.UPDATE): 4,
        (Paradigm.MISINFORMATION, Expected.PRESERVE): 10,
        (Paradigm.CONSOLIDATION, Expected.UPDATE): 8,
        (Paradigm.CONSOLIDATION, Expected.PRESERVE): 6,
        (Paradigm.RECONSOLIDATION, Expected.UPDATE): 8,
        (Paradigm.RECONSOLIDATION, Expected.PRESERVE): 6,
    }
    probes = Counter(t for p in plan.values() for t in probe_order(p.condition, split=p.split))
    assert probes == {
        "current_value": 56,
        "change": 56,
        "previous_value": 28,
        "conflict_value": 28,
        "source": 34,
        "temporal": 22,
    }
    assert sum(r.encodings for r in rules.values()) == 161
