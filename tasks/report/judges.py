"""The report's tables on judges: how far two agree, and which way their labels point."""

from __future__ import annotations

import json
from typing import Any

from memprobe.metrics import SCALE
from tasks.report.data import ReportData, Row, way_name
from tasks.report.tables import Column, Table

_POINTS = [f"{point:g}" for point in SCALE]


def layer_name(data: ReportData, layer: str) -> str:
    """A layer as the user knows it: an import's own name stands for `base`."""
    origin = data.manifest.origin
    return origin.layer if origin is not None and layer == "base" else layer


def _interval(row: Row, name: str) -> tuple[float, float] | None:
    lo, hi = row[f"{name}_lo"], row[f"{name}_hi"]
    return None if lo is None else (lo, hi)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _judges(data: ReportData, row: Row) -> dict[str, Any]:
    return {name: layer_name(data, row[name]) for name in ("first", "second")}


def agreement(data: ReportData) -> Table | None:
    """Kappa, errors and the threshold of every pair of judges; None without a second judge."""
    rows = [
        {
            **_judges(data, row),
            "system": row["system"] or "all",
            "read": way_name(row["access_mode"], row["k"]),
            "items": row["n_items"],
            "users": row["n_users"],
            "kappa": row["kappa"],
            "interval": _interval(row, "kappa"),
            "error": row["mean_error"],
            "shift": row["shift"],
            "exact": _percent(row["exact"]),
            "threshold": _percent(row["threshold"]),
            "first_passed": _percent(row["first_passed"]),
            "second_passed": _percent(row["second_passed"]),
        }
        for row in data.agreement
        if row["scope"] == "judged"
    ]
    if not rows:
        return None
    return Table(
        "judge-agreement",
        "Agreement of judges",
        (
            Column("first", "Judge"),
            Column("second", "Other judge"),
            Column("system", "System"),
            Column("read", "Read"),
            Column("items", "Items", "int"),
            Column("users", "Users", "int"),
            Column("kappa", "Kappa", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("error", "Mean error", "score"),
            Column("shift", "First - other", "score"),
            Column("exact", "Same score", "percent"),
            Column("threshold", "Same side of 0.75", "percent"),
            Column("first_passed", "Judge: 0.75 or more", "percent"),
            Column("second_passed", "Other: 0.75 or more", "percent"),
        ),
        rows,
        (
            "Labels that both judges scored, without the label unknown, which scores 0 by rule. "
            "Kappa: quadratic weighted (Cohen 1968); intervals resample users. Disagreements are "
            "in the case browser under Check, and in the view judge_disagreements.",
        ),
    )


def confusion(data: ReportData) -> Table | None:
    """Both judges' scores against each other, over all systems."""
    rows: list[Row] = []
    for row in data.agreement:
        if row["scope"] != "judged" or row["system"] is not None:
            continue
        for point, counts in zip(_POINTS, json.loads(row["confusion_json"]), strict=True):
            cells = dict(zip((f"other_{p}" for p in _POINTS), counts, strict=True))
            rows.append({**_judges(data, row), "score": point, **cells, "total": sum(counts)})
    if not rows:
        return None
    return Table(
        "judge-confusion",
        "Scores of two judges",
        (
            Column("first", "Judge"),
            Column("second", "Other judge"),
            Column("score", "Judge's score"),
            *(Column(f"other_{p}", f"Other: {p}", "int") for p in _POINTS),
            Column("total", "Items", "int"),
        ),
        rows,
        ("Rows are the first judge's scores, columns the other's.",),
    )


def polarity(data: ReportData) -> Table | None:
    """Which way labels of directional dimensions point; None where that was not read."""
    if not data.polarity:
        return None
    rows = [
        {
            "layer": layer_name(data, row["layer"]),
            "method": row["method"],
            "system": row["system"],
            "read": way_name(row["access_mode"], row["k"]),
            "scored": f"{row['n_scored']:,}/{row['n_total']:,}",
            **{name: row[name] for name in ("agrees", "opposite", "unclear")},
            "opposite_half": row["opposite_yet_half_right"],
            "agrees_wrong": row["agrees_yet_wrong"],
        }
        for row in data.polarity
    ]
    return Table(
        "polarity",
        "Direction of the labels",
        (
            Column("layer", "Verdicts"),
            Column("method", "Read by"),
            Column("system", "System"),
            Column("read", "Read"),
            Column("scored", "Scored n/N"),
            Column("agrees", "Agrees", "int"),
            Column("opposite", "Opposite", "int"),
            Column("unclear", "Unclear", "int"),
            Column("opposite_half", "Opposite, yet 0.5 or more", "int"),
            Column("agrees_wrong", "Agrees, yet 0", "int"),
        ),
        rows,
        (
            "Labels of dimensions whose axis has two ends, read against both. It changes no "
            "score: the last two columns are verdicts to look at, in the case browser under "
            "Check and in the view polarity_conflicts. The embedded reading finds few of the "
            "opposites and flags some labels wrongly; see the limits.",
        ),
    )
