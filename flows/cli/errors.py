"""Errors as a user sees them: one message on stderr and an exit code."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from memprobe.errors import DatasetError, MemProbeError, MissingPrerequisite, UsageError

OK, INCOMPLETE, USAGE, GATE, INTERRUPTED = 0, 1, 2, 3, 130
_debug = False


def set_debug(on: bool) -> None:
    """Whether an error of ours comes with its traceback."""
    global _debug
    _debug = on


def exit_code(error: MemProbeError) -> int:
    """2 for what the user can put right before anything was done, else 1."""
    return USAGE if isinstance(error, (UsageError, MissingPrerequisite, DatasetError)) else 1


class Group(TyperGroup):
    """The root group: turns what MemProbe raises on purpose into a message and a code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        set_debug(False)
        try:
            return super().invoke(ctx)
        except MemProbeError as error:
            if _debug:
                import traceback

                traceback.print_exception(error)
            print(f"memprobe: {error}", file=sys.stderr)
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            print(
                "memprobe: interrupted; finished calls and units are kept, the same command "
                "goes on from there",
                file=sys.stderr,
            )
            raise typer.Exit(INTERRUPTED) from None
