"""The `memprobe` flow: roll out, recover, attribute, score, report.

Started by hand all is done in one process. Under a deployment the systems of
other work pools are dispatched to them, as their cards say.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.conducting import chosen_by, measured


@flow(name="memprobe", flow_run_name="memprobe-{run}", log_prints=False)
async def memprobe(
    run: str = "full",
    systems: list[str] | None = None,
    users: int | list[str] | None = None,
    model: str | None = None,
    config: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
) -> Any:
    """The recovery suite from rollout to report.

    `config` holds any field of a run's configuration, `places` of its settings
    (`runs`, `ledger`); `systems`, `users` and `model` are shortcuts for the most
    used ones. Whatever is not given comes from the environment and
    `memprobe.toml`. The same `run` again resumes it.
    """
    given = {"systems": systems, "users": users, "model": model}
    chosen, settings = chosen_by(run, given, config, places)
    return await measured(chosen, settings, places)
