"""Charts of the paradigms figures, each beside the table that says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.paradigms.verdicts import Mode
from tasks.report import charts as recovery_charts
from tasks.report import ingestion
from tasks.report.data import Row
from tasks.report.drawing import (
    HATCHES,
    SYMBOLS,
    Chart,
    Figure,
    figure_of,
    heat,
    label,
    tall,
    trace_of,
)
from tasks.report.paradigms.data import ProbeData, mode_of, name_of
from tasks.report.paradigms.names import (
    AXIS_NAMES,
    FAILURE_NAMES,
    PARADIGM_NAMES,
    PROBE_NAMES,
    SIDES,
)
from tasks.report.paradigms.tables import conditions, crossed

SHARE = {"range": [-0.03, 1.03]}
GUIDE = "#8a93a0"
"""Lines that are no data: told from the page's background in light and dark."""
ISOLINES = (0.2, 0.4, 0.6, 0.8)


def _axis(title: str) -> Figure:
    return {**SHARE, "title": {"text": title}}


def _errors(rows: Sequence[tuple[float, Row]]) -> Figure:
    """Intervals about values; a value without one has none drawn."""

    def width(value: float, bound: float | None) -> float:
        return abs(value - bound) if bound is not None else 0.0

    return {
        "type": "data",
        "symmetric": False,
        "array": [width(value, row.get("hi")) for value, row in rows],
        "arrayminus": [width(value, row.get("lo")) for value, row in rows],
        "thickness": 1.5,
    }


def said(value: float, row: Row) -> str:
    """A value with its interval and n as a hover text."""
    text = f"{value:.3f}"
    if row.get("lo") is not None and row.get("hi") is not None:
        text += f" [{row['lo']:.3f}, {row['hi']:.3f}]"
    return f"{text}, n={row['n']}" if row.get("n") is not None else text


def places(data: ProbeData) -> dict[str, int]:
    """Each system's place in the palette."""
    return {system: place for place, system in enumerate(data.systems)}


def symbol(data: ProbeData, system: str) -> str:
    """A system's symbol; a reference that is handed gold has an open one."""
    name = SYMBOLS[places(data).get(system, 0) % len(SYMBOLS)]
    return f"{name}-open" if data.told(system) else name


def accuracy(data: ProbeData) -> Chart | None:
    """Accuracy of each system in its own mode."""
    rows = [row for row in data.ranked if row["accuracy"] is not None]
    if not rows:
        return None
    bounds = [
        (row["accuracy"], {"lo": row["accuracy_lo"], "hi": row["accuracy_hi"], "n": row["n"]})
        for row in rows
    ]
    trace = trace_of(
        0,
        type="scatter",
        mode="markers",
        orientation="h",
        x=[value for value, _ in bounds],
        y=[label(name_of(mode_of(row))) for row in rows],
        error_x=_errors(bounds),
        marker={"size": 11, "symbol": [symbol(data, row["system"]) for row in rows]},
        text=[said(*one) for one in bounds],
        hovertemplate="%{y}: %{text}<extra></extra>",
        showlegend=False,
    )
    figure = figure_of(
        [trace], xaxis=_axis("accuracy"), yaxis={"type": "category", "autorange": "reversed"}
    )
    return Chart(
        "accuracy",
        "Accuracy by system",
        "Accuracy of each system with 95 % intervals.",
        figure,
        "headline",
        tall(len(rows), 30),
    )


def isoline(balance: float) -> tuple[list[float], list[float]]:
    """Points of the plane with that SP-balance, plasticity from where stability is 1."""
    least = balance / (2 - balance)
    # Closer together where the line bends.
    xs = [least ** (1 - step / 60) for step in range(61)]
    return xs, [balance * x / (2 * x - balance) for x in xs]


