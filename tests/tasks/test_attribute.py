"""Attribution: every label, whose transcript is judged, and what could not be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memprobe.dataset import Dataset
from memprobe.errors import BudgetExceeded
from memprobe.outcomes import Reason
from memprobe.types import AccessMode, AttributionLabel, Role
from tasks.attribute import attribute_user
from tasks.oracle import oracle_user
from tasks.recover import recover_user
from tasks.rollout import rollout_user
from tasks.score import score_run
from tests.support.chat_double import ChatDouble, where
from tests.support.contexts import LAYOUT, Bench, bench, dataset, user

DUMP, RETRIEVE = AccessMode.DUMP_ALL.value, AccessMode.RETRIEVE.value
CAUSES = {
    "patience_view": "agent_elicitation_failure",
    "answer_length": "simulator_too_strict",
    "tone_wish": "unclassified",
}


async def attributed(
    location: Path,
    chat: ChatDouble | None = None,
    data: Dataset | None = None,
    systems: tuple[str, ...] = ("longctx_full",),
    **settings: Any,
) -> Bench:
    b = bench(location, chat, data, **settings)
    await oracle_user(b.context, "user_001")
    for system in systems:
        await rollout_user(b.context, system, "user_001")
        await recover_user(b.context, system, "user_001")
        await attribute_user(b.context, system, "user_001")
    return b


def script() -> ChatDouble:
    """Answers that lead the six targets to six different labels."""
    chat = ChatDouble()
    chat.say(where(Role.JUDGE, dimension="knot_skill"), {"score": 0.75, "reason": "near"})
    chat.say(where(Role.ORACLE, dimension="tide_knowledge"), {"can_invite": False, "reason": "no"})
    chat.say(
        where(Role.DISCLOSURE, dimension="harbour_accident"),
        {"disclosed": True, "evidence": "Reaction 1"},
    )
    for dimension, cause in CAUSES.items():
        chat.say(where(Role.SUBCLASS, dimension=dimension), {"cause": cause, "reason": "because"})
    return chat


async def test_every_stage_leads_to_its_label(tmp_path: Path) -> None:
    b = await attributed(tmp_path / "run", script())
    for mode in (DUMP, RETRIEVE):
        found = {r["dimension"]: r for r in b.rows("attributions", access_mode=mode)}
        assert {d: r["label"] for d, r in found.items()} == {
            "knot_skill": "ok",
            "tide_knowledge": "task_design_failure",
            "harbour_accident": "memory_failure",
            **CAUSES,
        }
        assert {r["status"] for r in found.values()} == {"scored"}
        shown = found["harbour_accident"]
        assert (shown["disclosed"], shown["evidence"], shown["episode"]) == (True, "Reaction 1", 3)
        assert shown["oracle_call"]
        assert shown["disclosure_call"]
        assert shown["subclass_call"] is None
        hidden = found["tone_wish"]
        assert (hidden["disclosed"], hidden["evidence"], hidden["cause_reason"]) == (
            False,
            None,
            "because",
        )
        assert found["tide_knowledge"]["can_invite"] is False
        assert found["tide_knowledge"]["disclosure_call"] is None
        assert found["knot_skill"]["oracle_call"] is None


async def test_stages_are_asked_only_as_far_as_needed(tmp_path: Path) -> None:
    chat = script()
    await attributed(tmp_path / "run", chat)
    asked = {
        role: sorted({str(r.variables["dimension"]) for r in chat.of(role)})
        for role in (Role.DISCLOSURE, Role.SUBCLASS)
    }
    assert asked[Role.SUBCLASS] == sorted(CAUSES)
    assert asked[Role.DISCLOSURE] == sorted([*CAUSES, "harbour_accident"])


@pytest.mark.parametrize(("score", "label"), [(0.5, "unclassified"), (0.75, "ok"), (1, "ok")])
async def test_recovered_from_three_quarters_on(tmp_path: Path, score: float, label: str) -> None:
    chat = ChatDouble()
    chat.answer(Role.JUDGE, lambda _: {"score": score})
    b = await attributed(tmp_path / "run", chat)
    assert {r["label"] for r in b.rows("attributions")} == {label}


async def test_a_target_without_its_task_is_nobodys_fault(tmp_path: Path) -> None:
    made = user("user_001", 1, 6)
    data = dataset(made.model_copy(update={"tasks": made.tasks[1:]}))
    b = await attributed(tmp_path / "run", script(), data)
    chat = b.chat
    assert {r["label"] for r in b.rows("attributions", dimension="knot_skill")} == {"ok"}
    b = await attributed(tmp_path / "other", None, data)
    rows = b.rows("attributions", dimension="knot_skill")
    assert {(r["label"], r["status"]) for r in rows} == {("no_targeted_task", "scored")}
    assert "knot_skill" not in {r.variables["dimension"] for r in chat.of(Role.ORACLE)}
    assert len(b.rows("oracle_verdicts")) == 5
    assert [r["episode"] for r in b.rows("attributions", dimension="tide_knowledge")] == [1, 1]


@pytest.mark.parametrize("role", [Role.ORACLE, Role.DISCLOSURE, Role.SUBCLASS, Role.SLOT_FILL])
async def test_what_was_not_measured_is_a_harness_failure(tmp_path: Path, role: Role) -> None:
    chat = ChatDouble()
    chat.fail(where(role, dimension="tide_knowledge"), Reason.INVALID_OUTPUT)
    b = await attributed(tmp_path / "run", chat)
    rows = b.rows("attributions", dimension="tide_knowledge")
    assert len(rows) == 2
    assert {(r["label"], r["status"], r["reason"]) for r in rows} == {
        ("harness_failure", "unscored", "invalid_output")
    }
    others = [r for r in b.rows("attributions") if r["dimension"] != "tide_knowledge"]
    assert {(r["label"], r["status"]) for r in others} == {("unclassified", "scored")}


async def test_an_overflow_is_never_a_memory_failure(tmp_path: Path) -> None:
    """Case store-overflow: 1,104 published labels blamed the memory for the reader's window."""
    chat = ChatDouble(window=1300)
    chat.answer(Role.DISCLOSURE, lambda _: {"disclosed": True})
    b = await attributed(tmp_path / "run", chat)
    found = {r["access_mode"]: set() for r in b.rows("attributions")}
    for row in b.rows("attributions"):
        found[row["access_mode"]].add((row["label"], row["reason"]))
    assert found == {
        DUMP: {("harness_failure", "store_overflow")},
        RETRIEVE: {("memory_failure", None)},
    }


