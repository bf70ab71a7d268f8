"""Wall time of a whole remote run over its critical path.

    python -m benchmarks.bench_critical_path [--users 8 16] [--systems nomem,longctx_full]

A fake model in a process of its own answers every call after 250 ms. The critical
path is the longest chain of calls that must wait for one another: a user's turns
(reply, then reaction) and then warming call, slot-fill, judge, disclosure and
subclass. It is read from what the run recorded: nothing is assumed of how many turns
there were, and a call that a chain did not need is not counted. Wall time is from the
first unit to the last commit; CPU time is this process's. `--prefect` adds a run through
the flow, whose wall also holds scores and report. Users beyond the bundled eight
are copies of them with tasks of their own. Target: at most 1.15 at 16 users.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import common

LATENCY_S = 0.25
TARGET = 1.15


def dataset_of(folder: Path, users: int) -> Path:
    """The bundled users, and copies of them whose tasks ask something of their own."""
    from storage.bundled import recovery_dir

    bundled = recovery_dir()
    home = folder / f"users-{users}"
    (home / "users").mkdir(parents=True)
    (home / "pool.json").write_bytes((bundled / "pool.json").read_bytes())
    known = [json.loads(p.read_bytes()) for p in sorted((bundled / "users").glob("*.json"))]
    for number in range(users):
        user = json.loads(json.dumps(known[number % len(known)]))
        user["user_id"] = f"user_{number + 1:03d}"
        if number >= len(known):
            for task in user["tasks"]:
                task["task"] += f" (matter {number // len(known) + 1})"
        path = home / "users" / f"{user['user_id']}.json"
        path.write_text(json.dumps(user), encoding="utf-8")
    return home


def chain_lengths(store: Any) -> dict[tuple[str, str], int]:
    """Calls that had to wait for one another, for each system and user."""
    turns: dict[tuple[str, str], int] = {}
    for row in store.scan("turns").select(["system", "user_id"]).to_pylist():
        key = (row["system"], row["user_id"])
        turns[key] = turns.get(key, 0) + 1
    after: dict[tuple[str, str], int] = {}
    filled = {
        (r["system"], r["user_id"], r["access_mode"], r["k"], r["dimension"]): r
        for r in store.scan("slot_fills").to_pylist()
    }
    judged = {
        (r["system"], r["user_id"], r["access_mode"], r["k"], r["dimension"]): r["call_id"]
        for r in store.scan("verdicts").to_pylist()
    }
    for row in store.scan("attributions").to_pylist():
        at = (row["system"], row["user_id"], row["access_mode"], row["k"], row["dimension"])
        asked = [
            filled[at]["call_id"],
            judged[at],
            row["disclosure_call"],
            row["subclass_call"],
        ]
        warmed = row["access_mode"] == "dump_all" and filled[at]["prompt_tokens"] >= 1024
        length = sum(call is not None for call in asked) + warmed
        after[at[:2]] = max(after.get(at[:2], 0), length)
    return {key: 2 * n + after.get(key, 0) for key, n in turns.items()}


async def plain(config: Any, settings: Any) -> dict[str, Any]:
    """The stages alone, libraries loaded."""
    from adapters.models.litellm_loader import load_litellm
    from flows import recovery, runtime  # noqa: F401
    from memprobe.types import Role

    async with runtime.opened(config, settings) as run:
        load_litellm()
        run.gateway.count_tokens(Role.SLOT_FILL, "warm")
        await run.embedder.rows(["warm"])
        wall, cpu = time.perf_counter(), time.process_time()
        await common.conduct_plainly(run)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        calls = run.gateway.new_calls
        lengths = chain_lengths(run.context.store)
    return _figures(wall, cpu, calls, lengths)


def through_prefect(config: Any, settings: Any) -> dict[str, Any]:
    """The flow as the command line runs it, server not counted."""
    from flows import launch, progress, server
    from storage.runs import RunStore

    progress.install(progress.Progress())
    with server.serving(Path(settings.runs)):
        from flows import recovery  # noqa: F401  Prefect is imported before the clock starts

        wall, cpu = time.perf_counter(), time.process_time()
        result = launch.run_suite(config, settings, progress.Progress())
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    lengths = chain_lengths(RunStore.open(result.location))
    return _figures(wall, cpu, result.new_calls, lengths)


def _figures(
    wall: float, cpu: float, calls: int, lengths: dict[tuple[str, str], int]
) -> dict[str, Any]:
    longest = max(lengths.values())
    path = longest * LATENCY_S
    return {
        "calls": calls,
        "chain_calls": longest,
        "critical_path_s": round(path, 2),
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "cpu_ms_per_call": round(1000 * cpu / max(1, calls), 2),
        "ratio": round(wall / path, 3),
    }


def measure(
    folder: Path, users: int, systems: tuple[str, ...], limit: int | None, prefect: bool
) -> dict[str, Any]:
    """One size in all ways that were asked for."""
    from memprobe.config import RunConfig

    data = str(dataset_of(folder, users))
    found: dict[str, Any] = {"users": users}
    for way in ("plain", "prefect") if prefect else ("plain",):
        home = folder / f"{way}-{users}"
        home.mkdir()
        config = RunConfig(
            name=way, model="openai/mock", systems=systems, dataset=data, limit=limit
        )
        settings = common.places(home)
        if way == "plain":
            found[way] = common.run_async(plain(config, settings))
        else:
            found[way] = through_prefect(config, settings)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--users", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--systems", default="nomem,longctx_full")
    parser.add_argument("--limit", type=int, help="tasks a user")
    parser.add_argument("--prefect", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
    systems = tuple(given.systems.split(","))
    with tempfile.TemporaryDirectory() as folder, common.fake_server(LATENCY_S):
        sizes = [
            measure(Path(folder), users, systems, given.limit, given.prefect)
            for users in given.users
        ]
    result = common.record(
        "critical_path",
        {
            "systems": systems,
            "latency_s": LATENCY_S,
            "tasks": given.limit or 31,
            "sizes": sizes,
            "ratio": sizes[-1]["plain"]["ratio"],
            "target": TARGET,
        },
        given.out,
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
