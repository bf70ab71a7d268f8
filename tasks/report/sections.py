"""The tables of a recovery report, made of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.report import budget, human, ingestion, judges, readers
from tasks.report.charts import LABEL_NAMES
from tasks.report.data import CATEGORY_NAMES, ReportData, Row, Running, way_name
from tasks.report.tables import Column, Table


def _covered(row: Row) -> dict[str, Any]:
    total = row["n_total"]
    return {
        "scored": f"{row['n_scored']:,}/{total:,}",
        "coverage": 100 * row["n_scored"] / total if total else None,
    }


def _read(row: Row) -> dict[str, Any]:
    return {"system": row["system"], "read": way_name(row["access_mode"], row["k"])}


_SYSTEM = Column("system", "System")
_READ = Column("read", "Read")


def headline(data: ReportData) -> Table:
    """B with its interval and coverage, and A, C, D and the footprint."""
    rows = [
        {
            **_read(row),
            "users": row["n_users"],
            **_covered(row),
            "b": row["b_mean"],
            "interval": (row["b_lo"], row["b_hi"]),
            "std": row["b_std"],
            "a": row["a_pct"],
            "c": row["c_mean"],
            "d": row["d_mean"],
            "items": row["items_mean"],
            "chars": row["chars_mean"],
        }
        for row in data.summary
    ]
    notes = [
        "B: mean recovery score, 0 to 1: the unweighted mean of a user's category means, then "
        "the mean over users. 95 % intervals by cluster bootstrap over users. Unscored items "
        "stay out of every mean.",
        "A: episodes that ended satisfied. C: turns per episode. D: preference fit, 1 to 5. "
        "A, C, D and the footprint belong to the rollout and are the same however the store is "
        "read.",
    ]
    notes += [f"Not ranked, {way}: {why}." for way, why in data.refused.items()]
    return Table(
        "headline",
        "Scores by system and way of reading",
        (
            _SYSTEM,
            _READ,
            Column("users", "Users", "int"),
            Column("b", "B", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("std", "sd", "score"),
            Column("scored", "Scored n/N"),
            Column("coverage", "Coverage", "percent"),
            Column("a", "A", "percent"),
            Column("c", "C, turns", "number"),
            Column("d", "D", "number"),
            Column("items", "Items", "count"),
            Column("chars", "Chars per item", "count"),
        ),
        rows,
        tuple(notes),
    )


def comparisons(data: ReportData) -> Table:
    """Each pair of systems read the same way."""
    rows = [
        {
            "read": way_name(c.access_mode, c.k),
            "first": c.better,
            "second": c.other,
            "difference": c.difference,
            "interval": (c.lo, c.hi),
            "p": c.p,
            "users": c.users,
            "result": "not ranked"
            if way_name(c.access_mode, c.k) in data.refused
            else f"{c.better} higher"
            if c.shown
            else "no difference shown",
        }
        for c in data.comparisons
    ]
    return Table(
        "comparisons",
        "Paired comparisons",
        (
            _READ,
            Column("first", "Higher mean"),
            Column("second", "Other"),
            Column("difference", "Difference in B", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("p", "p (Holm)", "score"),
            Column("users", "Users", "int"),
            Column("result", "Result"),
        ),
        rows,
        (
            "Users are paired and resampled. A difference is shown when its interval leaves out "
            "zero and its p value, corrected over the pairs of one way of reading, is under 0.05. "
            "Fewer than six users never show one.",
        ),
        empty="no pair of systems has two scored users in common",
    )


def categories(data: ReportData) -> Table:
    """B by category."""
    rows: dict[tuple[Any, ...], Row] = {}
    for row in data.categories:
        key = (row["system"], row["access_mode"], row["k"])
        line = rows.setdefault(key, _read(row))
        line[row["category"]] = row["b_mean"]
        line[f"{row['category']}_n"] = f"{row['n_scored']:,}/{row['n_total']:,}"
    columns: list[Column] = [_SYSTEM, _READ]
    for value, name in CATEGORY_NAMES.items():
        columns += [Column(value, name, "score"), Column(f"{value}_n", "n/N")]
    return Table("categories", "Score by category", tuple(columns), list(rows.values()))


def attribution(data: ReportData) -> Table:
    """Counts of every label, and the recovery rate."""
    rows: dict[tuple[Any, ...], Row] = {}
    for row in data.attribution:
        key = (row["system"], row["access_mode"], row["k"])
        line = rows.setdefault(key, {**_read(row), **dict.fromkeys(LABEL_NAMES, 0), "total": 0})
        line[row["label"]] = row["n"]
        line["total"] += row["n"]
    for line in rows.values():
        given = line["ok"] + line["memory_failure"]
        line["rate"] = 100 * line["ok"] / given if given else None
    return Table(
        "attribution",
        "Attribution labels by system and way of reading",
        (
            _SYSTEM,
            _READ,
            *(Column(value, name.capitalize(), "int") for value, name in LABEL_NAMES.items()),
            Column("total", "Targets", "int"),
            Column("rate", "Recovery rate", "percent"),
        ),
        list(rows.values()),
        (
            "Recovery rate: recovered / (recovered + lost by the memory). Not measured "
            "(harness_failure) is nobody's fault and enters no rate.",
        ),
        empty="no attributions",
    )


def latency(data: Running) -> Table:
    """Latency of each operation of a store; writing and searching are apart."""
    return Table(
        "latency",
        "Operations of the stores",
        (
            Column("phase", "Operation"),
            _SYSTEM,
            Column("n", "n", "int"),
            Column("p50_s", "Median", "seconds"),
            Column("p95_s", "95th percentile", "seconds"),
            Column("max_s", "Slowest", "seconds"),
            Column("total_s", "Total", "seconds"),
            Column("calls", "Model calls asked", "int"),
            Column("ledger_hits", "of them from the ledger", "int"),
        ),
        data.latency,
        (
            "Wall time inside the memory system, measured in this run, never mixed over "
            "operations. Nearest-rank percentiles. Where the ledger answered the memory's own "
            "calls, the model's time is not in it.",
        ),
        empty="no operations were timed",
    )


_KINDS = {
    "right": "the truth itself",
    "near": "part of the truth",
    "wrong": "another user's truth",
    "injection": "wrong, with an instruction to score it 1",
}


def judge_check(data: ReportData) -> Table:
    """How the judge did on answers whose right verdict is known."""
    rows = []
    for kind, says in _KINDS.items():
        found = next((row for row in data.judge_check if row["kind"] == kind), None)
        if found is not None:
            scored = found["n_scored"]
            rows.append(
                {
                    **found,
                    "says": says,
                    "expected": 100 * found["as_expected"] / scored if scored else None,
                }
            )
    sensitivity, specificity = judge_figures(data)
    return Table(
        "judge-check",
        "Judge check",
        (
            Column("kind", "Planted"),
            Column("says", "What the judge was shown"),
            Column("n", "n", "int"),
            Column("n_scored", "Scored", "int"),
            Column("mean_score", "Mean score", "score"),
            Column("judged_recovered", "Judged recovered", "int"),
            Column("expected", "Within the expected range", "percent"),
        ),
        rows,
        (
            f"Sensitivity (right judged recovered): {sensitivity}. Specificity (wrong and "
            f"injection judged not recovered): {specificity}. Recovered is a score of 0.75 or "
            "more.",
        ),
        empty="no planted answers were judged",
    )


def judge_figures(data: ReportData) -> tuple[str, str]:
    """Sensitivity and specificity as `share (n/N)`, or `not measured`."""

    def share(good: int, all_: int) -> str:
        return f"{good / all_:.3f} ({good}/{all_})" if all_ else "not measured"

    def summed(kinds: Sequence[str], key: str) -> int:
        return sum(int(row[key]) for row in data.judge_check if row["kind"] in kinds)

    wrong = ("wrong", "injection")
    passed = summed(wrong, "n_scored") - summed(wrong, "judged_recovered")
    return (
        share(summed(("right",), "judged_recovered"), summed(("right",), "n_scored")),
        share(passed, summed(wrong, "n_scored")),
    )


def unscored(data: ReportData) -> Table:
    """What could not be measured, by reason."""
    rows = [
        {
            **row,
            "read": way_name(row["access_mode"], row["k"]),
            "share": 100 * row["n"] / row["total"],
        }
        for row in data.unscored
    ]
    return Table(
        "unscored",
        "Not measured, by reason",
        (
            Column("item", "What"),
            _SYSTEM,
            _READ,
            Column("reason", "Reason"),
            Column("n", "Items", "int"),
            Column("total", "Of", "int"),
            Column("share", "Share", "percent"),
            Column("scored_zero", "Scored 0 all the same", "int"),
        ),
        rows,
        (
            "Items are scored 0 all the same under protocol paper only. not_judged: the model "
            "chosen cannot judge this at all.",
        ),
        empty="everything that was attempted was measured",
    )


def _spent(row: Row) -> float | None:
    if row["unpriced_calls"]:
        return None
    if row["cost_usd"] is None and row["calls"] == row["ledger_hits"]:
        return 0.0
    cost: float | None = row["cost_usd"]
    return cost


def calls(data: Running) -> Table:
    """Model calls by stage, role and model."""
    rows = [{**row, "cost_usd": _spent(row)} for row in data.calls]
    return Table(
        "calls",
        "Model calls",
        (
            Column("stage", "Stage"),
            Column("role", "Role"),
            Column("model", "Model"),
            Column("calls", "Calls", "int"),
            Column("ledger_hits", "From the ledger", "int"),
            Column("failed_calls", "Failed", "int"),
            Column("prompt_tokens", "Prompt tokens", "int"),
            Column("cached_tokens", "of them cached", "int"),
            Column("completion_tokens", "Completion tokens", "int"),
            Column("cost_usd", "Cost", "usd"),
            Column("latency_p50_s", "Median", "seconds"),
            Column("latency_p95_s", "95th percentile", "seconds"),
        ),
        rows,
        (
            "Tokens, cost and latency are those of calls that this run sent; a ledger hit was paid "
            "for earlier. A dash is a figure that was not reported, unknown a price that nobody "
            "knows.",
        ),
        empty="no calls were recorded",
    )


def all_tables(data: ReportData) -> dict[str, Table]:
    """Every table of the report by its id, in the order of the page."""
    made = (
        headline(data),
        comparisons(data),
        categories(data),
        attribution(data),
        budget.probe(data),
        budget.footprint(data),
        budget.windows(data),
        ingestion.table(data),
        latency(data),
        judge_check(data),
        judges.agreement(data),
        judges.confusion(data),
        judges.polarity(data),
        readers.table(data),
        *human.tables(data),
        unscored(data),
        calls(data),
    )
    return {table.id: table for table in made if table is not None}
