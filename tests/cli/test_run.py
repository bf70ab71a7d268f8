"""`run` from the shell: a real server, real signals, nothing asked twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_command import ROOT, start
from tests.support.fake_server import FakeServer, Seen

pytestmark = pytest.mark.heavy
SMALL = ("--systems", "nomem,longctx_full", "--users", "1", "--limit", "3")


class Watched(FakeServer):
    """Tells when so many requests have come in."""

    def __init__(self, many: int) -> None:
        super().__init__(latency=0.25)
        self.many = many
        self.enough = threading.Event()

    async def _chat(self, seen: Seen, receive: Any, send: Any) -> None:
        if len(self.seen) >= self.many:
            self.enough.set()
        await super()._chat(seen, receive, send)


def test_the_same_command_again_finds_everything_done(tmp_path: Path) -> None:
    first = start("run", "recovery", *SMALL, "--run", "t1", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    made = json.loads(first.stdout)
    assert made["status"] == "complete"
    assert made["units_done"] == made["units_total"]
    assert made["new_calls"] > 0
    # The display counts the stages that `status` lists.
    assert "recover 2/2, attribute 2/2" in first.stderr
    again = start("run", "recovery", *SMALL, "--run", "t1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "0 new calls" in again.stdout
    report = next(x for x in again.stdout.splitlines() if x.startswith("report: "))
    assert Path(report.removeprefix("report: ")).is_file()
    other = start("run", "recovery", "--run", "t1", "--seed", "8", *SMALL, cwd=tmp_path)
    assert other.returncode == 2
    assert "seed: 7 in the run, 8 now" in other.stderr
    assert other.stdout == ""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_saves_its_state_and_resume_ends_it(
    tmp_path: Path, stop: signal.Signals
) -> None:
    command = ["run", "recovery", *SMALL, "--run", "t2", "--json", "--model", "openai/mock"]
    with Watched(many=12) as server:
        model = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": server.url}
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **model},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.enough.wait(200)
        process.send_signal(stop)
        out, err = process.communicate()
        assert process.returncode == 130, err
        assert "memprobe resume t2" in err
        assert "Traceback" not in err
        assert out == ""
        facts = json.loads(start("status", "t2", "--json", cwd=tmp_path).stdout)
        assert facts["status"] == "interrupted"
        assert facts["next"] == "memprobe resume t2"
        resumed = start("resume", "t2", "--json", cwd=tmp_path, **model)
        assert resumed.returncode == 0, resumed.stderr
        result = json.loads(resumed.stdout)
        assert result["status"] == "complete"
        assert result["new_calls"] < len(server.seen)
    facts = json.loads(start("status", "t2", "--json", cwd=tmp_path).stdout)
    assert facts["status"] == "complete"
    assert facts["under_way"] == []
    assert facts["cost"]["calls_without_price"] > 0


def test_no_server_needs_one_that_is_given(tmp_path: Path) -> None:
    done = start("run", "recovery", *SMALL, "--no-server", cwd=tmp_path)
    assert done.returncode == 2
    assert "PREFECT_API_URL" in done.stderr


def test_a_model_that_judges_itself_is_told_before_the_run() -> None:
    """Case judge-self-grading: never silently graded by the model under test."""
    from memprobe.config import RunConfig
    from memprobe.types import Role

    alone = RunConfig(name="r", model="openai/gpt-5-mini")
    apart = RunConfig(
        name="r", model="openai/gpt-5-mini", model_roles={Role.JUDGE: "openai/gpt-5.4"}
    )
    assert alone.self_judged
    assert not apart.self_judged
    assert not RunConfig(name="r").self_judged
