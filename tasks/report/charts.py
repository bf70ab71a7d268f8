"""Charts of the recovery figures, each beside the table that says the same.

What they are made of is in `drawing`; those of sizes and costs are in `budget` and
`ingestion`.
"""

from __future__ import annotations

from collections.abc import Sequence

from memprobe.types import AccessMode, AttributionLabel
from tasks.report import budget, ingestion
from tasks.report.data import CATEGORY_NAMES, ReportData, Row, Running, way_name
from tasks.report.drawing import (
    HATCHES,
    SCORE_AXIS,
    SYMBOLS,
    Chart,
    figure_of,
    heat,
    interval_text,
    label,
    tall,
    trace_of,
)


def _summary_by_way(data: ReportData) -> list[tuple[str, list[Row]]]:
    return [
        (
            way_name(mode, k),
            [
                row
                for row in data.summary
                if (row["access_mode"], row["k"]) == (mode, k) and row["b_mean"] is not None
            ],
        )
        for mode, k in data.ways
    ]


def scores(data: ReportData) -> Chart | None:
    """B of each system with its interval, a marker for each way of reading."""
    traces = []
    for place, (way, rows) in enumerate(_summary_by_way(data)):
        if not rows:
            continue
        bounded = all(row["b_lo"] is not None and row["b_hi"] is not None for row in rows)
        errors = {
            "type": "data",
            "symmetric": False,
            "array": [row["b_hi"] - row["b_mean"] for row in rows] if bounded else [],
            "arrayminus": [row["b_mean"] - row["b_lo"] for row in rows] if bounded else [],
            "thickness": 2,
        }
        traces.append(
            trace_of(
                place,
                type="scatter",
                mode="markers",
                orientation="h",
                name=label(way),
                x=[row["b_mean"] for row in rows],
                y=[label(row["system"]) for row in rows],
                error_x=errors,
                marker={"size": 11, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                text=[interval_text(row) for row in rows],
                hovertemplate="%{y}: %{text}",
            )
        )
    if not traces:
        return None
    figure = figure_of(
        traces,
        xaxis=SCORE_AXIS,
        yaxis={"type": "category", "autorange": "reversed"},
        scattermode="group",
    )
    return Chart(
        "scores",
        "Recovery score by system",
        "Mean recovery score B of each system with 95 % intervals.",
        figure,
        "headline",
        tall(len(data.systems), 30 + 14 * len(traces)),
    )


def heat_map(data: ReportData) -> Chart | None:
    """B by category, a row for each system and way of reading."""
    rows = list(dict.fromkeys((r["system"], r["access_mode"], r["k"]) for r in data.categories))
    if not rows:
        return None
    found = {(r["system"], r["access_mode"], r["k"], r["category"]): r for r in data.categories}
    cells = [
        [found.get((*row, category), {}).get("b_mean") for category in CATEGORY_NAMES]
        for row in rows
    ]
    names = [label(f"{system} · {way_name(mode, k)}") for system, mode, k in rows]
    return heat(
        "heat",
        "Score by category",
        "Mean score of each category of hidden state, by system and way of reading.",
        list(CATEGORY_NAMES.values()),
        names,
        cells,
        [["no score" if v is None else f"{v:.2f}" for v in row] for row in cells],
        "categories",
    )


def slope(data: ReportData) -> Chart | None:
    """Whole store against the deepest top-k: what retrieval loses."""
    whole = {r["system"]: r for r in data.summary if r["access_mode"] == AccessMode.DUMP_ALL.value}
    measured = sorted({k for _, k in data.ways if k is not None})
    depths = measured[-1:]
    traces = []
    for place, system in enumerate(data.systems):
        points = [("whole store", whole.get(system))]
        points += [
            (
                f"top-{k}",
                next((r for r in data.summary if r["system"] == system and r["k"] == k), None),
            )
            for k in depths
        ]
        drawn = [(x, row) for x, row in points if row is not None and row["b_mean"] is not None]
        if len(drawn) < 2:
            continue
        traces.append(
            trace_of(
                place,
                type="scatter",
                mode="lines+markers",
                name=label(system),
                x=[x for x, _ in drawn],
                y=[row["b_mean"] for _, row in drawn],
                marker={"size": 10, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                text=[interval_text(row) for _, row in drawn],
                hovertemplate="%{x}: %{text}",
            )
        )
    if not traces:
        return None
    order = ["whole store", *(f"top-{k}" for k in depths)]
    figure = figure_of(
        traces,
        yaxis=SCORE_AXIS,
        xaxis={"type": "category", "categoryorder": "array", "categoryarray": order},
    )
    title = f"Whole store against top-{depths[0]}"
    if len(measured) > 1:
        title += f", the largest k of {', '.join(map(str, measured))}"
    return Chart(
        "slope",
        title,
        f"Score when the whole store is read, and when at most {depths[0]} items are retrieved.",
        figure,
        "headline",
        380,
    )


def sweep(data: ReportData) -> Chart | None:
    """B over k, when a run has several."""
    depths = sorted({k for _, k in data.ways if k is not None})
    if len(depths) < 2:
        return None
    traces = []
    for place, system in enumerate(data.systems):
        rows = sorted(
            (
                r
                for r in data.summary
                if r["system"] == system and r["k"] is not None and r["b_mean"] is not None
            ),
            key=lambda r: int(r["k"]),
        )
        if rows:
            traces.append(
                trace_of(
                    place,
                    type="scatter",
                    mode="lines+markers",
                    name=label(system),
                    x=[r["k"] for r in rows],
                    y=[r["b_mean"] for r in rows],
                    marker={"size": 9, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                    text=[interval_text(r) for r in rows],
                    hovertemplate="k=%{x}: %{text}",
                )
            )
    if not traces:
        return None
    axis = {"title": {"text": "k, items retrieved"}, "tickvals": depths}
    return Chart(
        "sweep",
        "Score over k",
        "Mean recovery score against the number of items retrieved.",
        figure_of(traces, xaxis=axis, yaxis=SCORE_AXIS),
        "headline",
        380,
    )


LABEL_NAMES = {
    AttributionLabel.OK.value: "recovered",
    AttributionLabel.MEMORY_FAILURE.value: "lost by the memory",
    AttributionLabel.AGENT_ELICITATION_FAILURE.value: "never elicited by the agent",
    AttributionLabel.SIMULATOR_TOO_STRICT.value: "withheld by the user",
    AttributionLabel.TASK_DESIGN_FAILURE.value: "task could not invite it",
    AttributionLabel.NO_TARGETED_TASK.value: "no task for it",
    AttributionLabel.UNCLASSIFIED.value: "unclassified",
    AttributionLabel.HARNESS_FAILURE.value: "not measured",
}


def attribution(data: ReportData) -> Chart | None:
    """Who lost what was not recovered, in shares of the targets."""
    totals: dict[tuple[str, str, int | None], int] = {}
    for row in data.attribution:
        key = (row["system"], row["access_mode"], row["k"])
        totals[key] = totals.get(key, 0) + row["n"]
    keys = [key for key in totals if totals[key]]
    if not keys:
        return None
    found = {(r["system"], r["access_mode"], r["k"], r["label"]): r["n"] for r in data.attribution}
    names = [label(f"{system} · {way_name(mode, k)}") for system, mode, k in keys]
    traces = []
    for place, (value, name) in enumerate(LABEL_NAMES.items()):
        counts = [found.get((*key, value), 0) for key in keys]
        if not any(counts):
            continue
        traces.append(
            trace_of(
                place,
                type="bar",
                orientation="h",
                name=name,
                y=names,
                x=[100 * n / totals[key] for n, key in zip(counts, keys, strict=True)],
                text=[f"{n} of {totals[key]}" for n, key in zip(counts, keys, strict=True)],
                textposition="none",
                hovertemplate="%{y}: %{x:.1f} % (%{text})",
                marker={"pattern": {"shape": HATCHES[place % len(HATCHES)], "solidity": 0.25}},
            )
        )
    figure = figure_of(
        traces,
        barmode="stack",
        xaxis={"range": [0, 100], "title": {"text": "% of targets"}},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return Chart(
        "attribution",
        "Targets by attribution label",
        "Share of targets by attribution label, for each system and way of reading.",
        figure,
        "attribution",
        tall(len(keys), 40) + 40,
    )


def _against(
    data: ReportData, id_: str, title: str, axis: str, points: Sequence[tuple[str, float, Row]]
) -> Chart | None:
    if not points:
        return None
    names = {system: place for place, system in enumerate(data.systems)}
    widest = max(x for _, x, _ in points) or 1.0
    traces = [
        trace_of(
            names.get(system, 0),
            type="scatter",
            mode="markers+text",
            name=label(system),
            x=[x],
            y=[row["b_mean"]],
            text=[label(system)],
            textposition="top center",
            marker={"size": 13, "symbol": SYMBOLS[names.get(system, 0) % len(SYMBOLS)]},
            hovertemplate=f"%{{x}}: {interval_text(row)}",
            showlegend=False,
        )
        for system, x, row in points
    ]
    figure = figure_of(
        traces,
        xaxis={"title": {"text": axis}, "range": [-0.12 * widest, 1.12 * widest]},
        yaxis=SCORE_AXIS,
    )
    return Chart(id_, title, f"{title}, whole store.", figure, "footprint", 380)


def _whole(data: ReportData) -> list[Row]:
    return [
        row
        for row in data.summary
        if row["access_mode"] == AccessMode.DUMP_ALL.value and row["b_mean"] is not None
    ]


def cost(data: ReportData) -> Chart | None:
    """Cost against score; only systems whose every call has a known price."""
    known = {
        row["system"]: row["cost_usd"]
        for row in data.call_cost
        if not row["unpriced"] and row["cost_usd"] is not None
    }
    points = [(r["system"], known[r["system"]], r) for r in _whole(data) if r["system"] in known]
    if not any(x for _, x, _ in points):
        return None
    axis = "US dollars, all calls of the system"
    return _against(data, "cost", "Cost against score", axis, points)


def latency(data: Running) -> Chart | None:
    """Median and 95th percentile of each operation of a store."""
    if not data.latency:
        return None
    traces = []
    for place, system in enumerate(data.systems):
        rows = [row for row in data.latency if row["system"] == system]
        if not rows:
            continue
        traces.append(
            trace_of(
                place,
                type="scatter",
                mode="markers",
                orientation="h",
                name=label(system),
                y=[label(row["phase"]) for row in rows],
                x=[row["p50_s"] for row in rows],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [max(row["p95_s"] - row["p50_s"], 0) for row in rows],
                    "arrayminus": [0 for _ in rows],
                },
                text=[f"p95 {row['p95_s']:.4g} s, n={row['n']}" for row in rows],
                hovertemplate="%{y}: %{x:.4g} s, %{text}",
                marker={"size": 10, "symbol": SYMBOLS[place % len(SYMBOLS)]},
            )
        )
    if not traces:
        return None
    figure = figure_of(
        traces,
        xaxis={
            "type": "log",
            "title": {"text": "seconds, median to 95th percentile (log)"},
            "exponentformat": "SI",
        },
        yaxis={"type": "category", "autorange": "reversed"},
        scattermode="group",
    )
    phases = len({row["phase"] for row in data.latency})
    return Chart(
        "latency",
        "Median to 95th percentile",
        "Median and 95th percentile of each operation, by system.",
        figure,
        "latency",
        tall(phases, 20 + 14 * len(traces)),
    )


def all_charts(data: ReportData) -> list[Chart]:
    """Every chart that the run has data for."""
    makers = (
        scores,
        slope,
        sweep,
        budget.probe_chart,
        heat_map,
        attribution,
        budget.footprint_chart,
        budget.window_chart,
        cost,
        ingestion.tokens_chart,
        ingestion.seconds_chart,
        latency,
    )
    return [chart for maker in makers if (chart := maker(data)) is not None]
