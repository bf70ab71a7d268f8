"""`tables`: a run's figures as the tables of a paper, compared with given values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, opened, with_settings
from flows.cli.output import emit_json, note
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from storage.runs import RunStore
    from tasks.paper_figures import PaperFigures
    from tasks.paper_tables import Expectation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Results")(tables)


@with_settings()
def tables(
    resolved: Resolved,
    run: RunName,
    paper: Annotated[
        Literal["recovery"], typer.Option(help="Whose tables: 2, 3, 4, 13, 14 and Appendix H.")
    ] = "recovery",
    style: Annotated[
        Literal["text", "csv", "latex"], typer.Option("--format", help="How they are written.")
    ] = "text",
    beside: Annotated[
        Literal["paper", "strict"],
        typer.Option(
            "--protocol", help="strict: beside the published figures the corrected ones, and why."
        ),
    ] = "paper",
    expect: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare with the values of a JSON file; exit 1 if any differs."
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Print a recovery run's figures as the published tables, each with its n.

    Works on imported runs and on runs of your own; a cell that a run has no
    records for is a dash with its reason. Examples:

    `memprobe tables pub --paper recovery --format latex`

    `memprobe tables pub --expect expected.json`

    `memprobe tables pub --protocol strict`
    """
    from tasks import paper_tables
    from tasks.paper_figures import paper_figures

    wanted = paper_tables.read_expected(expect) if expect is not None else None
    store = opened(resolved, run)[1]
    figures = paper_figures(store)
    strict = _strict(store) if beside == "strict" else None
    compared = paper_tables.compare(figures, wanted) if wanted is not None else None
    if json_output:
        facts = _facts(figures, compared)
        emit_json(facts if strict is None else {**facts, "corrections": strict("json")})
    elif style == "csv":
        print(paper_tables.to_csv(figures), end="")
    else:
        write = paper_tables.to_latex if style == "latex" else paper_tables.to_text
        print(write(paper_tables.layout(figures)), end="")
    if strict is not None and not json_output:
        print(strict(style), end="")
    if compared is None:
        return
    if not json_output:
        for difference in compared.differences:
            note(f"memprobe: {difference}")
    # A list of users is compared, too, and is no value.
    same = compared.compared - sum(d.table != "users" for d in compared.differences)
    note(f"memprobe: {same} of {compared.compared} values as expected")
    if compared.differences:
        raise typer.Exit(errors.INCOMPLETE)


def _strict(store: RunStore) -> Callable[[str], Any]:
    from tasks import corrections_output as output
    from tasks.corrections import corrections

    found = corrections(store)
    writers: dict[str, Callable[..., Any]] = {
        "text": output.to_text,
        "csv": output.to_csv,
        "latex": output.to_latex,
        "json": output.facts,
    }
    return lambda style: writers[style](found)


def _facts(figures: PaperFigures, compared: Expectation | None) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(v) for v in value] if isinstance(value, list) else asdict(value)

    facts = {
        "run": figures.run,
        "layer": figures.layer,
        "users": list(figures.users),
        "tables": plain(figures.tables),
    }
    if compared is not None:
        facts["compared"] = compared.compared
        facts["differences"] = [asdict(difference) for difference in compared.differences]
    return facts