async def test_targets_of_a_failed_episode_are_harness_failures_in_both_modes(
    tmp_path: Path,
) -> None:
    chat = ChatDouble()
    chat.fail(where(Role.SIMULATOR, task="Help user 1 with errand 2 please."), Reason.REFUSAL)
    b = await attributed(tmp_path / "run", chat)
    rows = b.rows("attributions", dimension="tide_knowledge")
    assert [(r["access_mode"], r["label"], r["reason"]) for r in rows] == [
        (DUMP, "harness_failure", "refusal"),
        (RETRIEVE, "harness_failure", "refusal"),
    ]
    asked = {r.variables["dimension"] for r in chat.of(Role.DISCLOSURE, Role.SUBCLASS)}
    assert "tide_knowledge" not in asked


async def test_disclosure_is_judged_on_the_episode_of_the_target_in_both_modes(
    tmp_path: Path,
) -> None:
    """The published retrieve rows were judged on empty transcripts; here both read the dialogue."""
    b = await attributed(tmp_path / "run")
    asked = b.chat.of(Role.DISCLOSURE, Role.SUBCLASS)
    assert len(asked) == 6 * 2 * 2
    for request in asked:
        task = request.variables["task"]
        number = 1 + [d for _, d in LAYOUT].index(request.variables["dimension"])  # type: ignore[arg-type]
        assert task == f"Help user 1 with errand {number} please."
        assert request.variables["transcript"] == [
            {"assistant": f"Advice {n} on: {task}", "user": f"Reaction {n} to: {task}"}
            for n in (1, 2)
        ]
        assert f"Reaction 2 to: {task}" in request.messages[1].content


