"""The paradigms suite by the command: embedded to its report, killed and resumed with a model."""

from __future__ import annotations

import random

import pytest

from adapters.memory.external import version_of
from tests.e2e.conftest import NewShell
from tests.e2e.support import Model, assert_same_tables
from tests.e2e.test_kill import killed_run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1500)]
REFERENCES = ("full_context", "oracle_rag", "naive_rag", "always_update", "always_preserve")
ASKING = ("amem", "memoryos", "graphiti")
COMMAND = (
    *("run", "paradigms", "--model", "openai/mock"),
    *("--systems", ",".join(ASKING), "--limit", "2"),
)


def test_an_embedded_run_ends_with_its_report_and_costs_nothing_again(shell: NewShell) -> None:
    home = shell("embedded")
    command = ("run", "paradigms", "--systems", ",".join(REFERENCES), "--limit", "4")
    done = home.run(*command, "--run", "p1", "--json")
    assert done.code == 0, done.err
    assert done.json["unscored"] == {}
    rows = {row["system"]: row for row in done.json["summary"]}
    assert sorted(rows) == sorted(REFERENCES)
    assert rows["always_update"]["stability"] == 0 == rows["always_preserve"]["plasticity"]
    assert {row["n_scored"] for row in rows.values()} == {16}
    page = home.runs / "p1" / "report" / "index.html"
    assert page.stat().st_size > 100_000
    again = home.run(*command, "--run", "p1", "--json")
    assert (again.code, again.json["new_calls"]) == (0, 0)
    more = home.run("run", "paradigms", "--systems", "recency", "--limit", "4", "--run", "p1")
    assert more.code == 0, more.err
    stored = home.table("p1", "select count(distinct system) as n from answers")
    assert stored[0]["n"] == len(REFERENCES) + 1


@pytest.mark.skipif(version_of("graphiti-core") is None, reason="graphiti-core is not installed")
def test_systems_with_a_model_end_the_same_whether_killed_or_not(shell: NewShell) -> None:
    with Model(latency=0.01) as model:
        clean = shell("clean", **model.env)
        done = clean.run(*COMMAND, "--run", "p2", "--json")
        assert done.code == 0, done.err
        assert done.json["unscored"] == {}
        calls = len(model.chats)
        assert done.json["new_calls"] == calls
        asked = clean.table(
            "p2",
            "select system, count(*) as n, count(*) filter (where user_id = '' or item = '') as "
            "nameless from calls where role = 'memory' group by system",
        )
        assert sorted(row["system"] for row in asked) == sorted(ASKING)
        assert {row["nameless"] for row in asked} == {0}
    drawn = random.Random(5)
    points = [drawn.randint(1, calls // 3) for _ in range(2)]
    with Model(latency=0.01) as model:
        home = shell("killed", **model.env)
        kills, _ = killed_run(home, model, points, 5, COMMAND)
        assert kills == len(points)
    assert_same_tables(clean.runs / "p2", home.runs / "killed")
