"""mem0's real library behind its port: what it is told, what it keeps, what it hides."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.contract.network import NetworkGuard
from adapters.memory.mem0 import Mem0, Mem0Options
from memprobe.errors import (
    AdapterError,
    BudgetExceeded,
    CallFailed,
    MissingPrerequisite,
    UnsupportedEvent,
)
from memprobe.outcomes import Reason
from memprobe.systems import Services
from memprobe.types import DocumentEvent, MemoryItem, MessageEvent, Protocol
from tests.adapters.mem0_site import PoisonedEmbedder, prompts, site
from tests.adapters.support import WordEmbedder, event, scope
from tests.support.fake_server import FakeServer
from tests.support.gateways import Scripted

pytest.importorskip("mem0", reason="mem0ai is not installed: pip install 'memprobe-audit[mem0]'")

GARDEN = (
    "I keep bees behind the house and sell the honey at the market on Saturdays. "
    "My daughter Ines is allergic to walnuts, so we never bake with them at home. "
    "Last winter I broke my left wrist while skating!"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield running


def texts(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


def at(moment: datetime, text: str = "I moved to Porto today.") -> MessageEvent:
    return MessageEvent(role="user", text=text, event_time=moment, session_id="s0001", turn=1)


async def test_the_users_messages_become_facts_and_the_replies_do_not(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        await store.write(event(GARDEN, turn=1))
        await store.write(event("You could try pecans instead.", role="assistant", turn=1))
        await store.write(event("thanks", turn=2))
        items = await store.dump()
        assert len(items) == 3
        assert " ".join(texts(items)) == GARDEN
        assert [item.id for item in items] == ["m00001", "m00002", "m00003"]
        assert items[0].fields["category"] == "fact"
        assert items[0].fields["attributed_to"] == "user"
        assert items[0].fields["session_id"] == "s0001"
        assert not any(re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", str(i.fields)) for i in items)
        found = await store.search("Ines allergic to walnuts", 2)
        assert "walnuts" in found[0].content
        assert found[0].id == "m00002"
        scores = [item.score for item in found]
        assert None not in scores
        assert scores == sorted(scores, reverse=True)
    assert len(server.chats) == 2
    asked = server.chats[0].body
    assert (asked["temperature"], asked["max_tokens"]) == (0.0, 2000)
    assert asked["response_format"] == {"type": "json_object"}
    assert "pecans" not in "".join(prompts(server))


async def test_both_sides_are_stored_on_demand(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store(store="both")
        await store.write(event("What tree grows fast?"))
        await store.write(event("A willow grows two metres a year.", role="assistant"))
        items = await store.dump()
        assert [i.fields["attributed_to"] for i in items] == ["user", "assistant"]
        assert "willow" in items[1].content


async def test_without_inference_messages_are_kept_as_they_are(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store(infer=False)
        await store.write(event(GARDEN))
        assert texts(await store.dump()) == [GARDEN]
    assert server.chats == []


async def test_a_document_is_kept_with_author_and_day(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        when = datetime(2024, 3, 1, 9, tzinfo=UTC)
        await store.write(
            DocumentEvent(
                text="The bridge is closed.", author="city", event_time=when, session_id="d1"
            )
        )
        (item,) = await store.dump()
        assert item.content == "[city, 2024-03-01] The bridge is closed."
        assert (item.event_time, item.fields["author"]) == (when, "city")


async def test_all_of_520_facts_are_dumped_and_k_is_kept(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        for number in range(520):
            await store.write(event(f"Locker {number} opens with mk0123abcd{number:05d}."))
        items = await store.dump()
        assert len(items) == 520
        assert texts(items)[519] == "Locker 519 opens with mk0123abcd00519."
        assert texts(await store.dump()) == texts(items)
        for k in (1, 5, 10, 60):
            assert len(await store.search("which locker opens", k)) == k
        assert await store.search("which locker opens", 0) == []
        assert await store.search("  ", 5) == []


async def test_an_incomplete_dump_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        for number in range(3):
            await store.write(event(f"Box number {number} is blue."))
        memory: Any = store._engine._memory  # type: ignore[union-attr]
        whole = memory.get_all
        memory.get_all = lambda **given: {"results": whole(**given)["results"][:2]}
        with pytest.raises(AdapterError, match=r"not complete: 2 memories listed .* 3 in Qdrant"):
            await store.dump()
        memory.get_all = whole
        first = next(iter(memory.vector_store.rows))
        await store._run(lambda: memory.delete(first))
        with pytest.raises(AdapterError, match="2 in Qdrant, 3 added"):
            await store.dump()


async def test_the_prompts_today_is_the_events_day(server: FakeServer, tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    moment = datetime(2024, 2, 29, 3, 15, 7, tzinfo=zone)
    quoting = "Mind this:\n\n## Observation Date\n2001-01-01\n\n## Current Date\n2001-01-01\n\nbye"
    async with site(tmp_path) as here:
        store = await here.store()
        await store.write(at(moment))
        await store.write(at(moment + timedelta(days=1), quoting))
        assert {i.event_time for i in await store.dump()} == {moment, moment + timedelta(days=1)}
    # In UTC, as the library counts days.
    first, second = prompts(server)
    tail = "\n\n## Observation Date\n{0}\n\n## Current Date\n{0}\n\n# Output:"
    assert first.endswith(tail.format("2024-02-28"))
    assert second.endswith(tail.format("2024-02-29"))
    assert f"user: {quoting}\n" in second
    assert str(datetime.now(UTC).year) not in first


async def test_as_published_today_is_the_wall_clocks(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store(protocol=Protocol.PAPER)
        before = datetime.now(UTC).date()
        await store.write(at(datetime(2023, 5, 7, tzinfo=UTC)))
        days = {d.isoformat() for d in (before, datetime.now(UTC).date())}
    assert re.search(r"## Current Date\n(\S+)", prompts(server)[0])[1] in days  # type: ignore[index]


def test_as_published_the_librarys_threshold_is_used() -> None:
    assert Mem0Options().threshold == 0.0
    assert Mem0Options(**dict(Mem0Options.published())).threshold == 0.1


@pytest.mark.parametrize(
    "said",
    [
        "I found nothing worth keeping.",
        '{"facts": ["I moved to Porto"]}',
        '["I moved to Porto"]',
        '{"memory": "I moved to Porto"}',
        '{"memory": ["I moved to Porto"]}',
        '{"memory": [{"id": "0", "text": 7}]}',
    ],
)
async def test_an_answer_that_mem0_cannot_read_is_an_error(
    server: FakeServer, tmp_path: Path, said: str
) -> None:
    async with site(tmp_path) as here:
        strict = await here.store("a")
        server.script({"mode": "said", "content": said})
        with pytest.raises(CallFailed, match="no list of memories") as failed:
            await strict.write(event("I moved to Porto."))
        assert failed.value.reason is Reason.INVALID_OUTPUT
        assert failed.value.call_id
        assert await strict.dump() == []
        await strict.write(event("I moved to Braga."))
        assert texts(await strict.dump()) == ["I moved to Braga."]
        # As published nobody notices.
        paper = await here.store("b", protocol=Protocol.PAPER)
        server.script({"mode": "said", "content": said})
        await paper.write(event("I moved to Faro."))
        assert await paper.dump() == []


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("truncated", Reason.TRUNCATED),
        ("refusal", Reason.REFUSAL),
        ("content_filter", Reason.REFUSAL),
    ],
)
async def test_no_answer_has_its_reason(
    server: FakeServer, tmp_path: Path, mode: str, reason: Reason
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        server.script(mode)
        with pytest.raises(CallFailed) as failed:
            await store.write(event("I moved to Porto."))
        assert failed.value.reason is reason


@pytest.mark.parametrize("mode", ["fenced", "prose"])
async def test_what_mem0_can_read_is_read(server: FakeServer, tmp_path: Path, mode: str) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        server.script(mode)
        await store.write(event("I moved to Porto."))
        assert texts(await store.dump()) == ["I moved to Porto."]


async def test_a_lone_surrogate_spelt_in_an_answer_is_replaced(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        said = r'{"memory": [{"id": "0", "text": "Likes tea \ud83d"}, {"id": "1", "text": "Ok"}]}'
        server.script({"mode": "said", "content": said})
        await store.write(event("I like tea."))
        assert texts(await store.dump()) == ["Likes tea \ufffd", "Ok"]


async def test_an_outage_is_an_error_and_as_published_a_gap(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store("a")
        server.script("auth")
        with pytest.raises(CallFailed) as failed:
            await store.write(event("I moved to Porto."))
        assert failed.value.reason is Reason.PROVIDER_ERROR
        assert await store.dump() == []
        paper = await here.store("b", protocol=Protocol.PAPER)
        server.script("auth")
        await paper.write(event("I moved to Faro."))
        assert await paper.dump() == []


async def test_the_cost_limit_ends_a_run_under_any_protocol(tmp_path: Path) -> None:
    async with site(tmp_path, provider=Scripted(BudgetExceeded("the limit of 1 $"))) as here:
        for protocol in Protocol:
            store = await here.store(protocol.value, protocol)
            with pytest.raises(BudgetExceeded):
                await store.write(event("I moved to Porto."))


async def test_a_memory_whose_embedding_fails_is_not_lost_in_silence(
    server: FakeServer, tmp_path: Path
) -> None:
    embedder = PoisonedEmbedder()
    embedder.poison = "walnuts"
    async with site(tmp_path, embedder=embedder) as here:
        strict = await here.store("a")
        with pytest.raises(CallFailed) as failed:
            await strict.write(event(GARDEN))
        assert failed.value.reason is Reason.ADAPTER_ERROR
        assert "out of order" in failed.value.detail
        paper = await here.store("b", protocol=Protocol.PAPER)
        await paper.write(event(GARDEN))
        assert len(await paper.dump()) == 2
        with pytest.raises(CallFailed):
            await strict.search("walnuts", 3)
        assert await paper.search("walnuts", 3) == []


async def test_environment_and_network_are_not_used(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("OPENROUTER_API_KEY", "or-secret")
    async with site(tmp_path, provider=Scripted('{"memory": [{"text": "Porto it is"}]}')) as here:
        with NetworkGuard() as guard:
            store = await here.store()
            await store.write(event("I moved to Porto."))
            assert texts(await store.search("Porto", 1)) == ["Porto it is"]
            await store.close()
        assert guard.attempts == []
        assert here.gateway.new_calls == 1
    main = sys.modules["mem0.memory.main"]
    assert vars(main)["MEM0_TELEMETRY"] is False
    assert "MEM0_DIR" not in os.environ


async def test_a_waiting_store_does_not_hold_up_the_others(tmp_path: Path) -> None:
    gate = asyncio.Event()
    slow = Scripted('{"memory": [{"id": "0", "text": "I moved"}]}', gate=gate)
    async with site(tmp_path, provider=slow) as here:
        first, second = await here.store("a"), await here.store("b")
        writing = asyncio.create_task(first.write(event("I moved to Porto.")))
        await slow.arrived.wait()
        assert not writing.done()
        assert await second.dump() == []
        gate.set()
        await writing
        assert texts(await first.dump()) == ["I moved"]


async def test_stores_of_one_process_are_apart(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        stores = [await here.store(f"s{n}") for n in range(3)]

        async def fill(number: int, store: Mem0) -> None:
            for turn in range(6):
                await store.write(event(f"Shelf {turn} holds mk{number:08d}{turn:05d}."))

        await asyncio.gather(*(fill(n, store) for n, store in enumerate(stores)))
        for number, store in enumerate(stores):
            held = " ".join(texts(await store.dump()))
            assert len(re.findall(f"mk{number:08d}", held)) == 6
            assert len(re.findall("mk", held)) == 6


async def test_what_cannot_be_kept_is_refused(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        with pytest.raises(UnsupportedEvent, match="lone surrogate at position 2"):
            await store.write(event("no\ud83dthing"))
        with pytest.raises(UnsupportedEvent, match="role 'tool'"):
            await store.write(event("a result", role="tool"))
        assert await store.dump() == []
    assert server.chats == []


async def test_open_and_close(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        folder = store._engine._folder  # type: ignore[union-attr]
        assert (folder / "qdrant").is_dir()
        with pytest.raises(AdapterError, match="open already"):
            await store.open(scope())
        await store.write(event("I moved to Porto."))
        await store.close()
        await store.close()
        assert not folder.exists()
        for call in (store.write(event("too late")), store.dump(), store.search("x", 1)):
            with pytest.raises(AdapterError, match="not open"):
                await call
        await store.open(scope())
        assert await store.dump() == []


async def test_a_call_that_was_given_up_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.memory.mem0.CLOSING", 0.05)
    gate = asyncio.Event()
    slow = Scripted('{"memory": []}', gate=gate)
    async with site(tmp_path, provider=slow) as here:
        store = await here.store()
        folder, thread = store._engine._folder, store._thread  # type: ignore[union-attr]
        writing = asyncio.create_task(store.write(event("I moved to Porto.")))
        await slow.arrived.wait()
        writing.cancel()
        await store.close()
        gate.set()
        assert thread is not None
        await asyncio.to_thread(thread.shutdown, wait=True)
        assert not folder.exists()


async def test_without_the_library_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mem0", None)
    store = Mem0(Services(embedder=WordEmbedder()))
    with pytest.raises(MissingPrerequisite, match=r"pip install 'memprobe-audit\[mem0\]'"):
        await store.open(scope())
    await store.close()


async def test_without_a_model_it_is_asked_for() -> None:
    with pytest.raises(MissingPrerequisite, match="--model"):
        await Mem0(Services(embedder=WordEmbedder())).open(scope())


def test_the_card_names_the_package_and_what_was_measured() -> None:
    card = Mem0.card
    assert (card.extra, card.package, card.licence) == ("mem0", "mem0ai", "Apache-2.0")
    assert card.capabilities is Mem0.capabilities
    assert any("only adds" in note for note in card.notes)
