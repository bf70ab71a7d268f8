"""The serving recipe: what it starts, what it refuses, and its health check."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.fake_memory_memt import call
from tests.support.fake_server import FakeServer

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "memt"


@pytest.fixture
def health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("memt_health", RECIPE / "health.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run serve.sh with a `vllm` that only tells what it was given."""
    stand_in = tmp_path / "vllm"
    stand_in.write_text('#!/bin/sh\necho "$VLLM_ALLOW_LONG_MAX_MODEL_LEN" "$@"\n')
    stand_in.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **environment}
    return subprocess.run(
        [str(RECIPE / "serve.sh"), *arguments], env=env, capture_output=True, text=True, timeout=60
    )


def test_it_serves_on_loopback_with_the_published_flags(tmp_path: Path) -> None:
    done = serve(tmp_path)
    assert done.stdout.split() == [
        "1", "serve", "EdwinYue/Mem-T-4B", "--served-model-name", "Mem-T-4B",
        "--host", "127.0.0.1", "--port", "8765", "--max-model-len", "65536",
    ]  # fmt: skip
    done = serve(tmp_path, "--dtype", "half", MEMT_MODEL="/a folder/m", MEMT_PORT="9")
    assert "serve /a folder/m --served" in done.stdout
    assert done.stdout.endswith("--dtype half\n")


def test_it_refuses_what_strips_tags_or_opens_the_door(tmp_path: Path) -> None:
    for flag in ("--tool-call-parser=hermes", "--reasoning-parser", "--enable-auto-tool-choice"):
        done = serve(tmp_path, flag)
        assert (done.returncode, done.stdout) == (2, "")
        assert flag in done.stderr
    done = serve(tmp_path, MEMT_HOST="0.0.0.0")
    assert done.returncode == 2
    assert "VLLM_API_KEY" in done.stderr
    done = serve(tmp_path, MEMT_HOST="0.0.0.0", VLLM_API_KEY="k")
    assert "--host 0.0.0.0" in done.stdout


def test_health_asks_the_server_for_a_tagged_call(
    health: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as server:
        arguments = ["--url", f"{server.url}/", "--model", "mock", "--timeout", "20"]
        server.script({"mode": "", "content": call("finish", answer="Lisbon")})
        assert health.main(arguments) == 0
        assert "answers with a tagged call" in capsys.readouterr().out
        body = server.chats[0].body
        assert '"name": "finish"' in body["messages"][0]["content"]
        assert "tools" not in body
        server.script({"mode": "", "content": "Lisbon"})
        assert health.main(arguments) == 0
        assert "WITHOUT" in capsys.readouterr().out
        for fault, said in (("empty", "empty"), ("auth", "401"), ("server_error", "500")):
            server.script(fault)
            assert health.main(arguments) == 1
            assert said in capsys.readouterr().err
        assert health.main(["--url", server.url]) == 1
        assert "not Mem-T-4B" in capsys.readouterr().err
        url = server.url
    assert health.main(["--url", url, "--timeout", "5"]) == 1
    assert "serve.sh" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["tool_calls", "reasoning_content"])
def test_health_notices_a_parser(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    answers = [{"data": [{"id": "m"}]}, {"choices": [{"message": {"content": "x", key: ["y"]}}]}]
    monkeypatch.setattr(health, "_get", lambda *_: answers.pop(0))
    with pytest.raises(health.Unhealthy, match="start it without"):
        health.check("http://127.0.0.1:1/v1", "m", "EMPTY", 1.0)


def test_vllm_is_in_the_serving_environment_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [r for group in project["optional-dependencies"].values() for r in group]
    assert not [r for r in [*project["dependencies"], *extras] if r.startswith("vllm")]
    assert "vllm==" in (RECIPE / "requirements.txt").read_text(encoding="utf-8")
