"""Systems run in the pool of their card: by its worker, told when there is none, resumed after."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows import server
from tests.e2e.support import (
    ROOT,
    Model,
    Shell,
    assert_same_tables,
    finish,
    killed_at_end,
    until,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
YAML = str(ROOT / "deploy" / "prefect.yaml")
PLUGIN = f"{ROOT / 'tests' / 'e2e' / 'gpu_memory.py'}:GpuMemory"
SYSTEMS = ["nomem", PLUGIN]
WITH_MEMT = [*SYSTEMS, "memt"]


class Site:
    """A server with all deployments, and folders for workers and commands."""

    def __init__(self, home: Path, api: str) -> None:
        self.home = home
        self.api = api
        self.note = home / "opened.jsonl"
        self.env = {
            **server.TUNING,
            "PREFECT_API_URL": api,
            "PREFECT_HOME": str(home / "client"),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "MEMPROBE_RUNS": str(home / "kept"),
            "GPU_MEMORY_NOTE": str(self.note),
        }
        self.shell = Shell(home / "somewhere", self.env)
        self.shell.home.mkdir()

    def worker(self, kind: str, model: Model) -> subprocess.Popen[str]:
        env = {**self.env, **model.env, "TEST_POOL": kind}
        shell = Shell(self.home / f"worker_{kind}", env)
        return shell.start("worker", "start", "--pool", f"memprobe-{kind}", program="prefect")

    def start(self, run: str, **config: Any) -> str:
        """Start `memprobe/full`; gives the flow run's id."""
        fields = {"limit": 3, "systems": SYSTEMS, "model": "openai/mock", **config}
        deployment = self.get("deployments/name/memprobe/full")["id"]
        body = {"parameters": {"run": run, "users": 2, "config": fields}}
        return str(self.post(f"deployments/{deployment}/create_flow_run", body)["id"])

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """As Prefect's client does: a server that is busy is asked again."""

        def once() -> httpx.Response | None:
            answer = httpx.request(method, f"{self.api}/{path}", json=body, timeout=30)
            return None if answer.status_code == 503 else answer

        answer = until(once, f"the server answers {method} {path}", 60)
        answer.raise_for_status()
        return answer.json()

    def state(self, flow_run: str) -> dict[str, Any]:
        state: dict[str, Any] = self.get(f"flow_runs/{flow_run}")["state"]
        return state

    def ended(self, flow_run: str) -> dict[str, Any]:
        """The final state of a flow run."""
        final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
        until(lambda: self.state(flow_run)["type"] in final, f"flow run {flow_run} ends")
        return self.state(flow_run)

    def parts(self) -> list[dict[str, Any]]:
        """The flow runs of parts, oldest first."""
        wanted = {"flows": {"name": {"any_": ["memprobe-part"]}}, "sort": "START_TIME_ASC"}
        found: list[dict[str, Any]] = self.post("flow_runs/filter", wanted)
        return found

    def warnings(self, flow_run: str) -> list[dict[str, Any]]:
        wanted = {"logs": {"flow_run_id": {"any_": [flow_run]}, "level": {"ge_": 30}}}
        found: list[dict[str, Any]] = self.post("logs/filter", wanted)
        return found

    def opened(self) -> list[dict[str, Any]]:
        if not self.note.exists():
            return []
        return [json.loads(line) for line in self.note.read_text().splitlines()]

    def manifest(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "kept" / run / "manifest.json").read_text())
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("site")
    started, process = server.start(home / "prefect")
    try:
        made = Site(home, started.api_url)
        done = made.shell.run(
            "--no-prompt", "deploy", "--prefect-file", YAML, "--all", program="prefect"
        )
        assert done.code == 0, done.out + done.err
        yield made
    finally:
        server.stop(process)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model() as made:
        yield made


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, site: Site, model: Model) -> Path:
    """The same run by hand, where everything is done in one process."""
    home = tmp_path_factory.mktemp("local")
    env = {k: v for k, v in site.env.items() if k not in ("MEMPROBE_RUNS", "GPU_MEMORY_NOTE")}
    shell = Shell(home, {**env, **model.env})
    chosen = ("--model", "openai/mock", "--systems", ",".join(WITH_MEMT))
    done = shell.run("run", *chosen, "--users", "2", "--limit", "3", "--run", "local", "--json")
    assert done.code == 0, done.err
    return shell.runs / "local"


def test_a_system_runs_in_the_pool_of_its_card_only(site: Site, model: Model, local: Path) -> None:
    with killed_at_end(site.worker("cpu", model)), killed_at_end(site.worker("gpu", model)):
        parent = site.start("both", systems=WITH_MEMT)
        state = site.ended(parent)
        assert state["type"] == "COMPLETED", state["message"]
        pools = {r["name"]: r["work_pool_name"] for r in site.parts()}
        assert pools == {
            "part-both-gpu_memory": "memprobe-gpu",
            "part-both-memt": "memprobe-gpu",
        }
        opened = site.opened()
        assert {row["pool"] for row in opened} == {"gpu"}
        assert {row["user"] for row in opened} == {"user_001", "user_002"}
        assert site.warnings(parent) == []
        assert_same_tables(local, site.home / "kept" / "both")
        assert site.manifest("both")["status"] == "complete"
        # The same again: nothing is missing, so nothing is dispatched and nothing asked.
        asked = len(model.chats)
        assert site.ended(site.start("both", systems=WITH_MEMT))["type"] == "COMPLETED"
        assert len(site.parts()) == len(pools)
        assert len(model.chats) == asked


