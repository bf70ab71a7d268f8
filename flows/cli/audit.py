"""`audit`: judgements of a run put before people, and what they said."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, only_recovery, opened, with_settings
from flows.cli.output import cell, emit_json, note, plain, table
from memprobe.ids import slug
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from tasks.audit.agreement import Agreement, Figure, SheetFigures
    from tasks.audit.reading import AuditResult

SHOWN = 50
"""Problems printed; all are in --json and in the table `audit_problems`."""

group = typer.Typer(
    no_args_is_help=True, help="Put a run's judgements before people, blind, and score the answers."
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="audit", rich_help_panel="Results")


@group.command("sheet")
@with_settings()
def sheet(
    resolved: Resolved,
    run: RunName,
    sample: Annotated[int, typer.Option(metavar="N", help="Judgements to draw.")] = 120,
    stratify: Annotated[
        Literal["attribution", "category", "system", "score"],
        typer.Option(help="What the strata are."),
    ] = "attribution",
    allocation: Annotated[
        Literal["equal", "proportional"],
        typer.Option(help="The same number of each stratum, or in proportion to its size."),
    ] = "equal",
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the draw; the run's by default.")
    ] = None,
    layer: Annotated[
        str, typer.Option(metavar="NAME", help="Layer of verdicts to draw from.")
    ] = "base",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where sheet.csv and form.html go; ./audit-RUN."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Draw judgements for human raters: sheet.csv and form.html, blind and shuffled.

    Neither file names a system, a verdict or an attribution; the key that leads back
    stays in the run. Give each rater a copy of either file. Example:

    `memprobe audit sheet pub --sample 120 --stratify attribution --out audit`
    """
    from tasks.audit import write_sheet

    _, store = opened(resolved, run)
    only_recovery(store, "audit")
    folder = out if out is not None else Path(f"audit-{slug(store.name)}")
    made = write_sheet(
        store, folder, sample=sample, by=stratify, how=allocation, layer=layer, seed=seed
    )
    if json_output:
        emit_json(asdict(made))
        return
    rows = [[s.name, s.sampled, s.population] for s in made.strata]
    table([stratify, "drawn", "of"], rows)
    print(f"sheet {made.sheet}: {made.items} items of layer {made.layer}, seed {made.seed}")
    if made.left_out:
        note(f"memprobe: {made.left_out} verdicts were left out: nothing was measured there")
    print(f"for raters: {made.form}\n        or: {made.csv}")
    print(f"key, not for raters: {made.key}")
    print(f"next: memprobe audit read {store.name} FILE...")


@group.command("read")
@with_settings()
def read(
    resolved: Resolved,
    run: RunName,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Filled sheets and saved answers of all raters."),
    ],
    json_output: Json = False,
) -> None:
    """Score filled sheets: agreement with the judge, the attribution, and between raters.

    Give all files of a sheet together: they replace what was read before. Exits with 1
    when a row could not be used; each is reported. Example:

    `memprobe audit read pub audit/ann.json audit/ben.csv`
    """
    from tasks.audit import read_answers
    from tasks.report import build_report

    _, store = opened(resolved, run)
    only_recovery(store, "audit")
    result = read_answers(store, files)
    path = build_report(store)
    if json_output:
        emit_json({**asdict(result), "report": str(path)})
    else:
        _print(result)
        print(f"report: {path}")
    if result.refused:
        raise typer.Exit(errors.INCOMPLETE)


def _print(result: AuditResult) -> None:
    for found in result.sheets:
        _print_sheet(found)
    ordered = sorted(result.problems, key=lambda p: p.kind != "refused")
    for p in ordered[:SHOWN]:
        note(plain(f"{p.kind}: {p.file} row {p.row} ({p.rater}, {p.item_id}): {p.problem}"))
    if len(ordered) > SHOWN:
        note(f"... and {len(ordered) - SHOWN} more: memprobe sql {result.run} "
             '"select * from audit_problems"')  # fmt: skip
    print(
        f"{result.n_rows} rows read, {result.refused} refused, "
        f"{len(result.problems) - result.refused} incomplete"
    )


def _print_sheet(found: SheetFigures) -> None:
    columns = ["rater", "beside", "of", "n/N", "exact", "weighted", "within a step", "kappa"]
    rows = [
        [
            a.rater,
            a.beside,
            a.scale,
            f"{a.n}/{a.of}",
            _figure(a.exact),
            a.weighted,
            _figure(a.within_one),
            _figure(a.kappa),
            _figure(a.sensitivity),
            _figure(a.specificity),
        ]
        for a in found.agreements
    ]
    columns += ["sensitivity", "specificity"]
    table(columns, rows, title=f"sheet {found.sheet}, layer {found.layer}, {found.items} items")
    for a in found.agreements:
        if a.n and a.beside in ("judge", "attribution"):
            _print_confusion(a)


def _print_confusion(a: Agreement) -> None:
    used = [
        i
        for i in range(len(a.names))
        if any(a.confusion[i]) or any(row[i] for row in a.confusion) or a.scale == "score"
    ]
    rows: list[list[Any]] = [[a.names[i], *(a.confusion[i][j] for j in used)] for i in used]
    table(
        [f"{a.rater} \\ {a.beside}", *(a.names[j] for j in used)],
        rows,
        title=f"{a.scale}s: {a.rater} (rows) and {a.beside} (columns), {a.n} items",
    )


def _figure(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return ""
    bounds = figure.interval
    between = f" [{_near(bounds.lo)}, {_near(bounds.hi)}]" if bounds is not None else ""
    return f"{_near(figure.value)}{between} ({figure.n}/{figure.of})"


def _near(value: float) -> str:
    """A figure for people: what is left of a zero after rounding errors is zero."""
    return cell(round(value, 9) + 0.0)
