"""`doctor` and `up`: whether this machine is ready, and a server that stays."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.cli import errors
from flows.cli.options import Json, with_settings
from flows.cli.output import emit_json, note, plain, table
from memprobe.settings import (
    OPTIONS,
    PROCESS_OPTIONS,
    RUN_OPTIONS,
    Resolved,
    redact,
    shown,
)

DISTRIBUTION = "memprobe-audit"
KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "MISTRAL_API_KEY",
    "GROQ_API_KEY",
    "OPENROUTER_API_KEY",
    "AZURE_API_KEY",
    "HOSTED_VLLM_API_KEY",
)
EXTRAS = {
    "mem0": "mem0",
    "graphiti": "graphiti_core",
    "langmem": "langmem",
    "cognee": "cognee",
    "postgres": "psycopg",
    "s3": "boto3",
    "dask": "prefect_dask",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the machine. `info` states a fact that is neither right nor wrong."""

    name: str
    result: Literal["ok", "failed", "info"]
    detail: str


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Set up")(doctor)
    app.command(rich_help_panel="Set up")(up)


@with_settings(*(option.name for option in RUN_OPTIONS + PROCESS_OPTIONS))
def doctor(resolved: Resolved, json_output: Json = False) -> None:
    """Show every setting with its origin and check this machine. Keys are never shown.

    Example: `memprobe doctor --model openai/gpt-5.4-mini`
    """
    settings = [
        {
            "name": option.name,
            "value": shown(resolved, option.name),
            "source": resolved.origins[option.name].source,
            "where": redact(resolved.origins[option.name].where),
        }
        for option in OPTIONS
    ]
    checks = examine(resolved)
    failed = [check for check in checks if check.result == "failed"]
    if json_output:
        emit_json(
            {
                "settings": settings,
                "checks": [asdict(check) for check in checks],
                "warnings": list(resolved.warnings),
                "ok": not failed,
            }
        )
    else:
        rows = [[s["name"], s["value"], _origin(s)] for s in settings]
        table(["setting", "value", "from"], rows)
        table(["check", "result", "detail"], [[c.name, c.result, c.detail] for c in checks])
    if failed:
        note(f"memprobe: not ready: {', '.join(check.name for check in failed)}")
        raise typer.Exit(errors.USAGE)


def _origin(setting: dict[str, Any]) -> str:
    return "default" if setting["source"] == "default" else setting["where"]


def examine(resolved: Resolved) -> list[Check]:
    """All checks, each on its own: one that fails does not hide the next."""
    named: list[tuple[str, Callable[[Resolved], str]]] = [
        ("python", _python),
        ("runs folder", _runs),
        ("ledger", _ledger),
        ("data set", _dataset),
        ("embedder", _embedder),
        ("prefect server", _server),
    ]
    checks = []
    for name, function in named:
        note(f"looking at: {name}")
        checks.append(_checked(name, function, resolved))
    checks += _packages()
    checks += [
        Check(f"extra {name}", "info", "installed" if util.find_spec(module) else "not installed")
        for name, module in EXTRAS.items()
    ]
    checks += [Check(key, "info", "set" if os.environ.get(key) else "not set") for key in KEYS]
    return checks


def _checked(name: str, function: Callable[[Resolved], str], resolved: Resolved) -> Check:
    try:
        return Check(name, "ok", plain(redact(function(resolved))))
    except Exception as error:
        return Check(name, "failed", plain(redact(f"{error}" or type(error).__name__)))


def _python(_: Resolved) -> str:
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise RuntimeError(f"{platform.python_version()}; 3.11 to 3.13 are supported")
    return f"{platform.python_version()} at {sys.executable}"


def _runs(resolved: Resolved) -> str:
    from storage.files import open_files

    files = open_files(resolved.settings.runs)
    local = None if "://" in resolved.settings.runs else Path(resolved.settings.runs)
    made = local is not None and not local.exists()
    name = f".doctor-{os.getpid()}"
    files.write(name, b"ok")
    files.remove(name)
    if made and local is not None:
        local.rmdir()
    return f"{files.root} is writable"


def _ledger(resolved: Resolved) -> str:
    from storage.ledger import Ledger

    url = resolved.settings.ledger
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder:
                Ledger.open(f"sqlite:///{Path(folder) / 'ledger.sqlite'}").close()
            return f"{url} will be made by the first run"
    ledger = Ledger.open(url)
    try:
        ledger.check_writable()
    finally:
        ledger.close()
    return f"{url} is writable"


def _dataset(resolved: Resolved) -> str:
    from memprobe.dataset import load_dataset
    from storage.bundled import recovery_dir

    chosen = resolved.values["dataset"]
    dataset = load_dataset(Path(chosen) if chosen else recovery_dir())
    return f"{dataset.name}, {len(dataset.users)} users, {dataset.digest[:12]}"


def _embedder(_: Resolved) -> str:
    from adapters.models.minilm import MiniLM

    async def encode() -> str:
        embedder = MiniLM()
        try:
            vectors = await embedder.encode(["memory"])
            return f"{embedder.name}, {len(vectors[0])} dimensions"
        finally:
            await embedder.close()

    return asyncio.run(encode())


def _server(resolved: Resolved) -> str:
    from flows import server

    given = os.environ.get("PREFECT_API_URL")
    if given:
        if not server.healthy(given, timeout=5.0):
            raise RuntimeError(
                f"no server answers at PREFECT_API_URL {given}: "
                "start one with `memprobe up`, or unset the variable"
            )
        return f"{given} answers"
    if resolved.settings.no_server:
        raise RuntimeError("--no-server is set and PREFECT_API_URL is not")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started, process = server.start(Path(folder), database=resolved.settings.server_database)
        server.stop(process)
    kept = resolved.settings.server_database
    database = f", its database at {kept}" if kept else ""
    return f"a local one starts (tried at {started.api_url}{database})"


def _packages() -> list[Check]:
    """The versions of what is required, and what is missing of it."""
    from packaging.requirements import Requirement

    checks = []
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
        if not project.is_file():
            return [Check(DISTRIBUTION, "failed", "its installation is damaged; install it again")]
        lines = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
        checks.append(Check(DISTRIBUTION, "info", f"run from the checkout at {project.parent}"))
    wanted = [Requirement(line) for line in lines]
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            checks.append(Check(requirement.name, "failed", "not installed"))
            continue
        fits = requirement.specifier.contains(version, prereleases=True)
        detail = version if fits else f"{version}, {requirement.specifier} needed"
        checks.append(Check(requirement.name, "ok" if fits else "failed", detail))
    return checks


@with_settings()
def up(
    resolved: Resolved,
    port: Annotated[int, typer.Option(help="Port of the server on loopback.")] = 4200,
) -> None:
    """Keep a tuned Prefect server running, with work pools and the zombie automation.

    Prints its address and the commands that deploy the flows and start workers.
    Ctrl-C ends it. Example: `memprobe up`
    """
    from flows import up as service

    service.up(resolved.settings, port=port)
