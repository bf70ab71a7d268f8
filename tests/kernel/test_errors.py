"""Errors that cross a process boundary come back as they were."""

from __future__ import annotations

import pickle

from memprobe.errors import AdapterError, BudgetExceeded, CallFailed
from memprobe.outcomes import Reason


def test_a_failed_call_comes_back_from_another_process_with_its_reason() -> None:
    sent = CallFailed(Reason.TIMEOUT, "after 120 s", "key")
    back = pickle.loads(pickle.dumps(sent))
    assert type(back) is CallFailed
    assert (back.reason, back.detail, back.call_id) == (Reason.TIMEOUT, "after 120 s", "key")
    assert str(back) == str(sent)


def test_a_cost_limit_comes_back_as_one() -> None:
    back = pickle.loads(pickle.dumps(BudgetExceeded("would pass the limit")))
    assert type(back) is BudgetExceeded
    assert (str(back), back.detail) == ("would pass the limit", "would pass the limit")


def test_an_error_with_a_text_alone_comes_back() -> None:
    assert str(pickle.loads(pickle.dumps(AdapterError("broken")))) == "broken"