async def test_published_retrieve_rows_are_judged_on_nothing(tmp_path: Path) -> None:
    chat = ChatDouble()
    chat.answer(Role.DISCLOSURE, lambda r: {"disclosed": bool(r.variables["transcript"])})
    b = await attributed(tmp_path / "run", chat, protocol="paper")
    labels = {(r["access_mode"], r["label"]) for r in b.rows("attributions")}
    assert labels == {(DUMP, "memory_failure"), (RETRIEVE, "unclassified")}
    sizes = [len(r.variables["transcript"]) for r in b.chat.of(Role.DISCLOSURE)]  # type: ignore[arg-type]
    assert sorted(sizes) == [0] * 6 + [2] * 6


async def test_oracle_is_asked_once_for_all_systems_and_modes(tmp_path: Path) -> None:
    b = await attributed(tmp_path / "run", systems=("nomem", "longctx_full", "rag"))
    assert len(b.chat.of(Role.ORACLE)) == 6
    assert len(b.rows("attributions")) == 6 * 5
    used = {(r["dimension"], r["oracle_call"]) for r in b.rows("attributions")}
    assert used == {(r["dimension"], r["call_id"]) for r in b.rows("oracle_verdicts")}


async def test_a_retry_after_an_outage_gives_the_whole_result(tmp_path: Path) -> None:
    whole = await attributed(tmp_path / "whole", script())
    chat = script()
    chat.fail(where(Role.DISCLOSURE, dimension="tone_wish"), Reason.TIMEOUT, times=1)
    b = await attributed(tmp_path / "run", chat)
    labels = [r["label"] for r in b.rows("attributions")]
    assert labels.count(AttributionLabel.HARNESS_FAILURE.value) == 1
    await attribute_user(b.context, "longctx_full", "user_001")
    assert b.rows("attributions") == whole.rows("attributions")
    asked = len(chat.requests)
    await attribute_user(b.context, "longctx_full", "user_001")
    assert len(chat.requests) == asked


async def test_verdicts_that_are_tried_again_are_attributed_again(tmp_path: Path) -> None:
    """As published an outage scores 0; the next invocation must not keep the label it led to."""
    whole = await attributed(tmp_path / "whole", script(), protocol="paper")
    chat = script()
    chat.fail(where(Role.JUDGE, dimension="knot_skill"), Reason.PROVIDER_ERROR, times=2)
    b = await attributed(tmp_path / "run", chat, protocol="paper")
    assert "ok" not in {r["label"] for r in b.rows("attributions")}
    await recover_user(b.context, "longctx_full", "user_001")
    await attribute_user(b.context, "longctx_full", "user_001")
    assert b.rows("attributions") == whole.rows("attributions")


async def test_budget_goes_through(tmp_path: Path) -> None:
    chat = ChatDouble()
    chat.exhaust_budget(where(Role.SUBCLASS))
    with pytest.raises(BudgetExceeded):
        await attributed(tmp_path / "run", chat)


async def test_recovery_rate_is_ok_against_memory_failures(tmp_path: Path) -> None:
    """ok / (ok + memory failures): one of two here; what was not measured counts nowhere."""
    chat = script()
    chat.fail(where(Role.SUBCLASS, dimension="tone_wish"), Reason.REFUSAL)
    b = await attributed(tmp_path / "run", chat)
    score_run(b.context.store)
    found = b.rows("metrics", metric="recovery_rate")
    assert [(r["access_mode"], r["value"], r["n_scored"], r["n_total"]) for r in found] == [
        (DUMP, 0.5, 5, 6),
        (RETRIEVE, 0.5, 5, 6),
    ]
