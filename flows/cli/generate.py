"""`generate`: new users from a model, in the format of the bundled ones."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import errors
from flows.cli.options import Json, prepare_ledger, with_settings
from flows.cli.output import emit_json, note, plain
from flows.preflight import GENERATING, check_models
from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.settings import Resolved
from memprobe.types import Role

if TYPE_CHECKING:
    from tasks.generate import GenerationReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Data")(generate)


@with_settings("model", "model_role", "seed", "max_connections", "call_timeout", "max_cost")
def generate(
    resolved: Resolved,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the new data set.")],
    users: Annotated[int, typer.Option("--users", metavar="N", min=1, help="How many users.")] = 1,
    start: Annotated[
        int, typer.Option("--start", metavar="N", min=1, help="Number of the first user.")
    ] = 1,
    json_output: Json = False,
) -> None:
    """Generate users with a model: persona, hidden bank, leak-controlled tasks.

    The same command again goes on where it stopped. Needs a real model. Example:

    `memprobe generate --users 5 --model openai/gpt-5.4-mini --out my_users`
    """
    config = resolved.config("generate")
    if config.model_of(Role.GENERATOR).startswith("embedded/"):
        raise UsageError(
            "generate needs a language model: --model MODEL, e.g. --model openai/gpt-5.4-mini "
            "or --model ollama/llama3.2"
        )
    check_models(config, GENERATING)
    report = asyncio.run(_generate(config, resolved, out, users, start))
    if json_output:
        emit_json(asdict(report) | {"complete": report.complete})
    else:
        print(
            f"{len(report.written)} users written, {len(report.skipped)} were there, "
            f"{len(report.failed)} failed; {report.calls} calls, {report.replayed} of them from "
            f"the ledger"
        )
        print(f"data set: {report.out} (memprobe run --dataset {report.out})")
    for user_id in report.other_settings:
        note(f"memprobe: {user_id} was made with another model, seed or prompt and is kept")
    for failure in report.failed:
        again = "; the same command tries it again" if failure.resumable else ""
        note(
            f"memprobe: {failure.user_id} failed at {failure.step}: {failure.reason.value}: "
            f"{plain(failure.detail)}{again}"
        )
    if not report.complete:
        raise typer.Exit(errors.INCOMPLETE)


async def _generate(
    config: RunConfig, resolved: Resolved, out: Path, count: int, start: int
) -> GenerationReport:
    from adapters.models.gateway import Gateway
    from adapters.models.minilm import MiniLM
    from memprobe.dataset import load_pool
    from storage.bundled import recovery_dir
    from storage.ledger import Ledger
    from tasks.generate import Progress, generate_users

    def tell(step: Progress) -> None:
        note(f"{step.user_id}: {step.step} ({step.done}/{step.total})")

    prepare_ledger(resolved)
    ledger = Ledger.open(resolved.settings.ledger)
    embedder = MiniLM(ledger)
    gateway = Gateway(config, ledger, {})
    try:
        return await generate_users(
            gateway,
            embedder,
            load_pool(recovery_dir() / "pool.json"),
            count=count,
            seed=config.seed,
            out=out,
            start_index=start,
            progress=tell,
        )
    finally:
        await gateway.close()
        await embedder.close()
        await asyncio.to_thread(ledger.close)