def test_a_missing_worker_is_told_given_up_and_made_good(
    site: Site, model: Model, local: Path
) -> None:
    before = len(site.opened())
    site.env["MEMPROBE_WORKER_WAIT"] = "40"
    try:
        # The gpu worker of the test before was killed and its heartbeat is still young.
        with killed_at_end(site.worker("cpu", model)):
            parent = site.start("alone", systems=WITH_MEMT)
            until(lambda: site.state(parent)["type"] == "RUNNING", "the run starts")
            began = time.monotonic()
            told = until(lambda: site.warnings(parent), "the missing worker is told", 60)
            assert time.monotonic() - began < 60
            assert "prefect worker start --pool memprobe-gpu" in told[0]["message"]
            assert "no worker of pool memprobe-gpu is online" in told[0]["message"]
            state = site.ended(parent)
            assert state["type"] == "FAILED"
            assert "gpu_memory: given up after 40 s" in state["message"]
            assert "prefect worker start --pool memprobe-gpu" in state["message"]
            (part,) = [r for r in site.parts() if r["name"] == "part-alone-gpu_memory"]
            assert part["state_type"] == "CANCELLED"
            assert len(site.opened()) == before
            made = site.home / "kept" / "alone"
            assert site.manifest("alone")["status"] == "failed"
            rows = site.shell.table(
                "alone",
                "select system, status, reason, count(*) as n from verdicts "
                "where access_mode = 'dump_all' group by all order by all",
            )
            # Nobody left the denominator: what was not measured is there as unscored.
            assert {r["system"]: (r["status"], r["n"]) for r in rows} == {
                "gpu_memory": ("unscored", 6),
                "memt": ("unscored", 6),
                "nomem": ("scored", 6),
            }
            artifacts = site.post("artifacts/filter", {})
            assert "missing-worker-memprobe-gpu" in {a["key"] for a in artifacts}
            # With a worker the same run completes, and what was done is not done again.
            with killed_at_end(site.worker("gpu", model)):
                state = site.ended(site.start("alone", systems=WITH_MEMT))
                assert state["type"] == "COMPLETED", state["message"]
            assert {row["pool"] for row in site.opened()[before:]} == {"gpu"}
            assert_same_tables(local, made)
    finally:
        del site.env["MEMPROBE_WORKER_WAIT"]


def test_a_part_that_is_killed_leaves_its_users_in_the_count(site: Site, model: Model) -> None:
    with killed_at_end(site.worker("cpu", model)), killed_at_end(site.worker("gpu", model)):
        before = len(site.opened())
        parent = site.start("killed", limit=6)
        row = until(lambda: site.opened()[before:], "the part has begun")[0]
        os.kill(row["pid"], 9)
        state = site.ended(parent)
        assert state["type"] == "FAILED"
        assert "gpu_memory: its flow run part-killed-gpu_memory ended Crashed" in state["message"]
        assert site.manifest("killed")["systems"].keys() == {"nomem", "gpu_memory"}
        assert site.ended(site.start("killed", limit=6))["type"] == "COMPLETED"


def test_a_cancelled_run_takes_its_parts_along(site: Site) -> None:
    with (
        Model(latency=1.0) as slow,
        killed_at_end(site.worker("cpu", slow)),
        killed_at_end(site.worker("gpu", slow)),
    ):
        before = len(site.opened())
        parent = site.start("cancelled")
        until(lambda: site.opened()[before:], "the part has begun")
        (part,) = [r for r in site.parts() if r["name"] == "part-cancelled-gpu_memory"]
        site.post(f"flow_runs/{parent}/set_state", {"state": {"type": "CANCELLING"}})
        assert site.ended(parent)["type"] == "CANCELLED"
        assert site.ended(part["id"])["type"] == "CANCELLED"
        assert site.manifest("cancelled")["status"] == "interrupted"
        for lock in ("lock", "parts/gpu_memory.lock", "parts/nomem.lock"):
            assert not (site.home / "kept" / "cancelled" / lock).exists()


def test_sweeps_are_listed_started_and_scheduled(site: Site, model: Model) -> None:
    shell = Shell(site.home / "sweeping", {k: v for k, v in site.env.items() if "RUNS" not in k})
    listed = shell.run("sweep", "--json").json["sweeps"]
    rag = {row["system"]: row for row in listed}["rag"]
    assert rag["deployment"] == "sweep/rag"
    assert (rag["active"], rag["next"], rag["last"]) == (False, None, None)
    switched = shell.run("sweep", "rag", "--activate", "--json").json["sweeps"]
    assert [row["active"] for row in switched] == [True]
    assert switched[0]["next"] > time.strftime("%Y-%m-%d", time.gmtime())
    off = shell.run("sweep", "rag", "--deactivate", "--json").json["sweeps"]
    assert [(row["active"], row["next"]) for row in off] == [(False, None)]
    unknown = shell.run("sweep", "ragg")
    assert unknown.code == 2
    assert "did you mean 'rag'" in unknown.err
    chosen = ("--users", "1", "--limit", "2", "--model", "openai/mock", "--k", "1,2")
    started = shell.start("sweep", "nomem", *chosen, "--watch", "--json")
    with killed_at_end(started), killed_at_end(site.worker("cpu", model)):
        done = finish(started)
    assert done.code == 0, done.err
    (row,) = done.json["started"]
    assert row["state"] == "Completed"
    assert row["run"].startswith("sweep_nomem_20")
    manifest = site.manifest(row["run"])
    assert manifest["status"] == "complete"
    assert manifest["config"]["systems"] == ["nomem"]
    assert manifest["config"]["k"] == [1, 2]
    last = shell.run("sweep", "--json").json["sweeps"]
    assert {r["system"]: r["last_state"] for r in last}["nomem"] == "Completed"
