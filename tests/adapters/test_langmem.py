"""LangMem's real library behind its port: what it is told, what it keeps, what it swallows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.contract.network import NetworkGuard
from adapters.memory.langmem import LangMem
from memprobe.errors import (
    AdapterError,
    BudgetExceeded,
    CallFailed,
    MissingPrerequisite,
    UnsupportedEvent,
)
from memprobe.outcomes import Reason
from memprobe.systems import Services
from memprobe.types import (
    AccessMode,
    DocumentEvent,
    MemoryItem,
    Protocol,
    SessionEvent,
    SessionMessage,
)
from tests.adapters.mem0_site import PoisonedEmbedder
from tests.adapters.mem0_site import site as any_site
from tests.adapters.support import START, WordEmbedder, event, scope
from tests.support.fake_server import FakeServer
from tests.support.gateways import Scripted

pytest.importorskip("langmem", reason="pip install 'memprobe-audit[langmem]'")

BEES = "I keep bees behind the house and sell honey on Saturdays."
MORE_BEES = "I keep bees behind the house and sell honey on Sundays."


def site(*args: Any, **given: Any) -> Any:
    return any_site(*args, kind=LangMem, **given)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield running


def texts(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


def session(number: int, *said: tuple[str, str]) -> SessionEvent:
    return SessionEvent(
        messages=tuple(SessionMessage(role=role, text=text) for role, text in said),
        event_time=START + timedelta(days=number),
        session_id=f"s{number:04d}",
    )


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    given = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}", "type": "function", "function": given}


def says(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"mode": "said", "tool_calls": list(calls)}


async def test_a_session_is_one_call_and_later_ones_patch_and_remove(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        told = session(1, ("user", BEES), ("assistant", "Lovely."), ("tool_output", "Porto: 12 C"))
        await store.write(told)
        assert texts(await store.dump()) == [BEES, "Porto: 12 C"]
        await store.write(session(2, ("user", MORE_BEES)))
        first, second = await store.dump()
        assert (first.id, first.content) == ("l00001", MORE_BEES)
        assert first.event_time == START + timedelta(days=2), "the session that last changed it"
        assert first.fields == {
            "kind": "Memory",
            "session_id": "s0002",
            "created_in": "s0001",
            "changes": 1,
        }
        assert second.event_time == START + timedelta(days=1)
        found = await store.search("bees behind the house", 1)
        assert texts(found) == [MORE_BEES]
        assert found[0].score is not None
        await store.write(session(3, ("user", f"Forget that {MORE_BEES}")))
        assert texts(await store.dump()) == ["Porto: 12 C"]
        await store.write(session(4, ("user", "I play chess.")))
        assert [i.id for i in await store.dump()] == ["l00002", "l00003"]
    assert len(server.chats) == 4
    told_as = server.chats[0].body["messages"][1]["content"]
    assert re.findall(r"=+ (\w+) Message =+", told_as) == ["Human", "Ai", "Tool"]
    assert server.chats[0].body["temperature"] == 0.0
    names = [t["function"]["name"] for t in server.chats[1].body["tools"]]
    assert names == ["PatchDoc", "Memory", "RemoveDoc"]
    assert "s0001" not in json.dumps([seen.body for seen in server.chats])


async def test_messages_and_documents(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store("a")
        await store.write(event("What tree grows fast?"))
        await store.write(event("A willow grows two metres a year.", role="assistant"))
        await store.write(
            DocumentEvent(
                text="The bridge is shut.", author="city", event_time=START, session_id="d1"
            )
        )
        question, document = await store.dump()
        assert question.content == "What tree grows fast?"
        assert document.content == "[city, 2023-05-07 18:30] The bridge is shut."
        assert document.fields["author"] == "city"
        both = await here.store("b", store="both", dates=True, deletes=False)
        await both.write(event("A willow grows two metres a year.", role="assistant"))
        assert texts(await both.dump()) == ["A willow grows two metres a year."]
        await both.write(event("Thanks!"))
    last = server.chats[-1].body
    assert "This took place on 2023-05-08 18:31 UTC." in last["messages"][1]["content"]
    assert "RemoveDoc" not in [t["function"]["name"] for t in last["tools"]]


async def test_all_of_450_memories_are_dumped_and_k_is_kept(
    server: FakeServer, tmp_path: Path
) -> None:
    lockers = [f"Locker {n} opens with mk0123abcd{n:05d}." for n in range(450)]
    async with site(tmp_path) as here:
        store = await here.store()
        for start in range(0, 450, 50):
            said = [("user", text) for text in lockers[start : start + 50]]
            # One after the other the library joins them to one message.
            pairs = [part for text in said for part in (text, ("assistant", "ok"))]
            await store.write(session(1 + start // 50, *pairs))
        items = await store.dump()
        assert texts(items) == lockers
        assert len({item.id for item in items}) == 450
        for k in (1, 5, 60):
            assert len(await store.search("which locker opens", k)) == k
        assert await store.search("which locker opens", 0) == []
        assert await store.search("  ", 5) == []
        whole = store._engine.store._data
        whole["elsewhere",]["x"] = next(iter(whole["memories", "memprobe"].values()))
        with pytest.raises(AdapterError, match=r"not complete: 450 memories .* 451 in its store"):
            await store.dump()


@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        ("truncated", Reason.TRUNCATED, "cut off"),
        ("refusal", Reason.REFUSAL, "can't help"),
        ("content_filter", Reason.REFUSAL, "content filter"),
        ("empty", Reason.INVALID_OUTPUT, "no tool was called"),
        ("auth", Reason.PROVIDER_ERROR, "auth"),
        (says(tool("Remember", content="x")), Reason.INVALID_OUTPUT, "no tool 'Remember'"),
        (says(tool("Memory", content="x") | {"function": {"name": "Memory", "arguments": '{"c'}}),
         Reason.INVALID_OUTPUT, "no JSON"),
    ],
)  # fmt: skip
async def test_what_the_library_would_swallow_is_an_error(
    server: FakeServer, tmp_path: Path, fault: Any, reason: Reason, said: str
) -> None:
    async with site(tmp_path) as here:
        store = await here.store("a")
        for number in (1, 2):
            # Without memories the library extracts, with some it updates: other code, other holes.
            server.script(fault)
            before = texts(await store.dump())
            with pytest.raises(CallFailed, match=said) as failed:
                await store.write(session(number, ("user", "I moved to Porto in May.")))
            assert failed.value.reason is reason
            assert bool(failed.value.call_id) == (fault != "auth"), "it leads to the answer"
            assert texts(await store.dump()) == before
            await store.write(session(number, ("user", f"My {'very ' * number}old cat is grey.")))
        asked = len(server.chats)
        assert asked == 4, (
            "a failed call is not sent again and again with its failure in the prompt"
        )


@pytest.mark.parametrize(
    "call",
    [
        tool("PatchDoc", json_doc_id="nowhere", planned_edits="-", patches=[]),
        tool("RemoveDoc", json_doc_id="nowhere"),
        tool("Memory", text="the content is missing"),
    ],
)
async def test_an_edit_that_cannot_be_made_is_not_dropped_in_silence(
    server: FakeServer, tmp_path: Path, call: dict[str, Any]
) -> None:
    """The library lets the model repair a call three times, then forgets it."""
    async with site(tmp_path) as here:
        for protocol in Protocol:
            store = await here.store(protocol.value, protocol)
            await store.write(session(1, ("user", BEES)))
            useless = tool("PatchFunctionErrors", json_doc_id="-", planned_edits="-", patches=[])
            server.script(*[says(each) for each in (call, useless, useless, useless)])
            if protocol is Protocol.STRICT:
                with pytest.raises(CallFailed, match="an edit was dropped") as failed:
                    await store.write(session(2, ("user", "I moved to Porto.")))
                assert failed.value.reason is Reason.INVALID_OUTPUT
            else:
                await store.write(session(2, ("user", "I moved to Porto.")))
            assert texts(await store.dump()) == [BEES]
            server._script.clear()


async def test_a_call_that_the_model_repairs_is_no_failure(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        server.script(says(tool("Memory", text="the content is missing")))
        await store.write(session(1, ("user", BEES)))
        assert texts(await store.dump()) == ["I could not say it better."]
    assert len(server.chats) == 2


async def test_as_published_a_failure_is_a_gap(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store(protocol=Protocol.PAPER)
        server.script("auth", "truncated")
        for number in (1, 2):
            await store.write(session(number, ("user", "I moved to Faro.")))
        assert await store.dump() == []
        await store.write(session(3, ("user", BEES)))
        assert texts(await store.dump()) == [BEES]


async def test_the_cost_limit_ends_a_run_under_any_protocol(tmp_path: Path) -> None:
    async with site(tmp_path, provider=Scripted(BudgetExceeded("the limit of 1 $"))) as here:
        for protocol in Protocol:
            store = await here.store(protocol.value, protocol)
            with pytest.raises(BudgetExceeded):
                await store.write(session(1, ("user", BEES)))


async def test_a_failed_embedding_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    embedder = PoisonedEmbedder()
    embedder.poison = "walnuts"
    async with site(tmp_path, embedder=embedder) as here:
        store = await here.store("a")
        with pytest.raises(CallFailed, match="out of order") as failed:
            await store.write(session(1, ("user", "I eat walnuts.")))
        assert failed.value.reason is Reason.ADAPTER_ERROR
        with pytest.raises(CallFailed):
            await store.search("walnuts", 3)
        paper = await here.store("b", protocol=Protocol.PAPER)
        await paper.write(session(1, ("user", "I eat walnuts.")))
        assert await paper.dump() == []
        assert await paper.search("walnuts", 3) == []


async def test_a_lone_surrogate_spelt_in_an_answer_is_replaced(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        server.script(says(tool("Memory", content="Likes tea \ud83d")))
        await store.write(session(1, ("user", "I like tea.")))
        assert texts(await store.dump()) == ["Likes tea \ufffd"]


async def test_what_cannot_be_kept_is_refused(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        with pytest.raises(UnsupportedEvent, match="lone surrogate"):
            await store.write(session(1, ("user", "no\ud83dthing")))
        with pytest.raises(UnsupportedEvent, match="role 'critic'"):
            await store.write(session(1, ("critic", "a remark")))
        with pytest.raises(UnsupportedEvent, match="role 'tool'"):
            await store.write(event("a result", role="tool"))
    assert server.chats == []


async def test_environment_and_network_are_not_used(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_PROXY"):
        monkeypatch.setenv(name, "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "")
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "ls-secret")
    provider = Scripted("There is nothing to remember.")
    async with site(tmp_path, provider=provider) as here:
        with NetworkGuard() as guard:
            store = await here.store()
            await store.write(session(1, ("user", "I moved to Porto.")))
            assert await store.dump() == []
            await store.close()
        assert guard.attempts == []
        assert here.gateway.new_calls == 1
    assert os.environ["LANGSMITH_TRACING"] == "true"


async def test_stores_of_one_process_are_apart_and_ask_the_same(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        stores = [await here.store(f"s{n}") for n in range(3)]

        async def fill(number: int, store: LangMem) -> None:
            for turn in range(5):
                await store.write(event(f"Shelf {turn} holds mk{number:08d}{turn:05d}."))

        await asyncio.gather(*(fill(n, store) for n, store in enumerate(stores)))
        for number, store in enumerate(stores):
            held = " ".join(texts(await store.dump()))
            assert len(re.findall(f"mk{number:08d}", held)) == 5
            assert len(re.findall("mk", held)) == 5
        # Names are counted by store: what was asked before is not paid for again.
        sent = len(server.chats)
        again = await here.store("again")
        await fill(1, again)
        assert len(server.chats) == sent


async def test_open_and_close(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        with pytest.raises(AdapterError, match="open already"):
            await store.open(scope())
        await store.write(event(BEES))
        await store.close()
        await store.close()
        for call in (store.write(event("too late")), store.dump(), store.search("x", 1)):
            with pytest.raises(AdapterError, match="not open"):
                await call
        await store.open(scope())
        assert await store.dump() == []


async def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingPrerequisite, match="--model"):
        await LangMem(Services(embedder=WordEmbedder())).open(scope())
    monkeypatch.setitem(sys.modules, "langmem", None)
    with pytest.raises(MissingPrerequisite, match=r"pip install 'memprobe-audit\[langmem\]'"):
        await LangMem(Services(embedder=WordEmbedder())).open(scope())


def test_the_card_says_how_the_suite_reads_it() -> None:
    card = LangMem.card
    assert (card.extra, card.package, card.licence) == ("langmem", "langmem", "MIT")
    assert (card.process, card.probe_access) == ("shared", AccessMode.DUMP_ALL)
    assert card.capabilities.sessions
