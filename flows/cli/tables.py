"""`tables`: a run's figures as the tables of a paper, compared with given values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, opened, with_settings
from flows.cli.output import emit_json, note
from memprobe.errors import UsageError
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from storage.runs import RunStore
    from tasks.paper_figures import PaperFigures
    from tasks.paper_tables import Expectation, PaperTable


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Results")(tables)


@with_settings()
def tables(
    resolved: Resolved,
    run: RunName,
    paper: Annotated[
        Literal["recovery", "paradigms"] | None,
        typer.Option(
            help="Whose tables; by default those of the run's suite. recovery: 2, 3, 4, 13, 14 "
            "and Appendix H; paradigms: overall, plasticity, stability, fidelity, probe, "
            "paradigm, split.",
        ),
    ] = None,
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
    """Print a run's figures as the published tables of its suite, each with its n.

    Works on imported runs and on runs of your own; a cell that a run has no
    records for is a dash with its reason. Examples:

    `memprobe tables pub --paper recovery --format latex`

    `memprobe tables pub --expect expected.json`

    `memprobe tables pub56 --paper paradigms --protocol strict`
    """
    from tasks import paper_tables

    wanted = paper_tables.read_expected(expect) if expect is not None else None
    store = opened(resolved, run)[1]
    made = _of_paper(store, paper or store.manifest.config.suite, beside == "strict")
    figures, strict = made.figures, made.beside
    compared = paper_tables.compare(figures, wanted) if wanted is not None else None
    if json_output:
        facts = _facts(figures, compared)
        emit_json(facts if strict is None else {**facts, "corrections": strict("json")})
    elif style == "csv":
        print(paper_tables.to_csv(figures), end="")
    else:
        write = paper_tables.to_latex if style == "latex" else paper_tables.to_text
        print(write(made.layout()), end="")
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


@dataclass(frozen=True, slots=True)
class _Paper:
    """A paper's figures of a run, how they are laid out, and what stands beside them."""

    figures: PaperFigures
    layout: Callable[[], list[PaperTable]]
    beside: Callable[[str], Any] | None


def _of_paper(store: RunStore, paper: str, strict: bool) -> _Paper:
    if paper == "paradigms":
        return _of_paradigms(store, strict)
    if store.manifest.config.suite != "recovery":
        suite = store.manifest.config.suite
        raise UsageError(
            f"run {store.name!r} is of the {suite} suite; memprobe tables {store.name} "
            f"--paper {suite}"
        )
    from tasks import paper_tables
    from tasks.paper_figures import paper_figures

    figures = paper_figures(store)
    return _Paper(figures, lambda: paper_tables.layout(figures), _strict(store) if strict else None)


def _of_paradigms(store: RunStore, strict: bool) -> _Paper:
    from tasks.paradigms import tables as paradigms

    layer, scorer = paradigms.front(store)
    figures = paradigms.paradigm_figures(store, layer, scorer)
    title = paradigms.title_of(layer, scorer)
    beside = _strict_paradigms(store) if strict else None
    return _Paper(figures, lambda: paradigms.layout(figures, title), beside)


def _strict_paradigms(store: RunStore) -> Callable[[str], Any]:
    """The same tables by our scorers, and the verdicts that they turn."""
    from tasks import paper_tables
    from tasks.paradigms import changes
    from tasks.paradigms import tables as paradigms

    scorers = (
        ["paper", "strict"] if paradigms.front(store)[0] == paradigms.PUBLISHED else ["strict"]
    )
    made = {name: paradigms.paradigm_figures(store, paradigms.BASE, name) for name in scorers}
    found = changes.comparisons(store)

    def laid_out(name: str) -> list[PaperTable]:
        return paradigms.layout(made[name], paradigms.title_of(paradigms.BASE, name))

    def written(style: str) -> Any:
        match style:
            case "json":
                figures = {name: _plain(figures.tables) for name, figures in made.items()}
                return {"tables": figures, "changes": [asdict(one) for one in found]}
            case "csv":
                texts = [paper_tables.to_csv(f, f"{name}:") for name, f in made.items()]
                return "".join([*texts, changes.to_csv(found)])
            case "latex":
                texts = [paper_tables.to_latex(laid_out(name)) for name in made]
                return "\n" + "\n".join([*texts, changes.to_latex(found)])
        texts = [paper_tables.to_text(laid_out(name)) for name in made]
        return "\n" + "\n".join([*texts, changes.to_text(found)])

    return written


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


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else asdict(value)


def _facts(figures: PaperFigures, compared: Expectation | None) -> dict[str, Any]:
    facts = {
        "run": figures.run,
        "layer": figures.layer,
        "users": list(figures.users),
        "tables": _plain(figures.tables),
    }
    if compared is not None:
        facts["compared"] = compared.compared
        facts["differences"] = [asdict(difference) for difference in compared.differences]
    return facts
