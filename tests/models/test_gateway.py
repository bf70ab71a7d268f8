"""The gateway over a scripted provider: what is sent, stored, replayed and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.models.prices import Price
from adapters.models.provider import FaultKind
from memprobe.config import EMBEDDED
from memprobe.errors import BudgetExceeded, CallFailed, UsageError
from memprobe.outcomes import Reason
from memprobe.types import Message, Role, Usage
from prompts.answers import JudgeAnswer, SlotFillAnswer
from storage.ledger import Ledger
from tests.support.gateways import (
    GOOD,
    MODEL,
    Clock,
    Hanging,
    Scripted,
    completion,
    fault,
    gateway,
    ledger_at,
    on_disk,
    request,
)

TOO_LONG = (Role.SLOT_FILL, Role.READER, Role.MEMORY)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = ledger_at(tmp_path)
    yield opened
    opened.close()


async def failure(asking: object) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await asking  # type: ignore[misc]
    return caught.value


async def test_an_answer_is_typed_and_the_second_time_nothing_is_sent(ledger: Ledger) -> None:
    provider = Scripted()
    chat = gateway(ledger, provider)
    first = await chat.ask(request())
    again = await chat.ask(request())
    assert first.parsed(JudgeAnswer).score == 0.75
    assert (first.replayed, again.replayed) == (False, True)
    assert first.call_id == again.call_id
    assert len(provider.calls) == chat.new_calls == 1


async def test_a_new_process_replays_from_the_file(tmp_path: Path) -> None:
    opened = ledger_at(tmp_path)
    first = await gateway(opened, Scripted()).ask(request())
    opened.close()
    opened = ledger_at(tmp_path)
    chat = gateway(opened, Scripted(AssertionError("nothing may be sent")))
    again = await chat.ask(request())
    assert again.replayed
    assert again.value == first.value
    assert again.usage == first.usage
    opened.close()


async def test_the_same_question_at_the_same_time_is_sent_once(ledger: Ledger) -> None:
    gate = asyncio.Event()
    provider = Scripted(gate=gate)
    chat = gateway(ledger, provider)
    asking = [asyncio.create_task(chat.ask(request(item=str(i)))) for i in range(20)]
    await provider.arrived.wait()
    gate.set()
    replies = await asyncio.gather(*asking)
    assert len(provider.calls) == 1
    assert sum(not r.replayed for r in replies) == 1
    assert len(list(ledger.calls("r1"))) == 20


async def test_one_of_two_who_wait_may_leave(ledger: Ledger) -> None:
    gate = asyncio.Event()
    provider = Scripted(gate=gate)
    chat = gateway(ledger, provider)
    leaving = asyncio.create_task(chat.ask(request(item="a")))
    staying = asyncio.create_task(chat.ask(request(item="b")))
    await provider.arrived.wait()
    leaving.cancel()
    gate.set()
    assert (await staying).parsed(JudgeAnswer).score == 0.75
    assert len(provider.calls) == 1


async def test_who_asks_after_everyone_left_gets_an_answer(ledger: Ledger) -> None:
    gate = asyncio.Event()
    provider = Scripted(gate=gate)
    chat = gateway(ledger, provider)
    leaving = asyncio.create_task(chat.ask(request()))
    await provider.arrived.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    gate.set()
    assert (await chat.ask(request())).parsed(JudgeAnswer).score == 0.75


async def test_what_makes_a_question_another_question(ledger: Ledger) -> None:
    provider = Scripted()
    chat = gateway(ledger, provider)
    asked = [
        request(),
        request("another text"),
        request(temperature=0.5),
        request(max_tokens=9),
        request(replicate=1),
        request(answer=None),
    ]
    ids = {(await chat.ask(r)).call_id for r in asked}
    assert len(ids) == len(asked)
    # Variables are what an embedded model reads; a remote one reads the messages.
    same = await chat.ask(request(variables={"label": "x"}))
    assert same.replayed


async def test_embedded_answers_depend_on_variables(ledger: Ledger) -> None:
    chat = gateway(ledger, Scripted(), model=EMBEDDED)
    one = await chat.ask(request(variables={"label": "x"}))
    two = await chat.ask(request(variables={"label": "y"}))
    assert one.call_id != two.call_id


async def test_systems_share_an_answer_unless_kept_independent(ledger: Ledger) -> None:
    shared = gateway(ledger, Scripted())
    one = await shared.ask(request(system="rag"))
    assert (await shared.ask(request(system="mem0"))).call_id == one.call_id
    apart = gateway(ledger, Scripted(), independent=True)
    ids = {(await apart.ask(request(system=s))).call_id for s in ("rag", "mem0")}
    assert len(ids) == 2


async def test_a_corrective_retry_says_what_was_wrong_and_replays_the_same(ledger: Ledger) -> None:
    provider = Scripted('{"score": 0.8}', GOOD)
    chat = gateway(ledger, provider)
    reply = await chat.ask(request())
    assert reply.parsed(JudgeAnswer).score == 0.75
    said = provider.calls[1].messages
    assert [m.role for m in said] == ["user", "assistant", "user"]
    assert "not on the scale" in said[-1].content
    assert (await chat.ask(request())).replayed
    assert len(provider.calls) == 2
    rows = list(ledger.calls("r1"))
    assert [(r["attempt"], r["outcome"]) for r in rows] == [(1, "invalid_output"), (2, "ok")]


@pytest.mark.parametrize("bad", ["", "   ", "no JSON", "[1]", '{"score": NaN}'])
async def test_an_unusable_answer_ends_as_invalid_output(ledger: Ledger, bad: str) -> None:
    provider = Scripted(bad)
    chat = gateway(ledger, provider)
    error = await failure(chat.ask(request()))
    assert error.reason is Reason.INVALID_OUTPUT
    assert ledger.get(error.call_id or "") is not None
    assert len(provider.calls) == 2
    # The replay fails the same way without paying again.
    assert (await failure(chat.ask(request()))).reason is Reason.INVALID_OUTPUT
    assert len(provider.calls) == 2


async def test_an_empty_free_text_is_no_answer(ledger: Ledger) -> None:
    error = await failure(gateway(ledger, Scripted(" \n")).ask(request(answer=None)))
    assert error.reason is Reason.INVALID_OUTPUT


async def test_json_truncated_length(ledger: Ledger) -> None:
    cut = completion('{"answers": [{"id": 1, "value": "Tuesd', "length")
    provider = Scripted(cut, GOOD)
    reply = await gateway(ledger, provider).ask(request(max_tokens=100))
    assert reply.parsed(JudgeAnswer).score == 0.75
    assert provider.calls[1].params["max_tokens"] > 2 * 100


async def test_json_reasoning_ate_budget(ledger: Ledger) -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=2000, reasoning_tokens=2000)
    provider = Scripted(completion(None, "length", usage=usage))
    error = await failure(gateway(ledger, provider).ask(request(answer=None)))
    assert error.reason is Reason.TRUNCATED
    assert "2000 of them reasoning" in error.detail
    assert len(provider.calls) == 2
    stored = ledger.get(error.call_id or "")
    assert stored is not None
    assert stored.text is None
    assert stored.usage.reasoning_tokens == 2000


async def test_a_refusal_is_a_refusal(ledger: Ledger) -> None:
    provider = Scripted(completion(None, refusal="I won't."))
    error = await failure(gateway(ledger, provider).ask(request()))
    assert (error.reason, len(provider.calls)) == (Reason.REFUSAL, 1)


async def test_rate_limit_retry_after(ledger: Ledger) -> None:
    clock = Clock()
    told = [fault(FaultKind.RATE_LIMIT, status=429, retry_after_s=s) for s in (60.0, 900.0)]
    provider = Scripted(*told, GOOD)
    chat = gateway(ledger, provider, policy=clock.policy())
    reply = await chat.ask(request())
    first, second = clock.slept
    assert 60.0 <= first < 67.0
    assert 120.0 <= second < 135.0
    stored = ledger.get(reply.call_id)
    assert stored is not None
    assert stored.latency_s == 0.0
    assert stored.wait_s == pytest.approx(first + second)
    assert stored.retries == 2
    assert chat.limits["openai"] < 64


async def test_rate_limits_lower_the_connections_and_successes_raise_them(ledger: Ledger) -> None:
    provider = Scripted(fault(FaultKind.RATE_LIMIT), GOOD)
    chat = gateway(ledger, provider, max_connections=8)
    await chat.ask(request())
    low = chat.limits["openai"]
    assert low < 8
    for i in range(40):
        await chat.ask(request(f"more {i}"))
    assert chat.limits["openai"] == 8


async def test_never_more_connections_than_allowed(ledger: Ledger) -> None:
    active = peak = 0

    class Counting(Scripted):
        async def complete(self, call):  # type: ignore[no-untyped-def]
            nonlocal active, peak
            active += 1
            peak = max(peak, active)
            await asyncio.sleep(0)
            active -= 1
            return completion(GOOD)

    chat = gateway(ledger, Counting(), max_connections=3)
    await asyncio.gather(*(chat.ask(request(f"q{i}")) for i in range(30)))
    assert peak == 3


async def test_temperature_rejected(ledger: Ledger) -> None:
    provider = Scripted(
        fault(FaultKind.REJECTED_PARAM, param="temperature"),
        fault(FaultKind.REJECTED_PARAM, param="max_tokens"),
        GOOD,
    )
    chat = gateway(ledger, provider)
    await chat.ask(request(temperature=0.3, max_tokens=100))
    await chat.ask(request("next", temperature=0.3, max_tokens=100))
    assert [dict(c.params) for c in provider.calls] == [
        {"temperature": 0.3, "max_tokens": 100},
        {"max_tokens": 100},
        {"max_completion_tokens": 100},
        {"max_completion_tokens": 100},
    ]
    assert chat.dropped_params == {
        MODEL: {"temperature": None, "max_tokens": "max_completion_tokens"}
    }


async def test_a_rejection_that_dropping_does_not_cure_ends(ledger: Ledger) -> None:
    provider = Scripted(fault(FaultKind.REJECTED_PARAM, param="temperature"))
    error = await failure(gateway(ledger, provider).ask(request(temperature=0.3)))
    assert error.reason is Reason.PROVIDER_ERROR
    assert len(provider.calls) == 2


async def test_schema_strict_rejected(ledger: Ledger) -> None:
    provider = Scripted(fault(FaultKind.REJECTED_PARAM, param="response_format"), GOOD)
    chat = gateway(ledger, provider)
    await chat.ask(request())
    await chat.ask(request("next"))
    assert [c.json_schema is not None for c in provider.calls] == [True, False, False]
    assert "JSON schema" in provider.calls[1].messages[-1].content


async def test_timeout_hang(ledger: Ledger) -> None:
    provider = Hanging()
    chat = gateway(
        ledger, provider, call_timeout=0.01, policy=Clock().policy(attempts=2, base_s=0.001)
    )
    error = await failure(chat.ask(request()))
    assert error.reason is Reason.TIMEOUT
    assert len(provider.calls) == 2


async def test_the_deadline_ends_endless_rate_limits(ledger: Ledger) -> None:
    clock = Clock()
    provider = Scripted(fault(FaultKind.RATE_LIMIT, retry_after_s=30.0))
    chat = gateway(ledger, provider, policy=clock.policy(), call_timeout=60.0)
    error = await failure(chat.ask(request()))
    assert error.reason is Reason.TIMEOUT
    assert "rate_limit" in error.detail
    assert clock.now <= 300.0


async def test_judge_down_counted_wrong(ledger: Ledger) -> None:
    provider = Scripted(fault(FaultKind.SERVER, "HTTP 500", status=500))
    chat = gateway(ledger, provider, policy=Clock().policy(attempts=3))
    error = await failure(chat.ask(request()))
    assert error.reason is Reason.PROVIDER_ERROR
    assert len(provider.calls) == 3
    assert ledger.get(error.call_id or "") is None
    (row,) = ledger.calls("r1")
    assert (row["outcome"], row["cost_usd"]) == ("provider_error", None)


async def test_a_resume_tries_an_outage_again_and_its_row_is_replaced(ledger: Ledger) -> None:
    provider = Scripted(fault(FaultKind.AUTH), GOOD)
    chat = gateway(ledger, provider)
    await failure(chat.ask(request()))
    await chat.ask(request())
    (row,) = ledger.calls("r1")
    assert (row["outcome"], row["ledger_hit"]) == ("ok", False)


@pytest.mark.parametrize(
    ("kind", "role", "reason"),
    [
        (FaultKind.NOT_JUDGED, Role.PREFERENCE, Reason.NOT_JUDGED),
        (FaultKind.DATASET, Role.ASSISTANT, Reason.DATASET_ERROR),
        *((FaultKind.CONTEXT_WINDOW, role, Reason.STORE_OVERFLOW) for role in TOO_LONG),
        (FaultKind.CONTEXT_WINDOW, Role.JUDGE, Reason.PROVIDER_ERROR),
        (FaultKind.CONTENT_POLICY, Role.JUDGE, Reason.REFUSAL),
        (FaultKind.BAD_REQUEST, Role.JUDGE, Reason.PROVIDER_ERROR),
    ],
)
async def test_each_fault_has_its_reason(
    ledger: Ledger, kind: FaultKind, role: Role, reason: Reason
) -> None:
    provider = Scripted(fault(kind))
    error = await failure(gateway(ledger, provider).ask(request(role=role)))
    assert (error.reason, len(provider.calls)) == (reason, 1)


async def test_lone_surrogate(ledger: Ledger) -> None:
    provider = Scripted('{"label": "broken \\ud83d tail", "reason": "\ud83d"}')
    chat = gateway(ledger, provider)
    reply = await chat.ask(request("a \ud83d prompt", answer=SlotFillAnswer))
    assert reply.sanitized
    assert provider.calls[0].messages[0].content == "a \ufffd prompt"
    assert reply.parsed(SlotFillAnswer).label == "broken \ufffd tail"
    assert "\ufffd" in reply.text
    again = await chat.ask(request("a \ud83d prompt", answer=SlotFillAnswer))
    assert (again.sanitized, again.replayed, again.value) == (True, True, reply.value)


PRICE = Price(1e-3, 1e-4, 1e-2, "given")


async def test_max_cost_stops_before_the_call_that_would_pass_it(ledger: Ledger) -> None:
    provider = Scripted(GOOD)
    chat = gateway(ledger, provider, price=lambda model: PRICE, max_cost=1.0)
    for i in range(3):
        await chat.ask(request(f"q{i}", max_tokens=30))
    assert ledger.spent("r1") == pytest.approx(3 * (100 * 1e-3 + 20 * 1e-2))
    error = await failure(chat.ask(request("one more", max_tokens=30)))
    assert isinstance(error, BudgetExceeded)
    assert len(provider.calls) == 3
    # What is stored stays free.
    assert (await chat.ask(request("q0", max_tokens=30))).replayed


async def test_calls_in_flight_count_against_the_limit(ledger: Ledger) -> None:
    gate = asyncio.Event()
    provider = Scripted(GOOD, gate=gate)
    chat = gateway(ledger, provider, price=lambda model: PRICE, max_cost=0.5)
    asking = [asyncio.create_task(chat.ask(request(f"q{i}", max_tokens=20))) for i in range(5)]
    await asyncio.wait(asking, return_when=asyncio.FIRST_EXCEPTION)
    gate.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert len(provider.calls) == 2
    assert sum(isinstance(r, BudgetExceeded) for r in results) == 3


async def test_a_resumed_run_remembers_what_it_spent(ledger: Ledger) -> None:
    price = lambda model: PRICE  # noqa: E731
    await gateway(ledger, Scripted(), price=price, max_cost=0.35).ask(request(max_tokens=20))
    resumed = gateway(ledger, Scripted(), price=price, max_cost=0.35)
    error = await failure(resumed.ask(request("next", max_tokens=20)))
    assert isinstance(error, BudgetExceeded)


async def test_a_limit_on_an_unknown_price_is_a_usage_error(ledger: Ledger) -> None:
    provider = Scripted()
    with pytest.raises(UsageError, match="price of 'openai/mock' is unknown"):
        await gateway(ledger, provider, max_cost=5.0).ask(request())
    assert provider.calls == []


async def test_an_unknown_price_is_stored_as_unknown(ledger: Ledger) -> None:
    await gateway(ledger, Scripted()).ask(request())
    (row,) = ledger.calls("r1")
    assert row["cost_usd"] is None
    assert ledger.unpriced("r1") == 1


async def test_judge_self_grading(ledger: Ledger) -> None:
    assert gateway(ledger, Scripted(), model="openai/gpt-5-mini").config.self_judged
    other = {Role.JUDGE: "openai/gpt-5"}
    assert not gateway(ledger, Scripted(), model_roles=other).config.self_judged
    assert not gateway(ledger, Scripted(), model=EMBEDDED).config.self_judged


async def test_keys_never_reach_the_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "topsecretvalue123")
    said = "key topsecretvalue123, header Bearer abc.def-123456, sk-proj-abcdef123"
    error = await failure(gateway(ledger, Scripted(fault(FaultKind.AUTH, said))).ask(request()))
    ledger.flush()
    stored = on_disk(tmp_path)
    for secret in ("topsecretvalue123", "abc.def-123456", "sk-proj-abcdef123"):
        assert secret not in str(error)
        assert secret.encode() not in stored


async def test_the_window_can_be_set_for_a_local_server(ledger: Ledger) -> None:
    assert gateway(ledger, Scripted()).window_for(Role.READER) == 8192
    assert gateway(ledger, Scripted(), context_window=4096).window_for(Role.READER) == 4096
    small = gateway(ledger, Scripted(), model=EMBEDDED, context_window=4096)
    assert small.window_for(Role.SLOT_FILL) == 4096


async def test_the_ledger_holds_what_was_sent(ledger: Ledger) -> None:
    reply = await gateway(ledger, Scripted()).ask(request("the prompt", temperature=0.0))
    stored = ledger.get(reply.call_id)
    assert stored is not None
    assert stored.messages == (Message(role="user", content="the prompt"),)
    assert stored.params == {"temperature": 0.0, "response_format": "json_schema"}
    assert stored.text == GOOD


async def test_usage_counts_what_was_sent_and_calls_an_unknown_price_unknown(
    ledger: Ledger,
) -> None:
    """What the live display reads: replays cost nothing, and sent calls are not free by default."""
    door = gateway(ledger, Scripted(), model="openai/nowhere-priced")
    await door.ask(request())
    await door.ask(request())
    calls, hits, prompt, completion, cost = door.usage()
    assert (calls, hits) == (1, 1)
    assert prompt > 0
    assert completion > 0
    assert cost is None


async def test_a_key_that_a_server_echoes_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-test-1234567890")
    opened = ledger_at(tmp_path)
    echo = completion("You sent Bearer sk-secret-test-1234567890; sk-ip this")
    reply = await gateway(opened, Scripted(echo)).ask(request(answer=None))
    assert reply.text == "You sent Bearer [redacted]; sk-ip this"
    opened.close()


async def test_what_was_sent_lands_though_nobody_waits_any_more(tmp_path: Path) -> None:
    """It is paid for: a stopped run must find it in the ledger instead of sending it again."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/landing.sqlite")
    gate = asyncio.Event()
    slow = Scripted(gate=gate)
    door = gateway(ledger, slow, model="openai/x")
    asking = asyncio.create_task(door.ask(request()))
    await slow.arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    closing = asyncio.create_task(door.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert door.new_calls == 1
    again = gateway(ledger, Scripted(), model="openai/x")
    assert (await again.ask(request())).replayed
    await again.close()
    ledger.close()


async def test_a_question_asked_again_while_it_lands_gets_that_answer(ledger: Ledger) -> None:
    gate = asyncio.Event()
    slow = Scripted(gate=gate)
    door = gateway(ledger, slow, model="openai/x")
    asking = asyncio.create_task(door.ask(request()))
    await slow.arrived.wait()
    asking.cancel()
    await asyncio.wait([asking])
    second = asyncio.create_task(door.ask(request()))
    await asyncio.sleep(0)
    gate.set()
    assert ((await second).text != "", door.new_calls) == (True, 1)
