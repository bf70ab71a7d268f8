"""`memprobe suite validate`: tables for people, JSON for machines, exit codes."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.paradigms.support import NEW, raw, say


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A suite of one sound episode."""
    made = tmp_path / "mine"
    made.mkdir()
    write(made, "t_01")
    return made


def write(folder: Path, name: str, kind: str = "", text: str = "") -> None:
    episode = raw()
    episode["spec"]["episode_id"] = name
    if kind:
        say(episode, kind, text)
    (folder / f"{name}.json").write_text(json.dumps(episode), encoding="utf-8")


def test_a_clean_suite(folder: Path, invoke: Invoke) -> None:
    result = invoke("suite", "validate", str(folder))
    assert result.exit_code == 0, result.output
    assert "authoritative_update" in result.stdout
    assert "1 episodes (1 update, 0 preserve), held to no plan: 0 errors, 0 warnings" in (
        result.stdout
    )
    assert "sha256 " in result.stdout


def test_a_fault_is_named_with_episode_session_and_fix(folder: Path, invoke: Invoke) -> None:
    write(folder, "t_02", "encoding", f"{NEW}\x1b[2J")
    result = invoke("suite", "validate", str(folder))
    assert result.exit_code == 1
    assert "error: t_02 session 0: misplaced value" in result.stderr
    assert "leave it out" in result.stderr
    found = json.loads(invoke("suite", "validate", str(folder), "--json").stdout)
    assert (found["episodes"], found["errors"], found["warnings"]) == (2, 1, 0)
    (problem,) = found["problems"]
    assert (problem["episode"], problem["session"], problem["severity"]) == ("t_02", 0, "error")
    assert found["composition"][0]["n"] == 2
    assert found["composition"][0]["domains"] == {"personal": 2, "work": 0, "agentic": 0}
    assert found["probes"]["temporal"] == 2
    assert len(found["digest"]) == 64


def test_warnings_fail_when_asked(folder: Path, invoke: Invoke) -> None:
    write(folder, "t_02", "filler_confusable", "A decoy duck.")
    assert invoke("suite", "validate", str(folder)).exit_code == 0
    assert invoke("suite", "validate", str(folder), "--fail-on", "warning").exit_code == 1


def test_plans_and_folders(folder: Path, tmp_path: Path, invoke: Invoke) -> None:
    held = invoke("suite", "validate", str(folder), "--plan", "suite56", "--json")
    assert held.exit_code == 1
    assert json.loads(held.stdout)["errors"] == 57
    unknown = invoke("suite", "validate", str(folder), "--plan", "other")
    assert unknown.exit_code == 2
    assert "there are suite56" in unknown.stderr
    empty = invoke("suite", "validate", str(tmp_path / "none"))
    assert empty.exit_code == 2
    assert "is this the folder of a paradigms suite?" in empty.stderr
    (folder / "t_01.json").write_text("[]", encoding="utf-8")
    nothing = invoke("suite", "validate", str(folder))
    assert nothing.exit_code == 1
    assert "error: t_01: file" in nothing.stderr
