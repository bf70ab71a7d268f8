"""The gallery: each rule finds what was planted, counts it, and shows its evidence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.runs import RunStore
from tasks.report import build_report, cases
from tasks.report.gallery import CASES, Gallery, Room
from tasks.report.gallery_rules import RULES, plain, share_held, words
from tests.report.make_run import Row, make_run

AT = ("skill_memory", "skill_memory_2")
"""The target that tests plant in: the third, of episode 3, with items 4 and 5."""
Planted = dict[str, dict[str, Any]]


def gallery(store: RunStore) -> Gallery:
    made = Gallery()
    users = tuple(row["user_id"] for row in store.read("users"))
    cases.collect(store, users, store.manifest.system_names, look=made.add)
    return made


def room(made: Gallery, name: str) -> Room:
    (one,) = [r for r in made.rooms() if r.rule.id == name]
    return one


def plant(
    whole: Row | None = None, top: Row | None = None, **tables: Any
) -> Callable[[str, list[Row]], list[Row]]:
    """Nothing is recovered or disclosed anywhere but in the target, where these rows are changed.

    `whole` and `top` change verdict and attribution of the two ways of reading; `tables`
    maps a table to a function of a row of the target's that returns what changes.
    """

    def edit(name: str, rows: list[Row]) -> list[Row]:
        out = []
        for row in rows:
            mine = (row.get("category"), row.get("dimension")) == AT
            mine |= name in ("turns", "memory_items") and episode(name, row) == 3
            if name == "verdicts":
                row = {**row, "score": 0.0, "label": "unknown"}
            if name == "attributions":
                row = {**row, "label": "agent_elicitation_failure", "disclosed": False}
                row |= {"evidence": None, "score": 0.0}
            if name == "oracle_verdicts":
                row = {**row, "can_invite": True}
            if mine and name in ("verdicts", "attributions"):
                change = (whole if row["k"] is None else top) or {}
                kept = ("evidence",) if name == "attributions" else ("score", "label", "reason")
                row = {**row, **{k: v for k, v in change.items() if k in kept}}
                if name == "attributions" and "blame" in change:
                    row |= {"label": change["blame"]}
                    row |= {"disclosed": change["blame"] == "memory_failure"}
            if mine and name in tables:
                row = {**row, **tables[name](row)}
            out.append(row)
        return out

    return edit


def episode(name: str, row: Row) -> int:
    return int(row["episode"] if name == "turns" else row["seq"] // 2 + 1)


def one_user(folder: Path, edit: Callable[[str, list[Row]], list[Row]]) -> Gallery:
    return gallery(make_run(folder / "run", users=1, systems=("rag",), edit=edit))


def test_words_are_compared_by_their_first_letters() -> None:
    assert words("She outlined the Outlines; about cats, outlined") == [
        "outlined",
        "outlines",
        "cats",
    ]
    assert share_held(["outlined", "violin"], "Outlines and more") == 0.5
    assert share_held([], "anything") == 0.0
    assert plain("It’s  a “Test”—of_marks.") == " its a test of marks "


def test_an_overflow_is_shown_with_the_size_of_its_store(tmp_path: Path) -> None:
    gone = {"reason": "store_overflow", "label": "unknown"}
    made = one_user(tmp_path, plant(whole=gone))
    found = room(made, "overflow")
    assert (found.n, found.total) == (1, 31)
    (case,) = found.cases
    assert case.address == "#user_000/skill_memory_2/rag/dump_all"
    assert case.facts[0][1].startswith("62 items, ")
    assert case.facts[1] == ("Verdict", "scored 0 all the same")
    assert case.score == "0.00, not measured: store_overflow"
    assert case.n_stored == 62


def test_a_query_that_misses_the_item_that_is_there(tmp_path: Path) -> None:
    answer = "plays the didgeridoo underwater, wearing flippers"

    def item(row: Row) -> Row:
        return {"content": "A didgeridoo underwater and flippers"} if row["seq"] == 4 else {}

    whole = {"score": 1.0, "label": answer, "blame": "ok"}
    made = one_user(tmp_path, plant(whole=whole, memory_items=item))
    found = room(made, "query-mismatch")
    assert (found.n, found.total) == (1, 31)
    (case,) = found.cases
    assert case.address == "#user_000/skill_memory_2/rag/retrieve%405"
    assert dict(case.facts) == {
        "Words of the whole store's answer": "plays, didgeridoo, underwater, wearing, flippers",
        "Held by an item that was not retrieved": "60%",
        "Held by a retrieved item, at most": "0%",
        "The whole store's answer": answer,
    }
    assert case.stored[0] == "A didgeridoo underwater and flippers"
    assert case.retrieved is not None
    assert len(case.retrieved) == 5
    assert not any("didgeridoo" in text for text in case.retrieved)


def test_an_item_that_was_retrieved_is_no_mismatch(tmp_path: Path) -> None:
    def hit(row: Row) -> Row:
        return {"content": "didgeridoo underwater flippers"} if row["rank"] == 2 else {}

    whole = {"score": 1.0, "label": "didgeridoo underwater flippers", "blame": "ok"}
    made = one_user(tmp_path, plant(whole=whole, retrievals=hit))
    assert room(made, "query-mismatch").n == 0


DISCLOSED = "I once repaired a submarine's periscope with marmalade"


def spoken(row: Row) -> Row:
    return {"user_text": f"Well. {DISCLOSED}!"} if row["turn"] == 2 else {}


LOST = {"score": 0.25, "label": "fixes things", "blame": "memory_failure"}
LOST |= {"evidence": f"“{DISCLOSED}” … said so"}


def test_what_was_stored_is_vaguer_than_what_was_said(tmp_path: Path) -> None:
    def item(row: Row) -> Row:
        return {"content": "The user once repaired something at sea"}

    made = one_user(tmp_path, plant(whole=LOST, turns=spoken, memory_items=item))
    found = room(made, "vaguer")
    assert (found.n, found.total) == (1, 1)
    (case,) = found.cases
    assert dict(case.facts)["Words of the disclosure"] == (
        "repaired, submarine, periscope, marmalade"
    )
    assert dict(case.facts)["Held by the nearest stored item"] == "25%"
    assert case.stored[0] == "The user once repaired something at sea"
    assert any(DISCLOSED in text for _, text in case.transcript)
    assert case.attribution == "lost by the memory"
    unread = room(made, "unread")
    assert (unread.n, unread.total) == (0, 1)


def test_what_was_stored_word_for_word_and_not_read(tmp_path: Path) -> None:
    def item(row: Row) -> Row:
        return {"content": f"User: {DISCLOSED.upper()}"} if row["seq"] == 5 else {}

    made = one_user(tmp_path, plant(whole=LOST, turns=spoken, memory_items=item))
    found = room(made, "unread")
    assert (found.n, found.total) == (1, 1)
    assert found.cases[0].stored[0] == f"User: {DISCLOSED.upper()}"
    assert room(made, "vaguer").n == 0


def test_evidence_that_nobody_said_or_that_the_task_says_is_no_quotation(tmp_path: Path) -> None:
    made = one_user(tmp_path, plant(whole=LOST))
    assert room(made, "vaguer").total == 0

    def task(row: Row) -> Row:
        return {"task": f"It is known: {DISCLOSED}."}

    made = one_user(tmp_path / "b", plant(whole=LOST, turns=spoken, episodes=task))
    assert room(made, "vaguer").total == 0


@pytest.mark.parametrize(
    ("truth", "label", "n"),
    [
        ("wants detailed answers", "prefers concise answers", 1),
        ("wants detailed answers", "prefers detailed answers over concise ones", 0),
        ("wants detailed answers", "likes detailed and concise answers", 0),
        ("not direct at all", "direct", 0),
        ("direct, never blunt", "tactful and indirect", 1),
    ],
)
def test_an_answer_at_the_other_end_of_the_axis(
    tmp_path: Path, truth: str, label: str, n: int
) -> None:
    edit = plant(
        whole={"score": 0.75, "label": label, "blame": "ok"},
        targets=lambda row: {"short": truth},
    )
    found = room(one_user(tmp_path, edit), "polarity")
    assert found.n == n
    if n:
        assert found.cases[0].score == "0.75"
        assert found.cases[0].facts[0][0] == "Opposite ends"


def test_an_episode_that_ran_out_of_turns(tmp_path: Path) -> None:
    made = one_user(tmp_path, plant(episodes=lambda row: {"end_reason": "max_turns"}))
    found = room(made, "turn-budget")
    assert (found.n, found.total) == (1, 1)
    assert found.cases[0].facts == (("Episode", "ended at max_turns after 2 turns, not disclosed"),)
    disclosed = plant(whole=LOST, episodes=lambda row: {"end_reason": "max_turns"})
    found = room(one_user(tmp_path / "b", disclosed), "turn-budget")
    assert (found.n, found.total) == (0, 1)


def test_a_refused_target_that_was_recovered(tmp_path: Path) -> None:
    made = one_user(
        tmp_path,
        plant(
            whole={"score": 1.0, "label": "x", "blame": "ok"},
            oracle_verdicts=lambda row: {"can_invite": False, "oracle_reason": "too far off"},
        ),
    )
    found = room(made, "refused")
    assert (found.n, found.total) == (1, 1)
    assert found.cases[0].facts == (("The oracle", "too far off"),)


def test_what_top_k_has_and_the_whole_store_loses(tmp_path: Path) -> None:
    made = one_user(tmp_path, plant(top={"score": 0.75, "label": "found it", "blame": "ok"}))
    found = room(made, "drowned")
    assert (found.n, found.total) == (1, 31)
    assert found.cases[0].facts[0] == ("The answer from top-k", "found it")
    assert room(made, "query-mismatch").n == 0


def test_of_each_user_one_case_and_the_first_by_the_key(tmp_path: Path) -> None:
    def size(row: Row) -> Row:
        longer = {"user_003": 4000, "user_001": 3000, "user_004": 2000}
        return {"content": "x" * longer.get(row["user_id"], 10)}

    store = make_run(
        tmp_path / "run",
        users=5,
        systems=("rag", "longctx_full"),
        edit=plant(whole={"reason": "store_overflow"}, memory_items=size),
    )
    found = room(gallery(store), "overflow")
    assert (found.n, found.total) == (10, 310)
    assert len(found.cases) == CASES
    assert [case.name.split(" · ")[0] for case in found.cases] == [
        "user_003", "user_001", "user_004",
    ]  # fmt: skip
    assert gallery(store).rooms() == gallery(store).rooms()


def test_users_that_do_not_fit_in_the_file_count_all_the_same(tmp_path: Path) -> None:
    store = make_run(
        tmp_path / "run", users=3, systems=("rag",), edit=plant(whole={"reason": "store_overflow"})
    )
    page = build_report(store, cap=1).read_text(encoding="utf-8")
    assert "first 0 of 3 users" in page
    assert '<h3 id="gallery-overflow">Overflow: 3/93</h3>' in page


def test_a_rule_without_cases_says_so_and_all_are_in_the_table(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=1, systems=("nomem",), edit=plant())
    page = build_report(store).read_text(encoding="utf-8")
    shown = page[page.index('<section id="gallery">') : page.index('<section id="cases">')]
    assert shown.count("No case in this run.") == len(RULES)
    assert shown.count("<h3") == len(RULES)
    table = gallery(store).table()
    assert [row["n"] for row in table.rows] == [0] * len(RULES)
    assert (store.path / "report/tables/gallery.csv").is_file() if store.path else False


def test_another_layer_is_no_case_of_the_gallery(tmp_path: Path) -> None:
    first = plant(whole={"reason": "store_overflow"})

    def edit(name: str, rows: list[Row]) -> list[Row]:
        rows = first(name, rows)
        again = [{**row, "layer": "again"} for row in rows] if name == "verdicts" else []
        return [*rows, *again]

    found = room(one_user(tmp_path, edit), "overflow")
    assert (found.n, found.total) == (1, 31)


def test_corrections_are_on_the_page_of_a_published_procedure_alone(tmp_path: Path) -> None:
    plainly = build_report(make_run(tmp_path / "a", users=2, systems=("rag", "longctx_full")))
    assert 'id="corrections"' not in plainly.read_text(encoding="utf-8")
    store = make_run(tmp_path / "b", users=2, systems=("rag", "longctx_full"), protocol="paper")
    page = build_report(store).read_text(encoding="utf-8")
    assert '<a href="#corrections">Corrections</a>' in page
    shown = page[page.index('<section id="corrections">') : page.index('<section id="trust">')]
    assert re.search(r"<strong>rankings</strong> \(applies\)", shown)
    assert shown.count("<table ") == 8
