"""The commands that read a finished run, over a real one."""

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from flows.cli.serve import server_for
from memprobe.errors import UsageError
from storage.runs import RunStore
from tests.cli.conftest import Invoke


def test_sql_in_every_format(invoke: Invoke, home: Path) -> None:
    query = "select system, access_mode, b_mean from recovery_summary order by all"
    runs = ("--runs", str(home))
    found = json.loads(invoke("sql", "t1", query, "--format", "json", *runs).stdout)
    assert [(r["system"], r["access_mode"]) for r in found] == [
        ("longctx_full", "dump_all"),
        ("longctx_full", "retrieve"),
        ("nomem", "dump_all"),
    ]
    assert found[2]["b_mean"] == 0.0
    lines = invoke("sql", "t1", query, "--format", "csv", *runs).stdout.splitlines()
    assert lines[0] == "system,access_mode,b_mean"
    assert lines[3] == "nomem,dump_all,0.0"
    assert invoke("sql", "t1", query, "--format", "md", *runs).stdout.splitlines()[1] == (
        "| --- | --- | --- |"
    )
    assert "longctx_full" in invoke("sql", "t1", query, *runs).stdout


def test_a_run_is_also_found_by_its_folder(invoke: Invoke, home: Path) -> None:
    result = invoke("sql", str(home / "t1"), "select count(*) n from users", "--format", "csv")
    assert result.stdout == "n\n2\n"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("drop view users", "only reading statements"),
        ("select nothing from users", "nothing"),
        ("select 1; select 2", "one statement"),
    ],
)
def test_a_wrong_query_is_a_usage_error(
    query: str, expected: str, invoke: Invoke, home: Path
) -> None:
    result = invoke("sql", "t1", query, "--runs", str(home))
    assert result.exit_code == 2
    assert expected in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_hostile_cells_do_not_reach_the_terminal(invoke: Invoke, home: Path) -> None:
    query = "select '[red]x[/red] ' || chr(27) || '[2J|y' as cell"
    for style in ("table", "md"):
        out = invoke("sql", "t1", query, "--format", style, "--runs", str(home)).stdout
        assert "\x1b" not in out
        assert "[red]x[/red]" in out
    assert "\\|y" in out


def test_an_unknown_run_names_those_there_are(invoke: Invoke, home: Path) -> None:
    result = invoke("report", "t2", "--runs", str(home))
    assert result.exit_code == 2
    assert "no run 't2'" in result.stderr
    assert "t1" in result.stderr


def test_status_counts_units_and_names_the_next_command(invoke: Invoke, home: Path) -> None:
    facts = json.loads(invoke("status", "t1", "--json", "--runs", str(home)).stdout)
    counts = {(r["stage"], r["system"]): (r["done"], r["total"]) for r in facts["stages"]}
    assert counts["rollout", "nomem"] == (2, 2)
    assert counts["attribute", "longctx_full"] == (2, 2)
    assert counts["oracle", ""] == (2, 2)
    assert facts["status"] == "complete"
    assert facts["next"] == "memprobe report t1"
    assert facts["cost"] == {"usd": 0.0, "calls_without_price": 0}
    assert "next: memprobe report t1" in invoke("status", "t1", "--runs", str(home)).stdout


def test_status_sees_a_dead_writer_and_the_last_checkpoint(
    invoke: Invoke, home: Path, tmp_path: Path
) -> None:
    import shutil
    import socket

    from storage.runs import Unit

    shutil.copytree(home / "t1", tmp_path / "runs" / "t1")
    store = RunStore.open(tmp_path / "runs" / "t1")
    store.update_manifest(status="running")
    unit = Unit("rollout", "longctx_full", "user_001")
    checkpoint = store.work_dir(unit)
    kept = json.loads((checkpoint / "checkpoint.json").read_bytes())["episode"]
    (tmp_path / "runs" / "t1" / "units" / f"{unit.slug}.json").unlink()
    owner = {"host": socket.gethostname(), "pid": 2**22 + 1, "started": "1"}
    (tmp_path / "runs" / "t1" / "lock").write_text(json.dumps(owner))
    facts = json.loads(invoke("status", "t1", "--json").stdout)
    assert "is gone" in facts["status"]
    assert facts["owner"]["alive"] is False
    assert {"stage": "rollout", "system": "longctx_full", "user": "user_001", "episodes": kept} in (
        facts["under_way"]
    )
    assert facts["next"] == "memprobe resume t1"


