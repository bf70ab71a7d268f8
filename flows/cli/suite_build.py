"""`suite new` and `build`: episodes of one's own, written by a model; `extract`: those of a run."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, opened, prepare_ledger, with_settings
from flows.cli.output import emit_json, note, plain
from flows.preflight import check_models
from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.settings import Resolved
from memprobe.types import Role

if TYPE_CHECKING:
    from memprobe.paradigms.expand import DomainConfig, MiniSpec
    from tasks.suite import BuildReport

SHOWN = 50
"""Problems printed; `suite validate` has them all."""


@with_settings()
def new(
    resolved: Resolved,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the two files.")],
    domain: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Domain: a name of your own, or personal, work or agentic."
        ),
    ],
    conditions: Annotated[
        str,
        typer.Option(metavar="A,B", help="Conditions to begin with, one mini-spec each."),
    ] = "authoritative_update,decoy_no_update",
    json_output: Json = False,
) -> None:
    """Write the files that a suite of your own begins with: a domain and mini-specs.

    Both build as they are; replace facts and values with yours. Files that are there
    are kept. Examples:

    `memprobe suite new garden --domain gardening`

    `memprobe suite new garden --domain gardening --conditions high,low,stale_tool`
    """
    from memprobe.paradigms.spec import Condition, Domain
    from tasks.suite.scaffold import write_scaffold

    try:
        name = Domain(domain)
    except ValueError as error:
        raise UsageError(f"--domain: {error}") from None
    wanted = [part.strip() for part in conditions.split(",") if part.strip()]
    unknown = [part for part in wanted if part not in list(Condition)]
    if unknown or not wanted:
        said = ", ".join(unknown) or "none given"
        raise UsageError(f"--conditions: {said}; there are {', '.join(Condition)}")
    config, minis = write_scaffold(out, name, [Condition(part) for part in wanted])
    build = f"memprobe suite build {minis} --domain-config {config} --out {out / 'suite'}"
    if json_output:
        emit_json({"domain_config": str(config), "minispecs": str(minis), "next": build})
        return
    print(f"{config}: the domain {name} with one kind of fact")
    print(f"{minis}: {len(wanted)} mini-specs")
    print(f"next: {build} --model openai/gpt-5.4-mini")


@with_settings()
def extract(
    resolved: Resolved,
    run: RunName,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the suite's files.")],
    json_output: Json = False,
) -> None:
    """Write the episodes of a paradigms run as a suite's files, to run them on other systems.

    Of an imported run these are the published episodes. Examples:

    `memprobe suite extract pub56 --out suite56_published`

    `memprobe run paradigms --dataset suite56_published`
    """
    from storage.files import LocalFiles
    from tasks.paradigms.inputs import stored_suite
    from tasks.suite import episode_bytes

    store = opened(resolved, run)[1]
    if store.manifest.config.suite != "paradigms":
        raise UsageError(f"run {store.name!r} is of the {store.manifest.config.suite} suite")
    if any(out.glob("*.json")):
        raise UsageError(f"{out} has files already; choose another folder")
    suite = stored_suite(store)
    files = LocalFiles(out)
    for episode in suite.episodes:
        files.write(f"{episode.id}.json", episode_bytes(episode))
    known = len({row["user_id"] for row in store.read("probes")})
    if json_output:
        emit_json({"out": str(out), "episodes": len(suite.episodes), "of": known})
    else:
        print(f"{out}: {len(suite.episodes)} of {known} episodes of {plain(suite.name)}")
        print(f"next: memprobe run paradigms --dataset {out}")
    if len(suite.episodes) < known:
        note(f"memprobe: the others have no form of ours: memprobe sql {store.name} "
             "\"select * from import_issues where table_name = 'specs'\"")  # fmt: skip
        raise typer.Exit(errors.INCOMPLETE)


@with_settings("model", "model_role", "seed", "max_connections", "call_timeout", "max_cost")
def build(
    resolved: Resolved,
    minispecs: Annotated[
        Path, typer.Argument(metavar="MINISPECS", help="JSON file: a list of mini-specs.")
    ],
    domain_config: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON file of the domain and its kinds of fact.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the new suite.")],
    json_output: Json = False,
) -> None:
    """Build a suite: each mini-spec becomes an episode whose conversations a model writes.

    Facts, order, gold and questions are fixed before the first call; a model writes
    words only, and each session is asked for until it passes its checks, three
    times at most. The same command again goes on where it stopped, and finished calls
    are free. Exits with 1 when an episode could not be finished or a check finds an
    error. Examples:

    `memprobe suite build garden/minispecs.json --domain-config garden/domain.json
    --out garden/suite --model openai/gpt-5.4-mini`

    `memprobe suite validate garden/suite`
    """
    from tasks.suite.inputs import expand_all, read_domain, read_minispecs

    world, minis = read_domain(domain_config), read_minispecs(minispecs)
    planned = expand_all(minis, world)
    config = resolved.config("suite")
    if config.model_of(Role.GENERATOR).startswith("embedded/"):
        raise UsageError(
            "suite build needs a language model: --model MODEL, e.g. --model openai/gpt-5.4-mini "
            "or --model ollama/llama3.2"
        )
    check_models(config, (Role.GENERATOR,))
    note(
        f"memprobe: {len(planned)} episodes of domain {world.domain}, "
        f"{sum(len(b.sessions) for b in planned)} sessions"
    )
    report = asyncio.run(_build(config, resolved, minis, world, out))
    if json_output:
        emit_json(asdict(report) | {"complete": report.complete})
    else:
        _print(report)
    for failure in report.failed:
        again = "; the same command tries it again" if failure.resumable else (
            "; the stored answers give the same again: change the mini-spec, the model or --seed"
        )  # fmt: skip
        note(
            f"memprobe: {failure.episode} failed at {failure.step}: {failure.reason.value}: "
            f"{plain(failure.detail)}{again}"
        )
    if not report.complete:
        raise typer.Exit(errors.INCOMPLETE)


def _print(report: BuildReport) -> None:
    for name in report.outdated:
        note(
            f"memprobe: {name}.json is of another mini-spec and is kept; delete it to have it "
            "written anew"
        )
    for name in report.other_settings:
        note(f"memprobe: {name}.json was made with other settings or changed by hand, and is kept")
    for p in report.problems[:SHOWN]:
        where = p.episode if p.session is None else f"{p.episode} session {p.session}"
        note(plain(f"{p.severity}: {where}: {p.rule}: {p.message}; {p.fix}"))
    if len(report.problems) > SHOWN:
        note(f"... {len(report.problems) - SHOWN} more: memprobe suite validate {report.out}")
    severe = sum(p.severity == "error" for p in report.problems)
    print(
        f"{len(report.written)} episodes written, {len(report.kept)} were there, "
        f"{len(report.failed)} failed; {report.calls} calls, {report.replayed} of them from the "
        f"ledger"
    )
    print(f"{severe} errors, {len(report.problems) - severe} warnings")
    if report.digest is not None:
        print(f"sha256 {report.digest}")
        print(f"next: memprobe suite validate {report.out}")
        print(f"then: memprobe run paradigms --dataset {report.out}")


async def _build(
    config: RunConfig, resolved: Resolved, minis: list[MiniSpec], world: DomainConfig, out: Path
) -> BuildReport:
    from adapters.models.gateway import Gateway
    from storage.ledger import Ledger
    from tasks.suite import Progress, build_suite

    def tell(step: Progress) -> None:
        note(f"{step.episode}: {step.step} ({step.done}/{step.total})")

    prepare_ledger(resolved)
    ledger = Ledger.open(resolved.settings.ledger)
    gateway = Gateway(config, ledger, {})
    try:
        return await build_suite(gateway, minis, world, out=out, seed=config.seed, progress=tell)
    finally:
        await gateway.close()
        await asyncio.to_thread(ledger.close)
