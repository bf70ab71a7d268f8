"""`status`: how far a run is, read from what is stored; it needs no server."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import Json, opened, with_settings
from flows.cli.output import emit_json, note, table
from memprobe.errors import MemProbeError
from memprobe.settings import Resolved, redact
from memprobe.types import SuiteName

HOUSEKEEPING = ("inputs", "calls", "score", "footprint")
"""Units that every run has once and that nobody waits for."""


STAGES: dict[SuiteName, tuple[str, ...]] = {
    "recovery": ("rollout", "recover", "attribute"),
    "paradigms": ("ingest", "answer"),
}
"""The stages of a chain, as units name them."""
CHECKPOINTED = {"rollout": "episodes", "ingest": "sessions"}
"""Stages that leave checkpoints, and what these count."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Measure")(status)


@with_settings()
def status(
    resolved: Resolved,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run; all runs when not given.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Show how far a run is, what it cost so far, and the next command. Without RUN, list the runs.

    Example: `memprobe status t1`
    """
    if run is None:
        rows = list_runs(resolved)
        if json_output:
            emit_json(rows)
        elif rows:
            table(list(rows[0]), [list(row.values()) for row in rows])
        else:
            print(f"no runs in {resolved.settings.runs}; `memprobe run recovery` makes one")
        return
    facts = run_status(resolved, run)
    if json_output:
        emit_json(facts)
    else:
        _print(facts)


def list_runs(resolved: Resolved) -> list[dict[str, Any]]:
    """One row a run: name, status, systems, units done, last change."""
    from storage.runs import RunStore

    rows: list[dict[str, Any]] = []
    for store in RunStore.list(resolved.settings.runs):
        try:
            manifest = store.manifest
            done = sum(state.complete for state in store.units())
            rows.append(
                {
                    "run": manifest.name,
                    "status": manifest.status.value,
                    "model": manifest.config.model,
                    "systems": ",".join(manifest.system_names),
                    "units": done,
                    "updated": manifest.updated_at,
                }
            )
        except MemProbeError as error:
            name = Path(store.location).name
            row: dict[str, Any] = {"run": name, "status": f"unreadable: {error}", "model": ""}
            rows.append(row | {"systems": "", "units": None, "updated": ""})
    return rows


def run_status(resolved: Resolved, run: str) -> dict[str, Any]:
    """All that is known of a run without opening it for writing."""
    from storage.lock import lock_owner

    resolved, store = opened(resolved, run)
    manifest = store.manifest
    states = store.units()
    done = Counter(
        (s.unit.stage, s.unit.system)
        for s in states
        if s.complete and s.unit.stage not in HOUSEKEEPING
    )
    totals = _totals(manifest)
    keys = [*totals, *(k for k in sorted(done) if k not in totals)]
    stages = [
        {"stage": stage, "system": system, "done": done[stage, system]}
        | {"total": totals.get((stage, system))}
        for stage, system in keys
    ]
    word = manifest.status.value
    lacking = sum(max(0, n - done[key]) for key, n in totals.items())
    if word == "complete" and lacking and manifest.origin is None:
        # An import has no units of its own to wait for, e.g. no judge check.
        word = "incomplete"
    owner = lock_owner(store.files)
    writing = owner is not None and owner[1]
    return {
        "run": manifest.name,
        "location": store.location,
        "status": _word(word, owner),
        "model": manifest.config.model,
        "stages": stages,
        "under_way": [_checkpoint(store, s.unit) for s in states if not s.complete],
        "owner": None if owner is None else {**owner[0], "alive": owner[1]},
        "cost": _cost(resolved, manifest.name),
        "next": _next(manifest.name, word, writing),
    }


def _word(status: str, owner: tuple[dict[str, Any], bool] | None) -> str:
    if status != "running":
        return status
    if owner is None:
        return "interrupted (nobody is writing it)"
    if not owner[1]:
        return f"interrupted (process {owner[0].get('pid')} on {owner[0].get('host')} is gone)"
    return f"running (process {owner[0].get('pid')} on {owner[0].get('host')})"


def _next(name: str, status: str, writing: bool) -> str:
    if writing:
        return f"memprobe status {name}"
    return f"memprobe report {name}" if status == "complete" else f"memprobe resume {name}"


def _totals(manifest: Any) -> dict[tuple[str, str], int]:
    """Units wanted by stage and system; empty when the data set is not there to count users."""
    from flows.workloads import users_of, workload_of

    config = manifest.config
    if isinstance(config.users, tuple):
        # An import names its users, which are in no data set here.
        users = len(config.users)
    elif manifest.origin is not None:
        return {}
    else:
        try:
            users = len(users_of(config, workload_of(config)))
        except MemProbeError:
            return {}
    systems = list(manifest.system_names)
    stages = STAGES[config.suite]
    totals = {(stage, system): users * config.epochs for stage in stages for system in systems}
    if config.suite != "recovery":
        return totals
    return totals | {("oracle", ""): users, ("judge_check", ""): 1}


def _checkpoint(store: Any, unit: Any) -> dict[str, Any]:
    """A unit under way with the last episode that its checkpoint holds."""
    from tasks.checkpoint import POINTER

    episode = 0
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        episode = int(json.loads((store.work_dir(unit) / POINTER).read_bytes())["episode"])
    return {"stage": unit.stage, "system": unit.system, "user": unit.user, "episodes": episode}


def _cost(resolved: Resolved, name: str) -> dict[str, Any] | None:
    """Dollars paid for this run's calls, and how many of them had no known price."""
    from storage.ledger import Ledger

    url = resolved.settings.ledger
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return None
    try:
        ledger = Ledger.open(url)
    except MemProbeError as error:
        note(f"memprobe: the cost is not known: {redact(str(error))}")
        return None
    try:
        return {"usd": ledger.spent(name), "calls_without_price": ledger.unpriced(name)}
    finally:
        ledger.close()


def _print(facts: dict[str, Any]) -> None:
    print(f"run {facts['run']}: {facts['status']}")
    rows = [[r["stage"], r["system"] or "all", r["done"], r["total"]] for r in facts["stages"]]
    table(["stage", "system", "done", "of"], rows)
    for unit in facts["under_way"]:
        if unit["stage"] in CHECKPOINTED:
            print(
                f"under way: {unit['system']} with {unit['user']}, "
                f"{unit['episodes']} {CHECKPOINTED[unit['stage']]} in its checkpoint"
            )
    cost = facts["cost"]
    if cost is not None:
        missing = cost["calls_without_price"]
        more = f" and {missing} calls of unknown price" if missing else ""
        print(f"spent: ${cost['usd']:.4f}{more}")
    print(f"next: {facts['next']}")
