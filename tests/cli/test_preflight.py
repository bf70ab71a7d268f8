"""A run that cannot ask its models is refused before anything is started."""

import pickle
import warnings
from pathlib import Path

import pytest

from flows.preflight import MEASURING, check_models
from memprobe.config import RunConfig
from memprobe.errors import BudgetExceeded, MissingPrerequisite, UsageError
from memprobe.types import Role
from tests.cli.conftest import Invoke

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "GEMINI_API_KEY", "GOOGLE_API_KEY")
KEYS += ("AZURE_API_KEY", "TOGETHER_API_KEY", "TOGETHERAI_API_KEY", "OLLAMA_API_BASE")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def refused(model: str, **settings: object) -> str:
    with pytest.raises((MissingPrerequisite, UsageError)) as error:
        check_models(RunConfig(name="r", model=model, **settings), MEASURING)
    return str(error.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "--model", "openai/gpt-5.4-nano"), ("openai/gpt-5.4-nano", "OPENAI_API_KEY")),
        (("run", "--model-role", "judge=foo/bar"), ("'foo/bar' (role judge)", "no such provider")),
        (("generate", "--model", "openai/gpt-5.4-nano", "--out", "new"), ("generator, critic",)),
    ],
)
def test_the_command_names_model_role_and_variable(
    invoke: Invoke, tmp_path: Path, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.stderr
    assert all(text in result.stderr for text in expected), result.stderr
    assert not any(tmp_path.iterdir())


def test_a_system_that_lacks_a_model_or_its_package_is_refused(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.memory.external.version_of", lambda package: None)
    result = invoke("run", "--systems", "nomem,amem,mem0", "--users", "1")
    assert result.exit_code == 2, result.stderr
    assert "amem needs a language model: pass --model" in result.stderr
    assert "mem0 needs the package mem0ai: pip install 'memprobe-audit[mem0]'" in result.stderr
    assert not any(tmp_path.iterdir())


def test_an_option_that_is_no_finite_number_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    option = ("--system-option", "mem0.temperature=inf")
    result = invoke("run", "--systems", "mem0", "--model-role", "memory=ollama/x", *option)
    assert result.exit_code == 2, result.stderr
    assert "mem0.temperature" in result.stderr
    assert not any(tmp_path.iterdir())


def test_a_second_judge_without_a_key_is_refused(invoke: Invoke, home: Path) -> None:
    before = sorted((home / "t1").rglob("*"))
    judge = "judge=openai/gpt-5.4"
    result = invoke("score", "t1", "--model-role", judge, "--runs", str(home))
    assert result.exit_code == 2
    assert "'openai/gpt-5.4' (role judge): no key; set OPENAI_API_KEY" in result.stderr
    assert sorted((home / "t1").rglob("*")) == before


def test_keys_by_every_way_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "GOOGLE_API_KEY or GEMINI_API_KEY" in refused("gemini/gemini-2.5-flash")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert "set OPENAI_API_KEY" in refused("openai/mock")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert "any value" in refused("openai/mock")
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("TOGETHER_API_KEY", "x")
    monkeypatch.setenv("GEMINI_API_KEY", "x")
    # Without the address of its server litellm would ask OpenAI.
    monkeypatch.delenv("HOSTED_VLLM_API_BASE", raising=False)
    assert "set HOSTED_VLLM_API_BASE" in refused("hosted_vllm/mine")
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:1/v1")
    for model in (
        "openai/mock",
        "gemini/gemini-2.5-flash",
        "together_ai/some/model",
        "ollama/llama3.2",
        "hosted_vllm/mine",
        "bedrock/some.model",
    ):
        check_models(RunConfig(name="r", model=model), MEASURING)


def test_only_models_that_are_asked_need_a_key() -> None:
    config = RunConfig(name="r", model_roles={Role.GENERATOR: "openai/gpt-5.4"})
    check_models(config, MEASURING)
    assert "name of the model is missing" in refused("openai/")


def test_a_cost_limit_needs_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert "price is unknown" in refused("openai/mock", max_cost=1.0)
    check_models(RunConfig(name="r", model="openai/gpt-4o-mini", max_cost=1.0), MEASURING)
    check_models(RunConfig(name="r", max_cost=1.0), MEASURING)


def test_a_cost_stop_is_no_provider_error() -> None:
    error = BudgetExceeded("the next call would pass the limit")
    assert str(error) == "the next call would pass the limit"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_call_that_was_cancelled_unsent_says_nothing() -> None:
    from adapters.models.litellm_loader import load_litellm

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        load_litellm.cache_clear()
        load_litellm()

        class OpenAIChatCompletion:
            async def acompletion(self) -> None: ...

            async def other(self) -> None: ...

        for method in (OpenAIChatCompletion().acompletion, OpenAIChatCompletion().other):
            coroutine = method()
            del coroutine
    assert [str(w.message) for w in seen if "never awaited" in str(w.message)] == [
        f"coroutine '{OpenAIChatCompletion.other.__qualname__}' was never awaited"
    ]


def test_a_stale_server_address_says_what_helps(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    result = invoke("run", "--systems", "nomem", "--users", "1", "--limit", "1", "--run", "t")
    assert result.exit_code == 2
    assert "`memprobe up`, or unset the variable" in result.stderr
