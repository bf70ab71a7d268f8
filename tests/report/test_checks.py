"""What speaks against a verdict in the case browser."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.report.checks import Checks, apart
from tests.storage.rows import Row, verdict


def judged(layer: str, score: float | None, **changes: Any) -> Row:
    row = verdict("a", "u", "self_model", "d", layer=layer, score=score, judge_reason=layer)
    return row | {"judge_model": f"openai/{layer}"} | changes


def direction(polarity: str | None) -> Row:
    names = ("target_pole", "label_pole", "target_said", "label_said", "reason")
    row = judged("base", None)
    return {**row, "method": "embedded", "polarity": polarity, **dict.fromkeys(names)}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (0.75, 0.5, True),
        (0.75, 1.0, False),
        (0.0, 0.25, False),
        (0.0, 0.5, True),
        (None, 1.0, False),
    ],
)
def test_scores_that_are_apart(first: float | None, second: float | None, found: bool) -> None:
    assert apart(first, second) is apart(second, first) is found


def test_a_case_has_the_other_judges_of_its_label_and_no_others() -> None:
    base = judged("base", 1.0)
    rows = [
        base,
        judged("second", 0.0),
        judged("same", 0.0, judge_model="openai/base"),
        judged("reread", 0.0, label="another reading"),
    ]
    parts = Checks(rows, []).of(base)
    assert [other["layer"] for other in parts["others"]] == ["second"]
    assert parts["checks"] == 1
    assert Checks([base], []).of(base) == {}


@pytest.mark.parametrize(
    ("score", "polarity", "bits"),
    [
        (0.5, "opposite", 2),
        (0.25, "opposite", 0),
        (0.0, "agrees", 4),
        (0.25, "agrees", 0),
        (1.0, "unclear", 0),
        (1.0, None, 0),
        (None, "opposite", 0),
    ],
)
def test_the_direction_that_a_verdict_goes_against(
    score: float | None, polarity: str | None, bits: int
) -> None:
    row = judged("base", score)
    parts = Checks([row], [direction(polarity)]).of(row)
    assert parts.get("checks", 0) == bits
    assert parts["polarity"][0]["polarity"] == polarity
