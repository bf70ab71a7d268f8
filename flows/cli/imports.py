"""`import`: published artifacts as a run of ours."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, location, with_settings
from flows.cli.output import emit_json, note, plain
from memprobe.errors import UsageError
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.importers.paradigms_release import ImportedSuite
    from storage.importers.recovery_release import Imported

SHOWN = 50
"""Issues printed; all are in --json and in the table `import_issues`."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import", rich_help_panel="Measure")(import_published)


class _Progress:
    """A line on stderr that is written over, or one every few seconds where nobody watches."""

    def __init__(self, counted: str) -> None:
        self._counted = counted
        self._live = sys.stderr.isatty()
        self._last = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        ended = done == total and total > 0
        if not ended and now - self._last < (0.1 if self._live else 5.0):
            return
        self._last = now
        line = f"memprobe: {done}/{total} {self._counted}, {plain(what)[:60]}"
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
        Literal["recovery-release", "paradigms-release"],
        typer.Argument(metavar="KIND", help="What it is: recovery-release or paradigms-release."),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The unpacked release, or a folder above it.")
    ],
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="Name of the new run.")],
    users: Annotated[
        str | None,
        typer.Option(
            metavar="N|IDS",
            help="The first N users, or ids with commas; all by default (recovery-release).",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which of several suites (paradigms-release)."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Bring published records into a run: the release of the recovery paper (arXiv
    2606.24595), or a suite of the paradigms paper with its reports (arXiv 2609.30558).

    Nothing is lost: what has no column stays in the table `extras`. Every file, line or
    field that is missing, damaged or surprising is reported; exits with 1 when a
    record could not be used. Examples:

    `memprobe import recovery-release release/ --run pub`

    `memprobe import paradigms-release release/ --suite suite56 --run pub56`
    """
    where = location(resolved, run)
    if kind == "paradigms-release":
        if users is not None:
            raise UsageError("--users is for recovery-release; a suite is imported whole")
        _suite(folder, where, run, suite, json_output)
        return
    if suite is not None:
        raise UsageError("--suite is for paradigms-release")
    from storage.importers.recovery_release import import_release

    found = import_release(folder, where, run, _wanted(users), _Progress("users"))
    if json_output:
        emit_json(asdict(found))
    else:
        _print(found)
    if found.lost:
        raise typer.Exit(errors.INCOMPLETE)


def _suite(folder: Path, where: str, run: str, suite: str | None, json_output: bool) -> None:
    from storage.importers.paradigms_answers import LAYER
    from storage.importers.paradigms_release import import_suite
    from storage.runs import RunStore
    from tasks.paradigms.score import score_paradigms

    found = import_suite(folder, where, run, suite, _Progress("done"))
    if found.systems:
        note("memprobe: computing figures and intervals")
        store = RunStore.open(where)
        for layer in ("base", LAYER):
            score_paradigms(store, layer)
    if json_output:
        emit_json(asdict(found))
    else:
        _print_suite(found)
    if found.lost:
        raise typer.Exit(errors.INCOMPLETE)


def _print_suite(found: ImportedSuite) -> None:
    rows = ", ".join(f"{n} {table}" for table, n in found.rows.items() if table != "extras")
    print(
        f"{found.run}: {plain(found.suite)}, {len(found.episodes)} episodes, "
        f"{len(found.systems)} systems, {found.n_files} files: {rows}"
    )
    _issues(found.run, found.issues)
    print(f"{found.lost} losses, {found.notes} notes")
    print(f"the paper scorer gives {found.agreed} of {found.compared} published verdicts again")
    print(f"next: memprobe tables {found.run} --paper paradigms")


def _print(found: Imported) -> None:
    rows = ", ".join(f"{n} {table}" for table, n in found.rows.items() if table != "extras")
    print(
        f"{found.run}: {len(found.users)} users, {len(found.systems)} systems, "
        f"{found.n_files} files: {rows}"
    )
    _issues(found.run, found.issues)
    print(f"{found.lost} losses, {found.notes} notes")
    print(f"next: memprobe tables {found.run} --paper recovery")


def _issues(run: str, issues: Sequence[dict[str, Any]]) -> None:
    ordered = sorted(issues, key=lambda issue: issue["severity"])
    for issue in ordered[:SHOWN]:
        where = ", ".join(part for part in (issue["path"], issue["field"]) if part)
        print(plain(f"{issue['severity']}: {where}: {issue['problem']}; {issue['done']}"))
    if len(ordered) > SHOWN:
        print(f"... and {len(ordered) - SHOWN} more: memprobe sql {run} "
              '"select * from import_issues"')  # fmt: skip
