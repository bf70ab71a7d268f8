"""Every fault a provider can show, over real HTTP and the real litellm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import prompts
from adapters.models.gateway import Gateway
from adapters.models.litellm_provider import LitellmProvider, retry_after
from adapters.models.retry import RetryPolicy
from memprobe.chat import ChatRequest
from memprobe.config import RunConfig
from memprobe.errors import CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Asker, Role
from prompts.answers import JudgeAnswer
from storage.ledger import Ledger
from tests.support.fake_server import FakeServer
from tests.support.gateways import Clock, ledger_at, on_disk

KEY = "placeholder-key-0123456789"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = ledger_at(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
async def chat(ledger: Ledger, server: FakeServer) -> AsyncIterator[Gateway]:
    made = gateway(ledger)
    yield made
    await made.close()


def gateway(ledger: Ledger, policy: RetryPolicy | None = None, **config: Any) -> Gateway:
    quick = policy or RetryPolicy(base_s=0.001, cap_s=0.01, attempts=4, deadline_factor=50)
    settings = RunConfig(**{"name": "r1", "model": "openai/mock", **config})
    return Gateway(settings, ledger, {}, policy=quick)


def judge(label: str = "green tea", max_tokens: int | None = None) -> ChatRequest:
    asker = Asker(run="r1", suite="recovery", stage="recover", system="rag", user="u", item=label)
    truth = {"dimension": "tea", "short": "green tea", "explanation": "green tea with lemon"}
    return prompts.load("judge").request(
        Role.JUDGE, asker, {**truth, "label": label}, max_tokens=max_tokens
    )


async def ends_as(chat: Gateway, request: ChatRequest) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await chat.ask(request)
    return caught.value


@pytest.mark.parametrize(
    "fault",
    [
        {"mode": "rate_limit", "retry_after": "0"},
        {"mode": "server_error", "status": 500},
        {"mode": "server_error", "status": 502},
        {"mode": "server_error", "status": 503},
        "reset",
        "truncated",
        "reasoning_only",
        "empty",
        "nan",
        "wrong_type",
    ],
)
async def test_one_fault_costs_one_more_request(
    chat: Gateway, server: FakeServer, fault: Any
) -> None:
    server.script(fault)
    reply = await chat.ask(judge())
    assert isinstance(reply.value, JudgeAnswer)
    assert len(server.chats) == 2


@pytest.mark.parametrize("fault", ["fenced", "prose", "python"])
async def test_a_wrapped_answer_is_read_without_another_request(
    chat: Gateway, server: FakeServer, fault: str
) -> None:
    server.script(fault)
    reply = await chat.ask(judge())
    assert reply.repaired
    assert len(server.chats) == 1


@pytest.mark.parametrize(
    ("fault", "reason", "requests"),
    [
        ("refusal", Reason.REFUSAL, 1),
        ("content_filter", Reason.REFUSAL, 1),
        ("content_policy", Reason.REFUSAL, 1),
        ("auth", Reason.PROVIDER_ERROR, 1),
        ("context_window", Reason.PROVIDER_ERROR, 1),
        ("server_error", Reason.PROVIDER_ERROR, 4),
        ("reset", Reason.PROVIDER_ERROR, 4),
        ("truncated", Reason.TRUNCATED, 2),
        ("reasoning_only", Reason.TRUNCATED, 2),
        ("empty", Reason.INVALID_OUTPUT, 2),
        ("nan", Reason.INVALID_OUTPUT, 2),
        ("wrong_type", Reason.INVALID_OUTPUT, 2),
    ],
)
async def test_a_lasting_fault_ends_in_its_reason_and_never_in_a_score(
    chat: Gateway, server: FakeServer, ledger: Ledger, fault: str, reason: Reason, requests: int
) -> None:
    server.script(*[fault] * requests)
    assert (await ends_as(chat, judge())).reason is reason
    assert len(server.chats) == requests
    assert [row["outcome"] for row in ledger.calls("r1")][-1] == reason.value


async def test_a_hanging_provider_ends_as_a_timeout(server: FakeServer, ledger: Ledger) -> None:
    chat = gateway(ledger, RetryPolicy(base_s=0.001, attempts=2), call_timeout=0.3)
    await chat.ask(judge("warm up"))
    server.script("hang", "hang")
    assert (await ends_as(chat, judge())).reason is Reason.TIMEOUT
    await chat.close()


@pytest.mark.parametrize(
    ("fault", "low", "high"),
    [
        ({"mode": "rate_limit", "retry_after": "60"}, 60.0, 67.0),
        ({"mode": "rate_limit", "retry_after": "date", "seconds": 60}, 55.0, 67.0),
    ],
)
async def test_retry_after_reaches_the_back_off(
    server: FakeServer, ledger: Ledger, fault: Any, low: float, high: float
) -> None:
    clock = Clock()
    chat = gateway(ledger, clock.policy())
    server.script(fault)
    reply = await chat.ask(judge())
    (slept,) = clock.slept
    assert low <= slept <= high
    stored = ledger.get(reply.call_id)
    assert stored is not None
    assert stored.wait_s >= slept
    await chat.close()


@pytest.mark.parametrize("name", ["temperature", "max_tokens", "response_format"])
async def test_a_rejected_parameter_is_dropped_once_and_remembered(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger, name: str
) -> None:
    with FakeServer(rejects=[name]) as strict:
        monkeypatch.setenv("OPENAI_BASE_URL", strict.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        chat = gateway(ledger)
        for label in ("green tea", "black tea", "no tea"):
            assert isinstance((await chat.ask(judge(label, 200))).value, JudgeAnswer)
        assert sum(name in s.body for s in strict.chats) == 1
        assert len(strict.chats) == 4
        renamed = {"max_tokens": "max_completion_tokens"}.get(name)
        assert chat.dropped_params == {"openai/mock": {name: renamed}}
        if renamed:
            assert strict.chats[-1].body[renamed] == 200
        await chat.close()


async def test_more_room_than_the_model_has_leaves_a_truncated_answer(
    chat: Gateway, server: FakeServer
) -> None:
    server.script("truncated", "too_large")
    assert (await ends_as(chat, judge(max_tokens=4000))).reason is Reason.TRUNCATED
    assert len(server.chats) == 2
    assert chat.dropped_params == {}


async def test_a_parameter_that_litellm_itself_refuses_is_dropped_too(
    server: FakeServer, ledger: Ledger
) -> None:
    model = "openai/gpt-5-mini"
    chat = gateway(ledger, model=model)
    for label in ("green tea", "black tea"):
        assert isinstance((await chat.ask(judge(label, 200))).value, JudgeAnswer)
    assert "temperature" in chat.dropped_params[model]
    assert len(server.chats) == 2
    (first, *_) = ledger.calls("r1")
    assert first["cost_usd"] > 0
    await chat.close()


async def test_a_lone_surrogate_from_the_wire_is_replaced(
    chat: Gateway, server: FakeServer
) -> None:
    server.script("surrogate")
    reply = await chat.ask(judge())
    assert reply.sanitized
    assert "\ufffd" in reply.parsed(JudgeAnswer).reason


async def test_the_key_is_in_no_row_and_no_error(
    chat: Gateway, server: FakeServer, ledger: Ledger, tmp_path: Path
) -> None:
    server.script("auth")
    error = await ends_as(chat, judge())
    assert server.chats[0].headers["authorization"] == f"Bearer {KEY}"
    ledger.flush()
    stored = on_disk(tmp_path)
    assert KEY not in str(error)
    assert KEY.encode() not in stored


async def test_cached_tokens_are_recorded(
    chat: Gateway, server: FakeServer, ledger: Ledger
) -> None:
    server.script({"mode": "", "cached_tokens": 64})
    reply = await chat.ask(judge())
    assert reply.usage.cached_tokens == 64
    assert reply.usage.prompt_tokens


async def test_a_flaky_provider_is_paid_once_for_each_question(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    with FakeServer(faults=0.25, seed=11) as flaky:
        monkeypatch.setenv("OPENAI_BASE_URL", flaky.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        patient = RetryPolicy(base_s=0.001, cap_s=0.01, attempts=12, deadline_factor=50)
        chat = gateway(ledger, patient, max_connections=16)
        asked = [judge(f"tea number {i}") for i in range(80)]
        replies = await asyncio.gather(*(chat.ask(r) for r in asked))
        assert all(isinstance(r.value, JudgeAnswer) for r in replies)
        stats = flaky.stats()
        assert stats["answered"] == stats["distinct"] == 80
        assert stats["resent"] == 0
        assert sum(stats["faults"].values()) > 5
        assert flaky.peak <= 16
        await chat.close()


async def test_the_same_faults_give_the_same_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[list[float]] = []
    for share in (0.0, 0.3):
        folder = tmp_path / str(share)
        folder.mkdir()
        opened = ledger_at(folder)
        with FakeServer(faults=share) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            chat = gateway(opened, RetryPolicy(base_s=0.001, cap_s=0.01, attempts=12))
            replies = [await chat.ask(judge(f"tea with {w}")) for w in ("lemon", "milk", "")]
            seen.append([r.parsed(JudgeAnswer).score for r in replies])
            await chat.close()
        opened.close()
    assert seen[0] == seen[1]


def test_retry_after_in_both_forms() -> None:
    now = datetime(2026, 10, 21, 7, 27, 0, tzinfo=UTC)
    assert retry_after({"Retry-After": "60"}) == 60.0
    assert retry_after({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, now) == 60.0
    assert retry_after({"retry-after": "Wed, 21 Oct 2020 07:28:00 GMT"}, now) == 0.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


def test_tokens_are_counted_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a tokenizer was downloaded")

    monkeypatch.setattr("requests.get", no_network)
    provider = LitellmProvider()
    for model in ("openai/gpt-4o", "openai/gpt-4", "openai/mock", "anthropic/claude-x"):
        assert 5 <= provider.count_tokens(model, "one two three four five six") <= 8
    assert "TIKTOKEN_CACHE_DIR" in os.environ


def test_windows_come_from_the_table() -> None:
    provider = LitellmProvider()
    assert provider.window("openai/gpt-4o-mini") == 128000
    assert provider.window("openai/mock") is None
