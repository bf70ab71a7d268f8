"""More k of a stored run, and the window of a reader that is named on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memprobe.config import RunConfig
from storage.catalog import query
from storage.runs import RunStore
from tests.cli.conftest import Invoke
from tests.cli.test_command import start

PLAYED = ("turns", "episodes", "memory_items")


@pytest.mark.heavy
def test_more_k_reads_the_stores_and_plays_nothing_again(tmp_path: Path) -> None:
    small = ("--systems", "longctx_full", "--users", "1", "--limit", "3")
    first = start("run", "recovery", *small, "--run", "t1", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    run = RunStore.open(tmp_path / "runs" / "t1")
    parts = [tmp_path / "runs" / "t1" / path for table in PLAYED for path in run.parts(table)]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in parts}
    asked = "select count(*) from calls where stage = 'rollout'"
    rollout_calls = query(run, asked).rows
    more = start("resume", "t1", "--k", "1,3", "--json", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    found = query(run, "select k, n_scored, n_total from budget_probe order by k nulls last").rows
    assert found == [(1, 3, 3), (3, 3, 3), (5, 3, 3), (None, 3, 3)]
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in parts} == before
    assert query(run, asked).rows == rollout_calls
    # Two k of three targets: a slot-fill and at most a verdict and two attributions each.
    assert 0 < json.loads(more.stdout)["new_calls"] <= 2 * 3 * 4


def test_only_a_k_on_the_command_line_is_meant_for_a_run_that_is_there(
    invoke: Invoke, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    def note(config: RunConfig, *_: Any) -> None:
        seen.append(config.k)

    monkeypatch.setattr("flows.cli.run.execute", note)
    monkeypatch.setenv("MEMPROBE_K", "7")
    assert invoke("resume", "t1", "--runs", str(home)).exit_code == 0
    assert invoke("resume", "t1", "--runs", str(home), "--k", "1,3").exit_code == 0
    assert seen == [(5,), (1, 3)]


def test_a_report_holds_the_stores_against_a_named_window(
    invoke: Invoke, home: Path, tmp_path: Path
) -> None:
    shutil.copytree(home, tmp_path / "runs")
    windows = ("--window-of", "mine=2000", "--window-of", "openai/gpt-4o")
    result = invoke("report", "t1", *windows)
    assert result.exit_code == 0, result.output
    table = (tmp_path / "runs" / "t1" / "report" / "tables" / "windows.csv").read_text("utf-8")
    assert "mine,asked for,2000,longctx_full," in table
    assert "openai/gpt-4o,asked for,128000,longctx_full," in table
    refused = invoke("report", "t1", "--window-of", "no/such")
    assert refused.exit_code != 0
