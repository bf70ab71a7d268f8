"""`sweep`: the measurements that a Prefect server starts, one a memory system."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import typer

from flows.cli import errors
from flows.cli.options import Json, with_settings
from flows.cli.output import emit_json, note, plain, table
from flows.cli.run import known_suite
from memprobe.errors import UsageError
from memprobe.settings import RUN_OPTIONS, Resolved

RUN = tuple(option.name for option in RUN_OPTIONS if option.name != "systems")
SHORT = ("users", "limit", "model")
"""Settings that are parameters of the flow; the others go into its `config`."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Measure")(sweep)


@with_settings(*RUN)
def sweep(
    resolved: Resolved,
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SYSTEM]...", help="Systems to sweep; none lists all sweeps."),
    ] = None,
    activate: Annotated[
        bool, typer.Option("--activate", help="Switch the weekly schedules on; start nothing now.")
    ] = False,
    deactivate: Annotated[
        bool, typer.Option("--deactivate", help="Switch the schedules off.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait for the end; exit with 1 unless all completed.")
    ] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="recovery or paradigms; as deployed when not given.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """List, start or schedule sweeps: one system over a suite's data, by a worker of its pool.

    The server is that of `memprobe up`, or the one at PREFECT_API_URL. A sweep's run is
    called sweep_SYSTEM_DATE, or sweep_paradigms_SYSTEM_DATE, after the day for which it
    was scheduled (UTC); started again on that day it goes on with that run. Options given
    here go to the sweep; all others are the worker's own.

    Examples:

    `memprobe sweep`

    `memprobe sweep mem0 amem --users 10 --watch`

    `memprobe sweep mem0 --suite paradigms --limit 8`

    `memprobe sweep rag --activate`
    """
    names = list(systems or ())
    if activate and deactivate:
        raise UsageError("--activate and --deactivate exclude each other")
    if (activate or deactivate or watch) and not names:
        raise UsageError("name the systems, e.g. `memprobe sweep rag --activate`")
    if watch and (activate or deactivate):
        raise UsageError("--watch is for sweeps that are started now")
    parameters = parameters_of(resolved, suite)
    if parameters and (not names or activate or deactivate):
        raise UsageError(
            f"{', '.join(sorted(parameters))}: options of a run are for sweeps that are started "
            "now; a scheduled one takes its worker's settings (memprobe.toml, MEMPROBE_...)"
        )
    from flows import sweeps

    api = sweeps.use_server(resolved.settings)
    logging.getLogger("prefect").setLevel(logging.WARNING)
    if not names or activate or deactivate:
        job = sweeps.switch(names, activate) if names else sweeps.list_sweeps()
        _list([one.as_dict() for one in asyncio.run(job)], api, json_output)
        return
    started = asyncio.run(sweeps.start(names, parameters))
    for one in started:
        page = f"{api.removesuffix('/api')}/runs/flow-run/{one.flow_run}"
        note(f"memprobe: {one.system}: started as run {one.run}: {page}")
    for trouble in dict.fromkeys(one.trouble for one in started if one.trouble):
        note(f"memprobe: nothing will happen yet: {trouble}")
    if watch:
        started = asyncio.run(sweeps.watch(started, lambda text: note(f"memprobe: {plain(text)}")))
    rows = [one.as_dict() for one in started]
    if json_output:
        emit_json({"server": api, "started": rows})
    else:
        columns = ["system", "run", "pool", "state", "message"]
        table(columns, [[row[name] for name in columns] for row in rows])
    if watch and any(one.state != "Completed" for one in started):
        raise typer.Exit(errors.INCOMPLETE)


def parameters_of(resolved: Resolved, suite: str | None = None) -> dict[str, Any]:
    """The flow's parameters: what was given on the command line, and nothing else."""
    chosen = known_suite(suite) if suite is not None else "recovery"
    flags = {name for name in RUN if resolved.origins[name].source == "flag"}
    fields = resolved.config("sweep", chosen).model_dump(mode="json")
    target = {option.name: option.target for option in RUN_OPTIONS}
    parameters = {name: fields[name] for name in SHORT if name in flags}
    config = {target[name]: fields[target[name]] for name in RUN if name in flags - set(SHORT)}
    if suite is not None:
        parameters["suite"] = chosen
    return {**parameters, **({"config": config} if config else {})}


def _list(sweeps: list[dict[str, Any]], api: str, json_output: bool) -> None:
    if json_output:
        emit_json({"server": api, "sweeps": sweeps})
    else:
        columns = ["system", "pool", "workers", "schedule", "active", "next", "last", "last_state"]
        table(columns, [[row[name] for name in columns] for row in sweeps], f"sweeps on {api}")
    for trouble in dict.fromkeys(row["trouble"] for row in sweeps if row["trouble"]):
        note(f"memprobe: {trouble}")
