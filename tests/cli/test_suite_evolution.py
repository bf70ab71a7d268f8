"""`memprobe suite validate` over trajectories: composition, problems, JSON, exit codes."""

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Invoke
from tests.evolution.support import raw, say


def write(folder: Path, made: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{made['id']}.json").write_text(json.dumps(made), encoding="utf-8")


def test_the_command_prints_composition_digest_and_problems(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path / "mine", raw())
    clean = invoke("suite", "validate", str(tmp_path / "mine"))
    assert clean.exit_code == 0, clean.output
    assert "1 trajectories, 4 documents (4 of states, 0 of noise), held to no plan: 0 errors" in (
        clean.stdout
    )
    assert "actions: create 1, update 1, reinforce 1, supersede 1" in clean.stdout
    assert "sha256 " in clean.stdout
    faulty = raw()
    say(faulty, 1, "```\x1b[2J")
    write(tmp_path / "mine", faulty)
    result = invoke("suite", "validate", str(tmp_path / "mine"))
    assert result.exit_code == 1
    assert "error: c5_x_order_service state 1: scaffolding: a code fence" in result.stderr
    assert "\x1b" not in result.stderr


def test_the_command_s_json_warnings_and_plans(tmp_path: Path, invoke: Invoke) -> None:
    made = raw()
    say(made, 0, "Somebody spoke of CockroachDB.")
    write(tmp_path / "mine", made)
    folder = str(tmp_path / "mine")
    result = invoke("suite", "validate", folder, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["kind"], found["trajectories"], found["state_documents"]) == ("evolution", 1, 4)
    assert (found["errors"], found["warnings"]) == (0, 1)
    (problem,) = found["problems"]
    assert (problem["trajectory"], problem["state"]) == ("c5_x_order_service", 0)
    assert found["composition"][0]["levels"] == {"L1": 1, "L2": 0, "L3": 0}
    assert len(found["digest"]) == 64
    assert invoke("suite", "validate", folder, "--fail-on", "warning").exit_code == 1
    assert invoke("suite", "validate", folder, "--plan", "evolution").exit_code == 1
    unknown = invoke("suite", "validate", folder, "--plan", "suite56")
    assert unknown.exit_code == 2
    assert "there are evolution" in unknown.stderr
