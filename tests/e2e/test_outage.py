"""A model that fails: what can be scored is unaffected, the rest is counted, a resume heals."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from storage.runs import RunStore
from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import Model, assert_same_tables, is_judge
from tests.support.fake_server import Fault

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
ITEM = ("system", "user_id", "access_mode", "k", "category", "dimension")


def verdicts(run: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(r[n] for n in ITEM): r for r in RunStore.open(run).read("verdicts")}


def means(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """B over the given rows: user, then category, then all."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for r in rows:
        key = (r["system"], r["access_mode"], r["user_id"], r["category"])
        cells.setdefault(key, []).append(r["score"])
    users: dict[tuple[str, ...], list[float]] = {}
    for (system, mode, user, _), scores in sorted(cells.items()):
        users.setdefault((system, mode, user), []).append(sum(scores) / len(scores))
    views: dict[tuple[str, str], list[float]] = {}
    for (system, mode, _), scores in sorted(users.items()):
        views.setdefault((system, mode), []).append(sum(scores) / len(scores))
    return {view: sum(scores) / len(scores) for view, scores in views.items()}


def unreliable(body: dict[str, Any]) -> Fault:
    """A share of the judge's questions is refused for good; by content, so in every run."""
    if not is_judge(body):
        return None
    digest = hashlib.sha256(json.dumps(body["messages"]).encode()).digest()
    return "refusal" if digest[0] < 40 else None


def garbage(body: dict[str, Any]) -> Fault:
    """A structured answer that is none, for a share of first questions, once each."""
    if "response_format" not in body or len(body["messages"]) > 2:
        return None
    digest = hashlib.sha256(b"g" + json.dumps(body["messages"]).encode()).digest()
    return (
        {"mode": "garbage", "content": "<html>502 Bad Gateway</html>"} if digest[0] < 26 else None
    )


def test_a_tenth_of_faults_leaves_the_scores_alone(shell: NewShell, clean: Clean) -> None:
    def sticky(body: dict[str, Any]) -> Fault:
        return unreliable(body) or garbage(body)

    kinds = ("rate_limit", "server_error")
    with Model(sticky=sticky, faults=0.1, kinds=kinds, seed=3) as model:
        home = shell("faulty", **model.env)
        done = home.remote("faulty", "--error-threshold", "0")
        met = Counter(s.fault for s in model.chats if s.fault)
        assert done.code == 1, done.err
        assert min(met[k] for k in ("rate_limit", "server_error", "garbage", "refusal")) > 0, met
        result = done.json
        assert result["status"] == "complete"
        assert result["unscored"]["verdicts/refusal"] > 0
        assert 0 < result["error_share"] < 0.5
        assert "--error-threshold 0" in done.err

        mine, theirs = verdicts(home.runs / "faulty"), verdicts(clean.run)
        assert mine.keys() == theirs.keys()
        scored = {key for key, row in mine.items() if row["status"] == "scored"}
        unscored = Counter(row["reason"] for row in mine.values() if row["status"] == "unscored")
        assert len(scored) + sum(unscored.values()) == len(mine)
        counted = {
            reason: n
            for name, n in result["unscored"].items()
            for table, _, reason in [name.partition("/")]
            if table == "verdicts"
        }
        assert counted == dict(unscored)
        assert all(row["score"] is None for key, row in mine.items() if key not in scored)
        assert {k: mine[k]["score"] for k in scored} == {k: theirs[k]["score"] for k in scored}
        assert len({theirs[k]["score"] for k in scored}) > 2, "scores that say something"
        assert means([mine[k] for k in sorted(scored, key=str)]) == means(
            [theirs[k] for k in sorted(scored, key=str)]
        )
        covered = {(r["system"], r["access_mode"]): r["n_scored"] for r in result["summary"]}
        for view, n in covered.items():
            assert n == sum((r["system"], r["access_mode"]) == view for r in map(mine.get, scored))

        asked = len(model.chats)
        under = home.remote("faulty", "--error-threshold", "0.9")
        assert under.code == 0, under.err
        assert under.json["unscored"] == result["unscored"]
        assert len(model.chats) == asked, "a refusal is an answer and is not asked again"


def test_a_total_outage_scores_nothing_and_a_resume_heals(shell: NewShell, clean: Clean) -> None:
    with Model() as model:
        env, port = model.env, int(model.url.rpartition(":")[2].removesuffix("/v1"))
    home = shell("dead", **env)
    done = home.remote("dead")
    assert done.code == 1, done.err
    result = done.json
    assert result["new_calls"] == 0
    assert result["error_share"] == 1.0
    assert result["units_to_retry"] > 0
    assert "memprobe resume dead" in done.err
    store = RunStore.open(home.runs / "dead")
    for table in ("episodes", "verdicts", "attributions", "oracle_verdicts"):
        rows = store.read(table)
        assert rows, table
        # An empty memory's "unknown" needs no call; without its episode it is no measurement.
        assert {(r["status"], r["reason"]) for r in rows} == {("unscored", "provider_error")}
    assert {r["score"] for r in store.read("verdicts")} == {None}
    assert {r["label"] for r in store.read("attributions")} == {"harness_failure"}
    for row in result["summary"]:
        assert row["b_mean"] is None
        assert row["d_mean"] is None
        assert (row["n_scored"], row["n_total"]) == (0, 6)

    with Model(port=port):
        healed = home.run("resume", "dead", "--json")
    assert healed.code == 0, healed.err
    assert healed.json["units_to_retry"] == 0
    assert healed.json["error_share"] == 0.0
    assert_same_tables(clean.run, home.runs / "dead")
    again = home.remote("dead")
    assert (again.code, again.json["new_calls"]) == (0, 0)


def test_an_outage_in_the_middle_is_made_good(shell: NewShell, clean: Clean) -> None:
    """Some episodes are played, later ones fail: the user is played again, the paid part free."""
    with Model() as model:
        home = shell("half", **model.env)
        for count in range(40, 400):
            model.at(count, lambda: model.script({"mode": "server_error", "status": 401}))
        done = home.remote("half")
        assert done.code == 1, done.err
        answered = {s.digest for s in model.chats if s.sent and not s.fault}
        first = len(model.chats)
        model._hooks.clear()
        model._script.clear()
        healed = home.run("resume", "half", "--json")
        assert healed.code == 0, healed.err
        assert not answered & {s.digest for s in model.chats[first:]}
    assert_same_tables(clean.run, home.runs / "half")
