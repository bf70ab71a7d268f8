"""The catalog answers from real Parquet, stays right when a run grows or moves, and only reads."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pytest

from memprobe.errors import UsageError
from storage.catalog import build_catalog, catalog_path, query
from storage.runs import RunStore, Unit
from storage.schemas import SCHEMAS
from tests.storage.rows import commit_verdicts, episode, item, new_run, unscored, verdict

VIEWS = {
    "recovery_summary": "system access_mode k n_users n_scored n_total b_mean b_std b_lo b_hi "
    "a_pct c_mean d_mean items_mean chars_mean",
    "recovery_by_category": "system access_mode k category n_users n_scored n_total b_mean b_std",
    "attribution_counts": "system access_mode k label n share recovery_rate",
    "calls_summary": "stage role model calls ledger_hits prompt_tokens cached_tokens "
    "completion_tokens cost_usd latency_p50_s latency_p95_s unpriced_calls",
    "latency_summary": "system phase n p50 p95",
    "unscored_summary": "stage system access_mode k reason n example",
    "judge_check_summary": "kind n n_scored n_in_range share",
}


@pytest.fixture(params=["local", "odd name", "memory", "s3"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    if request.param == "s3":
        return new_run(request.getfixturevalue("bucket").url("o'[d]d *näme/run"))
    if request.param == "memory":
        return new_run(f"memory://{uuid.uuid4().hex}/run")
    return new_run(tmp_path / ("run" if request.param == "local" else "o'[d]d *name") / "run")


def one(run: RunStore, sql: str) -> dict[str, Any]:
    rows = query(run, sql).dicts()
    assert len(rows) == 1, rows
    return rows[0]


def test_an_empty_run_has_every_table_and_view_with_its_columns(run: RunStore) -> None:
    """Case zero-rows: no division by zero and no error, there are just no rows."""
    for table, schema in SCHEMAS.items():
        found = query(run, f'SELECT * FROM "{table}"')
        assert (list(found.columns), found.rows) == (schema.names, [])
    for view, columns in VIEWS.items():
        found = query(run, f"SELECT * FROM {view}")
        assert list(found.columns)[: len(columns.split())] == columns.split()
        assert found.rows == []
    assert query(run, "SELECT * FROM duplicates_summary").rows == []


def test_b_is_the_published_formula_and_errors_stay_out(run: RunStore) -> None:
    rows = [
        verdict("rag", "u1", "skill_memory", "a", score=1.0),
        verdict("rag", "u1", "skill_memory", "b", score=0.5),
        unscored(verdict("rag", "u1", "skill_memory", "c")),
        verdict("rag", "u1", "self_model", "d", score=0.0),
        verdict("rag", "u2", "skill_memory", "a", score=1.0),
        unscored(verdict("rag", "u3", "skill_memory", "a"), "store_overflow"),
    ]
    commit_verdicts(run, rows)
    found = one(run, "SELECT * FROM recovery_summary")
    assert found["b_mean"] == pytest.approx((0.375 + 1.0) / 2)
    assert found["b_std"] == pytest.approx(0.4419417)
    assert (found["n_users"], found["n_scored"], found["n_total"]) == (2, 4, 6)
    assert found["b_lo"] is None
    reasons = {r["reason"]: r["n"] for r in query(run, "SELECT * FROM unscored_summary").dicts()}
    assert reasons == {"timeout": 1, "store_overflow": 1}
    skill = one(run, "SELECT * FROM recovery_by_category WHERE category = 'skill_memory'")
    assert (skill["b_mean"], skill["n_users"], skill["n_scored"]) == (0.875, 2, 3)


def test_unscored_items_show_their_commonest_detail(run: RunStore) -> None:
    details = ["no key", "late", "no key", None]
    rows = [
        {**unscored(verdict("rag", "u1", "skill_memory", f"d{i}")), "detail": detail}
        for i, detail in enumerate(details)
    ]
    rows.append(unscored(verdict("rag", "u1", "skill_memory", "e"), "refusal"))
    commit_verdicts(run, rows)
    found = query(run, "SELECT reason, n, example FROM unscored_summary").rows
    assert found == [("refusal", 1, None), ("timeout", 4, "no key")]


def test_layers_lie_beside_the_base(run: RunStore) -> None:
    row = verdict("rag", "u1", "skill_memory", "a", score=1.0)
    commit_verdicts(run, [row])
    commit_verdicts(run, [{**row, "score": 0.5, "layer": "judge2"}], variant="judge2")
    assert one(run, "SELECT * FROM recovery_summary")["b_mean"] == 1.0
    layers = query(run, "SELECT layer, b_mean FROM recovery_summary_layers ORDER BY layer").rows
    assert layers == [("base", 1.0), ("judge2", 0.5)]


def test_rollout_columns_of_the_summary(run: RunStore) -> None:
    episodes = [
        episode("rag", "u1", 1, n_turns=1),
        episode("rag", "u1", 2, n_turns=25, end_reason="max_turns"),
        episode("rag", "u1", 3, n_turns=0, end_reason=None, status="unscored", reason="timeout"),
    ]
    blank = {"system": "rag", "user_id": "u1", "epoch": 1, "dimension": "p", "status": "scored"}
    scores = [
        {**blank, "episode": 1, "turn": 1, "idx": 1, "score": 5},
        {**blank, "episode": 1, "turn": 1, "idx": 2, "score": None},
        {**blank, "episode": 2, "turn": 1, "idx": 1, "score": 2},
        {**blank, "episode": 2, "turn": 2, "idx": 1, "score": 2},
    ]
    items = [item("rag", "u1", 0, "tea"), item("rag", "u1", 1, "她住在北京")]
    tables = {"episodes": episodes, "preference_scores": scores, "memory_items": items}
    run.commit(Unit("rollout", "rag", "u1"), "f", tables)
    commit_verdicts(run, [verdict("rag", "u1", "skill_memory", "d1")])
    found = one(run, "SELECT * FROM recovery_summary")
    assert (found["a_pct"], found["c_mean"], found["d_mean"]) == (50.0, 13.0, 3.0)
    assert (found["items_mean"], found["chars_mean"]) == (2.0, 4.0)


def test_duplicates_within_a_store_and_among_what_a_query_returns(run: RunStore) -> None:
    """Case duplicates: 30 copies of one memory and one more."""
    contents = ["likes tea"] * 30 + ["has a cat"]
    items = [item("rag", "u1", i, text) for i, text in enumerate(contents)]
    run.commit(Unit("rollout", "rag", "u1"), "f", {"memory_items": items})
    hit = {"system": "rag", "user_id": "u1", "epoch": 1, "category": "c", "dimension": "d"}
    hits = [
        {**hit, "query": "q", "rank": r, "item_id": str(r), "content": "likes tea"}
        for r in range(1, 6)
    ]
    run.commit(Unit("recover", "rag", "u1"), "f", {"retrievals": hits})
    found = one(run, "SELECT * FROM duplicates_summary")
    assert (found["items"], found["distinct_contents"]) == (31, 2)
    assert found["duplicate_rate"] == pytest.approx(29 / 31)
    assert (found["retrieved"], found["retrieved_distinct"]) == (5, 1)


def test_latency_is_reported_per_phase(run: RunStore) -> None:
    """Case latency-mixed-phases: 9 s of ingestion are no 9 s of search."""
    base = {"system": "rag", "user_id": "u1", "epoch": 1}
    rows = [
        {**base, "phase": phase, "latency_s": value}
        for phase, values in {"write": [9.0, 8.0], "search": [0.02, 0.03]}.items()
        for value in values
    ]
    run.commit(Unit("rollout", "rag", "u1"), "f", {"operations": rows})
    found = query(run, "SELECT phase, n, p50, p95 FROM latency_summary").rows
    assert found == [("search", 2, 0.02, 0.03), ("write", 2, 8.0, 9.0)]


def test_calls_sum_known_prices_and_count_unknown_ones(run: RunStore) -> None:
    """Case cost-cached-tokens: an unknown price is NULL, never 0."""
    base = {
        "stage": "recover",
        "role": "judge",
        "model": "m",
        "system": "rag",
        "user_id": "u1",
        "attempt": 1,
        "ledger_hit": False,
        "outcome": "ok",
        "repaired": False,
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "completion_tokens": 10,
        "latency_s": 1.0,
    }
    rows = [
        {**base, "item": "a", "cost_usd": 0.5},
        {**base, "item": "b", "cost_usd": None, "latency_s": 2.0},
        {**base, "item": "c", "cost_usd": 0.25, "ledger_hit": True, "latency_s": 60.0},
        {**base, "item": "d", "role": "oracle", "cost_usd": None},
    ]
    run.commit(Unit("calls"), "f", {"calls": rows})
    judge = one(run, "SELECT * FROM calls_summary WHERE role = 'judge'")
    assert (judge["calls"], judge["ledger_hits"], judge["unpriced_calls"]) == (3, 1, 1)
    assert (judge["prompt_tokens"], judge["cached_tokens"]) == (200, 80)
    assert (judge["cost_usd"], judge["latency_p95_s"]) == (0.5, 2.0)
    assert one(run, "SELECT * FROM calls_summary WHERE role = 'oracle'")["cost_usd"] is None


def test_recovery_rate_is_of_what_the_memory_was_given(run: RunStore) -> None:
    labels = ["ok"] * 3 + ["memory_failure", "agent_elicitation_failure", "harness_failure"]
    rows = [
        {**verdict("rag", "u1", "c", f"d{i}"), "label": label} for i, label in enumerate(labels)
    ]
    run.commit(Unit("attribute", "rag", "u1"), "f", {"attributions": rows})
    found = query(run, "SELECT * FROM attribution_counts").dicts()
    assert {r["label"]: r["n"] for r in found}["ok"] == 3
    assert {r["recovery_rate"] for r in found} == {0.75}
    assert sum(r["share"] for r in found) == pytest.approx(1.0)


def test_a_memory_that_lost_all_it_was_given_has_the_rate_zero_and_not_none(run: RunStore) -> None:
    rows = [verdict("rag", "u1", "c", "d") | {"label": "memory_failure"}]
    run.commit(Unit("attribute", "rag", "u1"), "f", {"attributions": rows})
    found = query(run, "SELECT * FROM attribution_counts").dicts()
    assert {r["recovery_rate"] for r in found} == {0.0}


def test_judge_check_summary_keeps_unscored_apart(run: RunStore) -> None:
    base = {"system": "", "user_id": "u1", "category": "c", "expected_min": 0.75}
    rows = [
        {**base, "dimension": d, "kind": "right", "expected_max": 1.0, **result}
        for d, result in {
            "a": {"score": 1.0, "status": "scored"},
            "b": {"score": 0.5, "status": "scored"},
            "c": {"score": None, "status": "unscored", "reason": "refusal"},
        }.items()
    ]
    run.commit(Unit("judge_check"), "f", {"judge_checks": rows})
    assert query(run, "SELECT * FROM judge_check_summary").rows == [("right", 3, 2, 1, 0.5)]


@pytest.mark.parametrize("name", ['"case"', "case_file"])
def test_a_case_is_told_from_target_to_verdict(run: RunStore, name: str) -> None:
    user, hostile = "u/1", "<script>alert('x')</script>"
    target = {"user_id": user, "category": "skill_memory", "dimension": "d1"}
    targets = [{**target, "short": "short", "explanation": "long"}]
    run.commit(Unit("dataset", user=user), "f", {"targets": targets})
    turn = {"system": "rag", "user_id": user, "epoch": 1, "event_time": "2026-01-01T09:00:00Z"}
    turns = [
        {**turn, "episode": 1, "turn": n, "assistant_text": f"reply {n}", "user_text": hostile}
        for n in (2, 1)
    ]
    turns.append({**turn, "episode": 2, "turn": 1, "assistant_text": "another episode"})
    played = [episode("rag", user, 1), episode("rag", user, 2)]
    run.commit(Unit("rollout", "rag", user), "f", {"episodes": played, "turns": turns})
    hit = {**target, "system": "rag", "epoch": 1, "query": "q"}
    hits = [{**hit, "rank": r, "item_id": str(r), "content": f"m{r}"} for r in (1, 2, 3)]
    rows = [
        verdict("rag", user, "skill_memory", "d1", call_id="j1"),
        verdict("rag", user, "skill_memory", "d1", access_mode="retrieve", k=2, score=0.25),
    ]
    fills = [{k: v for k, v in r.items() if k != "score"} | {"call_id": "s1"} for r in rows]
    run.commit(
        Unit("recover", "rag", user),
        "f",
        {"verdicts": rows, "slot_fills": fills, "retrievals": hits},
    )
    blamed = [{**rows[1], "label": "memory_failure", "evidence": hostile}]
    for row in blamed:
        row.pop("call_id", None)
    run.commit(Unit("attribute", "rag", user), "f", {"attributions": blamed})
    whole, top = query(run, f"SELECT * FROM {name}('{user}', 'd1')").dicts()
    assert (whole["target_short"], whole["task"], whole["retrieved"]) == ("short", "a task", None)
    assert [t["assistant"] for t in whole["transcript"]] == ["reply 1", "reply 2"]
    assert whole["transcript"][0]["user"] == hostile
    assert (whole["judge_call"], whole["slot_fill_call"], whole["score"]) == ("j1", "s1", 1.0)
    assert [r["content"] for r in top["retrieved"]] == ["m1", "m2"]
    assert (top["attribution"], top["evidence"], top["k"]) == ("memory_failure", hostile, 2)
    assert query(run, f"SELECT * FROM {name}('nobody', 'd1')").rows == []


def test_new_parts_and_new_tables_show_without_a_rebuild_by_hand(run: RunStore) -> None:
    assert query(run, "SELECT count(*) FROM verdicts").rows == [(0,)]
    commit_verdicts(run, [verdict("rag", "u1", "c", "d")])
    assert query(run, "SELECT count(*) FROM verdicts").rows == [(1,)]
    commit_verdicts(run, [verdict("rag", "u2", "c", "d")])
    assert query(run, "SELECT count(*) FROM verdicts").rows == [(2,)]
    run.reset(Unit("recover", "rag", "u1"))
    run.reset(Unit("recover", "rag", "u2"))
    assert query(run, "SELECT count(*) FROM verdicts").rows == [(0,)]


def test_a_moved_run_is_read_where_it_is(tmp_path: Path) -> None:
    run = new_run(tmp_path / "before")
    commit_verdicts(run, [verdict("rag", "u1", "c", "d")])
    build_catalog(run)
    shutil.copytree(tmp_path / "before", tmp_path / "copy")
    shutil.move(tmp_path / "before", tmp_path / "after")
    commit_verdicts(run := RunStore.open(tmp_path / "after"), [verdict("rag", "u2", "c", "d")])
    assert query(run, "SELECT count(*) FROM verdicts").rows == [(2,)]
    copy = RunStore.open(tmp_path / "copy")
    assert query(copy, "SELECT count(*) FROM verdicts").rows == [(1,)]


def test_a_damaged_catalog_is_built_again(run: RunStore) -> None:
    commit_verdicts(run, [verdict("rag", "u1", "c", "d")])
    build_catalog(run)
    catalog_path(run).write_bytes(b"not a database")
    assert query(run, "SELECT count(*) FROM verdicts").rows == [(1,)]


def test_plain_duckdb_reads_the_catalog_while_others_do(run: RunStore) -> None:
    commit_verdicts(run, [verdict("rag", "u1", "c", "d")])
    path = build_catalog(run)
    with duckdb.connect(path, read_only=True) as reader:
        assert reader.execute("SELECT b_mean FROM recovery_summary").fetchall() == [(1.0,)]
        assert query(run, "SELECT 1").rows == [(1,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DROP TABLE verdicts", "only reading statements"),
        ("INSERT INTO catalog_info VALUES ('x')", "only reading statements"),
        ("COPY (SELECT 1) TO '{outside}'", "only reading statements"),
        ("ATTACH '{outside}'", "only reading statements"),
        ("SET enable_external_access = true", "only reading statements"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{outside}'", "only reading statements"),
        ("explain (analyze) copy (select 1) to '{outside}'", "only reading statements"),
        ("/* */ EXPLAIN ANALYZE COPY (SELECT 1) TO '{outside}'", "only reading statements"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("", "one statement"),
        ("SELECT * FROM read_csv('{outside}')", "Permission Error"),
        ("SELECT * FROM read_text('{outside}')", "Permission Error"),
        ("SELECT * FROM '{outside}'", "Permission Error|does not exist"),
        ("SELECT nothing FROM verdicts", "nothing"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM case('u', 'd')", 'write "case"'),
    ],
)
def test_what_a_query_must_not_do_is_refused_with_a_reason(
    run: RunStore, tmp_path: Path, sql: str, message: str
) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n1\n")
    with pytest.raises(UsageError, match=message):
        query(run, sql.format(outside=outside))
    assert outside.read_text() == "secret\n1\n"
