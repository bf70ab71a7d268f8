"""`suite`: the episodes or trajectories of a suite, held to its design."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli import errors, suite_build, suite_evolution
from flows.cli.options import Json, with_settings
from flows.cli.output import emit_json, note, plain, table
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from memprobe.paradigms.checks import Validation
    from memprobe.paradigms.suite import Composition

group = typer.Typer(
    no_args_is_help=True,
    help="Check a paradigms or an evolution suite, or make your own paradigms suite.",
)
group.command("new")(suite_build.new)
group.command("build")(suite_build.build)
group.command("extract")(suite_build.extract)


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(group, name="suite", rich_help_panel="Data")


@group.command("validate")
@with_settings()
def validate(
    resolved: Resolved,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the suite's files, *.json.")
    ],
    plan: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Composition to hold the suite to: suite56, evolution, none, or that of the "
            "folder's name.",
        ),
    ] = "auto",
    fail_on: Annotated[
        Literal["error", "warning"],
        typer.Option(help="The least severe problem that gives exit code 1."),
    ] = "error",
    json_output: Json = False,
) -> None:
    """Check every file of a folder: design, gold, wording.

    Episodes of the paradigms suite and trajectories of the evolution suite are told
    apart by their fields. Each problem names the episode and session, or the
    trajectory and state (from 0), and what to do. Exits with 1 when there are
    errors. Example:

    `memprobe suite validate my_suite --fail-on warning`
    """
    from memprobe.evolution.suite import holds_trajectories

    held_to = None if plan == "none" else plan
    if holds_trajectories(folder):
        wrong, doubtful = suite_evolution.validate(folder, held_to, json_output)
    else:
        wrong, doubtful = _episodes(folder, held_to, json_output)
    if wrong or (fail_on == "warning" and doubtful):
        raise typer.Exit(errors.INCOMPLETE)


def _episodes(folder: Path, plan: str | None, json_output: bool) -> tuple[int, int]:
    from memprobe.paradigms.checks import inspect_suite
    from memprobe.paradigms.suite import composition, suite_digest

    found = inspect_suite(folder, plan)
    digest = suite_digest(found.episodes)
    made_of = composition(found.episodes)
    if json_output:
        emit_json(
            {
                "suite": folder.name,
                "plan": found.plan,
                "digest": digest,
                "episodes": len(found.episodes),
                "errors": found.count("error"),
                "warnings": found.count("warning"),
                "composition": [asdict(row) | {"n": row.n} for row in made_of.rows],
                "probes": made_of.probes,
                "sessions": made_of.sessions,
                "problems": [asdict(problem) for problem in found.problems],
            }
        )
    else:
        _print(found, made_of)
        print(f"sha256 {digest}")
    return found.count("error"), found.count("warning")


def _print(found: Validation, made_of: Composition) -> None:
    domains = [str(d) for d in made_of.rows[0].domains] if made_of.rows else []
    table(
        ["paradigm", "condition", *domains, "split", "n"],
        [[r.paradigm, r.condition, *r.domains.values(), r.split, r.n] for r in made_of.rows],
    )
    for what, counts in (("probes", made_of.probes), ("sessions", made_of.sessions)):
        listed = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
        print(f"{sum(counts.values())} {what}: {listed}")
    for p in found.problems:
        where = p.episode if p.session is None else f"{p.episode} session {p.session}"
        note(plain(f"{p.severity}: {where}: {p.rule}: {p.message}; {p.fix}"))
    print(
        f"{made_of.episodes} episodes ({made_of.update} update, {made_of.preserve} preserve), "
        f"held to {found.plan or 'no plan'}: {found.count('error')} errors, "
        f"{found.count('warning')} warnings"
    )
