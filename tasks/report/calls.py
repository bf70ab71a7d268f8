"""The run's calls, copied from the ledger into its artifacts."""

from __future__ import annotations

from storage.ledger import Ledger
from storage.runs import RunStore, Unit


def export_calls(store: RunStore, ledger: Ledger) -> int:
    """Commit the `calls` table from the ledger, anew each time; returns the number of rows.

    A ledger may serve many runs; only the calls that this run asked for are copied.
    """
    rows = list(ledger.calls(store.name))
    store.commit(Unit("calls"), "ledger", {"calls": rows})
    return len(rows)
