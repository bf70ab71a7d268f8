"""The commands that read a finished run, over a real one."""

import json
import shutil
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
        (["--layer", "x"], "--layer needs --judge MODEL or --model-role judge=MODEL"),
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


def test_a_name_with_a_slash_is_found_again(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    import shutil

    from memprobe.ids import slug

    copy = tmp_path / "runs" / slug("a/b")
    shutil.copytree(home / "t1", copy)
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["config"]["name"] = manifest["name"] = "a/b"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    facts = json.loads(invoke("status", "a/b", "--json").stdout)
    assert facts["run"] == "a/b"
    assert facts["next"] == "memprobe report a/b"
    assert invoke("report", "a/b").exit_code == 0
    assert invoke("sql", str(copy), "select 1 as x", "--format", "csv").stdout == "x\n1\n"
    assert "no run 'a/c'" in invoke("status", "a/c").stderr


def test_a_row_fits_the_terminal_and_is_whole_elsewhere(
    invoke: Invoke, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select 'k' as short, repeat('word ', 60) as long, chr(10) || 'b' as lines"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    result = invoke("sql", "t1", query, "--runs", str(home))
    lines = [line for line in result.stdout.splitlines() if "word" in line]
    assert len(lines) == 1
    assert len(lines[0]) <= 60
    assert "…" in lines[0]
    assert "--format json" in result.stderr
    whole = invoke("sql", "t1", query, "--format", "csv", "--runs", str(home)).stdout
    assert "word " * 60 in whole


def test_what_one_side_lacks_is_one_line() -> None:
    from flows.cli.results import only_in

    lines = ["rag dump_all: only in t1", "rag retrieve@5: only in t1", "x dump_all: only in t2"]
    assert only_in(lines) == [
        "only in t1: 2 (rag dump_all, rag retrieve@5)",
        "only in t2: 1 (x dump_all)",
    ]


def test_unscored_lines_name_the_reason_and_its_commonest_detail() -> None:
    from flows.cli.run import unscored_lines

    counts = {
        "judge_checks/timeout": 3,
        "preference_scores/not_judged": 7,
        "verdicts/provider_error": 1,
    }
    examples = {
        "verdicts/provider_error": "no\nkey " + "x" * 300,
        "preference_scores/not_judged": "long",
    }
    first, *rest = unscored_lines({"unscored": counts, "unscored_examples": examples})
    assert first == (
        "unscored: judge_checks/timeout 3, preference_scores/not_judged 7 "
        "(the embedded profile rates no preferences), verdicts/provider_error 1"
    )
    assert len(rest) == 1
    assert rest[0].startswith("  verdicts/provider_error: no key xxx")
    assert rest[0].endswith("…")
    assert unscored_lines({"unscored": {}, "unscored_examples": {}}) == []


def test_a_failed_judge_check_is_counted_and_explained(tmp_path: Path) -> None:
    from flows.outcome import unscored_counts, unscored_examples
    from storage.runs import Unit
    from tests.storage.rows import new_run

    store = new_run(tmp_path / "r")
    planted = {"system": "", "user_id": "u", "kind": "right", "category": "skill_memory"}
    planted |= {"dimension": "d", "status": "unscored", "reason": "timeout", "call_id": "c1"}
    store.commit(Unit("judge_check"), "f", {"judge_checks": [planted]})
    call = {"call_id": "c1", "stage": "judge_check", "role": "judge", "model": "m", "system": ""}
    call |= {"user_id": "u", "item": "right", "attempt": 1, "ledger_hit": False}
    call |= {"outcome": "timeout", "detail": "no answer in 9 s", "repaired": False}
    store.commit(Unit("calls"), "f", {"calls": [call]})
    assert unscored_counts(store) == ({"judge_checks/timeout": 1}, 0.0)
    assert unscored_examples(store) == {"judge_checks/timeout": "no answer in 9 s"}


def test_a_result_for_people_has_dashes_and_right_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from flows.cli.run import show

    row = {"system": "rag", "access_mode": "dump_all", "k": None, "n_users": 1, "n_scored": 0}
    row |= {"n_total": 2, "b_mean": None, "b_lo": None, "b_hi": None, "a_pct": None}
    row |= {"c_mean": None, "d_mean": None, "items_mean": 3.0}
    fields = {"run": "t", "status": "complete", "summary": [row], "units_done": 1}
    fields |= {"units_total": 1, "new_calls": 1, "ledger_hits": 0, "unscored": {}, "report": None}
    show(fields)
    out = capsys.readouterr().out
    cells = next(line for line in out.splitlines() if "rag" in line).split()
    assert cells == ["rag", "dump_all", "1", "0/2", "-", "-", "-", "-", "-", "3"]
    assert "1 of 1 unit, 1 new call, 0 from the ledger" in out


def test_a_run_with_a_part_gone_is_not_complete(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "runs")
    runs = ("--runs", str(tmp_path / "runs"))
    whole = json.loads(invoke("status", "t1", "--json", *runs).stdout)
    assert (whole["status"], whole["next"]) == ("complete", "memprobe report t1")
    gone = sorted((tmp_path / "runs" / "t1" / "artifacts" / "verdicts").rglob("*.parquet"))[0]
    gone.unlink()
    found = json.loads(invoke("status", "t1", "--json", *runs).stdout)
    assert (found["status"], found["next"]) == ("incomplete", "memprobe resume t1")


def test_a_suite_that_does_not_hold_its_design_is_run_with_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from flows.cli.run import warn_of_suite
    from memprobe.config import RunConfig
    from storage.bundled import paradigms_dir

    path = sorted(paradigms_dir().glob("*.json"))[0]
    shutil.copy(path, tmp_path / path.name)
    config = RunConfig(name="p", suite="paradigms", dataset=str(tmp_path))
    warn_of_suite(config)
    assert "does not hold its design" not in capsys.readouterr().err
    episode = json.loads(path.read_text(encoding="utf-8"))
    episode["probes"] = episode["probes"][:2]
    (tmp_path / path.name).write_text(json.dumps(episode), encoding="utf-8")
    warn_of_suite(config)
    assert "does not hold its design" in capsys.readouterr().err
