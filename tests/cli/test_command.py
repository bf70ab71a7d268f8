"""The command as such: help, exit codes, streams, laziness, documentation."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from flows.cli.app import app
from flows.cli.reference import commands, reference
from memprobe import errors
from memprobe.settings import PROCESS_OPTIONS, RUN_OPTIONS
from tests.cli.conftest import Invoke

ROOT = Path(__file__).parents[2]
HEAVY = ("prefect", "torch", "litellm", "duckdb", "sqlalchemy", "pyarrow", "numpy", "plotly")
NAMES = [name for name, _ in commands()]


def start(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMPROBE_")}
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from parameter.opts


def test_the_commands_are_those_of_the_design() -> None:
    assert NAMES == [
        "run",
        "resume",
        "plan",
        "sweep",
        "status",
        "import",
        "report",
        "view",
        "compare",
        "gate",
        "sql",
        "score",
        "reread",
        "retrievals",
        "attribute",
        "tables",
        "export",
        "bundle",
        "verify",
        "generate",
        "systems",
        "check",
        "doctor",
        "up",
        "audit sheet",
        "audit read",
        "suite new",
        "suite build",
        "suite extract",
        "suite validate",
    ]


def test_no_help_loads_anything_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, io, contextlib\n"
        "from flows.cli.app import app\n"
        f"for name in {['', *NAMES]!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        try: app([*name.split(), '--help'])\n"
        "        except SystemExit: pass\n"
        "    assert 'Usage' in out.getvalue(), name\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_help_has_an_example_and_the_common_options(name: str, invoke: Invoke) -> None:
    result = invoke(*name.split(), "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    command = dict(commands())[name]
    assert {"--runs", "--ledger", "--config", "--debug"} <= set(options(command))


def test_run_and_plan_take_the_same_options() -> None:
    by_name = dict(commands())
    run, plan = set(options(by_name["run"])), set(options(by_name["plan"]))
    assert run - plan == {"--run", *(option.flag for option in PROCESS_OPTIONS)}
    assert plan <= run
    assert {option.flag for option in RUN_OPTIONS} <= plan


def test_the_documentation_is_what_help_says() -> None:
    written = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m flows.cli.reference > docs/command-line.md"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "recovry"], "did you mean 'recovery'?"),
        (["run", "--k", "none_of_it"], "looked at, in this order"),
        (["run", "--systms", "rag"], "--systems"),
        (["frobnicate"], "frobnicate"),
        (["sql", "nothing", "select 1"], "no run 'nothing'"),
        (["plan", "--users", "user_999"], "user_999"),
        (["plan", "--systems", "longctx"], "longctx_full"),
        (["generate", "--out", "x"], "--model"),
        (["resume", "nothing"], "no run"),
        (["status", "nothing"], "no run"),
    ],
)
def test_usage_errors_exit_with_2_and_leave_stdout_alone(
    arguments: list[str], expected: str, invoke: Invoke
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("u"), 2),
        (errors.SettingsError("s"), 2),
        (errors.MissingPrerequisite("m"), 2),
        (errors.DatasetError("d"), 2),
        (errors.StorageError("disk full"), 1),
        (errors.AdapterError("a"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_is_raised_on_purpose_becomes_a_message_and_a_code(
    error: BaseException, code: int, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("flows.cli.status.list_runs", fail)
    result = invoke("status")
    assert result.exit_code == code
    assert result.stderr.startswith("memprobe: ")
    assert "Traceback" not in result.stderr
    if code != 130:
        assert str(error) in result.stderr
        shown = invoke("status", "--debug")
        assert shown.exit_code == code
        assert "Traceback" in shown.stderr


def test_a_mistake_of_ours_is_not_dressed_up(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("flows.cli.status.list_runs", fail)
    assert isinstance(invoke("status").exception, ZeroDivisionError)


def test_unknown_variables_warn_on_stderr_only(tmp_path: Path) -> None:
    done = start("status", "--json", cwd=tmp_path, MEMPROBE_MODLE="x")
    assert done.returncode == 0
    assert json.loads(done.stdout) == []
    assert "did you mean 'MEMPROBE_MODEL'?" in done.stderr


def test_output_that_the_terminal_cannot_show_is_replaced(tmp_path: Path) -> None:
    done = start("plan", "--users", "1", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "calls" in done.stdout


def test_a_module_in_our_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "storage.py").write_text("")
    done = start("status", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2
    assert f"'storage' is found at {tmp_path / 'storage.py'}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_without_python_in_it_is_no_shadow(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "data").mkdir()
    done = start("status", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 0, done.stderr


def test_keys_in_dotenv_reach_the_environment_and_are_never_shown(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.setattr("flows.cli.doctor._server", lambda _: "not tried here")
    monkeypatch.setattr("flows.cli.doctor._embedder", lambda _: "not tried here")
    (tmp_path / ".env").write_text("GROQ_API_KEY=gsk_very_secret\nMEMPROBE_SEED=9\n")
    (tmp_path / "memprobe.toml").write_text("[memprobe]\nusers = 3\n")
    monkeypatch.setenv("MEMPROBE_LEDGER", "postgresql://u:hidden@127.0.0.1:1/db")
    result = invoke("doctor", "--json", "--k", "1,3")
    monkeypatch.delenv("GROQ_API_KEY")
    found = json.loads(result.stdout)
    origin = {s["name"]: (s["value"], s["source"]) for s in found["settings"]}
    assert origin["k"] == ("1,3", "flag")
    assert origin["ledger"] == ("postgresql://u:***@127.0.0.1:1/db", "environment")
    assert origin["seed"] == ("9", ".env")
    assert origin["users"] == ("3", "file")
    assert origin["model"] == ("embedded/default", "default")
    checks = {c["name"]: c for c in found["checks"]}
    assert checks["GROQ_API_KEY"]["detail"] == "set"
    assert checks["runs folder"]["result"] == "ok"
    assert checks["ledger"]["result"] == "failed"
    assert result.exit_code == 2
    everything = result.stdout + result.stderr
    assert "gsk_very_secret" not in everything
    assert "hidden" not in everything


def test_doctor_fails_where_runs_cannot_be_written(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cli.doctor._server", lambda _: "not tried here")
    monkeypatch.setattr("flows.cli.doctor._embedder", lambda _: "not tried here")
    (tmp_path / "taken").write_text("a file")
    result = invoke("doctor", "--runs", str(tmp_path / "taken"), "--json")
    checks = {c["name"]: c["result"] for c in json.loads(result.stdout)["checks"]}
    assert checks["runs folder"] == "failed"
    assert checks["data set"] == "ok"
    assert result.exit_code == 2


def test_the_app_is_typer() -> None:
    assert isinstance(app, typer.Typer)
