"""The `memprobe-part` flow: one system of a run, in the pool of its card.

The process that conducts the run holds its lock and its manifest; a part holds a
lock of its own and leaves artifacts, calls in the ledger, and an account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.accounts import Account, write_account
from flows.dask_units import units_of
from flows.runtime import Runtime, opened_part, run_location
from flows.suites import conductor_of
from memprobe.errors import MemProbeError, UsageError
from memprobe.places import settled
from memprobe.settings import Settings, load_settings
from storage.runs import RunStore


def settings_for(name: str, begun: str, places: Mapping[str, Any]) -> Settings:
    """This process's settings with the places where the run really is.

    The places of the conducting process come first; where they hold no such run
    (another mount point), this process's own are tried. `begun` is the
    manifest's `created_at`: a run of the same name that was begun at another
    time is another run. Raises `UsageError` naming both places, and when a
    password is needed that this process does not have.
    """
    own, _ = load_settings()
    candidates = [settled(own, places), own]
    for settings in candidates:
        where = run_location(settings.runs, name)
        if RunStore.exists(where) and RunStore.open(where).manifest.created_at == begun:
            break
    else:
        looked = " and ".join(
            dict.fromkeys(run_location(settings.runs, name) for settings in candidates)
        )
        raise UsageError(
            f"this worker does not see run {name!r} of {begun}: looked at {looked}. Set "
            "MEMPROBE_RUNS of the workers of this pool to the folder or URL that all share"
        )
    return settings


async def measure(run: Runtime[Any], system: str) -> Account:
    """All chains of a system, under its lock; tells what went wrong."""
    with run.context.store.part_lock(system):
        async with units_of(run.settings) as units:
            conductor = conductor_of(run, units, part=True)
            await conductor.all()
    run.ledger.flush()
    stopped = conductor.out_of_budget
    return Account(
        failures=tuple(conductor.failures),
        broken=tuple(conductor.broken),
        stopped=str(stopped) if stopped is not None else None,
        dropped={m: tuple(sorted(p)) for m, p in run.gateway.dropped_params.items()},
    )


@flow(name="memprobe-part", flow_run_name="part-{run}-{system}", log_prints=False)
async def memprobe_part(
    run: str, system: str, begun: str, places: dict[str, Any] | None = None
) -> Any:
    """One system of a run that another process conducts.

    Started by the `memprobe` flow, not by hand. `begun` is when the run was
    begun, `places` are the conducting process's `runs` and `ledger`.
    """
    settings = settings_for(run, begun, places or {})
    token = str(flow_run.id or "")
    store = RunStore.open(run_location(settings.runs, run))
    try:
        async with opened_part(run, settings, [system]) as opened:
            account = await measure(opened, system)
    except MemProbeError as error:
        text = f"{system}: {error}"
        account = Account(failures=(text,), failed=text)
    write_account(store, system, account.model_copy(update={"token": token}))
    problems = [*account.failures, *([account.stopped] if account.stopped else [])]
    if problems:
        return Failed(message="; ".join(problems)[:2000])
    return Completed(message=f"{system} is measured")
