"""How a run ended, as the command line and the flow report it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from memprobe.outcomes import Reason
from storage.runs import RunStore

MEASURED = ("episodes", "verdicts", "attributions", "oracle_verdicts")
"""Tables whose unscored items count against the error threshold."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """`status` is complete, incomplete or interrupted; `unscored` counts by "table/reason"."""

    run: str
    location: str
    status: str
    new_calls: int
    ledger_hits: int
    units_done: int
    units_total: int
    unscored: dict[str, int]
    error_share: float
    report: str | None
    catalog: str | None
    summary: list[dict[str, Any]]
    failures: list[str] = field(default_factory=list)
    ui_url: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def unscored_counts(store: RunStore) -> tuple[dict[str, int], float]:
    """Unscored items by table and reason, and their share among what is measured.

    What a chosen model cannot judge at all (`not_judged`) is counted and is no error.
    """
    counts: dict[str, int] = {}
    bad = total = 0
    for table in (*MEASURED, "preference_scores"):
        scanned = store.scan(table).select(["status", "reason"])
        pairs = zip(
            scanned.column("status").to_pylist(), scanned.column("reason").to_pylist(), strict=True
        )
        for status, reason in pairs:
            failed = status == "unscored" and reason != Reason.NOT_JUDGED.value
            total += table in MEASURED
            bad += failed and table in MEASURED
            if status == "unscored":
                key = f"{table}/{reason}"
                counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items())), bad / total if total else 0.0