def test_status_without_a_run_lists_them(invoke: Invoke, home: Path) -> None:
    rows = json.loads(invoke("status", "--json", "--runs", str(home)).stdout)
    assert [(r["run"], r["status"]) for r in rows] == [("t1", "complete")]
    assert "memprobe run" in invoke("status", "--runs", "nothing_here").stdout


@pytest.mark.parametrize(
    ("bound", "code"),
    [("recovery.dump_all.longctx_full.B>=0.99", 3), ("recovery.dump_all.longctx_full.B>=0.01", 0)],
)
def test_gate_exit_codes(bound: str, code: int, invoke: Invoke, home: Path) -> None:
    result = invoke("gate", "t1", "--min", bound, "--runs", str(home))
    assert result.exit_code == code
    assert ("NOT MET" in result.stdout) == (code == 3)


def test_every_gate_must_be_met(invoke: Invoke, home: Path) -> None:
    bounds = ["--min", "recovery.coverage>=0.5", "--min", "recovery.dump_all.nomem.B>=0.5"]
    result = invoke("gate", "t1", *bounds, "--json", "--runs", str(home))
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert found["met"] is False
    assert {r["met"] for r in found["results"]} == {True, False}


@pytest.mark.parametrize("bound", ["recovery.dump_all.nobody.B>=1", "B=1", "recovery.X>=1"])
def test_a_gate_that_cannot_be_read_is_usage(bound: str, invoke: Invoke, home: Path) -> None:
    assert invoke("gate", "t1", "--min", bound, "--runs", str(home)).exit_code == 2


def test_a_gate_is_needed(invoke: Invoke, home: Path) -> None:
    assert invoke("gate", "t1", "--runs", str(home)).exit_code == 2


def test_report_prints_the_path_of_a_file_that_is_there(invoke: Invoke, home: Path) -> None:
    result = invoke("report", "t1", "--json", "--runs", str(home))
    assert result.exit_code == 0
    assert Path(json.loads(result.stdout)["report"]).is_file()


def test_a_run_compared_with_itself_shows_no_difference(invoke: Invoke, home: Path) -> None:
    result = invoke("compare", "t1", "t1", "--json", "--runs", str(home))
    rows = json.loads(result.stdout)["rows"]
    assert {row["difference"] for row in rows} == {0.0}
    table = invoke("compare", "t1", "t1", "--runs", str(home)).stdout
    assert "no difference shown" in table


def test_score_into_a_second_layer_leaves_the_first_alone(
    invoke: Invoke, home: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(home, tmp_path / "runs")
    store = RunStore.open(tmp_path / "runs" / "t1")
    before = {p: (store.path / p).read_bytes() for p in store.parts("verdicts")}
    arguments = ["score", "t1", "--model-role", "judge=embedded/default", "--layer", "second"]
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["layer"] == "second"
    assert facts["coverage"] == 1.0
    assert facts["new_calls"] == 0, "the same judge was asked the same before"
    assert before == {p: (store.path / p).read_bytes() for p in before}
    compared = json.loads(invoke("compare", "t1", "t1@second", "--json").stdout)
    assert {row["kappa"] for row in compared["rows"] if row["system"] == "longctx_full"} == {1.0}
    again = json.loads(invoke(*arguments, "--json").stdout)
    assert again["new_calls"] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--layer", "x"], "--layer needs --model-role judge"),
        (["--model-role", "oracle=a/b"], "would need a new run"),
        (["--model-role", "judge=embedded/default", "--layer", "base"], "choose another"),
        (["--model-role", "judge=embedded/default", "--layer", "e2"], "choose another"),
        (["--model-role", "judge=embedded/default", "--layer", "../x"], "a-z"),
    ],
)
def test_score_refuses_what_it_cannot_do(
    arguments: list[str], expected: str, invoke: Invoke, home: Path
) -> None:
    result = invoke("score", "t1", *arguments, "--runs", str(home))
    assert result.exit_code == 2
    assert expected in result.stderr


def test_view_serves_the_folder_to_loopback_names_only(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>here</p>")
    with server_for(page, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/report.html"
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"<p>here</p>"
        foreign = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(foreign)
        assert caught.value.code == 403
        with pytest.raises(UsageError, match="--port 0"):
            server_for(page, server.server_address[1])
        server.shutdown()


def test_a_run_given_by_its_folder_brings_its_ledger(invoke: Invoke, home: Path) -> None:
    facts = json.loads(invoke("status", str(home / "t1"), "--json").stdout)
    assert facts["cost"] == {"usd": 0.0, "calls_without_price": 0}
    elsewhere = json.loads(
        invoke("status", str(home / "t1"), "--json", "--ledger", "sqlite:///none.sqlite").stdout
    )
    assert elsewhere["cost"] is None
