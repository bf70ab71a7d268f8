"""The settings of scale change no table: PostgreSQL for server and ledger, artifacts in S3."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from flows import server
from memprobe.errors import MissingPrerequisite
from storage.files import open_files
from storage.runs import ARTIFACTS
from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import (
    REMOTE,
    SMALL,
    UNEQUAL,
    Model,
    Outcome,
    Shell,
    assert_same_tables,
    finish,
    kill_group,
    parts,
    until,
)
from tests.support.postgres import ESCAPED, PASSWORD, Postgres
from tests.support.s3 import SECRET, Bucket

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
EMBEDDED = ("run", "recovery", "--systems", "nomem,rag", *SMALL, "--json")
SECRETS = [
    text.encode()
    for secret in (PASSWORD, SECRET)
    for text in {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
]


def assert_no_secret(*outputs: Outcome, folder: Path | None = None) -> None:
    """Neither in what was printed nor in any file that was left behind."""
    for done in outputs:
        assert [s for s in SECRETS if s in (done.out + done.err).encode()] == []
    for path in folder.rglob("*") if folder else ():
        if path.is_file():
            data = path.read_bytes()
            assert [s for s in SECRETS if s in data] == [], path


def served_by(shell: Shell, postgres: Postgres, name: str) -> Shell:
    """A shell whose runs start a server of their own, on a database of PostgreSQL."""
    kept = {k: v for k, v in shell.env.items() if not k.startswith("PREFECT_API")}
    database = {"MEMPROBE_SERVER_DATABASE": postgres.url(name, "asyncpg")}
    ledger = {"MEMPROBE_LEDGER": postgres.url(postgres.new())}
    return Shell(shell.home, {**kept, **server.TUNING, **database, **ledger})


def asked(postgres: Postgres, name: str, sql: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(postgres.url(name).replace("+psycopg", "")) as connection:
        return connection.execute(sql).fetchall()  # type: ignore[call-overload,no-any-return]


def calls(shell: Shell, run: str) -> int:
    (row,) = shell.table(run, "select count(*) as n from calls")
    found: int = row["n"]
    return found


def test_a_run_on_postgresql_leaves_the_same_tables(shell: NewShell, postgres: Postgres) -> None:
    plain = shell("plain")
    first = plain.run(*EMBEDDED, "--run", "t")
    assert first.code == 0, first.err
    name = postgres.new()
    scaled = served_by(shell("scaled"), postgres, name)
    second = scaled.run(*EMBEDDED, "--run", "t")
    assert second.code == 0, second.err
    assert_same_tables(plain.runs / "t", scaled.runs / "t")
    assert calls(plain, "t") == calls(scaled, "t") > 0
    assert not list(scaled.home.rglob("ledger.sqlite"))
    ((parameters,),) = asked(postgres, name, "select parameters::text from flow_run")
    assert ":***@" in parameters
    assert not any(secret.decode() in parameters for secret in SECRETS)
    assert_no_secret(second, folder=scaled.home)


def test_a_remote_run_on_postgresql_pays_and_counts_the_same(
    shell: NewShell, clean: Clean, postgres: Postgres
) -> None:
    name = postgres.new()
    with Model() as model:
        scaled = served_by(shell("scaled", **model.env), postgres, name)
        done = scaled.remote("clean")
        assert done.code == 0, done.err
        assert len(model.chats) == clean.calls == done.json["new_calls"]
        assert_same_tables(clean.run, scaled.runs / "clean")
        assert calls(scaled, "clean") == calls(clean.shell, "clean")
        again = scaled.remote("again")
        assert (again.json["new_calls"], len(model.chats)) == (0, clean.calls)
    runs = asked(postgres, name, "select name from flow_run order by name")
    assert runs == [("memprobe-again",), ("memprobe-clean",)]
    status = scaled.run("status", "clean", "--json")
    assert status.json["cost"] is not None
    assert_no_secret(done, again, status, folder=scaled.home)


def test_a_database_that_is_not_there_stops_a_run_before_it_starts(
    shell: NewShell, postgres: Postgres
) -> None:
    home = shell("home")
    for option, driver in (("--ledger", "psycopg"), ("--server-database", "asyncpg")):
        kept = {k: v for k, v in home.env.items() if not k.startswith("PREFECT_API")}
        url = postgres.url("nowhere", driver)
        done = Shell(home.home, kept).run(*EMBEDDED, "--run", "t", option, url)
        assert done.code == 2, done.err
        assert "nowhere" in done.err
        assert ":***@" in done.err
        assert "Traceback" not in done.err.partition("its log")[0]
        assert_no_secret(done, folder=home.home)


def test_doctor_tries_what_it_is_given(shell: NewShell, postgres: Postgres, bucket: Bucket) -> None:
    home = served_by(shell("home", **bucket.env), postgres, postgres.new())
    done = home.run("doctor", "--json", "--runs", bucket.url("runs"))
    checks = {c["name"]: c for c in done.json["checks"]}
    for name in ("runs folder", "ledger", "prefect server"):
        assert checks[name]["result"] == "ok", checks[name]
        assert ":***@" in checks[name]["detail"] or name == "runs folder"
    assert open_files(bucket.url("runs")).find("", "") == []
    assert_no_secret(done, folder=home.home)
    nowhere = postgres.url("nowhere"), postgres.url("nowhere", "asyncpg")
    places = ("--ledger", nowhere[0], "--server-database", nowhere[1])
    wrong = home.run("doctor", "--json", "--runs", "s3://no-such-bucket/runs", *places)
    assert wrong.code == 2
    failed = {c["name"] for c in wrong.json["checks"] if c["result"] == "failed"}
    assert {"runs folder", "ledger", "prefect server"} <= failed
    assert_no_secret(wrong)


def stored_parts(url: str) -> dict[str, str]:
    """`parts` of a run in a bucket, read past MemProbe's own tables."""
    files = open_files(f"{url}/{ARTIFACTS}")
    names = [n for n in files.find("", ".parquet") if n.split("/")[0] not in UNEQUAL]
    return {name: hashlib.sha256(files.read(name)).hexdigest() for name in names}


