"""Kill -9 at points that the model's request counter decides; the same command goes on."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from memprobe.config import RunConfig
from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import (
    REMOTE,
    SMALL,
    Model,
    Shell,
    assert_same_tables,
    body_of,
    finish,
    kill_group,
    on_event,
    processes_with,
    stored,
    until,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1500)]
SMALL_RUN = (*REMOTE, *SMALL)
IN_FLIGHT = RunConfig.model_fields["max_connections"].default


def killed_run(
    home: Shell, model: Model, points: list[int], seed: int, command: Sequence[str] = SMALL_RUN
) -> tuple[int, int]:
    """Run to the end through a kill at every point; gives kills and calls in flight at them.

    A point counts the requests of one life of the process. Whatever the ledger
    held at a kill must never be asked again; what had been answered and not yet
    stored may be, at most once for each call in flight.
    """
    drawn = random.Random(seed)
    kills = twice = 0
    for point in [*points, None]:
        before = len(model.chats)
        kept = stored(home.runs / "ledger.sqlite")
        process = home.start(*command, "--run", "killed", "--json")
        if point is not None:
            moment = drawn.choice(("arrival", "answered"))
            model.at(model.arrived + point, lambda p=process: kill_group(p), moment)
        done = finish(process)
        asked = model.chats[before:]
        assert [b for b in map(body_of, asked) if b in kept] == [], "a stored call was sent again"
        bodies = Counter(s.digest for s in asked)
        assert max(bodies.values(), default=1) == 1, "sent twice in one life"
        if done.code == 0:
            break
        assert done.code == -signal.SIGKILL, done.err
        kills += 1
        lost = [
            s for s in asked if s.sent and body_of(s) not in stored(home.runs / "ledger.sqlite")
        ]
        assert len(lost) <= IN_FLIGHT
        twice += len(lost)
    else:
        raise AssertionError(done.err)
    assert done.json["status"] == "complete"
    return kills, twice


def check_killed(shell: NewShell, clean: Clean, points: list[int], seed: int) -> None:
    with Model(latency=0.02) as model:
        home = shell("killed", **model.env)
        kills, twice = killed_run(home, model, points, seed)
        assert kills == len(points)
        assert len({s.digest for s in model.chats}) == clean.calls
        assert len(model.chats) <= clean.calls + kills * IN_FLIGHT
    print(f"{clean.calls} calls, {kills} kills, {twice} calls were in flight at a kill")
    assert_same_tables(clean.run, home.runs / "killed")
    assert home.remote("killed").json["new_calls"] == 0


def test_killed_several_times_a_run_pays_once_and_ends_the_same(
    shell: NewShell, clean: Clean
) -> None:
    drawn = random.Random(11)
    check_killed(shell, clean, [drawn.randint(1, clean.calls // 5) for _ in range(4)], seed=11)


def test_killed_at_twenty_points(shell: NewShell, clean: Clean) -> None:
    drawn = random.Random(20)
    check_killed(shell, clean, [drawn.randint(1, clean.calls // 25) for _ in range(20)], seed=20)


def test_kill_leaves_no_server_behind(tmp_path: Path) -> None:
    """Only the run itself is killed: its Prefect server must notice and end."""
    with Model(latency=0.05) as model:
        home = Shell(tmp_path, model.env)
        process = home.start(*REMOTE, *SMALL, "--run", "t", "--json")
        killed, mark = on_event()

        def kill() -> None:
            os.kill(process.pid, signal.SIGKILL)
            mark()

        model.at(9, kill)
        done = finish(process)
        assert killed.is_set(), done.err
        assert done.code == -signal.SIGKILL
        until(lambda: not processes_with(str(tmp_path)), "the private server ends", 30)
        resumed = home.run(*REMOTE, *SMALL, "--run", "t", "--json")
        assert resumed.code == 0, resumed.err
        assert resumed.json["ledger_hits"] > 0
    assert processes_with(str(tmp_path)) == []
