"""`import`: published artifacts as a run of ours."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, location, with_settings
from flows.cli.output import emit_json, note, plain
from memprobe.errors import UsageError
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from storage.importers.recovery_release import Imported

SHOWN = 50
"""Issues printed; all are in --json and in the table `import_issues`."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import", rich_help_panel="Measure")(import_published)


class _Progress:
    """A line on stderr that is written over, or one every few seconds where nobody watches."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        ended = done == total and total > 0
        if not ended and now - self._last < (0.1 if self._live else 5.0):
            return
        self._last = now
        line = f"memprobe: {done}/{total} users, {plain(what)[:60]}"
        if self._live:
            print(f"\r\033[K{line}", end="\n" if ended else "", file=sys.stderr, flush=True)
        else:
            note(line)


def _wanted(text: str | None) -> int | tuple[str, ...] | None:
    if text is None:
        return None
    if text.isdecimal():
        if int(text) < 1:
            raise UsageError("--users: a count of at least 1, or ids separated by commas")
        return int(text)
    ids = tuple(part.strip() for part in text.split(",") if part.strip())
    if not ids:
        raise UsageError("--users: a count, or ids separated by commas")
    return ids


@with_settings()
def import_published(
    resolved: Resolved,
    kind: Annotated[
        Literal["recovery-release"],
        typer.Argument(metavar="KIND", help="What it is: recovery-release."),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The unpacked release, or a folder above it.")
    ],
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="Name of the new run.")],
    users: Annotated[
        str | None,
        typer.Option(
            metavar="N|IDS", help="The first N users, or ids with commas; all by default."
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Bring published records into a run: the recovery paper's release (arXiv 2606.24595).

    Nothing is lost: what has no column stays in the table `extras`. Every file or
    field that is missing, damaged or surprising is reported; exits with 1 when a
    record could not be used. Example:

    `memprobe import recovery-release release/ --run pub`
    """
    from storage.importers.recovery_release import import_release

    where = location(resolved, run)
    found = import_release(folder, where, run, _wanted(users), _Progress())
    if json_output:
        emit_json(asdict(found))
    else:
        _print(found)
    if found.lost:
        raise typer.Exit(errors.INCOMPLETE)


def _print(found: Imported) -> None:
    rows = ", ".join(f"{n} {table}" for table, n in found.rows.items() if table != "extras")
    print(
        f"{found.run}: {len(found.users)} users, {len(found.systems)} systems, "
        f"{found.n_files} files: {rows}"
    )
    ordered = sorted(found.issues, key=lambda issue: issue["severity"])
    for issue in ordered[:SHOWN]:
        where = ", ".join(part for part in (issue["path"], issue["field"]) if part)
        print(plain(f"{issue['severity']}: {where}: {issue['problem']}; {issue['done']}"))
    if len(ordered) > SHOWN:
        print(f"... and {len(ordered) - SHOWN} more: memprobe sql {found.run} "
              '"select * from import_issues"')  # fmt: skip
    print(f"{found.lost} losses, {found.notes} notes")
    print(f"next: memprobe tables {found.run} --paper recovery")
