"""Settings: flag, then environment, then `.env`, then file, then default; each with its origin.

Every option `--max-cost` has a variable `MEMPROBE_MAX_COST` and a key `max_cost`
in the `[memprobe]` table of `memprobe.toml`. An empty variable counts as not set.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from memprobe import setting_values
from memprobe.config import SUITE_DEFAULTS, RunConfig
from memprobe.errors import SettingsError
from memprobe.setting_values import display, nearest
from memprobe.types import Frozen, Role, SuiteName

PREFIX = "MEMPROBE_"
FILE = "memprobe.toml"
TABLE = "memprobe"
DOTENV = ".env"


def _server_database(url: str) -> str:
    # Not repeated in the message: it may hold a password.
    if url and not re.match(r"postgresql\+asyncpg://|sqlite\+aiosqlite:///", url):
        raise ValueError(
            "must be postgresql+asyncpg://USER@HOST/DATABASE or sqlite+aiosqlite:///PATH"
        )
    return url


class Settings(Frozen):
    """Where things lie and how the program behaves; nothing in here changes a figure.

    `runs` is a folder or any fsspec URL, `ledger` an SQLAlchemy URL, `work_dir`
    the local folder for checkpoints of runs in an object store. `no_server`
    refuses to start a Prefect server: the one at `PREFECT_API_URL` is used.
    `task_runner` says which processes work: this one, or those of Dask, which
    are `dask_workers` new ones or the scheduler at `dask_address`. `worker_wait`
    is how many seconds a deployed run waits for a worker of a pool that has none.
    `server_database` is where a Prefect server that we start keeps its records:
    a file in the runs folder when it is empty.
    """

    runs: str = "runs"
    ledger: str = ""
    server_database: Annotated[str, AfterValidator(_server_database)] = ""
    work_dir: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    no_server: bool = False
    task_runner: Literal["local", "dask"] = "local"
    dask_workers: Annotated[int, Field(gt=0)] = 2
    dask_address: str | None = None
    worker_wait: Annotated[float, Field(gt=0)] = 600.0
    debug: bool = False


Panel = Literal["What is measured", "Models", "Limits", "Where and how"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its key, what it does, and the field that it fills."""

    name: str
    help: str
    metavar: str
    panel: Panel
    field: str = ""
    many: bool = False
    """Given several times on the command line; a list or a table in the file."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def target(self) -> str:
        return self.field or self.name

    @property
    def model(self) -> type[Frozen]:
        return Settings if self.target in Settings.model_fields else RunConfig

    @property
    def boolean(self) -> bool:
        return self.model.model_fields[self.target].annotation is bool

    @property
    def default(self) -> Any:
        return self.model.model_fields[self.target].get_default(call_default_factory=True)


_ROLES = ", ".join(role.value for role in Role)

RUN_OPTIONS = (
    Option(
        "systems",
        "Memory systems, separated by commas; `memprobe systems` lists them.",
        "A,B",
        "What is measured",
    ),
    Option(
        "users",
        "How many users (the first in id order), or ids separated by commas, or `all`; "
        "in the paradigms suite, episodes.",
        "N|IDS",
        "What is measured",
    ),
    Option(
        "dataset",
        "Folder of a data set or suite, or the name of a bundled suite; the bundled one of "
        "the suite when not given.",
        "DIR",
        "What is measured",
    ),
    Option(
        "limit",
        "At most so many tasks a user, spread over the categories; in the paradigms suite, "
        "episodes, spread over the paradigms.",
        "N",
        "What is measured",
    ),
    Option(
        "access",
        "How readers reach a store: dump_all, retrieve, or both.",
        "MODES",
        "What is measured",
    ),
    Option(
        "dump_reader",
        "whole reads a store in one prompt; chunked reads it in window-sized parts, too.",
        "whole|chunked",
        "What is measured",
    ),
    Option(
        "k",
        "How many items a retrieval returns; several values are measured in one pass.",
        "K,K",
        "What is measured",
    ),
    Option(
        "protocol",
        "strict measures soundly; paper reproduces the published procedure, faults included.",
        "strict|paper",
        "What is measured",
    ),
    Option("epochs", "Repetitions of every rollout.", "N", "What is measured"),
    Option(
        "hide_session_type",
        "Paradigms under --protocol paper: keep the published label leak out.",
        "",
        "What is measured",
    ),
    Option("max_turns", "Turns after which an episode ends.", "N", "What is measured"),
    Option("seed", "Enters every simulated draw and every bootstrap.", "N", "What is measured"),
    Option(
        "model",
        "Model for every role: a litellm model string, or embedded/default (no key, no server).",
        "MODEL",
        "Models",
    ),
    Option(
        "model_role",
        f"Model for one role, ROLE=MODEL; may be repeated. Roles: {_ROLES}.",
        "ROLE=MODEL",
        "Models",
        field="model_roles",
        many=True,
    ),
    Option(
        "independent",
        "Let every system sample its own answers, even to the very same question.",
        "",
        "Models",
    ),
    Option(
        "system_option",
        "One of a memory system's own options, SYSTEM.FIELD=VALUE; may be repeated. "
        "`memprobe systems` shows them.",
        "SYSTEM.FIELD=VALUE",
        "What is measured",
        field="system_options",
        many=True,
    ),
    Option(
        "context_window",
        "Tokens of the reader's context window; what is known of the model when not given.",
        "TOKENS",
        "Limits",
    ),
    Option("max_connections", "Calls under way at once, per provider.", "N", "Limits"),
    Option("call_timeout", "Seconds after which a call is given up.", "SECONDS", "Limits"),
    Option(
        "max_cost",
        "US dollars; the call that would pass it is not made and the run stays resumable.",
        "USD",
        "Limits",
    ),
    Option(
        "coverage_threshold",
        "Share of scored items below which a ranking is refused.",
        "SHARE",
        "Limits",
    ),
    Option(
        "error_threshold",
        "Share of unscored items above which a run exits with 1.",
        "SHARE",
        "Limits",
    ),
)
PROCESS_OPTIONS = (
    Option(
        "task_runner",
        "Who works on the units: local is this process, dask spreads them over Dask workers.",
        "local|dask",
        "Where and how",
    ),
    Option("dask_workers", "Dask worker processes to start here.", "N", "Where and how"),
    Option(
        "dask_address",
        "Dask scheduler to use instead of starting workers.",
        "ADDRESS",
        "Where and how",
    ),
    Option(
        "worker_wait",
        "Seconds that a deployed run waits for a worker of a pool that has none.",
        "SECONDS",
        "Where and how",
    ),
)
COMMON_OPTIONS = (
    Option("runs", "Folder or fsspec URL that holds the runs.", "DIR|URL", "Where and how"),
    Option(
        "ledger",
        "SQLAlchemy URL of the call ledger; ledger.sqlite in the runs folder when not given.",
        "URL",
        "Where and how",
    ),
    Option(
        "server_database",
        "Database of a Prefect server that MemProbe starts: postgresql+asyncpg://... or "
        "sqlite+aiosqlite:///PATH; a file in the runs folder when not given.",
        "URL",
        "Where and how",
    ),
    Option(
        "work_dir",
        "Local folder for checkpoints when the runs are in an object store.",
        "DIR",
        "Where and how",
    ),
    Option("log_level", "What is logged to stderr.", "LEVEL", "Where and how"),
    Option(
        "no_server",
        "Never start a Prefect server; use the one at PREFECT_API_URL.",
        "",
        "Where and how",
    ),
    Option("debug", "Show the traceback of an error.", "", "Where and how"),
)
OPTIONS = RUN_OPTIONS + PROCESS_OPTIONS + COMMON_OPTIONS
BY_NAME = {option.name: option for option in OPTIONS}
ELSEWHERE = {PREFIX + "CONFIG", PREFIX + "RELEASE"}
"""Variables of ours that are no option of a run."""

Source = Literal["flag", "environment", ".env", "file", "default"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: the kind of place, and its name there."""

    source: Source
    where: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """All values with their origins, and what looked like a slip on the way."""

    settings: Settings
    values: dict[str, Any]
    origins: dict[str, Origin]
    file: Path | None = None
    warnings: tuple[str, ...] = ()
    dotenv: dict[str, str] = field(default_factory=dict)
    """Variables of `.env` that are not ours, e.g. a provider's key; never shown."""

    def config(self, name: str, suite: SuiteName = "recovery") -> RunConfig:
        """The settings of a run of that name."""
        try:
            return RunConfig(name=name, suite=suite, **self.fields(suite))
        except ValidationError as error:
            raise SettingsError(_problem(error)) from error

    def fields(self, suite: SuiteName) -> dict[str, Any]:
        """The fields of a run's configuration; what nobody gave is as the suite has it."""
        fields = {o.target: self.values[o.name] for o in RUN_OPTIONS}
        own = SUITE_DEFAULTS[suite]
        return fields | {k: v for k, v in own.items() if k not in self.given()}

    def given(self) -> set[str]:
        """Names of the options that are not at their default."""
        return {name for name, origin in self.origins.items() if origin.source != "default"}


