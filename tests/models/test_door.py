"""The HTTP door, through the openai client that the libraries use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from adapters.models.door import Door
from adapters.models.gateway import Gateway
from adapters.models.prices import Price
from adapters.models.provider import FaultKind
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Asker, Role, Usage
from storage.ledger import Ledger
from tests.support.gateways import Scripted, completion, fault, gateway, ledger_at

WHO = Asker(run="r1", suite="recovery", stage="rollout", system="mem0", user="u7")
SAID: Any = [{"role": "user", "content": "hello"}]


class TwoWords:
    name, dimensions = "two", 2

    async def encode(self, texts: Any) -> list[list[float]]:
        return [[1.0, float(len(t))] for t in texts]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = ledger_at(tmp_path)
    yield opened
    opened.close()


class Caller:
    """A door, its gateway and a client with a good token."""

    def __init__(self, chat: Gateway, provider: Scripted) -> None:
        self.chat, self.provider = chat, provider
        self.door = Door(chat, TwoWords())

    async def open(self) -> None:
        await self.door.start()
        self.token = self.door.token(WHO)
        self.client = self.with_token(self.token)

    def with_token(self, token: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(api_key=token, base_url=self.door.url)

    async def say(self, **changes: Any) -> Any:
        return await self.client.chat.completions.create(
            **{"model": "whatever", "messages": SAID, **changes}
        )


@pytest.fixture
async def make(ledger: Ledger) -> AsyncIterator[Any]:
    made: list[Caller] = []

    async def build(*steps: Any, **config: Any) -> Caller:
        provider = Scripted(*(steps or ("hi there",)))
        caller = Caller(gateway(ledger, provider, **config), provider)
        made.append(caller)
        await caller.open()
        return caller

    yield build
    for caller in made:
        await caller.client.close()
        await caller.door.stop()


async def test_a_library_call_is_recorded_as_its_stores_and_replayed(
    make: Any, ledger: Ledger
) -> None:
    caller = await make(model_roles={Role.MEMORY: "openai/small"})
    first = await caller.say(temperature=0, max_completion_tokens=50)
    again = await caller.say(temperature=0, max_completion_tokens=50)
    assert first.choices[0].message.content == again.choices[0].message.content == "hi there"
    assert first.usage.prompt_tokens == 100
    assert len(caller.provider.calls) == 1
    call = caller.provider.calls[0]
    assert (call.model, dict(call.params)) == ("openai/small", {"temperature": 0, "max_tokens": 50})
    (row,) = ledger.calls("r1")
    assert (row["role"], row["system"], row["user_id"]) == ("memory", "mem0", "u7")


async def test_other_tokens_are_turned_away(make: Any) -> None:
    caller = await make()
    for token in ("sk-guess", "x"):
        stranger = caller.with_token(token)
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model="m", messages=SAID)
        with pytest.raises(openai.AuthenticationError):
            await stranger.embeddings.create(model="m", input="x")
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
        await stranger.close()
    caller.door.revoke(caller.token)
    with pytest.raises(openai.AuthenticationError):
        await caller.say()
    assert caller.provider.calls == []


async def test_tools_and_content_parts_pass_through(make: Any, ledger: Ledger) -> None:
    tool = {"id": "c1", "type": "function", "function": {"name": "save", "arguments": "{}"}}
    caller = await make(completion(None, "tool_calls", tool_calls=(tool,)))
    # Cases none-content and content-list: an assistant turn without content, content as parts.
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [tool]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
    ]
    tools = [{"type": "function", "function": {"name": "save", "parameters": {}}}]
    reply = await caller.say(messages=messages, tools=tools)
    assert reply.choices[0].message.tool_calls[0].function.name == "save"
    assert reply.choices[0].finish_reason == "tool_calls"
    assert [dict(m) for m in caller.provider.calls[0].raw_messages] == messages
    again = await caller.say(messages=messages, tools=tools)
    assert again.choices[0].message.tool_calls[0].id == "c1"
    assert len(caller.provider.calls) == 1
    # What may be called, and that something must be, is part of the question.
    for changed in ({"tools": tools, "tool_choice": "required"}, {"tools": []}, {}):
        await caller.say(messages=messages, **changed)
    assert [dict(call.params) for call in caller.provider.calls] == [
        {"tools": tools},
        {"tools": tools, "tool_choice": "required"},
        {"tools": []},
        {},
    ]


async def test_a_refused_schema_is_spelt_out_instead(make: Any) -> None:
    class Facts(BaseModel):
        facts: list[str]

    caller = await make(
        fault(FaultKind.REJECTED_PARAM, param="response_format"), '{"facts": ["a"]}'
    )
    reply = await caller.client.chat.completions.parse(
        model="m", messages=SAID, response_format=Facts
    )
    assert reply.choices[0].message.parsed == Facts(facts=["a"])
    sent = caller.provider.calls[1]
    assert "response_format" not in sent.params
    assert "facts" in sent.raw_messages[-1]["content"]


async def test_a_stream_carries_the_whole_answer(make: Any) -> None:
    caller = await make()
    stream = await caller.say(stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "hi there"
    assert chunks[-1].usage.completion_tokens == 20


async def test_embeddings_as_floats_and_as_base64(make: Any) -> None:
    caller = await make()
    packed = await caller.client.embeddings.create(model="m", input=["a", "bcd"])
    plain = await caller.client.embeddings.create(model="m", input="bcd", encoding_format="float")
    assert [row.embedding for row in packed.data] == [[1.0, 1.0], [1.0, 3.0]]
    assert plain.data[0].embedding == [1.0, 3.0]
    for bad in ({"input": [1, 2]}, {"input": "a", "dimensions": 7}):
        with pytest.raises(openai.BadRequestError):
            await caller.client.embeddings.create(model="m", **bad)


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        (FaultKind.AUTH, 502, Reason.PROVIDER_ERROR),
        (FaultKind.TIMEOUT, 504, Reason.TIMEOUT),
        (FaultKind.CONTENT_POLICY, 400, Reason.REFUSAL),
    ],
)
async def test_a_failure_is_an_openai_error_that_the_client_does_not_repeat(
    make: Any, kind: FaultKind, status: int, reason: Reason
) -> None:
    caller = await make(fault(kind))
    with pytest.raises(openai.APIStatusError) as caught:
        await caller.say()
    assert (caught.value.status_code, caught.value.code) == (status, reason.value)
    failure = caller.door.failure(caller.token)
    assert isinstance(failure, CallFailed)
    assert failure.reason is reason
    assert caller.door.failure(caller.token) is None
    tries = 6 if kind is FaultKind.TIMEOUT else 1
    assert len(caller.provider.calls) == tries


async def test_the_cost_limit_holds_for_libraries_too(make: Any) -> None:
    price = Price(1e-3, 1e-3, 1e-2, "given")
    caller = await make(price=lambda model: price, max_cost=0.1)
    with pytest.raises(openai.APIStatusError) as caught:
        await caller.say(max_tokens=100)
    assert caught.value.status_code == 402
    assert isinstance(caller.door.failure(caller.token), BudgetExceeded)
    assert caller.provider.calls == []


async def test_what_is_no_request_is_refused(make: Any) -> None:
    caller = await make()
    for bad in ({"n": 2}, {"messages": "text"}, {"messages": [{"content": "no role"}]}):
        with pytest.raises(openai.BadRequestError):
            await caller.say(**bad)
    assert caller.provider.calls == []


async def test_reasoning_that_ate_the_budget_reaches_the_library_as_length(make: Any) -> None:
    usage = Usage(prompt_tokens=1, completion_tokens=9, reasoning_tokens=9)
    caller = await make(completion(None, "length", usage=usage))
    reply = await caller.say()
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].message.content is None
    assert reply.usage.completion_tokens_details.reasoning_tokens == 9


async def test_stores_call_at_the_same_time(make: Any, ledger: Ledger) -> None:
    caller = await make()
    others = [Asker(**{**WHO.model_dump(), "user": f"u{i}"}) for i in range(5)]
    clients = [caller.with_token(caller.door.token(who)) for who in others]
    await asyncio.gather(*(c.chat.completions.create(model="m", messages=SAID) for c in clients))
    assert {row["user_id"] for row in ledger.calls("r1")} == {f"u{i}" for i in range(5)}
    assert len(caller.provider.calls) == 1
    for client in clients:
        await client.close()


async def test_a_failure_that_was_made_good_is_none(make: Any) -> None:
    caller = await make(fault(FaultKind.BAD_REQUEST), completion("fine"))
    with pytest.raises(openai.InternalServerError):
        await caller.say()
    assert (await caller.say()).choices[0].message.content == "fine"
    assert caller.door.failure(caller.token) is None


async def test_a_request_that_the_door_cannot_serve_is_heard(make: Any) -> None:
    caller = await make()
    with pytest.raises(openai.NotFoundError):
        await caller.client.responses.create(model="x", input="hello")
    assert "/v1/responses" in str(caller.door.failure(caller.token))
    with pytest.raises(openai.BadRequestError):
        await caller.client.embeddings.create(model="x", input="hi", dimensions=7)
    assert "2 dimensions" in str(caller.door.failure(caller.token))
    with pytest.raises(openai.NotFoundError):
        await caller.client.files.delete("x")
    assert "/v1/files/x" in str(caller.door.failure(caller.token))


async def test_a_gateway_that_breaks_is_heard(make: Any) -> None:
    caller = await make(ZeroDivisionError("a fault of ours"))
    with pytest.raises(openai.InternalServerError):
        await caller.say()
    assert "a fault of ours" in str(caller.door.failure(caller.token))


async def test_nothing_is_asked_for_a_store_that_was_closed(make: Any) -> None:
    caller = await make()
    line = caller.door.line(WHO)
    line.close()
    with pytest.raises(AdapterError, match="closed"):
        line.begin("s0001/turn1/user/write")


async def test_a_line_names_the_item_and_keeps_samples_apart(make: Any, ledger: Ledger) -> None:
    caller = await make(completion("one"), completion("two"))
    lines = [caller.door.line(WHO, replicate) for replicate in (0, 1)]
    said = []
    for line in lines:
        line.begin("s0001/turn1/user/write")
        client = caller.with_token(line.access.api_key)
        reply = await client.chat.completions.create(model="x", messages=SAID)
        said.append(reply.choices[0].message.content)
        line.close()
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="x", messages=SAID)
    assert said == ["one", "two"]
    ledger.flush()
    assert {row["item"] for row in ledger.calls("r1")} == {"s0001/turn1/user/write"}
