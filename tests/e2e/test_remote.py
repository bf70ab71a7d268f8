"""A run whose every role is a remote model, seen from the model's side."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from memprobe.types import Role
from tests.e2e.conftest import NewShell
from tests.e2e.support import Model, Shell

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
ROLES = {
    role.value
    for role in (
        Role.ASSISTANT,
        Role.SIMULATOR,
        Role.PREFERENCE,
        Role.SLOT_FILL,
        Role.JUDGE,
        Role.ORACLE,
        Role.DISCLOSURE,
        Role.SUBCLASS,
    )
}
"""All that the suite asks; users are generated elsewhere and these systems need no model."""


def test_every_role_goes_to_the_given_server(shell: NewShell) -> None:
    with Model() as model:
        home: Shell = shell(**model.env)
        done = home.remote("t2")
        assert done.code == 0, done.err
        asked = {s.body["model"] for s in model.chats}
        answered = Counter(s.digest for s in model.chats if s.sent)
    result = done.json
    assert asked == {"mock"}
    assert result["new_calls"] == len(answered)
    assert max(answered.values()) == 1

    rows = home.table(
        "t2",
        "select role, model, count(distinct call_id) filter (where not ledger_hit) as sent, "
        "min(outcome) as best, max(outcome) as worst from calls group by all",
    )
    by_role = {row["role"]: row for row in rows}
    assert set(by_role) == ROLES
    assert {row["model"] for row in rows} == {"openai/mock"}
    assert {(row["best"], row["worst"]) for row in rows} == {("ok", "ok")}
    assert all(row["sent"] > 0 for row in rows)
    assert sum(row["sent"] for row in rows) == len(answered)

    for row in result["summary"]:
        assert (row["n_users"], row["n_scored"], row["n_total"]) == (2, 6, 6)
        assert row["d_mean"] is not None
        assert 1 <= row["d_mean"] <= 5
    rated = home.table("t2", "select status, count(*) as n from preference_scores group by all")
    assert [row["status"] for row in rated] == ["scored"]
    assert json.loads((home.runs / "t2" / "manifest.json").read_text())["self_judged"] is True
