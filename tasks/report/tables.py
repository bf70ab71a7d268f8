"""Tables of a report: one description, written as HTML, CSV, LaTeX and Markdown.

A cell holds a value, never text made for one of the formats; each format
escapes for itself. An absent value is an em dash (`-` in LaTeX dashes), never 0.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["text", "int", "score", "percent", "number", "count", "seconds", "usd", "interval"]
ABSENT = "—"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in the rows, its head, and how its values are written.

    `interval` columns hold (low, high); `usd` columns hold None for a cost that
    nobody knows, which is written as `unknown` and never as 0.
    """

    key: str
    head: str
    kind: Kind = "text"
    note: str = ""

    @property
    def numeric(self) -> bool:
        return self.kind != "text"


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table. `empty` is said in place of the rows when there are none."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = field(default=())
    empty: str = "no scored samples"

    def cells(self, row: Mapping[str, Any]) -> list[str]:
        """A row as display texts, unescaped."""
        return [display(row.get(column.key), column.kind) for column in self.columns]


def display(value: Any, kind: Kind) -> str:
    """One value as a reader sees it; None is a dash, an unknown cost is `unknown`."""
    if value is None:
        return UNKNOWN if kind == "usd" else ABSENT
    if kind == "interval":
        low, high = value
        return ABSENT if low is None or high is None else f"[{low:.3f}, {high:.3f}]"
    if kind == "text":
        return str(value)
    if kind == "int":
        return f"{int(value):,}"
    if kind == "score":
        return f"{value:.3f}"
    if kind == "count":
        return f"{value:,.1f}"
    if kind == "percent":
        return f"{value:.1f} %"
    if kind == "usd":
        return f"${value:,.4f}"
    if kind == "seconds":
        return _seconds(value)
    return f"{value:,.2f}"


def _seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.2f} s"


def to_csv(table: Table) -> str:
    """CSV with full precision. Cells that a spreadsheet would run as a formula are quoted.

    Intervals become two columns; the cost of an unknown price is the word `unknown`.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180; also makes it quote a lone return
    head: list[str] = []
    for column in table.columns:
        if column.kind == "interval":
            head += [f"{column.key}_lo", f"{column.key}_hi"]
        else:
            head.append(column.key)
    writer.writerow(head)
    for row in table.rows:
        cells: list[str] = []
        for column in table.columns:
            value = row.get(column.key)
            if column.kind == "interval":
                cells += [_plain(v, "number") for v in (value or (None, None))]
            else:
                cells.append(_plain(value, column.kind))
        writer.writerow(cells)
    return out.getvalue()


def _plain(value: Any, kind: Kind) -> str:
    if value is None:
        return UNKNOWN if kind == "usd" else ""
    if kind == "text":
        return defuse(str(value))
    return repr(float(value)) if isinstance(value, float) else str(value)


def defuse(text: str) -> str:
    """A text that no spreadsheet takes for a formula (OWASP: =, +, -, @, tab, return)."""
    return f"'{text}" if text.lstrip(" ")[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") else text


_MD = re.compile(r"([\\`*_\[\]<>#|~&$])")


def md(text: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    return _MD.sub(r"\\\1", " ".join(text.split()))


def to_markdown(table: Table, level: int = 2) -> str:
    """A pipe table under its title, notes below."""
    lines = [f"{'#' * level} {md(table.title)}", ""]
    if not table.rows:
        lines += [md(table.empty), ""]
    else:
        lines.append("| " + " | ".join(md(c.head) for c in table.columns) + " |")
        lines.append("|" + "|".join("---:" if c.numeric else "---" for c in table.columns) + "|")
        lines += ["| " + " | ".join(map(md, table.cells(row))) + " |" for row in table.rows]
        lines.append("")
    for note in table.notes:
        lines += [md(note), ""]
    return "\n".join(lines)


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "—": "---",
    "µ": r"$\mu$",
    "[": "{[}",
    "]": "{]}",
}


def tex(text: str) -> str:
    """A text that LaTeX sets as it is. Brackets are grouped: after `\\\\` they would be options."""
    return "".join(_TEX.get(char, char) for char in " ".join(text.split()))


def to_tex(table: Table) -> str:
    """A booktabs table; needs `\\usepackage{booktabs}`."""
    spec = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(table.title)}}}",
        rf"\label{{tab:{re.sub('[^a-z0-9]+', '-', table.id.lower())}}}",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
        " & ".join(tex(column.head) for column in table.columns) + r" \\",
        r"\midrule",
    ]
    if table.rows:
        lines += [" & ".join(map(tex, table.cells(row))) + r" \\" for row in table.rows]
    else:
        lines.append(rf"\multicolumn{{{len(spec)}}}{{l}}{{{tex(table.empty)}}} \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {tex(note)}" for note in table.notes]
    lines += [r"\end{table}", ""]
    return "\n".join(lines)


WRITERS = {"csv": to_csv, "tex": to_tex, "md": to_markdown}
