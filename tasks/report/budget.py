"""How large the stores are, whose window they fit, and what a reader gets for its tokens."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.models.windows import Window
from memprobe.types import AccessMode
from tasks.reading import ANSWER_RESERVE
from tasks.report.data import ReportData, Row, Running, way_name
from tasks.report.drawing import (
    HATCHES,
    SCORE_AXIS,
    SYMBOLS,
    Chart,
    Figure,
    figure_of,
    interval_text,
    label,
    tall,
    trace_of,
)
from tasks.report.tables import Column, Table

BASE = "base"
FULL = 100.0
DRAWN = 300.0
"""Share of a window in percent up to which a bar is drawn; what is more is written."""
WIDE = 20.0
"""Sizes of which the largest is this many times the smallest are drawn on a logarithmic axis."""
_SYSTEM = Column("system", "System")
_HOLLOW = "hollow: too few items scored to rank"


def covered(row: Row, threshold: float) -> bool:
    """Whether enough of a row's items were scored for its mean to stand."""
    return bool(row["n_total"]) and row["n_scored"] / row["n_total"] >= threshold


def overflows(tokens: int, window: int) -> bool:
    """Whether a store of that many tokens leaves no room in a window for the answer."""
    return tokens > 0 and tokens + ANSWER_RESERVE > window


def _tokenizer(data: Running) -> str:
    names = sorted({row["tokenizer"] for row in data.footprint if row["tokenizer"]})
    return ", ".join(names) or "none: they are counted by `memprobe score`"


def footprint(data: Running) -> Table:
    """Size of the stores, repeated items, and the money of all calls of a system."""
    sizes = {row["system"]: row for row in data.footprint}
    repeats = {row["system"]: row for row in data.duplicates}
    costs = {row["system"]: row for row in data.call_cost}
    user = data.user
    rows = []
    for system in data.systems:
        size, repeat = sizes.get(system, {}), repeats.get(system, {})
        cost = costs.get(system, {})
        rate, found = repeat.get("duplicate_rate"), repeat.get("retrieved_duplicate_rate")
        rows.append(
            {
                "system": system,
                "users": f"{size['n_users']:,}/{size['n_users_total']:,}" if size else None,
                "items": size.get("items_mean"),
                "chars": size.get("chars_mean"),
                "tokens": size.get("tokens_mean"),
                "largest": size.get("tokens_max"),
                "duplicates": None if rate is None else 100 * rate,
                "found": None if found is None else 100 * found,
                "calls": cost.get("calls"),
                "cost": None if cost.get("unpriced", 1) else cost.get("cost_usd"),
            }
        )
    return Table(
        "footprint",
        "Footprint and cost",
        (
            _SYSTEM,
            Column("users", f"{user.capitalize()}s n/N"),
            Column("items", f"Items per {user}", "count"),
            Column("chars", f"Characters per {user}", "count"),
            Column("tokens", f"Tokens per {user}", "count"),
            Column("largest", "Largest store, tokens", "int"),
            Column("duplicates", "Duplicates stored", "percent"),
            Column("found", "Duplicates retrieved", "percent"),
            Column("calls", "Calls", "int"),
            Column("cost", "Cost of its calls", "usd"),
        ),
        rows,
        (
            "Characters are Unicode code points of the items. Tokens are those of the whole "
            f"store as a reader is given it; tokenizer: {_tokenizer(data)}. A duplicate has "
            "exactly the text of another item of the same store. "
            f"{user.capitalize()}s n/N: those whose store "
            "is there.",
            "Calls are those of every role, for measuring too; what the memory itself asks for "
            "is under ingestion. An answer that two systems share is counted at its price for "
            "both, so that they can be compared; the cost is unknown as soon as one call's price "
            "is, and when an answer was paid for by an earlier run.",
        ),
    )


def _stores(data: Running) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in data.stores:
        found.setdefault(row["system"], []).append(row["tokens"])
    return found


