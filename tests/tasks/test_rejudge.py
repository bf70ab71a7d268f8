"""Judging again: what was never measured keeps its outcome and its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.rejudge import _again
from tests.support.contexts import bench


@pytest.mark.parametrize(
    ("label", "status", "reason", "kept"),
    [
        ("unknown", "scored", "store_overflow", True),
        ("unknown", "scored", None, False),
        (None, "unscored", "provider_error", True),
        ("keeps bees", "unscored", "provider_error", False),
    ],
)
async def test_a_reason_stays_where_there_was_no_measurement(
    tmp_path: Path, label: str | None, status: str, reason: str | None, kept: bool
) -> None:
    made = bench(tmp_path / "run")
    user = made.context.dataset.users[0]
    category, entry = user.targets()[0]
    row: dict[str, Any] = {
        "system": "rag",
        "user_id": user.user_id,
        "epoch": 1,
        "layer": "base",
        "access_mode": "dump_all",
        "k": None,
        "category": category.value,
        "dimension": entry.dimension,
        "label": label,
        "score": 0.0 if status == "scored" else None,
        "status": status,
        "reason": reason,
        "detail": None,
        "judge_reason": None,
        "judge_model": "old",
        "call_id": None,
    }
    found = await _again(made.context, user, "second", row)
    assert found["layer"] == "second"
    assert ((found["status"], found["reason"]) == (status, reason)) is (kept or reason is None)
    if not kept:
        assert (found["status"], found["reason"]) == ("scored", None)
