"""A run of the default profile from the shell: no key, its own Prefect server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.support import Shell, assert_same_tables, parts, processes_with

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
SMALL = ("--users", "1", "--limit", "5", "--run", "t1", "--json")


def test_run_again_extend_and_read(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    command = ("run", "recovery", "--systems", "nomem,longctx_full", *SMALL)
    first = shell.run(*command)
    assert first.code == 0, first.err
    made = first.json
    assert made["status"] == "complete"
    assert made["new_calls"] > 0
    assert made["units_done"] == made["units_total"] == 6
    assert made["error_share"] == 0.0
    report = Path(made["report"]).read_text(encoding="utf-8")
    assert "longctx_full" in report
    assert processes_with(str(tmp_path)) == []

    # A server that starts writes its log anew.
    log = shell.runs / ".prefect" / "server.log"
    log.unlink()
    before = parts(shell.runs / "t1")
    again = shell.run(*command)
    assert again.code == 0, again.err
    assert again.json["new_calls"] == 0
    assert again.json["summary"] == made["summary"]
    assert not log.exists()
    assert parts(shell.runs / "t1") == before

    rows = shell.table("t1", "select * from recovery_summary order by system, access_mode")
    by_view = {(r["system"], r["access_mode"]): r for r in rows}
    assert by_view["nomem", "dump_all"]["b_mean"] == 0.0
    whole = by_view["longctx_full", "dump_all"]
    assert whole["b_mean"] > 0
    assert by_view["longctx_full", "retrieve"]["b_mean"] <= whole["b_mean"]
    assert {(r["n_scored"], r["n_total"]) for r in rows} == {(5, 5)}

    wider = shell.run(
        *("run", "recovery", "--systems", "nomem,longctx_full,rag", "--k", "1,5", *SMALL)
    )
    assert wider.code == 0, wider.err
    result = wider.json
    assert result["units_total"] == 8
    assert 0 < result["new_calls"] < made["new_calls"]
    views = {(r["system"], r["k"]) for r in result["summary"] if r["access_mode"] == "retrieve"}
    assert {("longctx_full", 1), ("longctx_full", 5), ("rag", 1), ("rag", 5)} <= views
    kept = {k: v for k, v in parts(shell.runs / "t1").items() if "system=nomem" in k}
    rolled = [k for k in kept if k.startswith(("turns", "episodes", "memory_items"))]
    assert rolled
    assert all(kept[k] == before[k] for k in rolled)

    # The extended run is the run that would have been made at once.
    at_once = Shell(tmp_path / "other")
    done = at_once.run(
        *("run", "recovery", "--systems", "nomem,longctx_full,rag", "--k", "1,5", *SMALL)
    )
    assert done.code == 0, done.err
    assert_same_tables(shell.runs / "t1", at_once.runs / "t1")


def test_exit_codes_and_streams(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for arguments, said in (
        (("run", "recovery", "--users", "99"), "--users 99"),
        (("run", "recovery", "--systems", "nosuch"), "nosuch"),
        (("sql", "missing", "select 1"), "missing"),
    ):
        done = shell.run(*arguments)
        assert done.code == 2, (arguments, done.err)
        assert done.out == ""
        assert said in done.err
        assert "Traceback" not in done.err
    unreachable = Shell(tmp_path, {"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    done = unreachable.run("run", "recovery", *SMALL)
    assert done.code == 2
    assert "PREFECT_API_URL" in done.err
    assert json.loads(shell.run("status", "--json").out) is not None