def windows(data: Running) -> Table:
    """Every system's stores against the window of each reader that is looked at."""
    stores = _stores(data)
    rows = []
    for window in data.windows:
        for system in data.systems:
            sizes = stores.get(system)
            if not sizes:
                continue
            over = sum(overflows(tokens, window.tokens) for tokens in sizes)
            rows.append(
                {
                    "reader": window.name,
                    "source": window.source,
                    "window": window.tokens,
                    "system": system,
                    "share": FULL * sum(sizes) / len(sizes) / window.tokens,
                    "largest": FULL * max(sizes) / window.tokens,
                    "over": f"{over:,}/{len(sizes):,}",
                }
            )
    own = any(window.source == "reader" for window in data.windows)
    return Table(
        "windows",
        "Share of a reader's window",
        (
            Column("reader", "Reader"),
            Column("source", "Why it is here"),
            Column("window", "Window, tokens", "int"),
            _SYSTEM,
            Column("share", "Mean store", "percent"),
            Column("largest", "Largest store", "percent"),
            Column("over", "Stores too long n/N"),
        ),
        rows,
        (
            f"A store is too long when it leaves fewer than {ANSWER_RESERVE:,} tokens for the "
            "answer. Such a store cannot be read whole by that reader, which is not a score of 0. "
            + ("" if own else "The window of this run's own reader is not known or has no end. ")
            + "Windows are those of litellm's table; `memprobe report RUN --window-of MODEL` adds "
            "another. Tokens are counted as in the footprint, not by each reader's own tokenizer.",
        ),
        empty="no window to hold a store against, or no tokens counted",
    )


def probe(data: ReportData) -> Table:
    """B for each budget: the tokens of the memory in a reader's prompt, by k and whole."""
    rows = [
        {
            "system": row["system"],
            "layer": row["layer"],
            "read": way_name(row["access_mode"], row["k"]),
            "items": row["items_mean"],
            "tokens": row["tokens_mean"],
            "b": row["b_mean"],
            "interval": (row["b_lo"], row["b_hi"]),
            "scored": f"{row['n_scored']:,}/{row['n_total']:,}",
            "coverage": FULL * row["coverage"] if row["coverage"] is not None else None,
            "overflow": row["n_overflow"],
        }
        for row in _own(data)
    ]
    return Table(
        "budget",
        "What a reader gets for its tokens",
        (
            _SYSTEM,
            Column("layer", "Layer"),
            Column("read", "Read"),
            Column("items", "Items", "count"),
            Column("tokens", "Tokens of memory", "count"),
            Column("b", "B", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("scored", "Scored n/N"),
            Column("coverage", "Coverage", "percent"),
            Column("overflow", "Too long for the reader", "int"),
        ),
        rows,
        (
            "Items and tokens are means over prompts; tokens are those of the memory in the "
            "prompt as the reader's model counts them. A store that is too long counts with its "
            "length and without a score. More k of a stored run: `memprobe resume RUN --k "
            "1,3,5,10`; no episode is played again.",
        ),
    )


def _own(data: ReportData) -> list[Row]:
    """Rows whose prompts were made for them, systems in the run's order, the base layer first."""
    places = {system: place for place, system in enumerate(data.systems)}
    rows = [row for row in data.budget if row["own_prompts"] or row["layer"] == BASE]
    return sorted(rows, key=lambda r: (places.get(r["system"], 0), r["layer"] != BASE, r["layer"]))


def _drawable(row: Row) -> bool:
    return row["b_mean"] is not None and bool(row["items_mean"]) and bool(row["tokens_mean"])


def _markers(place: int, rows: Sequence[Row], threshold: float) -> Figure:
    """A system's symbol: large for the whole store, hollow where too little was scored."""
    symbol = SYMBOLS[place % len(SYMBOLS)]
    return {
        "size": [14 if row["k"] is None else 9 for row in rows],
        "opacity": 1,
        "symbol": [symbol if covered(row, threshold) else f"{symbol}-open" for row in rows],
    }


def _size_axis(title: str, sizes: Sequence[float]) -> Figure:
    """A logarithmic axis where the sizes need one."""
    if max(sizes) / min(sizes) > WIDE:
        return {"type": "log", "title": {"text": f"{title} (log)"}, "dtick": 1, "minor": {}}
    return {"rangemode": "tozero", "title": {"text": title}}


def probe_chart(data: ReportData) -> Chart | None:
    """B against tokens, a line through each system's k that ends at its whole store."""
    threshold = data.config.coverage_threshold
    places = {system: place for place, system in enumerate(data.systems)}
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in _own(data):
        if _drawable(row):
            groups.setdefault((row["system"], row["layer"]), []).append(row)
    if not any(row["k"] is not None for rows in groups.values() for row in rows):
        return None
    traces = []
    for (system, layer), rows in groups.items():
        bounded = all(row["b_lo"] is not None and row["b_hi"] is not None for row in rows)
        place = places.get(system, 0)
        traces.append(
            trace_of(
                place,
                type="scatter",
                mode="lines+markers",
                name=label(system if layer == BASE else f"{system} · {layer}"),
                x=[row["tokens_mean"] for row in rows],
                y=[row["b_mean"] for row in rows],
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [row["b_hi"] - row["b_mean"] for row in rows] if bounded else [],
                    "arrayminus": [row["b_mean"] - row["b_lo"] for row in rows] if bounded else [],
                    "thickness": 1,
                    "width": 3,
                },
                marker=_markers(place, rows, threshold),
                text=[
                    f"{label(way_name(row['access_mode'], row['k']))}, "
                    f"{row['items_mean']:.1f} items, B {interval_text(row)}, "
                    f"{row['n_scored']}/{row['n_total']} scored"
                    for row in rows
                ],
                hovertemplate="%{x:,.0f} tokens: %{text}",
            )
        )
    drawn = [row for rows in groups.values() for row in rows]
    axis = _size_axis("tokens of memory in the prompt", [row["tokens_mean"] for row in drawn])
    depths = sorted({row["k"] for row in drawn if row["k"] is not None})
    title = f"Score against tokens; from left k = {', '.join(map(str, depths))}"
    if any(row["k"] is None for row in drawn):
        title += ", large marker: whole store"
    if not all(covered(row, threshold) for row in drawn):
        title += f"; {_HOLLOW}"
    return Chart(
        "budget",
        title,
        "Mean recovery score against the tokens of memory that the reader is given, by k and for "
        "the whole store.",
        figure_of(traces, xaxis=axis, yaxis=SCORE_AXIS),
        "budget",
        430,
    )


