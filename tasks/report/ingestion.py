"""What it costs to take messages in: the memory system's own calls, tokens, money and time."""

from __future__ import annotations

from tasks.report.data import Row, Running
from tasks.report.drawing import Chart, figure_of, label, tall, trace_of
from tasks.report.tables import Column, Table


def table(data: Running) -> Table:
    """A row a system: calls, tokens, money and seconds for what it wrote."""
    unit, user = data.written, data.user
    rows = [{**row, "users": f"{row['n_users']:,}/{row['n_users_total']:,}"} for row in _rows(data)]
    return Table(
        "ingestion",
        "What ingestion takes",
        (
            Column("system", "System"),
            Column("users", f"{user.capitalize()}s n/N"),
            Column("messages", f"{unit.capitalize()}s written", "int"),
            Column("calls", "Model calls asked", "int"),
            Column("ledger_hits", "From the ledger", "int"),
            Column("failed_calls", "Failed", "int"),
            Column("calls_per_message", f"Calls per {unit}", "number"),
            Column("prompt_tokens_per_message", f"Tokens in per {unit}", "count"),
            Column("completion_tokens_per_message", f"Tokens out per {unit}", "count"),
            Column("seconds_per_message", f"Time per {unit}", "seconds"),
            Column("replayed_s", "Model time replayed", "seconds"),
            Column("work_usd_per_user", f"Price of the work per {user}", "usd"),
            Column("work_usd_per_1000_messages", f"Price of the work per 1,000 {unit}s", "usd"),
            Column("paid_usd", "Paid by this run", "usd"),
        ),
        rows,
        (
            "Calls are those that the memory system makes itself while it writes; its calls "
            "while searching are under latency. Calls and the price of the work count every ask "
            "at its first price, as if the system ran alone: an answer that another system or an "
            "earlier run got first is not free. Paid is what this run sent. One unknown price "
            "makes a sum unknown.",
            "Time is wall time inside the memory system as measured here; for a call from the "
            "ledger the model's own time is not in it, and is given apart. "
            f"{user.capitalize()}s n/N: those whose {unit}s were written.",
        ),
        empty=f"no {unit}s were written",
    )


def _rows(data: Running) -> list[Row]:
    order = {system: place for place, system in enumerate(data.systems)}
    return sorted(data.ingestion, key=lambda row: order.get(row["system"], len(order)))


def tokens_chart(data: Running) -> Chart | None:
    """Tokens in and out of the memory's own calls, a message."""
    rows = [row for row in _rows(data) if row["prompt_tokens"] is not None]
    if not any(row["calls"] for row in rows):
        return None
    names = [label(row["system"]) for row in rows]
    traces = [
        trace_of(
            place,
            type="bar",
            orientation="h",
            name=name,
            y=names,
            x=[row[key] for row in rows],
            text=[f"{row['calls']:,} calls, {row['messages']:,} {data.written}s" for row in rows],
            textposition="none",
            hovertemplate=f"%{{y}}: %{{x:,.1f}} tokens per {data.written} (%{{text}})",
            marker={"pattern": {"shape": hatch, "solidity": 0.25}},
        )
        for place, (key, name, hatch) in enumerate(
            (
                ("prompt_tokens_per_message", "tokens in", ""),
                ("completion_tokens_per_message", "tokens out", "/"),
            )
        )
    ]
    return Chart(
        "ingestion-tokens",
        f"Tokens of the memory's own calls per {data.written} written",
        "Tokens in and out of the calls that each memory system makes while writing, "
        f"a {data.written}.",
        figure_of(
            traces,
            barmode="stack",
            xaxis={"title": {"text": f"tokens per {data.written}"}, "rangemode": "tozero"},
            yaxis={"type": "category", "autorange": "reversed"},
        ),
        "ingestion",
        tall(len(rows), 40),
    )


def seconds_chart(data: Running) -> Chart | None:
    """Seconds per message: measured, and what the model took for calls that were replayed."""
    rows = _rows(data)
    if not rows:
        return None
    names = [label(row["system"]) for row in rows]
    parts = [("measured here", "", [row["seconds_per_message"] for row in rows])]
    spared = [(row["replayed_s"] or 0.0) / row["messages"] for row in rows]
    if any(spared):
        parts.append(("model time replayed from the ledger", "/", spared))
    traces = [
        trace_of(
            place,
            type="bar",
            orientation="h",
            name=name,
            y=names,
            x=values,
            hovertemplate=f"%{{y}}: %{{x:.4g}} s per {data.written}",
            marker={"pattern": {"shape": hatch, "solidity": 0.25}},
        )
        for place, (name, hatch, values) in enumerate(parts)
    ]
    return Chart(
        "ingestion-seconds",
        f"Time of writing per {data.written}",
        f"Mean wall time that each memory system takes to write a {data.written}.",
        figure_of(
            traces,
            barmode="stack",
            showlegend=len(parts) > 1,
            xaxis={"title": {"text": f"seconds per {data.written}"}, "rangemode": "tozero"},
            yaxis={"type": "category", "autorange": "reversed"},
        ),
        "ingestion",
        tall(len(rows), 40),
    )