@pytest.mark.parametrize("lost", [False, True], ids=["same machine", "checkpoints lost"])
def test_a_run_in_s3_is_killed_and_resumed(
    shell: NewShell, clean: Clean, bucket: Bucket, lost: bool
) -> None:
    runs = bucket.url("some runs/ü")
    with Model(latency=0.02) as model:
        home = shell("home", **model.env, **bucket.env, MEMPROBE_RUNS=runs)
        work = home.home / "work"
        command = (*REMOTE, *SMALL, "--run", "clean", "--work-dir", str(work), "--json")
        process = home.start(*command)
        model.at(clean.calls // 4, lambda: kill_group(process))
        assert finish(process).code == -signal.SIGKILL
        assert list(work.rglob("unit.json"))
        before = home.run("status", "clean", "--json", "--work-dir", str(work))
        assert before.json["status"].startswith("interrupted")
        if lost:
            shutil.rmtree(work)
        done = home.run(*command)
        assert done.code == 0, done.err
        assert done.json["status"] == "complete"
        assert len({seen.digest for seen in model.chats}) == clean.calls
        assert len(model.chats) <= clean.calls + 64
        assert home.run(*command).json["new_calls"] == 0
    assert stored_parts(f"{runs}/clean") == parts(clean.run)
    if not lost:
        check_commands(home, clean, runs, work)
    files = open_files(runs)
    for name in files.find("", ""):
        assert not any(secret in files.read(name) for secret in SECRETS), name
    assert_no_secret(done, before, folder=home.home)


def check_commands(home: Shell, clean: Clean, runs: str, work: Path) -> None:
    """What is done with a run is done with one in a bucket, by name and by location."""
    place = ("--work-dir", str(work))
    figures = "select system, access_mode, k, b_mean from recovery_summary order by all"
    for name in ("clean", f"{runs}/clean"):
        assert home.table(name, figures) == clean.shell.table("clean", figures)
        status = home.run("status", name, "--json").json
        assert (status["status"], status["location"]) == ("complete", f"{runs}/clean")
        report = home.run("report", name, "--json", *place)
        assert report.code == 0, report.err
        page = Path(report.json["report"])
        assert page.is_relative_to(work)
        assert page.read_bytes() == open_files(f"{runs}/clean").read("report/index.html")
        gate = home.run("gate", name, "--min", "recovery.coverage>=0.9", "--json", *place)
        assert gate.code == 0, gate.err
        resumed = home.run("resume", name, "--json", *place)
        assert resumed.code == 0, resumed.err
        assert resumed.json["new_calls"] == 0
    same = home.run("compare", "clean", str(clean.run), "--json", *place)
    assert {row["difference"] for row in same.json["rows"]} == {0.0}
    listed = home.run("status", "--json").json
    assert [row["run"] for row in listed] == ["clean"]
    missing = home.run("status", "nope")
    assert missing.code == 2
    assert "there are: clean" in missing.err


def test_two_processes_do_not_write_one_run_in_s3(shell: NewShell, bucket: Bucket) -> None:
    runs = bucket.url("runs")
    with Model(latency=0.2) as model:
        home = shell("home", **model.env, **bucket.env, MEMPROBE_RUNS=runs)
        first = home.start(*REMOTE, *SMALL, "--run", "t", "--json")
        try:
            until(lambda: open_files(f"{runs}/t").size("lock"), "the first holds its lock")
            second = home.remote("t")
            assert second.code == 2, second.err
            assert f"process {first.pid}" in second.err
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.communicate()


def test_a_server_that_cannot_reach_its_database_says_so_without_the_password(
    tmp_path: Path, postgres: Postgres
) -> None:
    wrong = postgres.url("nowhere", "asyncpg").replace(ESCAPED, "hunter2")
    with pytest.raises(MissingPrerequisite, match=r":\*\*\*@127") as caught:
        server.start(tmp_path, database=wrong)
    assert "hunter2" not in str(caught.value)
    assert b"hunter2" not in (tmp_path / "server.log").read_bytes()
