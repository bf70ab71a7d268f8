"""`export`, `bundle`, `verify`: a run for others, in a published layout or as one file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, only_recovery, opened, with_settings
from flows.cli.output import emit_json, note, plain
from memprobe.settings import Resolved

SHOWN = 50


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (export, bundle, verify):
        app.command(rich_help_panel="Results")(command)


@with_settings()
def export(
    resolved: Resolved,
    run: RunName,
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder for the files.")],
    layout: Annotated[
        Literal["recovery-release"], typer.Option(help="The layout that is written.")
    ] = "recovery-release",
    json_output: Json = False,
) -> None:
    """Write a run in a public layout; what that cannot hold goes to a folder `memprobe/`.

    An imported run comes out as it went in; `memprobe/export.json` lists every file
    and names those whose bytes differ. Exits with 1 when a file was not kept. Example:

    `memprobe export pub --layout recovery-release --out release-again`
    """
    from storage.exporters.recovery_release import export_release

    store = opened(resolved, run)[1]
    only_recovery(store, "export", "`memprobe bundle` packs a run of any suite")
    found = export_release(store, out)
    if json_output:
        emit_json(asdict(found))
    else:
        print(f"{found.run}: {found.files} files in {found.folder}, layout {layout}")
        if found.same is not None:
            print(f"{found.same} are the imported bytes, {len(found.other)} are not")
        for path in found.other[:SHOWN]:
            note(plain(f"memprobe: not the imported bytes: {path}"))
        for user, name in found.renamed.items():
            note(plain(f"memprobe: user {user} is called {name} in paths"))
        rest = ", ".join(f"{n} {table}" for table, n in found.rest.items())
        print(f"rows that the layout does not hold, in memprobe/rest.jsonl: {rest or 'none'}")
    for path in found.missing[:SHOWN]:
        note(plain(f"memprobe: not kept by the import, not written: {path}"))
    if found.missing:
        raise typer.Exit(errors.INCOMPLETE)


@with_settings()
def bundle(
    resolved: Resolved,
    run: RunName,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="FILE.zip, or a new folder; without keys and paths."),
    ],
    json_output: Json = False,
) -> None:
    """Pack a run to be checked by others: manifest, tables, metrics, and a hash of each.

    The same run gives the same bytes. `memprobe verify` re-computes the metrics from
    the verdicts in it; unpacked, a bundle is a run that every reading command takes.
    Example:

    `memprobe bundle pub --out pub.zip`
    """
    from tasks.bundle import write_bundle

    found = write_bundle(opened(resolved, run)[1], out)
    if json_output:
        emit_json(asdict(found))
        return
    print(f"{found.run}: {found.files} files, {found.size:,} bytes: {found.path}")
    if found.sha256:
        print(f"sha256 {found.sha256}")
    for line in found.notes:
        note(plain(f"memprobe: {line}"))
    print(f"next: memprobe verify {found.path}")


@with_settings()
def verify(
    resolved: Resolved,
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's file or folder.")],
    json_output: Json = False,
) -> None:
    """Check a bundle: every hash, every row, and the metrics re-computed from its verdicts.

    Exits with 1 when anything differs, and names the file, row or figure. Example:

    `memprobe verify pub.zip`
    """
    from tasks.verify import verify_bundle

    found = verify_bundle(path)
    if json_output:
        emit_json({**asdict(found), "ok": found.ok})
    else:
        differ = len(found.problems)
        for line in found.problems[:SHOWN]:
            print(plain(f"differs: {line}"))
        if len(found.problems) > SHOWN:
            print(f"... and {len(found.problems) - SHOWN} more: --json has all")
        for line in found.notes:
            note(plain(f"memprobe: {line}"))
        print(
            f"{found.run}: {found.files} files, {found.rows:,} rows of evidence, "
            f"{found.metrics:,} figures re-computed: "
            + ("as stated" if found.ok else f"{differ} difference{'s' * (differ != 1)}")
        )
    if not found.ok:
        raise typer.Exit(errors.INCOMPLETE)
