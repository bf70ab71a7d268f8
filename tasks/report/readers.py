"""The table that sets the whole reading of a store beside the one in parts."""

from __future__ import annotations

from tasks.report.data import ReportData
from tasks.report.tables import Column, Table

ID = "dump-readers"


def table(data: ReportData) -> Table | None:
    """Both readings by system; None for a run that only has the whole one."""
    if not any(row["reader"] == "chunked" for row in data.readers):
        return None
    rows = [
        {
            **row,
            "scored": f"{row['n_scored']:,}/{row['n_total']:,}",
            "coverage": 100 * row["n_scored"] / row["n_total"] if row["n_total"] else None,
            "interval": (row["b_lo"], row["b_hi"]),
            "rate": None if row["recovery_rate"] is None else 100 * row["recovery_rate"],
            "cut": None
            if row["n_stores"] is None
            else f"{row['n_in_parts']:,}/{row['n_stores']:,}",
        }
        for row in data.readers
    ]
    return Table(
        ID,
        "Whole stores, read at once and in parts",
        (
            Column("system", "System"),
            Column("reader", "Reader"),
            Column("n_users", "Users", "int"),
            Column("b_mean", "B", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("scored", "Scored n/N"),
            Column("coverage", "Coverage", "percent"),
            Column("n_overflow", "Larger than the window", "int"),
            Column("rate", "Recovery rate", "percent"),
            Column("cut", "Stores in parts n/N"),
            Column("parts_mean", "Parts per store", "number"),
            Column("parts_max", "Most parts", "int"),
        ),
        rows,
        (
            "whole: the store in one prompt; targets of a store larger than the reader's window "
            "are unscored (store_overflow), never 0. chunked: the store in parts that fit, the "
            "labels of the parts merged; a store that fits has one part and the whole reading. "
            "Compare systems by one reader: users that only chunked could measure are those with "
            "the largest stores.",
            "The published procedure has no chunked reading. It is MemProbe's own, and under "
            "protocol paper it is measured as under strict.",
        ),
    )
