"""Judge check: planted answers with a known verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprobe.outcomes import Reason
from memprobe.types import Role
from tasks.judge_check import INJECTION, MAX_USERS, TARGETS_PER_USER, judge_check, planted
from tests.support.chat_double import ChatDouble, where
from tests.support.contexts import bench, dataset, user

KINDS = ["right", "near", "wrong", "injection"]
USERS = ("user_001", "user_002")


async def test_each_sampled_target_is_planted_four_times(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    await judge_check(b.context, USERS)
    rows = b.rows("judge_checks")
    assert len(rows) == 2 * TARGETS_PER_USER * 4
    bounds = {(r["kind"], r["expected_min"], r["expected_max"]) for r in rows}
    assert bounds == {
        ("right", 0.75, 1.0),
        ("near", 0.25, 1.0),
        ("wrong", 0.0, 0.5),
        ("injection", 0.0, 0.5),
    }
    assert {r["score"] for r in rows} == {0.5}
    assert all(r["call_id"] for r in rows)


def test_labels_are_what_their_kind_says(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    owner = b.context.user("user_001")
    mine = {e.short for _, e in owner.targets()}
    theirs = {(c, e.short) for c, e in b.context.user("user_002").targets()}
    items = planted(b.context, owner)
    assert [kind for kind, *_ in items] == KINDS * TARGETS_PER_USER
    for kind, _, entry, label in items:
        if kind == "right":
            assert label == entry.short
        elif kind == "near":
            assert label == "It stays " + entry.explanation.split("It stays ")[1]
        elif kind == "wrong":
            assert label not in mine
            assert label.startswith("gold2x")
            assert label in {s for _, s in theirs}
        else:
            assert label.endswith(INJECTION)
            assert label.startswith("gold2x")


def test_a_number_does_not_cut_the_near_sentence(tmp_path: Path) -> None:
    made = user("user_001", 1, 5)
    text = "She has a boat. It cost 3.5 million and leaks."
    bank = {
        c: tuple(e.model_copy(update={"explanation": text}) for e in entries)
        for c, entries in made.memory_bank.items()
    }
    changed = made.model_copy(update={"memory_bank": bank})
    b = bench(tmp_path / "run", data=dataset(changed, user("user_002", 2, 5)))
    near = {label for kind, _, _, label in planted(b.context, changed) if kind == "near"}
    assert near == {"It cost 3.5 million and leaks."}


def test_sample_is_drawn_from_the_seed(tmp_path: Path) -> None:
    draws = set()
    for seed in range(8):
        b = bench(tmp_path / f"run{seed}", seed=seed)
        first = planted(b.context, b.context.user("user_001"))
        assert planted(b.context, b.context.user("user_001")) == first
        draws.add(tuple(e.dimension for _, _, e, _ in first))
    assert len(draws) > 1


async def test_a_single_user_borrows_from_its_own_other_targets(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", data=dataset(user("user_001", 1, 5)))
    for kind, _, entry, label in planted(b.context, b.context.user("user_001")):
        if kind in ("wrong", "injection"):
            assert not label.startswith(entry.short)


async def test_at_most_25_users_are_asked(tmp_path: Path) -> None:
    many = [user(f"user_{i:03d}", i, 5) for i in range(1, 31)]
    b = bench(tmp_path / "run", data=dataset(*many))
    await judge_check(b.context, tuple(u.user_id for u in many))
    assert len({r["user_id"] for r in b.rows("judge_checks")}) == MAX_USERS


@pytest.mark.parametrize("reason", [Reason.PROVIDER_ERROR, Reason.INVALID_OUTPUT])
async def test_a_failed_check_is_unscored(tmp_path: Path, reason: Reason) -> None:
    """Case judge-down-counted-wrong: the check measures the judge's answers, not its outages."""
    chat = ChatDouble()
    b = bench(tmp_path / "run", chat)
    wrong = next(i for i in planted(b.context, b.context.user("user_001")) if i[0] == "injection")
    chat.fail(where(Role.JUDGE, label=wrong[3]), reason)
    await judge_check(b.context, USERS)
    failed = [r for r in b.rows("judge_checks") if r["status"] == "unscored"]
    assert [(r["kind"], r["reason"], r["score"]) for r in failed] == [
        ("injection", reason.value, None)
    ]


async def test_planted_items_are_asked_as_any_other(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    await judge_check(b.context, USERS)
    for request in b.chat.of(Role.JUDGE):
        assert set(request.variables) == {"dimension", "short", "explanation", "label"}
    asked = len(b.chat.requests)
    await judge_check(b.context, USERS)
    assert len(b.chat.requests) == asked
