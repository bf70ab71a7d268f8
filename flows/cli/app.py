"""The command tree. Modules of the commands import what is heavy inside their functions."""

from __future__ import annotations

from typing import Annotated

import typer

import memprobe
from flows.cli import (
    again,
    audit,
    doctor,
    generate,
    imports,
    results,
    run,
    scoring,
    share,
    status,
    suite,
    sweep,
    systems,
    tables,
)
from flows.cli.errors import Group

app = typer.Typer(
    name="memprobe",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Every option has a variable MEMPROBE_NAME and a key in [memprobe] of memprobe.toml. "
        "Exit codes: 0 complete, 1 errors past the threshold or incomplete, 2 usage or missing "
        "prerequisite, 3 gate not met, 130 interrupted with state saved."
    ),
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"memprobe {memprobe.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    """Audit the memory an LLM agent leaves behind: what is in it, whether it can be reached,
    and who lost what is missing."""


for module in (
    run,
    sweep,
    status,
    imports,
    results,
    scoring,
    again,
    tables,
    audit,
    share,
    generate,
    suite,
    systems,
    doctor,
):
    module.register(app)
