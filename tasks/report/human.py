"""The tables of a human audit: agreement with judge, attribution and each other, confusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.audit.agreement import ATTRIBUTION, JUDGE, Agreement, Figure, SheetFigures, figures
from tasks.report.data import ReportData
from tasks.report.tables import Column, Table

ID = "audit"


def sheets(data: ReportData) -> list[SheetFigures]:
    """The figures of every sheet that was read, by sheet."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in data.audits:
        rows.setdefault(row["sheet"], []).append(row)
    seed = data.config.seed
    return [
        figures(sheet, of[0]["layer"], of[0]["n_items"], of, seed)
        for sheet, of in sorted(rows.items())
    ]


def tables(data: ReportData) -> list[Table]:
    """Nothing for a run that no human looked at."""
    found = sheets(data)
    if not found:
        return []
    made = [_agreements(found)]
    for sheet in found:
        # Where several rated, the table over all of them; with one rater that one's.
        last = {
            (a.beside, a.rater): a for a in sheet.agreements if a.beside in (JUDGE, ATTRIBUTION)
        }
        rater = sheet.raters[0] if len(sheet.raters) == 1 else "all raters"
        made += [
            _confusion(sheet, last[beside, rater])
            for beside in (JUDGE, ATTRIBUTION)
            if last[beside, rater].n
        ]
    return made


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


def _percent(figure: Figure | None) -> float | None:
    value = _value(figure)
    return None if value is None else 100 * value


def _bounds(figure: Figure) -> tuple[float, float] | None:
    return None if figure.interval is None else (figure.interval.lo, figure.interval.hi)


def _counted(figure: Figure | None) -> str | None:
    if figure is None or figure.value is None:
        return None
    return f"{figure.value:.3f} ({figure.n}/{figure.of})"


def _agreements(found: Sequence[SheetFigures]) -> Table:
    rows = [
        {
            "sheet": f"{sheet.sheet} ({sheet.layer})",
            "rater": a.rater,
            "beside": f"{a.beside}, {a.scale}",
            "n": f"{a.n:,}/{a.of:,}",
            "users": a.users,
            "exact": _percent(a.exact),
            "exact_interval": _bounds(a.exact),
            "weighted": None if a.weighted is None else 100 * a.weighted,
            "within": _percent(a.within_one),
            "kappa": _value(a.kappa),
            "kappa_interval": _bounds(a.kappa),
            "bias": a.bias,
            "sensitivity": _counted(a.sensitivity),
            "specificity": _counted(a.specificity),
        }
        for sheet in found
        for a in sheet.agreements
    ]
    return Table(
        ID,
        "Human audit",
        (
            Column("sheet", "Sheet (layer)"),
            Column("rater", "Rater"),
            Column("beside", "Beside"),
            Column("n", "Answered n/N"),
            Column("users", "Users", "int"),
            Column("exact", "Exact", "percent"),
            Column("exact_interval", "95 % interval", "interval"),
            Column("weighted", "Exact, weighted to the run", "percent"),
            Column("within", "Within one step", "percent"),
            Column("kappa", "Kappa", "score"),
            Column("kappa_interval", "95 % interval", "interval"),
            Column("bias", "Other minus rater", "number"),
            Column("sensitivity", "Sensitivity (n/N)"),
            Column("specificity", "Specificity (n/N)"),
        ),
        rows,
        (
            "Raters saw truth, task, conversation and recovered text; never the system, the "
            "judge's score or the attribution. Intervals by cluster bootstrap over users. Kappa "
            "is quadratic weighted for scores and unweighted for labels.",
            "The rater is the reference. Sensitivity: of what the rater calls recovered (0.75 or "
            "more), the share that the judge calls so; specificity: of the rest, the share that "
            "the judge does not.",
            "A sheet drawn with equal strata is no picture of the run: rare labels are "
            "overrepresented. The weighted share corrects for that.",
        ),
    )


def _confusion(sheet: SheetFigures, a: Agreement) -> Table:
    rows = [
        {
            "name": name,
            **{f"c{j}": n for j, n in enumerate(a.confusion[i])},
            "sum": sum(a.confusion[i]),
        }
        for i, name in enumerate(a.names)
    ]
    return Table(
        f"audit-{sheet.sheet}-{a.beside}",
        f"Human audit, sheet {sheet.sheet}: {a.rater} (rows) and {a.beside} (columns)",
        (
            Column("name", f"{a.rater} says"),
            *(Column(f"c{j}", name, "int") for j, name in enumerate(a.names)),
            Column("sum", "Items", "int"),
        ),
        rows,
        (f"{a.n} answers of {a.of}; the diagonal is agreement.",),
    )
