"""A cost limit that several processes share over one ledger."""

from __future__ import annotations

import pytest

from adapters.models import budget as module
from adapters.models.budget import Budget
from adapters.models.prices import Price
from memprobe.errors import BudgetExceeded


class Spent:
    """What the ledger says, and how often it was asked."""

    def __init__(self) -> None:
        self.dollars = 0.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.dollars


def ask(budget: Budget, price: Price) -> None:
    with budget.reserve("m", price, lambda: 1_000, 1_000):
        pass


@pytest.fixture
def price() -> Price:
    return Price(prompt=1e-3, completion=1e-3, cached=None, date="2031-01-01")


def test_what_another_process_spent_counts_when_the_limit_is_shared(
    price: Price, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    spent = Spent()
    alone, shared = Budget(5.0, spent), Budget(5.0, spent)
    shared.shared = True
    ask(shared, price)
    assert spent.asked == 2
    spent.dollars = 4.0
    now[0] += module.REREAD_S
    with pytest.raises(BudgetExceeded, match=r"\$4.0000 spent"):
        ask(shared, price)
    # Not for every call: the sum is read about once a second.
    spent.dollars = 0.0
    with pytest.raises(BudgetExceeded):
        ask(shared, price)
    assert spent.asked == 3
    now[0] += module.REREAD_S
    ask(shared, price)
    ask(alone, price)
    assert spent.asked == 4
