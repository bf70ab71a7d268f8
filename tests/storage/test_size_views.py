"""Footprint, budget and ingestion: exact figures on hand-made rows; unknown stays unknown."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import duckdb
import pytest

from storage.catalog import build_catalog, query
from storage.runs import RunStore, Unit
from tasks.reading import ANSWER_RESERVE
from tests.storage.rows import commit_verdicts, episode, item, new_run, unscored, verdict

VIEWS = (
    "store_footprint",
    "footprint_by_user",
    "footprint",
    "budget_probe",
    "memory_calls",
    "memory_calls_by_user",
    "memory_phases",
    "ingestion_by_user",
    "ingestion",
    "window_share(1000)",
)
Row = dict[str, Any]


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    if request.param == "memory":
        return new_run(f"memory://{uuid.uuid4().hex}/run")
    return new_run(tmp_path / "run")


def one(run: RunStore, sql: str) -> Row:
    rows = query(run, sql).dicts()
    assert len(rows) == 1, rows
    return rows[0]


def store_of(run: RunStore, user: str, *contents: str, system: str = "rag") -> None:
    items = [item(system, user, n, text) for n, text in enumerate(contents)]
    tables = {"episodes": [episode(system, user, 1)], "memory_items": items}
    run.commit(Unit("rollout", system, user), "f", tables)


def counted(user: str, tokens: int, window: int | None = 2000, system: str = "rag") -> Row:
    return {
        **{"system": system, "user_id": user, "epoch": 1, "items": 0, "chars": 0},
        **{"tokens": tokens, "tokenizer": "o200k_base", "reader": "openai/m", "window": window},
        "source": f"{system}{user}",
    }


@pytest.mark.parametrize("view", VIEWS)
def test_a_run_without_rows_has_every_view_and_no_figure(run: RunStore, view: str) -> None:
    found = query(run, f"select * from {view}")
    assert found.columns
    assert found.rows == []


def test_a_footprint_is_the_mean_over_users_with_who_is_missing(run: RunStore) -> None:
    store_of(run, "u1", "tea", "\u5979\u4f4f\u5728\u5317\u4eac")
    store_of(run, "u2")
    commit_verdicts(run, [unscored(verdict("rag", "u3", "c", "d"), "adapter_error")])
    rows = [counted("u1", 1500), counted("u2", 0)]
    run.commit(Unit("footprint"), "f", {"footprints": rows})
    found = one(run, "select * from footprint")
    assert (found["n_users"], found["n_users_total"], found["n_stores"]) == (2, 3, 2)
    assert (found["items_mean"], found["chars_mean"]) == (1.0, 4.0)
    assert (found["tokens_mean"], found["tokens_max"], found["tokenizer"]) == (
        750.0,
        1500,
        "o200k_base",
    )
    assert (found["window_share_mean"], found["window_share_max"]) == (0.375, 0.75)
    assert found["n_overflow"] == 1  # 1,500 tokens leave no room for an answer in 2,000
    users = query(run, "select user_id, items, chars, tokens, n_overflow from footprint_by_user")
    assert users.rows == [("u1", 2.0, 8.0, 1500.0, 1), ("u2", 0.0, 0.0, 0.0, 0)]


def test_without_counted_tokens_or_a_window_nothing_is_made_up(run: RunStore) -> None:
    store_of(run, "u1", "tea")
    found = one(run, "select * from footprint")
    assert (found["items_mean"], found["chars_mean"], found["tokens_mean"]) == (1.0, 3.0, None)
    assert (found["window_share_mean"], found["n_overflow"]) == (None, None)
    run.commit(Unit("footprint"), "f", {"footprints": [counted("u1", 3, None)]})
    found = one(run, "select * from footprint")
    assert (found["tokens_mean"], found["window"], found["n_overflow"]) == (3.0, None, None)


@pytest.mark.parametrize(("spare", "over"), [(0, 0), (-1, 1)])
def test_any_window_can_be_asked_about(run: RunStore, spare: int, over: int) -> None:
    store_of(run, "u1", "tea")
    store_of(run, "u2")
    rows = [counted("u1", 1000), counted("u2", 0)]
    run.commit(Unit("footprint"), "f", {"footprints": rows})
    window = 1000 + ANSWER_RESERVE + spare
    found = one(run, f"select * from window_share({window})")
    assert (found["n_stores"], found["n_overflow"]) == (2, over)
    assert found["share_max"] == pytest.approx(1000 / window)
    assert found["share_mean"] == pytest.approx(500 / window)
    path = build_catalog(run)
    with duckdb.connect(path, read_only=True) as plain:
        count = plain.execute(f"select n_overflow from window_share({window})").fetchall()
    assert count == [(over,)]


def fill(row: Row, tokens: int, n_items: int, reason: str | None = None) -> Row:
    keep = ("system", "user_id", "epoch", "layer", "access_mode", "k", "category", "dimension")
    return {
        **{key: row[key] for key in keep},
        **{"n_items": n_items, "prompt_tokens": tokens, "reason": reason},
        "status": "unscored" if reason else "scored",
    }


def test_a_budget_counts_what_was_read_and_what_was_too_long(run: RunStore) -> None:
    top = {"access_mode": "retrieve", "k": 3}
    verdicts = [
        verdict("rag", "u1", "c", "a", score=1.0, **top),
        verdict("rag", "u1", "c", "b", score=0.5, **top),
        unscored(verdict("rag", "u1", "c", "x", **top), "adapter_error"),
        verdict("rag", "u1", "c", "a", score=0.25),
        unscored(verdict("rag", "u2", "c", "a"), "store_overflow"),
    ]
    fills = [
        fill(verdicts[0], 100, 3),
        fill(verdicts[1], 60, 1),
        fill(verdicts[2], 1, 0, "adapter_error"),
        fill(verdicts[3], 900, 20),
        fill(verdicts[4], 5100, 80, "store_overflow"),
    ]
    commit_verdicts(run, verdicts)
    for user in ("u1", "u2"):
        mine = [row for row in fills if row["user_id"] == user]
        run.commit(Unit("fills", "rag", user), "f", {"slot_fills": mine})
    top3, whole = query(run, "select * from budget_probe order by k nulls last").dicts()
    assert (top3["k"], top3["tokens_mean"], top3["items_mean"], top3["n_prompts"]) == (3, 80, 2, 2)
    assert (top3["n_scored"], top3["n_total"], top3["b_mean"]) == (2, 3, 0.75)
    assert top3["coverage"] == pytest.approx(2 / 3)
    assert (whole["tokens_mean"], whole["n_overflow"]) == (3000, 1)
    assert (whole["b_mean"], whole["n_scored"], whole["n_total"]) == (0.25, 1, 2)


def test_layers_have_rows_of_their_own_and_a_second_judge_shares_the_prompts(run: RunStore) -> None:
    row = verdict("rag", "u1", "c", "a")
    layers = [row, row | {"layer": "chunked", "score": 0.5}, row | {"layer": "judge2", "score": 0}]
    for place, one_layer in enumerate(layers):
        commit_verdicts(run, [one_layer], variant=f"v{place}")
    fills = [fill(layers[0], 50, 2), fill(layers[1], 70, 2)]
    run.commit(Unit("fills", "rag", "u1"), "f", {"slot_fills": fills})
    found = query(run, "select layer, tokens_mean, b_mean, own_prompts from budget_probe").rows
    assert found == [
        ("base", 50.0, 1.0, True),
        ("chunked", 70.0, 0.5, True),
        ("judge2", 50.0, 0.0, False),
    ]


def call(user: str, item_name: str, number: int, **changes: Any) -> Row:
    row: Row = {
        **{"call_id": f"c{number}", "stage": "rollout", "role": "memory", "model": "m"},
        **{"system": "mem0", "user_id": user, "item": item_name, "attempt": 1},
        **{"ledger_hit": False, "outcome": "ok", "repaired": False, "prompt_tokens": 100},
        **{"completion_tokens": 10, "cost_usd": 0.5, "latency_s": 2.0},
    }
    return row | changes


def operations(run: RunStore, user: str, writes: list[float], **other: list[float]) -> None:
    phases = {"write": writes, **other}
    rows = [
        {"system": "mem0", "user_id": user, "epoch": 1, "phase": phase, "latency_s": seconds}
        for phase, values in phases.items()
        for seconds in values
    ]
    run.commit(Unit("rollout", "mem0", user), "f", {"operations": rows})


WRITE = "s0001/turn1/user/write"


def test_ingestion_counts_asks_and_keeps_what_was_paid_apart(run: RunStore) -> None:
    operations(run, "u1", [1.0, 3.0, 5.0], search=[0.5], save=[0.25])
    operations(run, "u2", [7.0])
    calls = [
        call("u1", WRITE, 1),
        call("u1", "s0001/turn1/assistant/write", 2, ledger_hit=True, cost_usd=0.25),
        call("u1", "search/abc", 3, cost_usd=8.0),
        call("u2", WRITE, 4),
        call("u2", WRITE, 5, outcome="timeout", prompt_tokens=None, completion_tokens=None,
             cost_usd=None, latency_s=None),
        call("u1", "s1", 6, role="assistant", cost_usd=64.0),
        call("u9", WRITE, 7, cost_usd=32.0),  # a user whose rollout is not stored
    ]  # fmt: skip
    run.commit(Unit("calls"), "f", {"calls": calls})
    commit_verdicts(run, [unscored(verdict("mem0", "u9", "c", "d"), "adapter_error")])
    found = one(run, "select * from ingestion")
    assert (found["n_users"], found["n_users_total"], found["messages"]) == (2, 3, 4)
    assert (found["calls"], found["calls_sent"], found["ledger_hits"], found["failed_calls"]) == (
        4,
        3,
        1,
        1,
    )
    assert (found["work_usd"], found["paid_usd"]) == (1.25, 1.0)
    assert (found["work_usd_per_user"], found["work_usd_per_1000_messages"]) == (0.625, 312.5)
    assert (found["calls_per_message"], found["prompt_tokens_per_message"]) == (1.0, 75.0)
    assert (found["write_s"], found["seconds_per_message"]) == (16.0, 4.0)
    assert (found["save_s"], found["replayed_s"]) == (0.25, 2.0)
    users = query(run, "select user_id, messages, calls, work_usd from ingestion_by_user").rows
    assert users == [("u1", 3, 2, 0.75), ("u2", 1, 2, 0.5)]


def test_phases_are_never_mixed(run: RunStore) -> None:
    operations(run, "u1", [1.0, 3.0, 5.0], search=[0.5, 0.75])
    run.commit(Unit("calls"), "f", {"calls": [call("u1", WRITE, 1), call("u1", "search/a", 2)]})
    rows = query(run, "select phase, n, total_s, p50_s, p95_s, calls, work_usd from memory_phases")
    assert rows.rows == [
        ("search", 2, 1.25, 0.5, 0.75, 1, 0.5),
        ("write", 3, 9.0, 3.0, 5.0, 1, 0.5),
    ]


@pytest.mark.parametrize(
    ("change", "work", "paid", "tokens"),
    [
        ({"cost_usd": None}, None, None, 200),
        ({"cost_usd": None, "ledger_hit": True}, None, 0.5, 200),
        ({"prompt_tokens": None, "completion_tokens": None}, 1.0, 1.0, None),
    ],
)
def test_one_unknown_makes_a_sum_unknown_and_never_smaller(
    run: RunStore, change: Row, work: float | None, paid: float | None, tokens: int | None
) -> None:
    operations(run, "u1", [1.0])
    operations(run, "u2", [1.0])
    calls = [call("u1", WRITE, 1), call("u2", WRITE, 2, **change)]
    run.commit(Unit("calls"), "f", {"calls": calls})
    found = one(run, "select * from ingestion")
    assert (found["work_usd"], found["paid_usd"], found["prompt_tokens"]) == (work, paid, tokens)
    assert (found["calls"], found["work_usd_per_user"]) == (2, None if work is None else 0.5)


def test_no_calls_cost_nothing_but_calls_that_were_not_recorded_are_unknown(run: RunStore) -> None:
    operations(run, "u1", [1.0])
    assert one(run, "select calls, work_usd from ingestion") == {"calls": None, "work_usd": None}
    run.commit(Unit("calls"), "f", {"calls": [call("u1", "x", 1, role="judge")]})
    assert one(run, "select calls, work_usd from ingestion") == {"calls": 0, "work_usd": 0.0}
