"""cognee's real library behind its port, in processes of its own: what it keeps and what it hides.

The tests that load it are heavy: each process imports it anew.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.cognee import Cognee, CogneeOptions, _text
from adapters.memory.cognee_engine import edge_row, node_row
from adapters.memory.cognee_library import Wire, _clean, give, reason_of, take
from memprobe.errors import (
    AdapterError,
    CallFailed,
    MissingPrerequisite,
    SnapshotError,
    UnsupportedEvent,
)
from memprobe.outcomes import Reason
from memprobe.systems import ModelAccess, Services
from memprobe.types import AccessMode, DocumentEvent, MemoryItem, Protocol
from tests.adapters.graphiti_site import Site, forms, prompts, session, site
from tests.adapters.support import START, WordEmbedder, event, scope
from tests.support.fake_server import FakeServer

DEAD = ModelAccess("http://127.0.0.1:9/v1", "none", "mock", "words")
BEES = "I keep bees behind the cottage."
NO_GRAPH = {"mode": "said", "content": '{"summary": "there is no graph", "facts": []}'}

library = pytest.mark.skipif(
    importlib.util.find_spec("cognee") is None, reason="pip install 'memprobe-audit[cognee]'"
)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
async def here(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(site(tmp_path, server, monkeypatch))


def texts(items: list[MemoryItem], kind: str = "") -> list[str]:
    return [item.content for item in items if not kind or item.fields["kind"] == kind]


@library
@pytest.mark.heavy
async def test_a_session_becomes_a_graph_that_is_dumped_and_searched(
    here: Site, server: FakeServer
) -> None:
    store = await here.store("a", system="cognee")
    assert await store.dump() == []
    assert await store.search("bees", 3) == []
    await store.write(session(1, BEES))
    assert forms(server) in (
        ["KnowledgeGraph", "SummarizedContent"],
        ["SummarizedContent", "KnowledgeGraph"],
    )
    items = await store.dump()
    assert texts(items, "chunk") == [f"User: {BEES}\nAssistant: Noted."]
    assert set(texts(items, "fact")) == {
        f"user --[said_of]--> cottage  ({BEES})",
        "assistant --[said_of]--> Noted  (Noted.)".lower().replace("(noted.)", "(Noted.)"),
    }
    assert f"cottage: {BEES}" in texts(items, "entity")
    assert BEES in texts(items, "summary")[0]
    assert {item.event_time for item in items} == {session(1, BEES).event_time}
    again = f"The cottage is old now. {'Really. ' * 30}"
    await store.write(session(2, again, replies=False))
    items = await store.dump()
    assert len({item.id for item in items}) == len(items)
    (cottage,) = [i for i in items if i.content.startswith("cottage: ")]
    assert cottage.event_time == session(2, BEES).event_time, "what last changed it"
    for k in (1, 3):
        found = await store.search("bees behind the cottage", k)
        assert len(found) == k
        assert "cottage" in found[0].content
        assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", str(found))
    assert "s0001" not in prompts(server)
    chunks = await here.store("b", system="cognee", search="chunks", dates=True)
    await chunks.write(session(1, BEES, replies=False))
    await chunks.write(session(2, "I play chess on Mondays.", replies=False))
    first, second = await chunks.search("bees behind the cottage", 5)
    assert first.content == f"This took place on 2023-05-08 18:30 UTC.\nUser: {BEES}"
    assert first.score is not None
    assert second.score is not None
    assert first.score > second.score


@library
@pytest.mark.heavy
async def test_a_store_comes_back_in_another_process_and_asks_nothing(
    here: Site, server: FakeServer, tmp_path: Path
) -> None:
    store = await here.store("a", system="cognee")
    for number in (1, 2):
        await store.write(session(number, f"{BEES} mk0123abcd{number:05d}"))
    before, found = await store.dump(), await store.search("bees", 4)
    folder = tmp_path / "snapshot"
    folder.mkdir()
    await store.save(folder)
    assert await store.dump() == before
    assert b"chatcmpl" not in (folder / "records.json").read_bytes()
    asked = len(server.chats)
    # The first store is still open: the second one has a process of its own.
    other = await here.store("b", system="cognee")
    await other.restore(folder)
    assert await other.dump() == before
    assert await other.search("bees", 4) == found
    assert len(server.chats) == asked
    with pytest.raises(SnapshotError, match="only an empty store"):
        await other.restore(folder)
    for each in (store, other):
        await each.write(session(3, "I play chess on Mondays."))
    assert texts(await other.dump()) == texts(await store.dump())
    assert len(server.chats) == asked + 2, "the same prompts, paid for once"


@library
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("auth", Reason.PROVIDER_ERROR),
        ("truncated", Reason.TRUNCATED),
        ("refusal", Reason.REFUSAL),
        ("content_filter", Reason.REFUSAL),
        (NO_GRAPH, Reason.INVALID_OUTPUT),
    ],
)
async def test_what_the_library_would_pass_over_is_an_error_and_as_published_a_gap(
    here: Site, server: FakeServer, fault: Any, reason: Reason
) -> None:
    strict = await here.store("a", system="cognee")
    server.script(fault, fault)
    with pytest.raises(CallFailed) as failed:
        await strict.write(session(1, BEES))
    assert failed.value.reason is reason
    assert len(server.chats) <= 6, "a failed call is not repeated for four minutes"
    server._script.clear()
    await strict.write(session(2, "I play chess on Mondays."))
    assert BEES not in " ".join(texts(await strict.dump(), "fact"))
    await strict.close()
    paper = await here.store("b", protocol=Protocol.PAPER, system="cognee")
    server.script(*[fault] * 8)
    await paper.write(session(1, "I moved to Faro in May."))
    server._script.clear()
    # Not the same words: the ledger knows what was answered to those.
    await paper.write(session(2, "I feed pigeons in the harbour."))
    assert any("pigeons" in text for text in texts(await paper.dump(), "fact"))


@library
@pytest.mark.heavy
async def test_a_failed_embedding_is_an_error(here: Site) -> None:
    store = await here.store("a", system="cognee")
    await store.write(session(1, BEES))
    with pytest.raises(CallFailed, match="out of order"):
        await store.write(session(2, "I brew poison."))
    with pytest.raises(CallFailed, match="out of order"):
        await store.search("poison", 3)


@library
@pytest.mark.heavy
async def test_a_text_that_looks_like_a_file_or_an_address_is_only_a_text(
    here: Site, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the launch code is 4711")
    store = await here.store("a", system="cognee", store="both")
    await store.write(event(str(secret)))
    await store.write(event(f"file://{secret}", role="assistant"))
    await store.write(session(1, "https://example.org/x.csv", replies=False))
    held = texts(await store.dump())
    assert not any("4711" in text for text in held)
    assert f"User: {secret}" in held


def test_a_process_has_one_store_at_a_time() -> None:
    first, second = (Wire(DEAD, 8, 0.0, True) for _ in range(2))
    take(first)
    try:
        with pytest.raises(AdapterError, match="one set of settings a process"):
            take(second)
        give(second)
        with pytest.raises(AdapterError, match="one set of settings"):
            take(second)
    finally:
        give(first)
    take(second)
    give(second)


def test_rows_are_what_the_graph_says() -> None:
    nodes = {
        "p": {"type": "Entity", "name": "ana", "description": "A vet"},
        "c": {"type": "Entity", "name": "porto", "description": "porto"},
        "t": {"type": "EntityType", "name": "person"},
        "d": {"type": "TextDocument", "name": "text_1f"},
        "k": {"type": "DocumentChunk", "text": "User: hi", "name": ""},
        "w": {"type": "Timestamp", "name": "2024-03"},
    }
    rows = {key: node_row(key, node) for key, node in nodes.items()}
    assert [rows[k].content for k in "pckw"] == ["ana: A vet", "porto", "User: hi", "2024-03"]
    assert [rows[k].kind for k in "pcktdw"] == ["entity", "entity", "chunk", "", "", "timestamp"]
    fact = edge_row(("p", "c", "lives_in", {"edge_text": "Ana lives in Porto"}), nodes)
    assert (fact.kind, fact.content) == ("fact", "ana --[lives_in]--> porto  (Ana lives in Porto)")
    assert edge_row(("p", "w", "moved_at", {}), nodes).content == "ana --[moved_at]--> 2024-03"
    assert edge_row(("k", "p", "contains", {"edge_text": "x"}), nodes).kind == ""
    assert edge_row(("p", "t", "is_a", {}), nodes).kind == ""


def test_an_event_is_one_text() -> None:
    options = CogneeOptions()
    assert _text(event("Hello"), options) == "User: Hello"
    assert _text(event("Hello", role="assistant"), options) is None
    both = CogneeOptions(store="both", dates=True)
    assert _text(event("Hi", role="assistant"), both) == (
        "This took place on 2023-05-08 18:31 UTC.\nAssistant: Hi"
    )
    document = DocumentEvent(text="Shut.", author="city", event_time=START, session_id="d")
    assert _text(document, options) == "[city, 2023-05-07 18:30] Shut."
    assert _text(session(1, "a"), options) == "User: a\nAssistant: Noted."
    with pytest.raises(UnsupportedEvent, match="lone surrogate at position"):
        _text(session(1, "no\ud83dthing"), options)
    with pytest.raises(UnsupportedEvent, match="role 'tool'"):
        _text(event("x", role="tool"), options)


def test_an_error_keeps_its_reason_through_the_librarys_wrapping() -> None:
    cause = CallFailed(Reason.TIMEOUT, "no answer")
    wrapped = RuntimeError("Embedding failed")
    wrapped.__cause__ = cause
    assert reason_of(wrapped, "cognify") is cause
    with pytest.raises(ValueError, match="Expecting") as unread:
        json.loads("{")
    found = reason_of(unread.value, "cognify")
    assert type(found) is AdapterError
    assert "cognify failed: JSONDecodeError" in str(found)


def test_lone_surrogates_of_an_answer_are_replaced() -> None:
    from pydantic import BaseModel

    class Graph(BaseModel):
        nodes: list[dict[str, str]]

    assert _clean(Graph(nodes=[{"name": "tea \ud83d"}])).nodes == [{"name": "tea \ufffd"}]
    whole = Graph(nodes=[{"name": "tea"}])
    assert _clean(whole) is whole
    assert _clean("a\udc00b") == "a\ufffdb"


async def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.memory.cognee_library.installed", lambda: True)
    with pytest.raises(MissingPrerequisite, match="--model"):
        await Cognee(Services(embedder=WordEmbedder())).open(scope())
    monkeypatch.setattr("adapters.memory.cognee_library.installed", lambda: False)
    store = Cognee(Services(embedder=WordEmbedder(), models=DEAD))
    with pytest.raises(MissingPrerequisite, match=r"pip install 'memprobe-audit\[cognee\]'"):
        await store.open(scope())
    for call in (store.dump(), store.search("x", 1), store.write(event("x"))):
        with pytest.raises(AdapterError, match="not open"):
            await call
    await asyncio.gather(store.close(), store.close())


def test_the_card_says_how_the_suite_reads_it() -> None:
    card = Cognee.card
    assert (card.extra, card.package, card.licence) == ("cognee", "cognee", "Apache-2.0")
    assert (card.process, card.probe_access, card.probe_k) == ("own", AccessMode.RETRIEVE, 15)
    assert card.capabilities.sessions
