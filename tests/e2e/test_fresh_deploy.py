"""`prefect deploy` on a server where nothing was prepared."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from flows import server
from flows.deployed import deploying
from flows.up import POOLS
from tests.e2e.support import ROOT, Shell

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def test_only_prefect_deploy_makes_pools() -> None:
    assert deploying(["/venv/bin/prefect", "--no-prompt", "deploy", "--all"])
    assert deploying(["C:\\venv\\Scripts\\prefect.exe", "deploy"])
    assert deploying(["/venv/lib/prefect/__main__.py", "deploy", "--all"])
    assert not deploying(["/venv/bin/prefect", "worker", "start"])
    assert not deploying(["/venv/bin/memprobe", "run", "deploy"])


def test_a_fresh_server_takes_the_deployments_at_once(tmp_path: Path) -> None:
    started, process = server.start(tmp_path / "prefect")
    try:
        env = {"PREFECT_API_URL": started.api_url, "PREFECT_HOME": str(tmp_path / "client")}
        shell = Shell(tmp_path / "somewhere", {**server.TUNING, **env})
        shell.home.mkdir()
        yaml = str(ROOT / "deploy" / "prefect.yaml")
        done = shell.run(
            "--no-prompt", "deploy", "--prefect-file", yaml, "--all", program="prefect"
        )
        assert done.code == 0, done.out + done.err
        pools = httpx.post(f"{started.api_url}/work_pools/filter", json={}).json()
        assert sorted(pool["name"] for pool in pools) == sorted(POOLS)
    finally:
        server.stop(process)
