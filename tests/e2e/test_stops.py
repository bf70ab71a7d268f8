"""A run that is stopped on purpose: the cost limit, Ctrl-C, SIGTERM."""

from __future__ import annotations

import os
import signal
import sqlite3

import pytest

from memprobe.config import RunConfig
from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import (
    REMOTE,
    SMALL,
    Model,
    assert_same_tables,
    body_of,
    finish,
    kill_group,
    spent,
    stored,
)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
PRICED = ("run", "recovery", "--model", "openai/gpt-4o-mini", "--systems", "nomem,longctx_full")


def test_the_cost_limit_is_never_passed(shell: NewShell) -> None:
    with Model() as model:
        free = shell("free", **model.env)
        done = free.run(*PRICED, *SMALL, "--run", "paid", "--json")
        assert done.code == 0, done.err
        total = spent(free.runs / "ledger.sqlite", "paid")
        assert total > 0
    limit = total * 0.4
    with Model() as model:
        home = shell("limited", **model.env)
        command = (*PRICED, *SMALL, "--run", "paid", "--json")
        stopped = home.run(*command, "--max-cost", f"{limit:.6f}")
        assert stopped.code == 130, stopped.err
        assert stopped.json["status"] == "interrupted"
        assert "resume with a higher --max-cost" in stopped.err
        paid = spent(home.runs / "ledger.sqlite", "paid")
        assert 0 < paid <= limit
        assert not (home.runs / "paid" / "lock").exists()
        again = home.run(*command, "--max-cost", f"{limit:.6f}")
        assert again.code == 130, again.err
        assert spent(home.runs / "ledger.sqlite", "paid") <= limit
        kept = stored(home.runs / "ledger.sqlite")
        before = {s.digest for s in model.chats}
        sent = len(model.chats)
        resumed = home.run("resume", "paid", "--max-cost", f"{total * 2:.6f}", "--json")
        assert resumed.code == 0, resumed.err
        assert not kept & {body_of(s) for s in model.chats[sent:]}
        # What was on its way when the limit was met is given up, at most once a connection.
        lost = len(before & {s.digest for s in model.chats[sent:]})
        print(f"{lost} calls were on their way when the limit was met")
        assert lost <= RunConfig.model_fields["max_connections"].default
    assert spent(home.runs / "ledger.sqlite", "paid") == pytest.approx(total)
    assert_same_tables(free.runs / "paid", home.runs / "paid")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_the_state_and_frees_the_lock(
    shell: NewShell, clean: Clean, name: str
) -> None:
    with Model(latency=0.05) as model:
        home = shell("home", **model.env)
        process = home.start(*REMOTE, *SMALL, "--run", "t", "--json")
        # To the whole group, as a terminal does it: the Prefect server must outlast the run.
        model.at(clean.calls // 2, lambda: os.killpg(process.pid, getattr(signal, name)))
        try:
            done = finish(process)
        finally:
            kill_group(process)
        assert done.code == 130, done.err
        assert done.out == ""
        assert "Traceback" not in done.err
        assert "memprobe resume t" in done.err
        assert not (home.runs / "t" / "lock").exists()
        with sqlite3.connect(home.runs / "ledger.sqlite") as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        before = len(model.chats)
        finished = {s.digest for s in model.chats if s.sent}
        resumed = home.run("resume", "t", "--json")
        assert resumed.code == 0, resumed.err
        # After Ctrl-C what was on the wire has landed and is not asked again. SIGTERM goes
        # through Prefect's own handler, which leaves no time for that.
        on_the_wire = 0 if name == "SIGINT" else 64
        assert len(finished & {s.digest for s in model.chats[before:]}) <= on_the_wire
        assert 0 < resumed.json["new_calls"] < clean.calls
    assert_same_tables(clean.run, home.runs / "t")
