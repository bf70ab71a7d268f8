"""Units on two Dask workers: the same tables, the same calls, the same ways to stop."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import (
    REMOTE,
    SMALL,
    Model,
    assert_same_tables,
    body_of,
    finish,
    kill_group,
    processes_with,
    spent,
    stored,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
DASK = ("--task-runner", "dask", "--dask-workers", "2")
PRICED = ("run", "recovery", "--model", "openai/gpt-4o-mini", "--systems", "nomem,longctx_full")


def test_two_workers_make_the_tables_that_one_process_makes(shell: NewShell, clean: Clean) -> None:
    with Model() as model:
        home = shell("home", **model.env)
        done = home.remote("t", *DASK)
        assert done.code == 0, done.err
        # Made in other processes, and counted all the same.
        assert done.json["new_calls"] == clean.result["new_calls"]
        assert "distributed" not in done.err
        asked = len(model.chats)
        again = home.remote("t", *DASK)
        assert again.code == 0, again.err
        assert len(model.chats) == asked
    assert_same_tables(clean.run, home.runs / "t")


def test_a_stopped_run_goes_on_without_dask(shell: NewShell, clean: Clean) -> None:
    with Model(latency=0.05) as model:
        home = shell("home", **model.env, DASK_TEST="this-run-is-stopped")
        process = home.start(*REMOTE, *SMALL, "--run", "t", "--json", *DASK)
        model.at(clean.calls // 2, lambda: os.kill(process.pid, signal.SIGINT))
        try:
            done = finish(process)
        finally:
            kill_group(process)
        assert done.code == 130, done.err
        assert done.out == ""
        assert "Traceback" not in done.err
        assert "memprobe resume t" in done.err
        assert not (home.runs / "t" / "lock").exists()
        assert processes_with("this-run-is-stopped") == []
        kept, sent = stored(home.runs / "ledger.sqlite"), len(model.chats)
        resumed = home.run("resume", "t", "--json")
        assert resumed.code == 0, resumed.err
        assert not kept & {body_of(s) for s in model.chats[sent:]}
        assert 0 < resumed.json["new_calls"] < clean.calls
    assert_same_tables(clean.run, home.runs / "t")


def test_the_cost_limit_holds_over_the_workers(shell: NewShell) -> None:
    with Model() as model:
        free = shell("free", **model.env)
        done = free.run(*PRICED, *SMALL, "--run", "paid", "--json")
        assert done.code == 0, done.err
        total = spent(free.runs / "ledger.sqlite", "paid")
    limit = total * 0.4
    with Model() as model:
        home = shell("limited", **model.env)
        command = (*PRICED, *SMALL, "--run", "paid", "--json", *DASK)
        stopped = home.run(*command, "--max-cost", f"{limit:.6f}")
        assert stopped.code == 130, stopped.err
        assert stopped.json["status"] == "interrupted"
        assert "resume with a higher --max-cost" in stopped.err
        # Past it by no more than what one worker has in flight while the other's is unknown.
        assert 0 < spent(home.runs / "ledger.sqlite", "paid") <= limit * 1.5
        resumed = home.run("resume", "paid", *DASK, "--max-cost", f"{total * 2:.6f}", "--json")
        assert resumed.code == 0, resumed.err
    assert spent(home.runs / "ledger.sqlite", "paid") == pytest.approx(total)
    assert_same_tables(free.runs / "paid", home.runs / "paid")
