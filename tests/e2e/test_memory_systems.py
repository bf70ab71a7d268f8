"""Systems that ask a model, in real runs: every call in the books, killed and resumed, restored."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from adapters.memory.external import version_of
from tests.e2e.conftest import NewShell
from tests.e2e.support import Model, assert_same_tables
from tests.e2e.test_kill import IN_FLIGHT, killed_run

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(version_of("mem0ai") is None, reason="mem0ai is not installed"),
]
ASKING = ("amem", "mem0", "memt")
COMMAND = (
    *("run", "recovery", "--model", "openai/mock"),
    *("--systems", ",".join(("nomem", "longctx_full", "rag", *ASKING))),
    *("--users", "2", "--limit", "4"),
)


def test_six_systems_end_the_same_whether_killed_or_not(shell: NewShell) -> None:
    with Model(latency=0.02) as model:
        clean = shell("clean", **model.env)
        done = clean.run(*COMMAND, "--run", "t3", "--json")
        assert done.code == 0, done.err
        assert done.json["unscored"] == {}
        calls = len(model.chats)
        # All that reached the server is in the books, each library's under its own name.
        assert done.json["new_calls"] == calls
        asked = clean.table(
            "t3",
            "select system, count(*) as n, count(distinct call_id) as k, "
            "count(*) filter (where user_id = '' or item = '') as nameless, "
            "count(cost_usd) filter (where not ledger_hit) as priced "
            "from calls where role = 'memory' group by system",
        )
        found = {row["system"]: row for row in asked}
        assert sorted(found) == sorted(ASKING)
        for row in found.values():
            assert row["n"] >= 2 * 4 * 2, row
            assert row["nameless"] == 0
            assert row["priced"] == 0, "an unknown price is unknown"
        (total,) = clean.table("t3", "select count(distinct call_id) as n from calls")
        assert total["n"] == calls
        items = clean.table(
            "t3",
            "select system, user_id, count(*) as n, count(distinct item_id) as k "
            "from memory_items group by all",
        )
        assert {row["system"] for row in items} == {"longctx_full", "rag", *ASKING}
        assert all(row["n"] == row["k"] for row in items)
        encoded = clean.table("t3", "select count(*) as n from memory_items")
        assert encoded[0]["n"] > 100

    with Model(latency=0.02) as model:
        home = shell("killed", **model.env)
        drawn = random.Random(3)
        points = [drawn.randint(calls // 20, calls // 6) for _ in range(3)]
        kills, twice = killed_run(home, model, points, 3, COMMAND)
        assert kills == len(points)
        assert len({s.digest for s in model.chats}) == calls
        assert len(model.chats) <= calls + kills * IN_FLIGHT
    print(f"{calls} calls, {kills} kills, {twice} calls were in flight at a kill")
    assert_same_tables(clean.runs / "t3", home.runs / "killed")
    texts = home.table("killed", "select system, user_id, content, event_time from memory_items")
    kept = Counter(tuple(row.values()) for row in texts if row["system"] != "memt")
    assert [text for text, n in kept.items() if n > 1] == []
