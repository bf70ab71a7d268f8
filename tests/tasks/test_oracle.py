"""Oracle: one question a task, seen without any dialogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprobe.errors import BudgetExceeded
from memprobe.outcomes import Reason
from memprobe.types import Role
from tasks.oracle import oracle_user, targeted_task
from tests.support.chat_double import ChatDouble, where
from tests.support.contexts import LAYOUT, bench


async def test_one_verdict_for_each_target_with_a_task(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    b.chat.say(where(Role.ORACLE, dimension="knot_skill"), {"can_invite": False, "reason": "no"})
    await oracle_user(b.context, "user_001")
    rows = {r["dimension"]: r for r in b.rows("oracle_verdicts")}
    assert set(rows) == {d for _, d in LAYOUT}
    assert {d: r["can_invite"] for d, r in rows.items()} == {d: d != "knot_skill" for d in rows}
    assert rows["knot_skill"]["oracle_reason"] == "no"
    assert all(r["call_id"] and r["status"] == "scored" for r in rows.values())


async def test_oracle_sees_task_and_truth_and_nothing_of_a_system(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    await oracle_user(b.context, "user_001")
    for request in b.chat.of(Role.ORACLE):
        assert set(request.variables) == {"task", "category", "dimension", "short", "explanation"}
        assert request.asker.system == ""
        assert request.replicate == 0


@pytest.mark.parametrize("answer", [{}, {"can_invite": "perhaps"}, {"can_invite": None}, "yes"])
async def test_no_verdict_is_made_up(tmp_path: Path, answer: object) -> None:
    """An unreadable verdict was "can invite" as published; here it has no value."""
    b = bench(tmp_path / "run")
    b.chat.answer(Role.ORACLE, lambda _: answer)  # type: ignore[arg-type,return-value]
    await oracle_user(b.context, "user_001")
    assert {(r["status"], r["reason"], r["can_invite"]) for r in b.rows("oracle_verdicts")} == {
        ("unscored", "invalid_output", None)
    }


async def test_one_failure_leaves_the_others_and_an_outage_is_asked_again(tmp_path: Path) -> None:
    """Case batch-crash-loses-all, for the oracle."""
    chat = ChatDouble()
    chat.fail(where(Role.ORACLE, dimension="tone_wish"), Reason.PROVIDER_ERROR, times=1)
    b = bench(tmp_path / "run", chat)
    await oracle_user(b.context, "user_001")
    assert {r["dimension"]: r["reason"] for r in b.rows("oracle_verdicts") if r["reason"]} == {
        "tone_wish": "provider_error"
    }
    await oracle_user(b.context, "user_001")
    assert {r["status"] for r in b.rows("oracle_verdicts")} == {"scored"}
    asked = len(chat.requests)
    await oracle_user(b.context, "user_001")
    assert len(chat.requests) == asked


async def test_budget_goes_through(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    b.chat.exhaust_budget(where(Role.ORACLE))
    with pytest.raises(BudgetExceeded):
        await oracle_user(b.context, "user_001")
    assert b.rows("oracle_verdicts") == []


def test_a_task_is_found_by_category_and_dimension(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    owner = b.context.user("user_001")
    numbers = []
    for category, entry in owner.targets():
        found = targeted_task(owner, category, entry)
        assert found is not None
        numbers.append(found[0])
        assert found[1].target_short == entry.short
    assert numbers == [1, 2, 3, 4, 5, 6]
    (skill, entry), (knowledge, _) = owner.targets()[:2]
    assert targeted_task(owner, knowledge, entry) is None
    assert targeted_task(owner.model_copy(update={"tasks": ()}), skill, entry) is None
