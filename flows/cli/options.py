"""Shared options: a command names the settings it takes and gets them resolved."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from flows.cli.errors import set_debug
from memprobe.errors import UsageError
from memprobe.ids import slug
from memprobe.settings import BY_NAME, COMMON_OPTIONS, Option, Resolved, redact, resolve

if TYPE_CHECKING:
    from storage.runs import RunStore

Json = Annotated[
    bool, typer.Option("--json", help="Machine-readable JSON on stdout, nothing else there.")
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or its folder.")]
COMMON = tuple(option.name for option in COMMON_OPTIONS)


def _default(option: Option) -> str | bool:
    value = option.default
    if value is None or value == "" or value == {}:
        return False
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parameter(option: Option) -> inspect.Parameter:
    shared: dict[str, Any] = {"help": option.help, "rich_help_panel": option.panel}
    kind: Any
    if option.boolean:
        kind = bool | None
        info = typer.Option(f"{option.flag}/--no-{option.flag[2:]}", show_default=False, **shared)
        if option.name.startswith("no_"):
            info = typer.Option(option.flag, show_default=False, **shared)
    else:
        kind = list[str] | None if option.many else str | None
        shared["metavar"] = option.metavar
        info = typer.Option(option.flag, show_default=_default(option), **shared)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, info],
    )


def _config_parameter() -> inspect.Parameter:
    info = typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file instead of ./memprobe.toml.",
        rich_help_panel="Where and how",
    )
    return inspect.Parameter(
        "config_file",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, info],
    )


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the named options and those that all commands have.

    The decorated function gets the `Resolved` settings first, then its own parameters.
    """
    options = [BY_NAME[name] for name in (*names, *COMMON)]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
            *(_parameter(option) for option in options),
            _config_parameter(),
        ]

        def command(**given: Any) -> None:
            flags = {option.name: given.pop(option.name) for option in options}
            function(load(flags, given.pop("config_file")), **given)

        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        command.__module__ = function.__module__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def load(flags: dict[str, Any], file: str | None = None) -> Resolved:
    """Resolve the settings in the current folder, warn about slips, and apply them.

    Variables of `.env` that are not ours (a provider's key) enter the
    environment unless they are set there already.
    """
    set_debug(bool(flags.get("debug")) or os.environ.get("MEMPROBE_DEBUG", "") not in ("", "0"))
    resolved = resolve(flags, environ=os.environ, folder=Path(), file=file)
    set_debug(resolved.settings.debug)
    for warning in resolved.warnings:
        print(f"memprobe: {redact(warning)}", file=sys.stderr)
    for name, value in resolved.dotenv.items():
        os.environ.setdefault(name, value)
    if resolved.settings.work_dir:
        os.environ["MEMPROBE_WORK_DIR"] = resolved.settings.work_dir
    log_to_stderr(resolved.settings.log_level.upper())
    return resolved


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at the moment, as the live display may replace it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _Stderr()


def log_to_stderr(level: str) -> None:
    """Log from this level on. Libraries that set a level of their own are held to it too."""
    root = logging.getLogger()
    if _handler not in root.handlers:
        root.addHandler(_handler)
    _handler.setLevel(level)
    root.setLevel(level)


def location(resolved: Resolved, run: str) -> str:
    """Where a run lies: a path or URL as given, a name below the runs folder.

    A name may look like a path (`--run a/b`); what is there decides.
    """
    from storage.runs import RunStore

    named = f"{resolved.settings.runs.rstrip('/')}/{slug(run)}"
    if "://" in run or Path(run, "manifest.json").is_file():
        return run.rstrip("/")
    pathlike = "/" in run or os.sep in run
    return run.rstrip("/") if pathlike and not RunStore.exists(named) else named


def opened(resolved: Resolved, run: str) -> tuple[Resolved, RunStore]:
    """A run's store, and the settings for it.

    For a run that is given by its folder, the folder above is its runs folder.
    Raises `UsageError` naming the runs there are when there is no such run.
    """
    from storage.runs import RunStore

    where = location(resolved, run)
    if not RunStore.exists(where):
        known = [Path(store.location).name for store in RunStore.list(resolved.settings.runs)]
        there = f"; there are: {', '.join(known[:20])}" if known else ""
        raise UsageError(f"no run {run!r} at {where}{there}")
    store = RunStore.open(where)
    home = store.location.rpartition("/")[0]
    if where == location(resolved, store.name):
        return resolved, store
    changes = {"runs": home}
    if "ledger" not in resolved.given() and "://" not in home:
        changes["ledger"] = f"sqlite:///{home}/ledger.sqlite"
    settings = resolved.settings.model_copy(update=changes)
    return replace(resolved, settings=settings), store


def only_recovery(store: RunStore, command: str, instead: str = "") -> None:
    """Raises `UsageError` for a run of another suite, which has nothing for this command."""
    suite = store.manifest.config.suite
    if suite != "recovery":
        more = f"; {instead}" if instead else ""
        raise UsageError(
            f"run {store.name!r} is of the {suite} suite, and `memprobe {command}` is for the "
            f"recovery suite{more}"
        )


def prepare_ledger(resolved: Resolved) -> None:
    """Make the folder of an SQLite ledger."""
    url = resolved.settings.ledger
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
