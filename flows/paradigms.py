"""The `paradigms` flow: sessions into fresh stores, probes, scores, report."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.conducting import chosen_by, measured


@flow(name="paradigms", flow_run_name="paradigms-{run}", log_prints=False)
async def paradigms(
    run: str = "paradigms",
    systems: list[str] | None = None,
    users: int | list[str] | None = None,
    model: str | None = None,
    config: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
) -> Any:
    """The stability-plasticity suite: does a memory change when it should and hold when it should?

    `users` are episodes here: a count, spread over the paradigms, or ids. `config` holds any
    field of a run's configuration, `places` of its settings (`runs`, `ledger`).
    Whatever is not given comes from the environment and `memprobe.toml`. The same
    `run` again resumes it.
    """
    given = {"systems": systems, "users": users, "model": model}
    chosen, settings = chosen_by(run, given, config, places, "paradigms")
    return await measured(chosen, settings, places)
