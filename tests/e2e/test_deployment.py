"""`memprobe/full` on a fresh server: deployed, run by a worker, and noticed when it dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows import server
from flows.up import POOLS, ZOMBIES
from tests.e2e.support import (
    ROOT,
    Model,
    Shell,
    assert_same_tables,
    finish,
    kill_group,
    killed_at_end,
    processes_with,
    until,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
YAML = str(ROOT / "deploy" / "prefect.yaml")
PREPARE = "import asyncio; from flows.up import prepare; asyncio.run(prepare())"
CONFIG = json.dumps({"limit": 3, "systems": ["nomem", "longctx_full"], "model": "openai/mock"})
RUN = ("deployment", "run", "memprobe/full", "-p", "users=2", "-p", f"config={CONFIG}")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Shell]:
    """A shell at a server of its own, prepared as `memprobe up` does, twice."""
    started, process = server.start(tmp_path / "prefect")
    env = {
        **server.TUNING,
        "PREFECT_API_URL": started.api_url,
        "PREFECT_HOME": str(tmp_path / "client"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "MEMPROBE_RUNS": str(tmp_path / "kept"),
    }
    shell = Shell(tmp_path / "somewhere", env)
    shell.home.mkdir()
    try:
        for _ in range(2):
            command = [sys.executable, "-c", PREPARE]
            done = subprocess.run(
                command, env=shell.environment(), cwd=shell.home, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        yield shell
    finally:
        server.stop(process)


def post(shell: Shell, path: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(f"{shell.env['PREFECT_API_URL']}/{path}", json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


def states(shell: Shell) -> list[str]:
    return [run["state_type"] for run in post(shell, "flow_runs/filter", {})]


def heartbeats(shell: Shell) -> int:
    wanted = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]}}}
    total: int = post(shell, "events/filter", wanted)["total"]
    return total


def prefect(shell: Shell, *arguments: str) -> str:
    done = shell.run("--no-prompt", *arguments, program="prefect")
    assert done.code == 0, done.out + done.err
    return done.out


def test_preparing_twice_makes_one_of_each(fresh: Shell) -> None:
    pools = [pool["name"] for pool in post(fresh, "work_pools/filter", {})]
    assert sorted(pools) == sorted(POOLS)
    automations = post(fresh, "automations/filter", {})
    assert [a["name"] for a in automations] == [ZOMBIES]
    (zombies,) = automations
    assert zombies["enabled"]
    assert zombies["trigger"]["posture"] == "Proactive"
    assert zombies["trigger"]["within"] == 90.0
    assert zombies["actions"][0]["state"] == "CRASHED"


def test_deploy_and_run_from_any_folder(fresh: Shell, tmp_path: Path) -> None:
    elsewhere = Shell(tmp_path / "deployed_from", fresh.env)
    elsewhere.home.mkdir()
    out = prefect(elsewhere, "deploy", "--prefect-file", YAML, "--all")
    assert "memprobe/full" in out
    with Model() as model:
        worker = Shell(tmp_path / "worker", {**fresh.env, **model.env})
        with killed_at_end(
            worker.start("worker", "start", "--pool", "memprobe-cpu", program="prefect")
        ):
            prefect(fresh, *RUN, "--watch")
            assert states(fresh) == ["COMPLETED"]
            made = tmp_path / "kept" / "full"
            assert (made / "report" / "index.html").is_file()
            assert not any((s.home / "runs").exists() for s in (elsewhere, worker, fresh))
            asked = len(model.chats)
            assert asked > 0
            # The same again: done already, nothing is asked.
            prefect(fresh, *RUN, "--watch")
            assert len(model.chats) == asked
        assert states(fresh) == ["COMPLETED", "COMPLETED"]
        # The command line and the deployment make the same run.
        local = {k: v for k, v in fresh.env.items() if k != "MEMPROBE_RUNS"}
        shell = Shell(tmp_path / "shell", {**local, **model.env})
        done = shell.remote("full")
        assert done.code == 0, done.err
        assert_same_tables(shell.runs / "full", made)


def test_a_run_that_cannot_start_fails_for_the_scheduler(fresh: Shell, tmp_path: Path) -> None:
    prefect(fresh, "deploy", "--prefect-file", YAML, "--all")
    worker = Shell(tmp_path / "worker", fresh.env)
    with killed_at_end(
        worker.start("worker", "start", "--pool", "memprobe-cpu", program="prefect")
    ):
        done = fresh.run(
            *("deployment", "run", "memprobe/full", "-p", "users=99", "--watch"), program="prefect"
        )
    assert done.code == 1, done.out
    (run,) = post(fresh, "flow_runs/filter", {})
    assert run["state_type"] == "FAILED"
    assert "--users 99" in run["state"]["message"]


def test_a_dead_worker_and_flow_are_called_crashed(fresh: Shell, tmp_path: Path) -> None:
    prefect(fresh, "deploy", "--prefect-file", YAML, "--all")
    with Model(latency=30) as model:
        worker = Shell(tmp_path / "worker", {**fresh.env, **model.env})
        process = worker.start("worker", "start", "--pool", "memprobe-cpu", program="prefect")
        with killed_at_end(process):
            prefect(fresh, *RUN)
            until(lambda: model.chats, "the flow asks its first question", 120)
            until(lambda: heartbeats(fresh), "the flow shows that it lives", 120)
            kill_group(process)
            # The flow is in a process group of its own.
            for pid in processes_with(fresh.env["MEMPROBE_RUNS"]):
                os.kill(pid, signal.SIGKILL)
            finish(process)
        assert states(fresh) == ["RUNNING"]
        until(lambda: states(fresh) == ["CRASHED"], "the zombie is found", 200)
