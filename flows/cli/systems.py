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
from memprobe.types import AccessMode, Role

if TYPE_CHECKING:
    from adapters.memory.contract import CheckResult
    from adapters.memory.contract.models import ContractModels
    from adapters.models.minilm import MiniLM
    from memprobe.config import RunConfig
    from memprobe.systems import SystemCard


MESSAGES = 650
"""Messages of the user that the checks write, about."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Memory systems")(systems)
    app.command(rich_help_panel="Memory systems")(check)


@with_settings("protocol")
def systems(
    resolved: Resolved,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Everything about one system, its options too."),
    ] = None,
    json_output: Json = False,
) -> None:
    """List the memory systems, built in and from installed packages. Broken ones are named.

    Shows whether each can be used or the command that installs it, the kind of
    worker it belongs to, what it needs, and its licence.

    Examples: `memprobe systems`, `memprobe systems amem`
    """
    from adapters.memory.registry import Registry
    from adapters.models.minilm import MiniLM

    registry = Registry(MiniLM(), resolved.config("systems").protocol)
    if name is not None:
        card = registry.card(name)
        if json_output:
            emit_json(_facts(card))
        else:
            table(["", plain(card.name)], _sheet(card))
        return
    cards, broken = registry.cards(), registry.broken()
    if json_output:
        emit_json({"systems": [_facts(card) for card in cards], "broken": broken})
        return
    rows = [
        [c.name, c.summary, _installed(c), c.pool, ", ".join(_needs(c)) or "nothing", c.licence]
        for c in cards
    ]
    table(["name", "what it does", "installed", "pool", "needs", "licence"], rows)
    for each, reason in broken.items():
        note(f"memprobe: {plain(each)} cannot be loaded: {plain(reason)}")


def _facts(card: SystemCard) -> dict[str, Any]:
    from adapters.memory.registry import install_command

    missing = not _usable(card)
    return {
        **card.model_dump(mode="json"),
        "installed": not missing,
        "install": install_command(card) if missing else None,
        "needs": _needs(card),
    }


def _usable(card: SystemCard) -> bool:
    return card.package is None or card.package_version is not None


def _installed(card: SystemCard) -> str:
    from adapters.memory.registry import install_command

    if not _usable(card):
        return f"no: {install_command(card)}"
    if card.package is None:
        return "yes" if card.origin == "built in" else card.origin
    return f"yes ({card.package} {card.package_version})"


def _needs(card: SystemCard) -> list[str]:
    """What a run must give the system; the embedder comes with MemProbe."""
    needs = ["a language model (--model)"] if card.capabilities.needs_llm else []
    if card.pool == "gpu":
        needs.append("a server with a GPU for its own model")
    return needs


def _probed(card: SystemCard) -> str:
    """How the paradigms suite reads a system unless a run says otherwise."""
    if card.sees_gold == "values":
        return "answers from gold: a reference"
    if card.probe_access is AccessMode.DUMP_ALL:
        return "read whole (dump_all)"
    return f"the {card.probe_k} best items for each question (retrieve@{card.probe_k})"


def _sheet(card: SystemCard) -> list[list[Any]]:
    can = card.capabilities.model_dump()
    rows: list[list[Any]] = [
        ["title", card.title],
        ["what it does", card.summary],
        ["installed", _installed(card)],
        ["pool", f"memprobe-{card.pool}"],
        ["needs", ", ".join(_needs(card)) or "nothing"],
        ["licence", card.licence],
        ["score", card.score_scale],
        ["paradigms", _probed(card)],
        ["can", ", ".join(name for name, on in can.items() if on)],
    ]
    if card.capabilities.uses_llm and not card.capabilities.needs_llm:
        rows.append(["takes", "a language model where the run has one (--model)"])
    rows += [
        [f"--system-option {card.name}.{option}", f"= {plain(str(value))}"]
        for option, value in card.options.items()
    ]
    return [*rows, *(["note", text] for text in card.notes)]


@with_settings("model", "model_role", "protocol", "system_option", "max_cost")
def check(
    resolved: Resolved,
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A listed name, or path/to/file.py:Class.")
    ],
    json_output: Json = False,
) -> None:
    """Hold a memory system to the contract: isolation, complete dumps, event time and more.

    The last line but one tells what thirty turns of dialogue cost it. A system
    that asks a language model needs one: give it with `--model`. The checks write
    about 650 messages, which costs money with a paid one; `--max-cost` bounds it.

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
                if models is not None:
                    await _answers(config, models)
                    _tell_size(config, spec)
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


async def _answers(config: RunConfig, models: ContractModels) -> None:
    """One small call, so that a wrong address is one message and not a dozen failed checks."""
    from adapters.memory.calls import DoorClient
    from memprobe.errors import BudgetExceeded, CallFailed, MissingPrerequisite

    line = models.lines("check", "contract", "check", 1)
    client = DoorClient(line.access)
    try:
        await client.complete([{"role": "user", "content": "Answer with the word: ready"}])
    except BudgetExceeded:
        raise
    except CallFailed as failure:
        model = config.model_of(Role.MEMORY)
        raise MissingPrerequisite(f"{model} does not answer: {failure.detail}") from failure
    finally:
        await client.close()
        line.close()


def _tell_size(config: RunConfig, spec: str) -> None:
    from adapters.memory.registry import Registry
    from adapters.models.minilm import MiniLM

    work = Registry(MiniLM(), config.protocol, names=[spec]).card(spec).per_message
    if work is not None:
        calls = MESSAGES * work.calls
        note(
            f"about {calls:,.0f} calls with {calls * work.prompt_tokens / 1e6:.1f} million tokens "
            "in; --max-cost USD bounds what they may cost"
        )


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