def plane(data: ProbeData) -> Chart | None:
    """Plasticity against stability, with the diagonal and lines of equal SP-balance."""
    rows = [
        row for row in data.ranked if row["plasticity"] is not None and row["stability"] is not None
    ]
    if not rows:
        return None
    guides: list[Figure] = []
    notes: list[Figure] = []
    for balance in ISOLINES:
        xs, ys = isoline(balance)
        guides.append(_guide(xs, ys, "dot"))
        at = 3 * len(xs) // 4
        notes.append(_note(xs[at], ys[at], f"{balance:g}"))
    guides.append(_guide([0, 1], [0, 1], "dash"))
    notes.append(_note(0.97, 0.03, "over-plastic", xanchor="right"))
    notes.append(_note(0.03, 0.97, "over-stable", xanchor="left"))
    traces = []
    for row in rows:
        mode = mode_of(row)
        x, y = data.metric(mode, "plasticity"), data.metric(mode, "stability")
        traces.append(
            trace_of(
                places(data)[mode[0]],
                type="scatter",
                mode="markers+text",
                name=label(mode[0] + (" (reference)" if data.told(mode[0]) else "")),
                x=[row["plasticity"]],
                y=[row["stability"]],
                error_x=_errors([(row["plasticity"], x)]),
                error_y=_errors([(row["stability"], y)]),
                text=[label(mode[0])],
                textposition="top right",
                marker={"size": 12, "symbol": symbol(data, mode[0])},
                hovertemplate=f"plasticity {said(row['plasticity'], x)}<br>"
                f"stability {said(row['stability'], y)}<br>"
                f"SP-balance {row['sp_balance']:.3f}",
            )
        )
    figure = figure_of(
        [*guides, *traces],
        xaxis=_axis("plasticity: right where it should update"),
        yaxis=_axis("stability: right where it should keep"),
        annotations=notes,
    )
    return Chart(
        "plane",
        "Plasticity and stability; dotted: equal SP-balance, open symbols: references",
        "Each system by plasticity and stability with 95 % intervals; below the diagonal a "
        "system is over-plastic, above it over-stable.",
        figure,
        "headline",
        640,
    )


