"""`memprobe suite new`, `build` and `validate` as an author calls them, one after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.conftest import invoke as invoke
from tests.support.fake_server import FakeServer

BUILD = ("suite", "build", "garden/minispecs.json", "--domain-config", "garden/domain.json")


def test_from_nothing_to_a_validated_suite(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = invoke("suite", "new", "garden", "--domain", "gardening")
    assert made.exit_code == 0, made.output
    assert f"next: memprobe {' '.join(BUILD)} --out garden/suite" in made.stdout
    with FakeServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options = ("--out", "garden/suite", "--model", "openai/mock", "--runs", "runs")
        done = invoke(*BUILD, *options, "--json")
        assert done.exit_code == 0, done.output
        facts = json.loads(done.stdout)
        assert facts["written"] == ["int_01a", "int_01b"]
        assert facts["complete"]
        assert "int_01b: 20:filler_near_miss (21/21)" in done.stderr
        again = invoke(*BUILD, *options)
        assert again.exit_code == 0, again.output
        assert "0 episodes written, 2 were there, 0 failed; 0 calls" in again.stdout
    checked = invoke("suite", "validate", "garden/suite", "--fail-on", "warning")
    assert checked.exit_code == 0, checked.output
    assert f"sha256 {facts['digest']}" in checked.stdout
    assert "gardening" in checked.stdout
    assert "agentic" not in checked.stdout


def test_a_failed_episode_exits_with_one_and_says_which_check_failed(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke("suite", "new", "garden", "--domain", "gardening").exit_code == 0
    path = tmp_path / "garden/minispecs.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    value["minispecs"][0] |= {"trigger": "Birch Hall opened", "split": True}
    path.write_text(json.dumps(value), encoding="utf-8")
    with FakeServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = invoke(*BUILD, "--out", "s", "--model", "openai/mock", "--runs", "runs")
    assert done.exit_code == 1
    assert "1 episodes written, 0 were there, 1 failed" in done.stdout
    assert "int_01a failed at 18:perturbation_p1" in done.stderr
    assert "the new value 'Birch Hall' is named in perturbation_p1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("suite", "new", "g", "--domain", "My Garden"), "is no name of a domain"),
        (("suite", "new", "g", "--domain", "g", "--conditions", "hig"), "hig; there are"),
        (("suite", "new", "g", "--domain", "g", "--conditions", "low,low"), "named twice"),
        (("suite", "build", "no.json", "--domain-config", "no.json", "--out", "s"), "no.json"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(
    invoke: Invoke, arguments: tuple[str, ...], said: str
) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_build_without_a_language_model_starts_nothing(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("suite", "new", "garden", "--domain", "gardening").exit_code == 0
    done = invoke(*BUILD, "--out", "s")
    assert done.exit_code == 2
    assert "--model openai/gpt-5.4-mini" in done.stderr
    assert not (tmp_path / "s").exists()
