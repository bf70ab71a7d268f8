"""A chain that broke off: its targets stand in every table, unscored, until it is measured."""

from __future__ import annotations

from pathlib import Path

from memprobe.outcomes import Reason, Unscored
from tasks.attribute import attribute_user
from tasks.recover import give_up_user, recover_user
from tasks.rollout import rollout_user
from tests.support.contexts import LAYOUT, bench


async def test_a_broken_chain_leaves_every_target_unscored_and_is_measured_next_time(
    tmp_path: Path,
) -> None:
    """A system that never got through must stand in the tables with nothing scored."""
    b = bench(tmp_path / "run", k=(1, 3))
    failure = Unscored(Reason.ADAPTER_ERROR, "rollout: no store")
    await give_up_user(b.context, "longctx_full", "user_001", 1, failure)
    await attribute_user(b.context, "longctx_full", "user_001", failed=True)
    verdicts = b.rows("verdicts")
    assert len(verdicts) == 3 * len(LAYOUT)
    assert {(r["status"], r["reason"], r["score"]) for r in verdicts} == {
        ("unscored", "adapter_error", None)
    }
    assert {r["label"] for r in b.rows("attributions")} == {"harness_failure"}
    assert b.chat.requests == []
    await rollout_user(b.context, "longctx_full", "user_001")
    await recover_user(b.context, "longctx_full", "user_001")
    await attribute_user(b.context, "longctx_full", "user_001")
    measured = b.rows("verdicts")
    assert {r["status"] for r in measured} == {"scored"}
    await give_up_user(b.context, "longctx_full", "user_001", 1, failure)
    assert b.rows("verdicts") == measured