def footprint_chart(data: ReportData) -> Chart | None:
    """Size of a store against what is recovered from it, whole and by the deepest top-k."""
    counted = {row["system"]: row["tokens_mean"] for row in data.footprint}
    unit, sizes = "tokens", {name: size for name, size in counted.items() if size}
    if any(size is None for size in counted.values()):
        unit = "characters"
        sizes = {row["system"]: row["chars_mean"] for row in data.footprint if row["chars_mean"]}
    depths = [k for _, k in data.ways if k is not None]
    shown = {(AccessMode.DUMP_ALL.value, None), (AccessMode.RETRIEVE.value, max(depths, default=0))}
    threshold = data.config.coverage_threshold
    traces = []
    hollow = False
    for place, system in enumerate(data.systems):
        rows = [
            row
            for row in data.summary
            if row["system"] == system
            and (row["access_mode"], row["k"]) in shown
            and row["b_mean"] is not None
        ]
        if not rows or system not in sizes:
            continue
        hollow = hollow or not all(covered(row, threshold) for row in rows)
        traces.append(
            trace_of(
                place,
                type="scatter",
                mode="lines+markers",
                name=label(system),
                x=[sizes[system] for _ in rows],
                y=[row["b_mean"] for row in rows],
                marker=_markers(place, rows, threshold),
                text=[
                    f"{label(way_name(row['access_mode'], row['k']))}, B {interval_text(row)}"
                    for row in rows
                ],
                hovertemplate=f"%{{x:,.0f}} {unit}: %{{text}}",
            )
        )
    if not traces:
        return None
    title = "Footprint against score; large marker: whole store"
    if depths:
        title += f", small: top-{max(depths)}"
    if hollow:
        title += f"; {_HOLLOW}"
    drawn = [size for system, size in sizes.items() if system in data.systems]
    return Chart(
        "footprint",
        title,
        "Size of the stores against the recovery score, whole store and top-k. Empty stores are "
        "left out.",
        figure_of(traces, xaxis=_size_axis(f"{unit} stored per user", drawn), yaxis=SCORE_AXIS),
        "footprint",
        400,
    )