def resolve(
    flags: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    folder: Path,
    file: str | Path | None = None,
) -> Resolved:
    """Look up every option; `folder` is where `.env` and `memprobe.toml` are searched.

    The text `none` sets an optional value back to nothing. A flag of None (or an
    empty list) is not given. Raises `SettingsError` naming every place that was
    looked at and the one that holds the bad value.
    """
    dotenv = _dotenv(folder / DOTENV)
    chosen = file or environ.get(PREFIX + "CONFIG") or dotenv.get(PREFIX + "CONFIG")
    path, table = _table(Path(chosen) if chosen else folder / FILE, required=bool(chosen))
    places: tuple[tuple[Source, str, Mapping[str, Any]], ...] = (
        ("flag", "", flags),
        ("environment", "", environ),
        (".env", str(folder / DOTENV), dotenv),
        ("file", str(path or folder / FILE), table),
    )
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for option in OPTIONS:
        found: tuple[Any, Origin] | None = None
        trail: list[tuple[Origin, str]] = []
        for source, name, mapping in places:
            origin = Origin(source, _where(option, source, name))
            raw = mapping.get(option.variable if source in ("environment", ".env") else option.name)
            if raw is None or raw == "" or raw == [] or raw == ():
                trail.append((origin, "not given"))
                continue
            trail.append((origin, redact(display(raw))))
            if found is None:
                found = (raw, origin)
        trail.append((Origin("default", "default"), display(option.default)))
        if found is None:
            values[option.name] = option.default
            origins[option.name] = Origin("default", "default")
            continue
        raw, origin = found
        try:
            values[option.name] = _checked(option, raw)
        except (ValidationError, ValueError) as error:
            raise SettingsError(_bad_value(option, origin, trail, error)) from error
        origins[option.name] = origin
    if not values["ledger"]:
        home = "runs" if "://" in values["runs"] else values["runs"]
        values["ledger"] = f"sqlite:///{Path(home) / 'ledger.sqlite'}"
    settings = Settings(**{name: values[name] for name in Settings.model_fields})
    return Resolved(
        settings=settings,
        values=values,
        origins=origins,
        file=path,
        warnings=(*_strangers(environ, ""), *_strangers(dotenv, str(folder / DOTENV))),
        dotenv={k: v for k, v in dotenv.items() if not k.startswith(PREFIX)},
    )


