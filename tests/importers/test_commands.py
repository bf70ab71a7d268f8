"""`memprobe import` and `memprobe tables` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.conftest import invoke as invoke
from tests.importers.release import make_release
from tests.importers.test_paper_tables import expected_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_release(tmp_path)


def test_import_then_tables(root: Path, tmp_path: Path, invoke: Invoke) -> None:
    from storage.runs import RunStore
    from tasks.paper_figures import paper_figures

    done = invoke("import", "recovery-release", str(root.parent), "--run", "pub", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["run"], facts["users"]) == ("pub", ["user_001", "user_002"])
    assert facts["lost"] == 0
    assert "users" in done.stderr
    figures = paper_figures(RunStore.open(facts["location"]))
    path = tmp_path / "expected.json"
    expected = expected_of(figures, 9)
    path.write_text(json.dumps(expected), encoding="utf-8")
    same = invoke("tables", "pub", "--paper", "recovery", "--expect", str(path))
    assert same.exit_code == 0, same.output
    assert "Table 13" in same.stdout
    expected["table3"]["amem/retrieve"]["self_model"][1] += 0.001
    path.write_text(json.dumps(expected), encoding="utf-8")
    differs = invoke("tables", "pub", "--expect", str(path), "--json")
    assert differs.exit_code == 1
    (difference,) = json.loads(differs.stdout)["differences"]
    assert (difference["table"], difference["row"]) == ("table3", "amem/retrieve")
    assert difference["cell"] == "self_model std"
    named = invoke("tables", "pub", "--expect", str(path), "--format", "csv")
    assert "table3, amem/retrieve, self_model std: got" in named.stderr


def test_a_loss_exits_with_one_and_is_printed(root: Path, invoke: Invoke) -> None:
    path = "memory/amem_pooled_50/user_001/memories.json"
    (root / path).write_bytes(b"")
    done = invoke("import", "recovery-release", str(root), "--run", "pub")
    assert done.exit_code == 1
    assert f"lost: {path}: the file is empty" in done.stdout
    assert invoke("tables", "pub").exit_code == 0


@pytest.mark.parametrize("users", ["0", ",", "user_007"])
def test_wrong_users(root: Path, invoke: Invoke, users: str) -> None:
    done = invoke("import", "recovery-release", str(root), "--run", "pub", "--users", users)
    assert done.exit_code == 2
    assert "user" in done.stderr


def test_an_imported_run_is_compared_by_its_name_and_never_played(
    root: Path, invoke: Invoke
) -> None:
    assert invoke("import", "recovery-release", str(root), "--run", "pub").exit_code == 0
    done = invoke("compare", "pub@published", "pub", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 9
    assert all(row["difference"] == 0 for row in rows)
    played = invoke("resume", "pub")
    assert played.exit_code == 2
    assert "imported" in played.stderr


def test_a_second_judge_over_an_import(root: Path, invoke: Invoke) -> None:
    assert invoke("import", "recovery-release", str(root), "--run", "pub").exit_code == 0
    judge = ("score", "pub", "--model-role", "judge=embedded/judge", "--layer")
    refused = invoke(*judge, "published")
    assert refused.exit_code == 2
    done = invoke(*judge, "emb", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["layer"] == "emb"
    assert facts["n_scored"] == facts["n_total"]
    compared = json.loads(invoke("compare", "pub@published", "pub@emb", "--json").stdout)
    assert {row["n_items"] for row in compared["rows"]} == {14}
    assert invoke("report", "pub").exit_code == 0


def test_status_of_an_import(root: Path, invoke: Invoke) -> None:
    assert invoke("import", "recovery-release", str(root), "--run", "pub").exit_code == 0
    done = invoke("status", "pub", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["status"] == "complete"
    stages = {(s["stage"], s["system"]): (s["done"], s["total"]) for s in facts["stages"]}
    assert stages["recover", "mem0"] == (2, 2)


def test_strict_tables_stand_beside_the_published_ones(root: Path, invoke: Invoke) -> None:
    invoke("import", "recovery-release", str(root), "--run", "pub")
    published = invoke("tables", "pub").stdout
    strict = invoke("tables", "pub", "--protocol", "strict")
    assert strict.exit_code == 0, strict.output
    assert strict.stdout.startswith(published)
    assert "Corrections (protocol strict)" in strict.stdout
    assert "Which published orders survive" in strict.stdout
    facts = json.loads(invoke("tables", "pub", "--protocol", "strict", "--json").stdout)
    assert facts["tables"] == json.loads(invoke("tables", "pub", "--json").stdout)["tables"]
    assert {n["id"] for n in facts["corrections"]["notes"]} >= {"transcripts", "overflow"}
    lines = invoke("tables", "pub", "--protocol", "strict", "--format", "csv").stdout.splitlines()
    assert any(line.startswith("strict-pairs,") for line in lines)
    latex = invoke("tables", "pub", "--protocol", "strict", "--format", "latex").stdout
    assert r"\label{tab:strict-scores}" in latex
    assert invoke("tables", "pub", "--protocol", "other").exit_code == 2