def _windows_drawn(data: Running) -> list[Window]:
    """The reader's window and those asked for; the well-known ones when there are none."""
    named = [window for window in data.windows if window.source != "well known"]
    return named or list(data.windows)


def window_chart(data: Running) -> Chart | None:
    """Mean share of each window, the largest store as a whisker, a line where it is full."""
    stores = {name: sizes for name, sizes in _stores(data).items() if any(sizes)}
    systems = [system for system in data.systems if system in stores]
    drawn = _windows_drawn(data)
    if not systems or not drawn:
        return None
    traces = []
    for place, window in enumerate(drawn):
        shares = [FULL * sum(stores[s]) / len(stores[s]) / window.tokens for s in systems]
        tops = [FULL * max(stores[s]) / window.tokens for s in systems]
        over = [sum(overflows(t, window.tokens) for t in stores[s]) for s in systems]
        said = [
            f"{share:,.1f} %" + (f", {n} of {len(stores[s])} too long" if n else "")
            for share, n, s in zip(shares, over, systems, strict=True)
        ]
        traces.append(
            trace_of(
                place,
                type="bar",
                orientation="h",
                name=f"{label(window.name)} ({window.tokens:,})",
                y=[label(system) for system in systems],
                x=[min(share, DRAWN) for share in shares],
                text=said,
                customdata=[f"largest store {top:,.1f} %" for top in tops],
                textposition="none",
                hovertemplate="%{y}: %{text}, %{customdata}",
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [
                        max(min(top, DRAWN) - min(share, DRAWN), 0)
                        for top, share in zip(tops, shares, strict=True)
                    ],
                    "arrayminus": [0 for _ in systems],
                    "thickness": 1.5,
                },
                marker={"pattern": {"shape": HATCHES[place % len(HATCHES)], "solidity": 0.2}},
            )
        )
    widest = max(
        min(FULL * max(stores[s]) / window.tokens, DRAWN) for s in systems for window in drawn
    )
    names = [_marked(stores[s], drawn, s) for s in systems]
    title = "Share of a reader's window: bar mean store, whisker largest store, dashed line full"
    if any(name != label(system) for name, system in zip(names, systems, strict=True)):
        title += ", ⚠ too long for the smallest window"
    for trace in traces:
        trace["y"] = names
    figure = figure_of(
        traces,
        barmode="group",
        xaxis={
            "range": [0, max(110.0, 1.05 * widest)],
            "ticksuffix": " %",
            "title": {"text": "% of the window"},
        },
        yaxis={"type": "category", "autorange": "reversed"},
        shapes=[
            {
                "type": "line",
                "x0": FULL,
                "x1": FULL,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": "#c2410c", "width": 2, "dash": "dash"},
            }
        ],
    )
    return Chart(
        "windows",
        title,
        "Share of each reader's window that the stores take, mean and largest, with a line at "
        "100 %. Stores that are too long are marked, not scored.",
        figure,
        "windows",
        tall(len(systems), 26 + 16 * len(drawn)) + 40,
    )


def _marked(sizes: Sequence[int], drawn: Sequence[Window], system: str) -> str:
    """A system's name, and under it how many stores are too long for the smallest window."""
    smallest = min(window.tokens for window in drawn)
    over = sum(overflows(tokens, smallest) for tokens in sizes)
    if not over:
        return label(system)
    return f"{label(system)}<br>⚠ {over} of {len(sizes)} too long"
