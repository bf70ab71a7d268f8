"""How a flow run ends: what was not measured must not look completed to a scheduler."""

import pytest

from flows.conducting import ending
from flows.outcome import RunResult


def result(status: str, share: float) -> RunResult:
    return RunResult(
        run="t",
        location="runs/t",
        status=status,
        new_calls=0,
        ledger_hits=0,
        units_done=3,
        units_total=4,
        unscored={"verdicts/provider_error": 9} if share else {},
        error_share=share,
        report=None,
        catalog=None,
        summary=[],
    )


@pytest.mark.parametrize(
    ("status", "share", "name", "said"),
    [
        ("complete", 0.0, "Completed", "complete"),
        ("complete", 0.05, "Completed", "complete"),
        ("complete", 0.5, "Failed", "50.0% of the items could not be scored"),
        ("incomplete", 0.0, "Failed", "3 of 4 units"),
        ("interrupted", 0.0, "Failed", "interrupted"),
    ],
)
def test_the_state_of_a_flow_run(status: str, share: float, name: str, said: str) -> None:
    state = ending(result(status, share), 0.05)
    assert state.name == name
    assert said in (state.message or "")
