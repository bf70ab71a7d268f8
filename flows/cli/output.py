"""What goes to stdout: tables for people, JSON for machines. Diagnostics go to stderr."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def note(message: str) -> None:
    """A diagnostic line on stderr."""
    print(message, file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """A text without control characters: what a model wrote must not drive the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def emit_json(value: Any) -> None:
    """One JSON document on stdout; NaN and infinities become null."""
    print(json.dumps(_finite(value), ensure_ascii=False, indent=2, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    title: str = "",
    *,
    fit: bool = False,
) -> None:
    """A table for people on stdout; nothing in it is read as markup.

    With `fit` a row is one line of the terminal, and cells that are too long are cut.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    fit = fit and console.is_terminal
    texts = [[plain(cell(value)) for value in row] for row in rows]
    if fit:
        texts = [[" ".join(text.splitlines()) for text in row] for row in texts]
    # A title wider than its table is left to the terminal to wrap.
    heading = Text(title, no_wrap=True, overflow="ignore") if title else None
    shape = Table(box=SIMPLE, title=heading, title_justify="left")
    for i, name in enumerate(columns):
        numeric = any(isinstance(row[i], (int, float)) for row in rows)
        shape.add_column(
            Text(plain(name)),
            justify="right" if numeric else "left",
            overflow="ellipsis" if fit else "fold",
            no_wrap=fit,
        )
    for row in texts:
        shape.add_row(*map(Text, row))
    if fit:
        if shape.__rich_measure__(console, console.options.update(width=10_000)).maximum > (
            console.width
        ):
            note("memprobe: cells are cut to the terminal; --format json or csv has them whole")
        console.print(shape)
        return
    # A file or a pipe has no width; on a narrow terminal a long table is better than split words.
    widest = NARROW if console.is_terminal else WIDE
    needed = _width(columns, rows, widest)
    console.width = max(console.width, needed) if console.is_terminal else max(80, needed)
    console.print(shape)


NARROW, WIDE = 20, 400


def _width(columns: Sequence[str], rows: Sequence[Sequence[Any]], widest: int) -> int:
    """Columns of a terminal that a table takes when no cell may be wider than `widest`."""
    widths = [len(name) for name in columns]
    for row in rows:
        widths = [max(w, len(cell(v))) for w, v in zip(widths, row, strict=True)]
    return min(sum(min(w, widest) for w in widths) + 4 * len(widths) + 4, 600)


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], style: str) -> None:
    """A query's result on stdout as `table`, `csv`, `json` or `md`."""
    match style:
        case "json":
            emit_json([dict(zip(columns, row, strict=True)) for row in rows])
        case "csv":
            buffer = io.StringIO()
            writer = csv.writer(buffer, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([["" if v is None else v for v in row] for row in rows])
            sys.stdout.write(buffer.getvalue())
        case "md":
            print("| " + " | ".join(_markdown(c) for c in columns) + " |")
            print("|" + " --- |" * len(columns))
            for row in rows:
                print("| " + " | ".join(_markdown(cell(v)) for v in row) + " |")
        case _:
            table(columns, rows, fit=True)


def _markdown(text: str) -> str:
    escaped = plain(text).replace("\\", "\\\\").replace("|", "\\|")
    return escaped.replace("\n", "<br>").replace("\r", "")