def load_settings(suite: SuiteName = "recovery") -> tuple[Settings, dict[str, Any]]:
    """The settings of this process without any flag, and the fields of a suite's configuration.

    For flows that a worker starts: environment, `.env` and file of the current folder.
    """
    resolved = resolve({}, environ=os.environ, folder=Path())
    if resolved.settings.work_dir:
        # Stores are opened by their location alone, in whatever process.
        os.environ[BY_NAME["work_dir"].variable] = resolved.settings.work_dir
    return resolved.settings, resolved.fields(suite)


def shown(resolved: Resolved, name: str) -> str:
    """A value as text that may be printed: passwords in URLs are hidden."""
    if name == "users" and resolved.values[name] is None:
        return "all"
    return redact(display(resolved.values[name]))


def redact(text: str) -> str:
    """Hide the password of any URL in a text, in its address or its parameters."""
    text = re.sub(r"(://[^:/@\s]*):[^@\s]+@", r"\1:***@", text)
    return re.sub(r"([?&](?:ssl)?password=)[^&\s]+", r"\1***", text)


def _where(option: Option, source: Source, place: str) -> str:
    match source:
        case "flag":
            return option.flag
        case "environment":
            return option.variable
        case ".env":
            return f"{option.variable} in {place}"
        case _:
            return f"{option.name} in {place}"


def _checked(option: Option, raw: Any) -> Any:
    """The value of its type; raises `ValueError` (pydantic's is one) when it does not fit."""
    match option.name:
        case _ if option.default is None and raw == "none":
            raw = None
        case "systems" | "access":
            raw = tuple(setting_values.split(raw))
        case "k":
            raw = (raw,) if isinstance(raw, int) else tuple(setting_values.split(raw))
        case "users":
            raw = setting_values.users(raw)
        case "model_role":
            raw = setting_values.roles(raw)
        case "system_option":
            raw = setting_values.system_options(raw)
        case _ if isinstance(raw, (list, tuple, dict)):
            raise ValueError("one value, not a list or a table")
    named = {"name": "check"} if option.model is RunConfig else {}
    return getattr(option.model.model_validate({**named, option.target: raw}), option.target)


def _problem(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(str(e["msg"]).removeprefix("Value error, ") for e in error.errors())
    return str(error)


def _bad_value(
    option: Option, culprit: Origin, trail: list[tuple[Origin, str]], error: ValueError
) -> str:
    lines = [f"{culprit.where}: {_problem(error)}", "  looked at, in this order:"]
    for origin, text in trail:
        mark = "  <- this one" if origin == culprit else ""
        lines.append(f"    {origin.where}: {text}{mark}")
    lines.append(f"  {option.flag}: {option.help}")
    return "\n".join(lines)


def _dotenv(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    try:
        return {k: v for k, v in dotenv_values(path).items() if v is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def _table(path: Path, *, required: bool) -> tuple[Path | None, dict[str, Any]]:
    if not path.is_file():
        if required:
            raise SettingsError(f"{path}: no such settings file")
        return None, {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    for key in content:
        if key != TABLE:
            hint = f"; put it under [{TABLE}]" if key in BY_NAME else nearest(key, {TABLE})
            raise SettingsError(f"{path}: unknown key {key!r} at the top{hint}")
    table = content.get(TABLE, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: [{TABLE}] must be a table")
    for key in table:
        if key not in BY_NAME:
            raise SettingsError(f"{path}: unknown key {key!r} in [{TABLE}]{nearest(key, BY_NAME)}")
    return path, table


def _strangers(mapping: Mapping[str, str], place: str) -> list[str]:
    known = {option.variable for option in OPTIONS} | ELSEWHERE
    return [
        f"{name}{' in ' + place if place else ''} is no setting of MemProbe"
        f"{nearest(name, known)}; it is ignored"
        for name in sorted(mapping)
        if name.startswith(PREFIX) and name not in known
    ]