def _guide(xs: Sequence[float], ys: Sequence[float], dash: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(xs),
        "y": list(ys),
        "line": {"color": GUIDE, "width": 1, "dash": dash},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _note(x: float, y: float, text: str, **fields: str) -> Figure:
    return {
        "x": x,
        "y": y,
        "text": text,
        "showarrow": False,
        "font": {"color": GUIDE, "size": 12},
        **fields,
    }


def _map(
    data: ProbeData, id_: str, title: str, rows: Sequence[Row], key: str, names: Mapping[str, str]
) -> Chart | None:
    lines = crossed(rows, key, data.modes)
    if not lines:
        return None
    cells = [[groups.get(value) for value in names] for groups in lines.values()]
    return heat(
        id_,
        title,
        f"{title}, for each system and way of reading, with the number of probes scored.",
        [label(name) for name in names.values()],
        [label(name_of(mode)) for mode in lines],
        [[None if cell is None else cell["accuracy"] for cell in line] for line in cells],
        [
            [
                ""
                if cell is None
                else f"no score<br>{cell['n_errors']} errors"
                if cell["accuracy"] is None
                else f"{cell['accuracy']:.2f}<br>n={cell['n']}"
                for cell in line
            ]
            for line in cells
        ],
        id_,
        42,
    )


def types(data: ProbeData) -> Chart | None:
    """Accuracy by probe type."""
    title = "Accuracy by probe type"
    return _map(data, "types", title, data.by_type, "probe_type", PROBE_NAMES)


def paradigms(data: ProbeData) -> Chart | None:
    """Accuracy by paradigm."""
    title = "Accuracy by paradigm"
    return _map(data, "paradigms", title, data.by_paradigm, "paradigm", PARADIGM_NAMES)


def condition(data: ProbeData) -> Chart | None:
    """Accuracy by condition."""
    title = "Accuracy by condition"
    return _map(data, "conditions", title, data.by_condition, "condition", conditions(data))


def split(data: ProbeData) -> Chart | None:
    """A line from whole to split episodes for each system."""
    traces = []
    for row in data.ranked:
        mode = mode_of(row)
        ends = [data.metric(mode, "non_split"), data.metric(mode, "split")]
        if any(end.get("value") is None for end in ends):
            continue
        points = [(end["value"], end) for end in ends]
        traces.append(
            trace_of(
                places(data)[mode[0]],
                type="scatter",
                mode="lines+markers",
                name=label(mode[0]),
                x=["not split", "split"],
                y=[value for value, _ in points],
                marker={"size": 10, "symbol": symbol(data, mode[0])},
                text=[said(*point) for point in points],
                hovertemplate="%{x}: %{text}",
            )
        )
    if not traces:
        return None
    figure = figure_of(traces, yaxis=_axis("accuracy"), xaxis={"type": "category"})
    return Chart(
        "split",
        "Episodes whose update comes at once, and in two parts",
        "Accuracy over episodes that are not split and over those that are, by system.",
        figure,
        "split",
        440,
    )


def axes(data: ProbeData) -> Chart | None:
    """Historical, source and temporal accuracy of each system in its own mode."""
    traces = []
    for place, name in enumerate(("historical", "source_fidelity", "temporal")):
        drawn = [
            (mode_of(row), data.metric(mode_of(row), name))
            for row in data.ranked
            if data.metric(mode_of(row), name).get("value") is not None
        ]
        if not drawn:
            continue
        points = [(row["value"], row) for _, row in drawn]
        traces.append(
            trace_of(
                place,
                type="scatter",
                mode="markers",
                orientation="h",
                name=AXIS_NAMES[name],
                x=[value for value, _ in points],
                y=[label(name_of(mode)) for mode, _ in drawn],
                error_x=_errors(points),
                marker={"size": 10, "symbol": SYMBOLS[place]},
                text=[said(*point) for point in points],
                hovertemplate="%{y}: %{text}",
            )
        )
    if not traces:
        return None
    figure = figure_of(
        traces,
        xaxis=_axis("accuracy"),
        yaxis={"type": "category", "autorange": "reversed"},
        scattermode="group",
    )
    return Chart(
        "axes",
        "Historical, source and temporal accuracy",
        "Accuracy on previous values, sources and times, with 95 % intervals, by system.",
        figure,
        "axes",
        tall(len(data.ranked), 44),
    )


def _bars(
    data: ProbeData, id_: str, title: str, key: str, names: Mapping[str, str]
) -> Chart | None:
    counts: dict[Mode, dict[str, int]] = {}
    for row in data.failures:
        found = counts.setdefault(mode_of(row), {})
        found[row[key]] = found.get(row[key], 0) + row["n"]
    modes = [mode for mode in data.modes if mode in counts]
    if not modes:
        return None
    totals = {mode: sum(counts[mode].values()) for mode in modes}
    traces = []
    for place, (value, name) in enumerate(names.items()):
        found_n = [counts[mode].get(value, 0) for mode in modes]
        if not any(found_n):
            continue
        traces.append(
            trace_of(
                place,
                type="bar",
                orientation="h",
                name=name,
                y=[label(name_of(mode)) for mode in modes],
                x=found_n,
                text=[f"of {totals[mode]} wrong answers" for mode in modes],
                textposition="none",
                hovertemplate="%{y}: %{x} %{text}",
                marker={"pattern": {"shape": HATCHES[place % len(HATCHES)], "solidity": 0.25}},
            )
        )
    figure = figure_of(
        traces,
        barmode="stack",
        xaxis={"title": {"text": "wrong answers"}, "rangemode": "tozero"},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return Chart(
        id_,
        title,
        f"{title}: number of wrong answers, by system and way of reading.",
        figure,
        "failures",
        tall(len(modes), 38) + 40,
    )


def failures(data: ProbeData) -> Chart | None:
    """Wrong answers by what went wrong."""
    return _bars(data, "failures", "Wrong answers by failure", "failure", FAILURE_NAMES)


def sides(data: ProbeData) -> Chart | None:
    """Wrong answers by where it went wrong."""
    names = {side: side.capitalize() for side in SIDES}
    return _bars(data, "sides", "Wrong answers by side of the memory", "side", names)


def price(data: ProbeData) -> Chart | None:
    """Accuracy against the tokens that the reader is given."""
    tokens = {mode_of(row): row["tokens"] for row in data.read if row["tokens"]}
    rows = [r for r in data.summary if r["accuracy"] is not None and mode_of(r) in tokens]
    if not rows:
        return None
    widest = max(tokens[mode_of(row)] for row in rows)
    traces = [
        trace_of(
            places(data).get(row["system"], 0),
            type="scatter",
            mode="markers+text",
            name=label(name_of(mode_of(row))),
            x=[tokens[mode_of(row)]],
            y=[row["accuracy"]],
            text=[label(row["system"])],
            textposition="top center",
            marker={"size": 12, "symbol": symbol(data, row["system"])},
            hovertemplate=f"%{{x:,.0f}} tokens, accuracy {row['accuracy']:.3f}",
            showlegend=False,
        )
        for row in rows
    ]
    axis = {"title": {"text": "tokens in the prompt of a probe"}}
    figure = figure_of(
        traces, xaxis={**axis, "range": [-0.1 * widest, 1.15 * widest]}, yaxis=_axis("accuracy")
    )
    return Chart(
        "price",
        "Accuracy against what the reader is given",
        "Accuracy of each system and way of reading against the mean tokens of a prompt.",
        figure,
        "read",
        400,
    )


def all_charts(data: ProbeData) -> list[Chart]:
    """Every chart that the run has data for."""
    makers = (
        accuracy,
        plane,
        types,
        paradigms,
        condition,
        split,
        axes,
        failures,
        sides,
        price,
        ingestion.tokens_chart,
        ingestion.seconds_chart,
        recovery_charts.latency,
    )
    return [chart for maker in makers if (chart := maker(data)) is not None]
