"""The corrections as text, CSV, LaTeX and JSON facts, to stand below the published tables."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from tasks.corrections import Corrections
from tasks.report.corrected import all_tables
from tasks.report.tables import Table, defuse, tex, to_tex


def _text(table: Table) -> list[str]:
    head = [column.head for column in table.columns]
    body = [table.cells(row) for row in table.rows]
    if not body:
        return [table.title, f"  {table.empty}", ""]
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    out = [table.title]
    for row in [head, *body]:
        cells = (
            cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        )
        out.append("  ".join(" ".join(cell.splitlines()) or cell for cell in cells).rstrip())
    return [*out, *(f"  {note}" for note in table.notes), ""]


def to_text(found: Corrections) -> str:
    """Why in one line a correction, then the corrected tables."""
    lines = ["Corrections (protocol strict)", *(f"  {note.line}" for note in found.notes), ""]
    for table in all_tables(found):
        lines += _text(table)
    return "\n".join(lines)


def to_csv(found: Corrections) -> str:
    """One line a figure in the columns of the published tables' CSV, without its head.

    The row is made of the table's texts up to its first figure; other texts (an n, a
    reason) are lines of their own. Intervals become two lines, `_lo` and `_hi`.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for note in found.notes:
        for part in ("state", "says", "assumption", "n"):
            if text := str(getattr(note, part)):
                writer.writerow(["strict-why", note.id, part, defuse(text), "", "", ""])
    for table in all_tables(found):
        keys = _row_columns(table)
        for row in table.rows:
            label = defuse(" ".join(str(row[key]) for key in keys))
            for column in table.columns:
                if column.key in keys:
                    continue
                value: Any = row.get(column.key)
                parts: list[tuple[str, Any]] = [(column.key, value)]
                if column.kind == "interval":
                    low, high = (None, None) if value is None else value
                    parts = [(f"{column.key}_lo", low), (f"{column.key}_hi", high)]
                for cell, figure in parts:
                    shown = defuse(figure) if isinstance(figure, str) else figure
                    filled = "" if shown is None else shown
                    writer.writerow([table.id, label, cell, filled, "", "", ""])
    return out.getvalue()


def _row_columns(table: Table) -> list[str]:
    """The columns that name a row: the texts before the first figure."""
    named = ("system", "read", "figure", "first", "second")
    return [column.key for column in table.columns if column.key in named]


def to_latex(found: Corrections) -> str:
    """A booktabs table each; why stands before them as a list."""
    items = [rf"\item \textbf{{{tex(n.id)}}} {tex(n.line.partition(' ')[2])}" for n in found.notes]
    lines = [r"\begin{itemize}", *items, r"\end{itemize}", ""]
    return "\n".join([*lines, *(to_tex(table) for table in all_tables(found))])


def facts(found: Corrections) -> dict[str, Any]:
    """The corrections as plain values: notes, and tables as lists of rows by column."""
    return {
        "protocol": "strict",
        "layer": found.layer,
        "seed": found.seed,
        "notes": [asdict(note) for note in found.notes],
        "tables": {
            table.id: [
                {column.key: row.get(column.key) for column in table.columns} for row in table.rows
            ]
            for table in all_tables(found)
        },
    }
