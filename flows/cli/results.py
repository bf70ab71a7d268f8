"""What is done with a finished run: report, view, compare, gate, sql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, opened, with_settings
from flows.cli.output import cell, emit_json, note, render, table
from memprobe.errors import UsageError
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from memprobe.metrics import Interval
    from tasks.compare import Comparison


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (report, view, compare, gate, sql):
        app.command(rich_help_panel="Results")(command)


@with_settings()
def report(
    resolved: Resolved,
    run: RunName,
    window_of: Annotated[
        list[str] | None,
        typer.Option(
            "--window-of",
            metavar="MODEL",
            help="Hold the stores against this model's window; a number of tokens or "
            "NAME=TOKENS will do. May be repeated.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Build the report of what a run has so far; print its summary, then its path.

    Examples: `memprobe report t1`, `memprobe report t1 --window-of openai/gpt-4o`
    """
    from tasks.report import build_report, summary

    _, store = opened(resolved, run)
    path = build_report(store, windows_of=window_of or ())
    if json_output:
        emit_json({"run": store.name, "report": str(path)})
    else:
        print(summary(store))
        print(f"report: {path}")


@with_settings()
def view(
    resolved: Resolved,
    run: RunName,
    port: Annotated[int, typer.Option(help="Port on loopback; 0 takes a free one.")] = 8631,
) -> None:
    """Serve a run's report on loopback until Ctrl-C.

    Example: `memprobe view t1`
    """
    from flows.cli.serve import serve
    from tasks.report import build_report

    page = build_report(opened(resolved, run)[1])
    serve(Path(page), port)


@with_settings()
def compare(
    resolved: Resolved,
    first: Annotated[str, typer.Argument(metavar="A", help="A run, or RUN@LAYER.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    json_output: Json = False,
) -> None:
    """Compare two runs, or two layers of one, paired by user or episode, with intervals.

    Examples: `memprobe compare t1 t2`, `memprobe compare t1 t1@strict_judge`
    """
    from tasks.compare import Side, split_layer
    from tasks.compare import compare as compared
    from tasks.paradigms.compare import compare as compared_by_episode

    sides = []
    for reference in (first, second):
        run, layer = split_layer(reference)
        store = opened(resolved, run)[1]
        sides.append(Side(store, store.manifest.stored_layer(layer)))
    suites = {side.name: side.store.manifest.config.suite for side in sides}
    if len(set(suites.values())) > 1:
        named = ", ".join(f"{name} {suite}" for name, suite in suites.items())
        raise UsageError(f"runs of different suites have nothing to compare: {named}")
    by_user = sides[0].store.manifest.config.suite == "recovery"
    left, right = sides
    protocols = [side.store.manifest.config.protocol.value for side in sides]
    if protocols[0] != protocols[1]:
        note(
            f"memprobe: {left.name} was made under {protocols[0]} and {right.name} under "
            f"{protocols[1]}: a difference may be the procedure's; verdicts are those of the "
            f"{protocols[0]} rules"
        )
    result = compared(left, right) if by_user else compared_by_episode(left, right)
    if json_output:
        emit_json(asdict(result))
        return
    _print_rows(result, "users" if by_user else "episodes")
    _print_agreement(result)
    for line in only_in(result.missing):
        note(f"memprobe: {line}")


def _print_rows(result: Comparison, paired: str) -> None:
    from tasks.compare import mode_name

    rows = [
        [
            r.system,
            mode_name(r.access_mode, r.k),
            r.n_users,
            r.first,
            r.second,
            r.difference,
            _interval(r.interval),
            r.p_holm,
            r.kappa,
            r.finding,
        ]
        for r in result.rows
    ]
    columns = ["system", "mode", paired, result.first, result.second, "difference", "95 %"]
    table([*columns, "p (Holm)", "kappa", "finding"], rows)


def _print_agreement(result: Comparison) -> None:
    """How far both sides agree item by item, and what that comes to for B."""
    from tasks.compare import mode_name

    rows = [
        [
            "all" if one.system is None else one.system,
            "" if one.access_mode is None else mode_name(one.access_mode, one.k),
            one.scope,
            one.figures.n_items,
            one.figures.kappa,
            _interval(one.figures.kappa_interval),
            one.figures.mean_error,
            one.figures.exact,
            one.figures.threshold,
            one.figures.first_passed,
            one.figures.second_passed,
        ]
        for one in result.agreement
        if one.scope == "judged" or one.system is None
    ]
    if not rows:
        return
    columns = ["system", "mode", "items", "n", "kappa", "95 %", "MAE", "equal", "same side of 0.75"]
    title = "Agreement of scores (kappa: quadratic weights; judged: no label is unknown)"
    table([*columns, f"passed, {result.first}", f"passed, {result.second}"], rows, title)
    judged = next((a for a in result.agreement if (a.system, a.scope) == (None, "judged")), None)
    if judged is not None:
        scale = ["0", "0.25", "0.5", "0.75", "1"]
        counts = [[s, *row] for s, row in zip(scale, judged.figures.confusion, strict=True)]
        table([result.first, *scale], counts, f"Scores of judged items, by {result.second}")
    error = result.b_error
    if error is not None:
        spread = "" if error.interval is None else f" (95 % {_interval(error.interval)})"
        order = f"{error.kept} of {error.pairs} pairs of systems keep their order"
        print(
            f"error of B: {cell(error.mean)}{spread}, mean of {error.n} systems and modes over "
            f"{error.n_users} users; {order}"
        )


def only_in(missing: Sequence[str]) -> list[str]:
    """What only one side has, a line for each side."""
    sides: dict[str, list[str]] = {}
    for line in missing:
        figure, _, side = line.partition(": only in ")
        sides.setdefault(side, []).append(figure)
    return [f"only in {side}: {len(has)} ({', '.join(has)})" for side, has in sides.items()]


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f"{cell(interval.lo)} to {cell(interval.hi)}"


@with_settings()
def gate(
    resolved: Resolved,
    run: RunName,
    minimum: Annotated[
        list[str],
        typer.Option(
            "--min",
            metavar="EXPR",
            help="SUITE.[MODE.][SYSTEM.]METRIC OP BOUND; may be repeated.",
        ),
    ],
    json_output: Json = False,
) -> None:
    """Hold a run's figures against bounds; exits with 3 when one is not met.

    Examples:

    `memprobe gate t1 --min "recovery.dump_all.longctx_full.B>=0.55"`

    `memprobe gate p1 --min "paradigms.full_context.stability>=0.4"`
    """
    from tasks.gate import check_gates

    results = check_gates(opened(resolved, run)[1], minimum)
    met = all(result.met for result in results)
    if json_output:
        emit_json({"met": met, "results": [asdict(result) for result in results]})
    else:
        for result in results:
            print(result)
    if not met:
        raise typer.Exit(errors.GATE)


@with_settings()
def sql(
    resolved: Resolved,
    run: RunName,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One reading statement.")],
    style: Annotated[
        Literal["table", "csv", "json", "md"], typer.Option("--format", help="How rows are shown.")
    ] = "table",
) -> None:
    """Query a run's tables and views with DuckDB's SQL, read-only.

    Examples:

    `memprobe sql t1 "select * from recovery_summary"`

    `memprobe sql t1 "select * from calls_summary" --format csv`
    """
    from storage.catalog import query as ask

    result = ask(opened(resolved, run)[1], query)
    render(result.columns, result.rows, style)
