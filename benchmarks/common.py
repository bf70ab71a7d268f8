"""What the benchmarks share: a run without Prefect, the fake server as a process, results."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
RESULTS = HOME / "benchmarks" / "results"


@contextmanager
def fake_server(latency: float = 0.0) -> Iterator[str]:
    """The fake server in a process of its own; its address is in the environment meanwhile."""
    command = [sys.executable, "-m", "tests.support.fake_server", "--latency", str(latency)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HOME)
    before = {name: os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")}
    try:
        assert server.stdout is not None
        url: str = json.loads(server.stdout.readline())["url"]
        os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"}
        yield url
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.terminate()
        server.wait(10)


async def conduct_plainly(run: Any) -> None:
    """All stages of an opened run in the flow's own order, without Prefect's engine."""
    from flows.recovery_units import RecoveryConductor
    from memprobe.errors import MemProbeError
    from tasks.inputs import store_inputs

    class Plain(RecoveryConductor):
        async def _through_prefect(
            self, unit: Any, mark: str, job: Any, arguments: dict[str, Any], **_: Any
        ) -> None:
            places = self.run.places
            await job.fn(run=self.name, unit=unit.slug, mark=mark, places=places, **arguments)

    conductor = Plain(run)
    with run.context.store.lock():
        store_inputs(run.context, run.users)
        await conductor.all()
        run.ledger.flush()
    if conductor.failure_lines():
        raise MemProbeError("; ".join(conductor.failure_lines()))


def places(folder: Path) -> Any:
    """Settings of a run that keeps everything below a folder."""
    from memprobe.settings import Settings

    return Settings(runs=str(folder / "runs"), ledger=f"sqlite:///{folder}/ledger.db")


def run_async(job: Any) -> Any:
    """A coroutine to its end, in a loop of its own."""
    return asyncio.run(job)


def record(name: str, result: dict[str, Any], out: Path | None = None) -> dict[str, Any]:
    """Write a benchmark's JSON and give it back with what it ran on."""
    full = {
        "benchmark": name,
        **result,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    path = out or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(full, indent=1) + "\n", encoding="utf-8")
    return full
