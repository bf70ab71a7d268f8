"""The rows of a run's summary as a table for people, by suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def counted(n: int, one: str, many: str) -> str:
    """`1 unit holds`, `2 units hold`."""
    return f"{n} {one if n == 1 else many}"


def summary_table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and cells; which suite the rows are of shows in their fields."""
    if rows and "sp_balance" in rows[0]:
        return _paradigms(rows)
    return _recovery(rows)


def _mode(row: dict[str, Any]) -> str:
    return str(row["access_mode"] if row["k"] is None else f"{row['access_mode']}@{row['k']}")


def _recovery(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    columns = ["system", "mode", "users", "scored", "B", "95 %", "A %", "C", "D", "items"]
    return columns, [
        [
            row["system"],
            _mode(row),
            row["n_users"],
            f"{row['n_scored']}/{row['n_total']}",
            row["b_mean"],
            None if row["b_lo"] is None else f"{row['b_lo']:.3f} to {row['b_hi']:.3f}",
            row["a_pct"],
            row["c_mean"],
            row["d_mean"],
            row["items_mean"],
        ]
        for row in rows
    ]


def _paradigms(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    columns = [
        *("system", "mode", "episodes", "scored", "accuracy", "plasticity", "stability"),
        *("SP-balance", "partial", "items"),
    ]
    return columns, [
        [
            row["system"],
            _mode(row),
            row["n_episodes"],
            f"{row['n_scored']}/{row['n_total']}",
            row["accuracy"],
            row["plasticity"],
            row["stability"],
            row["sp_balance"],
            row["partial"],
            row["items_mean"],
        ]
        for row in rows
    ]
