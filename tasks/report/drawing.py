"""What the report's charts are made of: figures of plotly.js, and how their traces are told apart.

A trace names its colour by its place in the page's palette (`meta.colour`); symbols
and hatching repeat the distinction. Chart text is escaped here, as plotly.js reads a
small HTML in labels.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.report.data import Row

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
HATCHES = ("", "/", "x", "\\", ".", "-", "+")
Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with what a screen reader says of it and the table that holds its numbers."""

    id: str
    title: str
    says: str
    figure: Figure
    table: str
    height: int


def label(text: Any) -> str:
    """A text that plotly.js draws as it is."""
    return html.escape(str(text), quote=False)


def trace_of(place: int, **fields: Any) -> Figure:
    """A trace in the colour of its place in the palette."""
    return {"meta": {"colour": place}, **fields}


def figure_of(data: list[Figure], **layout: Any) -> Figure:
    """Traces and their layout; the page adds colours, fonts and margins."""
    return {"data": data, "layout": layout}


def tall(rows: int, each: int = 34) -> int:
    """Height in pixels of a chart with that many rows."""
    return 110 + each * max(rows, 3)


def heat(
    id_: str,
    title: str,
    says: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    table: str,
    each: int = 34,
) -> Chart:
    """A map of shares (0 to 1) with their texts, `each` pixels a row; all is escaped already."""
    trace = {
        "type": "heatmap",
        "x": list(columns),
        "y": list(rows),
        "z": [list(line) for line in cells],
        "zmin": 0,
        "zmax": 1,
        "colorscale": "Cividis",
        "text": [list(line) for line in texts],
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": "mean"}, "thickness": 12},
    }
    figure = figure_of(
        [trace],
        yaxis={"type": "category", "autorange": "reversed"},
        xaxis={"side": "top"},
        margin={"t": 72, "b": 12},
    )
    return Chart(id_, title, says, figure, table, tall(len(rows), each))


SCORE_AXIS = {"range": [-0.03, 1.03], "title": {"text": "B, mean score (0 to 1)"}}


def interval_text(row: Row) -> str:
    """B with its interval as a hover text; the interval is left out where there is none."""
    if row["b_lo"] is None or row["b_hi"] is None:
        return f"{row['b_mean']:.3f}"
    return f"{row['b_mean']:.3f} [{row['b_lo']:.3f}, {row['b_hi']:.3f}]"
