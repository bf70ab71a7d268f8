"""The paradigms views: exact figures on hand-made rows; a rate over nothing stays NULL."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import pytest

from memprobe.paradigms.scoring import Match, Score
from memprobe.paradigms.spec import ProbeType
from storage.catalog import query
from storage.runs import RunStore, Unit
from tasks.paradigms.score import score_paradigms
from tests.paradigms.test_metrics import FULL, OWN
from tests.storage.probe_rows import commit_answers, commit_probes, failure_row, verdict_row
from tests.storage.rows import Row, item, new_run

VIEWS = {
    "probe_summary": "system access_mode k scorer accuracy accuracy_lo accuracy_hi partial "
    "plasticity stability under_update over_update sp_balance n n_errors n_total n_episodes "
    "n_memories",
    "probe_summary_layers": "layer system access_mode k scorer accuracy",
    "probe_by_type": "system access_mode k scorer probe_type accuracy partial n n_errors",
    "probe_by_paradigm": "system access_mode k scorer paradigm accuracy partial plasticity "
    "stability n n_errors",
    "probe_failures_summary": "system access_mode k scorer failure side n share",
    "probe_changed_verdicts": "layer system access_mode k user_id epoch probe_type paradigm "
    "condition question gold_answer answer_json strict_match paper_match strict_why paper_why "
    "call_id",
    "probe_case": "user_id probe_type system epoch layer access_mode k",
    "probe_results": "layer scorer system access_mode k user_id epoch probe_index probe_type",
    "probe_stores": "system user_id epoch n_memories",
}


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    if request.param == "memory":
        return new_run(f"memory://{uuid.uuid4().hex}/run", suite="paradigms")
    return new_run(tmp_path / "run", suite="paradigms")


def one(run: RunStore, sql: str) -> Row:
    rows = query(run, sql).dicts()
    assert len(rows) == 1, rows
    return rows[0]


def test_an_empty_run_has_every_view(run: RunStore) -> None:
    for view, columns in VIEWS.items():
        found = query(run, f"SELECT * FROM {view}")
        assert list(found.columns)[: len(columns.split())] == columns.split()
        assert found.rows == []


def test_the_summary_of_three_episodes(run: RunStore) -> None:
    """The table that `tests/paradigms/test_bootstrap.py` counts by hand."""
    commit_probes(run, OWN)
    commit_answers(run, "mem", OWN, paper=FULL)
    stores = [
        {"system": "mem", "user_id": u, "epoch": 1, "session_index": 1, "event_time": "2026",
         "status": "scored"}
        for u in ("a", "b", "c")
    ]  # fmt: skip
    for row in stores:
        held = [item("mem", "a", i, f"item {i}") for i in range(6)] if row["user_id"] == "a" else []
        unit = Unit("ingest", "mem", str(row["user_id"]))
        run.commit(unit, "f", {"ingests": [row], "memory_items": held})
    found = one(run, "SELECT * FROM probe_summary WHERE scorer = 'strict'")
    assert found["accuracy"] == pytest.approx(5 / 11)
    assert found["partial"] == pytest.approx(2 / 11)
    assert (found["plasticity"], found["stability"]) == (pytest.approx(3 / 7), 0.5)
    assert (found["under_update"], found["over_update"]) == (pytest.approx(4 / 7), 0.5)
    assert found["sp_balance"] == pytest.approx(6 / 13)
    assert (found["n"], found["n_errors"], found["n_total"], found["n_episodes"]) == (11, 1, 12, 3)
    # Six items in one of three stores; the others hold nothing.
    assert found["n_memories"] == 2.0
    assert found["accuracy_lo"] is None
    score_paradigms(run)
    scored = one(run, "SELECT * FROM probe_summary WHERE scorer = 'strict'")
    metric = one(
        run,
        "SELECT value, lo, hi FROM probe_metrics WHERE metric = 'accuracy' AND group_kind = '' "
        "AND scorer = 'strict'",
    )
    assert scored["accuracy"] == pytest.approx(metric["value"])
    assert (scored["accuracy_lo"], scored["accuracy_hi"]) == (metric["lo"], metric["hi"])
    assert scored["accuracy_lo"] is not None
    paper = one(run, "SELECT * FROM probe_summary WHERE scorer = 'paper'")
    assert paper["accuracy"] == pytest.approx(10 / 12)


def test_views_and_scores_give_the_same_groups(run: RunStore) -> None:
    commit_probes(run, OWN)
    commit_answers(run, "mem", OWN)
    score_paradigms(run)
    for kind, view, name in (
        ("probe", "probe_by_type", "probe_type"),
        ("paradigm", "probe_by_paradigm", "paradigm"),
    ):
        rows = query(
            run,
            f"SELECT v.{name}, v.accuracy, m.value, v.n, m.n AS m_n, v.n_errors, "
            f"m.n_errors AS m_errors FROM {view} v JOIN probe_metrics m "
            f"ON m.group_kind = '{kind}' AND m.group_name = v.{name} AND m.metric = 'accuracy' "
            "AND m.scorer = v.scorer",
        ).dicts()
        assert len(rows) == 2 * len({r[name] for r in rows})
        assert len(rows) >= 6
        for row in rows:
            assert row["accuracy"] == pytest.approx(row["value"])
            assert (row["n"], row["n_errors"]) == (row["m_n"], row["m_errors"])


def test_an_episode_that_broke_off_is_an_error_and_a_rate_over_nothing_is_null(
    run: RunStore,
) -> None:
    commit_probes(run, OWN)
    commit_answers(run, "mem", [r for r in OWN if r.episode != "b"])
    found = one(run, "SELECT * FROM probe_summary WHERE scorer = 'strict'")
    assert (found["n"], found["n_errors"], found["n_total"]) == (7, 5, 12)
    assert found["stability"] is None
    assert found["over_update"] is None
    assert found["sp_balance"] is None
    assert found["n_memories"] is None


@pytest.mark.parametrize("imported", [False, True])
def test_a_probe_without_gold_is_neither_verdict_nor_error(run: RunStore, imported: bool) -> None:
    """Whether it is stored as unscored, or with the published match."""
    skipped = dataclasses.replace(OWN[0], score=Score(Match.SKIP, "no gold"))
    commit_probes(run, OWN)
    commit_answers(run, "mem", [skipped, *OWN[1:]])
    if imported:
        rows = [
            verdict_row("mem", r, scorer, **more)
            for scorer in ("strict", "paper")
            for r, more in [
                (skipped, {"match": "skip", "status": "scored", "reason": None}),
                *((r, {}) for r in OWN[1:] if r.episode == "a"),
            ]
        ]
        run.commit(Unit("answer", "mem", "a"), "f", {"probe_verdicts": rows})
    found = one(run, "SELECT * FROM probe_summary WHERE scorer = 'strict'")
    assert (found["n"], found["n_errors"], found["n_total"]) == (10, 1, 11)
    score_paradigms(run)
    stored = one(
        run,
        "SELECT n, n_errors, n_total FROM probe_metrics WHERE metric = 'accuracy' "
        "AND group_kind = '' AND scorer = 'strict'",
    )
    assert tuple(stored.values()) == (10, 1, 11)


def test_failures_by_side(run: RunStore) -> None:
    commit_probes(run, OWN)
    failures = [
        failure_row("mem", "a", "previous_value", "historical_erasure", "storage"),
        failure_row("mem", "c", "current_value", "missed_update", "storage"),
        failure_row("mem", "c", "change", "missed_update", "storage"),
        failure_row("mem", "b", "source", "source_loss", "readout"),
    ]
    commit_answers(run, "mem", OWN, failures=failures)
    rows = query(run, "SELECT failure, side, n, share FROM probe_failures_summary").rows
    assert rows == [
        ("missed_update", "storage", 2, 0.5),
        ("historical_erasure", "storage", 1, 0.25),
        ("source_loss", "readout", 1, 0.25),
    ]


def test_changed_verdicts_tell_both_reasons(run: RunStore) -> None:
    commit_probes(run, OWN)
    paper = [
        dataclasses.replace(r, score=Score(Match.CORRECT, "published: inside"))
        if (r.episode, r.probe_type) == ("a", ProbeType.PREVIOUS)
        else r
        for r in OWN
    ]
    commit_answers(run, "mem", OWN, paper=paper)
    found = one(run, "SELECT * FROM probe_changed_verdicts")
    assert (found["user_id"], found["probe_type"]) == ("a", "previous_value")
    assert (found["strict_match"], found["strict_why"]) == ("incorrect", "by hand")
    assert (found["paper_match"], found["paper_why"]) == ("correct", "published: inside")
    assert (found["question"], found["gold_answer"]) == ("previous_value?", "gold")


def test_the_case_of_one_probe(run: RunStore) -> None:
    commit_probes(run, OWN)
    lost = failure_row(
        "mem", "a", "previous_value", "retrieval_miss", "retrieval", access_mode="retrieve", k=2
    )
    where = {"access_mode": "retrieve", "k": 2}
    commit_answers(run, "mem", OWN, failures=[lost], **where)
    key = {"system": "mem", "user_id": "a", "epoch": 1}
    hit = {**key, "category": "interference", "dimension": "previous_value", "query": "?"}
    hits = [
        {**hit, "rank": r, "item_id": str(r), "content": f"text {r}", "score": 1 / r}
        for r in (1, 2, 3)
    ]
    answer = {
        **key, **where, "layer": "base", "probe_type": "previous_value", "n_items": 2,
        "prompt_tokens": 90, "answer_json": '{"answer": "none"}', "status": "scored",
        "call_id": "c9",
    }  # fmt: skip
    run.commit(Unit("extra", "mem", "a"), "f", {"retrievals": hits, "answers": [answer]})
    found = one(
        run, "SELECT * FROM probe_case WHERE user_id = 'a' AND probe_type = 'previous_value'"
    )
    assert (found["question"], found["gold_answer"]) == ("previous_value?", "gold")
    assert (found["strict_match"], found["paper_match"]) == ("incorrect", "incorrect")
    assert (found["strict_failure"], found["strict_side"]) == ("retrieval_miss", "retrieval")
    assert (found["paper_failure"], found["evidence"]) == (None, "why retrieval_miss")
    assert [h["content"] for h in found["retrieved"]] == ["text 1", "text 2"]
    assert (found["answer_json"], found["reader_call"]) == ('{"answer": "none"}', "c9")
    assert (found["paradigm"], found["expected"]) == ("interference", "should_update")
    assert len(query(run, "SELECT * FROM probe_case").rows) == 12
