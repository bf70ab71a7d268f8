"""What a library sends beyond OpenAI's own parameters reaches a server that takes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.calls import DoorClient
from adapters.models.door import Door
from adapters.models.litellm_loader import load_litellm
from adapters.models.litellm_provider import LitellmProvider, fault_of
from adapters.models.provider import FaultKind
from memprobe.systems import ModelAccess
from memprobe.types import Asker
from storage.ledger import Ledger
from tests.adapters.support import WordEmbedder
from tests.support.fake_server import FakeServer
from tests.support.gateways import gateway, ledger_at

SAMPLING: dict[str, Any] = {
    "temperature": 0.7,
    "max_tokens": 1024,
    "stop": ["</tool_call>"],
    "response_format": {"type": "text"},
    "min_p": 0.05,
    "top_k": 20,
    "repetition_penalty": 1.05,
    "chat_template_kwargs": {"enable_thinking": False},
}
ASKER = Asker(run="r1", suite="recovery", stage="rollout", system="memt", user="u1")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    held = ledger_at(tmp_path)
    yield held
    held.close()


async def ask(ledger: Ledger, model: str, times: int = 1) -> dict[str, Any]:
    """Ask through the door and give what the gateway dropped."""
    asking = gateway(ledger, LitellmProvider(), model=model)
    async with Door(asking, WordEmbedder()) as door:
        client = DoorClient(ModelAccess(door.url, door.token(ASKER), "memory", "words"))
        for number in range(times):
            said = [{"role": "user", "content": f"hello {number}"}]
            assert await client.chat(said, **SAMPLING)
        await client.close()
    dropped = asking.dropped_params
    await asking.close()
    return dropped


@pytest.mark.parametrize("model", ["hosted_vllm/Mem-T-4B", "openai/mock"])
async def test_sampling_of_open_servers_arrives_in_the_body(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    with FakeServer() as server:
        for name in ("HOSTED_VLLM_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
            monkeypatch.setenv(name, server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
        await ask(ledger, model)
        (seen,) = server.chats
    assert {name: seen.body[name] for name in SAMPLING} == SAMPLING
    assert seen.body["model"] == model.partition("/")[2]


async def test_a_rejected_one_is_dropped_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeServer(rejects=("min_p", "chat_template_kwargs")) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
        dropped = await ask(ledger, "hosted_vllm/Mem-T-4B", times=3)
        bodies = [seen.body for seen in server.chats]
    # Two rejections, then three answers.
    assert len(bodies) == 5
    for body in bodies[2:]:
        assert set(SAMPLING) - set(body) == {"min_p", "chat_template_kwargs"}
    assert set(dropped["hosted_vllm/Mem-T-4B"]) == {"min_p", "chat_template_kwargs"}


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ("Unknown parameter: 'min_p'.", "min_p"),
        ("Unrecognized request argument supplied: chat_template_kwargs", "chat_template_kwargs"),
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'repetition_penalty'), "
            "'msg': 'Extra inputs are not permitted'}]",
            "repetition_penalty",
        ),
        ("top_k is not supported by this model", "top_k"),
        ("min_p must be between 0 and 1", None),
    ],
)
def test_a_rejection_is_known_by_the_servers_words(said: str, param: str | None) -> None:
    litellm = load_litellm()
    fault = fault_of(litellm.BadRequestError(said, "mock", "openai"), litellm)
    assert fault.param == param
    assert (fault.kind is FaultKind.REJECTED_PARAM) == (param is not None)
