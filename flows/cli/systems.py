"""`systems` and `check`: the memory systems there are, and the contract they are held to."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import errors
from flows.cli.options import Json, with_settings
from flows.cli.output import emit_json, note, plain, table
from memprobe.settings import Resolved
from memprobe.types import Role

if TYPE_CHECKING:
    from adapters.memory.contract import CheckResult
    from adapters.memory.contract.models import ContractModels
    from adapters.models.minilm import MiniLM
    from memprobe.config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Memory systems")(systems)
    app.command(rich_help_panel="Memory systems")(check)


@with_settings()
def systems(resolved: Resolved, json_output: Json = False) -> None:
    """List the memory systems: built in and from installed packages. Broken ones are named.

    Example: `memprobe systems`
    """
    from adapters.memory.registry import Registry
    from adapters.models.minilm import MiniLM

    registry = Registry(MiniLM())
    cards, broken = registry.cards(), registry.broken()
    if json_output:
        emit_json({"systems": [c.model_dump(mode="json") for c in cards], "broken": broken})
        return
    rows: list[list[Any]] = []
    for card in cards:
        can = card.capabilities
        needs = [word for word, on in (("model", can.needs_llm), ("gpu", card.pool == "gpu")) if on]
        rows.append([card.name, card.summary, card.origin, ", ".join(needs), card.extra or ""])
    table(["name", "what it does", "origin", "needs", "extra"], rows)
    for name, reason in broken.items():
        note(f"memprobe: {plain(name)} cannot be loaded: {plain(reason)}")


@with_settings("model", "model_role", "protocol", "system_option")
def check(
    resolved: Resolved,
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A listed name, or path/to/file.py:Class.")
    ],
    json_output: Json = False,
) -> None:
    """Hold a memory system to the contract: isolation, complete dumps, event time and more.

    The last line tells what thirty turns of dialogue cost it. A system that asks
    a language model needs one: give it with `--model`.

    Examples: `memprobe check examples/my_memory.py:MyMemory`,
    `memprobe check amem --model openai/gpt-5.4-mini`
    """
    results = asyncio.run(_check(resolved, spec))
    failed = [r for r in results if not r.passed]
    if json_output:
        emit_json({"system": spec, "passed": not failed, "checks": [asdict(r) for r in results]})
    else:
        rows = [[r.name, _word(r), r.detail] for r in results]
        table(["check", "result", "detail"], rows)
    if failed:
        note(f"memprobe: {spec} broke its contract: {', '.join(r.name for r in failed)}")
        raise typer.Exit(errors.INCOMPLETE)


def _word(result: CheckResult) -> str:
    if result.skipped:
        return "not applicable"
    return "pass" if result.passed else "FAIL"


async def _check(resolved: Resolved, spec: str) -> list[CheckResult]:
    from adapters.memory.contract import check_spec
    from adapters.models.minilm import MiniLM

    def tell(result: CheckResult) -> None:
        note(f"{result.name}: {_word(result)} ({result.seconds:.1f} s)")

    config = resolved.config("check")
    embedder = MiniLM()
    try:
        with tempfile.TemporaryDirectory(prefix="memprobe-check-") as folder:
            async with _models(config, embedder, Path(folder)) as models:
                return await check_spec(
                    spec,
                    embedder,
                    workdir=Path(folder),
                    protocol=config.protocol,
                    models=models,
                    options=config.system_options,
                    on_result=tell,
                )
    finally:
        await embedder.close()


@asynccontextmanager
async def _models(
    config: RunConfig, embedder: MiniLM, folder: Path
) -> AsyncIterator[ContractModels | None]:
    """A model for the system under check, through the gateway; None without `--model`."""
    if config.model_of(Role.MEMORY).startswith("embedded/"):
        yield None
        return
    from adapters.memory.contract.models import contract_models

    async with contract_models(config, embedder, folder) as models:
        yield models
