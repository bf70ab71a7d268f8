"""`memprobe score` with several judges over an imported run: layers, agreement, direction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import UsageError
from storage.runs import RunStore
from tests.cli.conftest import Invoke
from tests.importers.release import TARGETS, make_release
from tests.importers.support import imported


@pytest.fixture(scope="module")
def pub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pub")
    imported(make_release(folder, ("user_001",)), folder / "runs" / "pub")
    return folder / "runs"


@pytest.fixture
def runs(pub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, without a network: whatever asks a provider fails."""
    from adapters.models.litellm_provider import LitellmProvider

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a provider was made")

    monkeypatch.setattr(LitellmProvider, "complete", refuse)
    return Path(shutil.copytree(pub, tmp_path / "runs"))


def test_two_judges_and_the_direction_without_a_call_to_a_provider(
    invoke: Invoke, runs: Path
) -> None:
    options = ("--runs", str(runs), "--json")
    models = ("--judge", "embedded/judge,embedded/default", "--layer", "one,two")
    result = invoke("score", "pub", *models, "--polarity", "embedded/judge", *options)
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert [layer["layer"] for layer in facts["layers"]] == ["one", "two"]
    assert {(p["first"], p["second"]) for p in facts["agreement"]} == {
        ("base", "one"),
        ("base", "two"),
        ("one", "two"),
    }
    same = next(p for p in facts["agreement"] if p["first"] == "one")
    # Two names of one judge agree on everything.
    assert (same["mean_error"], same["exact"], same["threshold"]) == (0.0, 1.0, 1.0)
    run = RunStore.open(runs / "pub")
    verdicts = run.read("verdicts")
    assert {row["layer"] for row in verdicts} == {"base", "one", "two"}
    assert len(verdicts) == 3 * 9 * len(TARGETS)
    page = Path(facts["report"]).read_text(encoding="utf-8")
    for title in ("Agreement of judges", "Scores of two judges"):
        assert title in page
    assert (runs / "pub" / "report" / "tables" / "judge-agreement.csv").is_file()
    again = json.loads(invoke("score", "pub", *models, *options).stdout)
    assert again["new_calls"] == 0
    assert again["agreement"] == facts["agreement"]


def test_the_table_names_the_imports_own_layer(invoke: Invoke, runs: Path) -> None:
    result = invoke(
        "score", "pub", "--judge", "embedded/judge", "--layer", "emb", "--runs", str(runs)
    )
    line = next(line for line in result.stdout.splitlines() if "published" in line)
    assert "emb" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--judge", "embedded/judge,"), "separated by commas"),
        (("--judge", "a/b,c/d", "--layer", "one"), "1 for 2 judges"),
        (("--judge", "a/b,c/d", "--layer", "one,one"), "one of its own"),
        (("--layer", "one"), "what should judge it?"),
        (("--model-role", "oracle=openai/x"), "only --model-role judge=MODEL"),
        (("--judge", "embedded/judge,nowhere/x"), "no such provider"),
        (("--polarity", "nowhere/x"), "no such provider"),
    ],
)
def test_what_does_not_belong_together_is_refused_before_the_first_call(
    options: tuple[str, ...], said: str, invoke: Invoke, runs: Path
) -> None:
    result = invoke("score", "pub", *options, "--runs", str(runs))
    assert result.exit_code == 2
    assert said in result.stderr
    assert {row["layer"] for row in RunStore.open(runs / "pub").read("verdicts")} == {"base"}


def test_layers_belong_to_judges() -> None:
    from flows.cli.scoring import _layers

    assert _layers([], "base", "base") == []
    assert _layers(["a/b"], None, "base") == [None]
    with pytest.raises(UsageError, match="what should judge it"):
        _layers([], "other", "base")
