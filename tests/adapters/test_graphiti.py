"""graphiti's real library behind its port, in processes of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.memory.contract.network import NetworkGuard
from adapters.memory.external import version_of
from adapters.memory.guard import fingerprint
from memprobe.errors import AdapterError, CallFailed, SnapshotError, UnsupportedEvent
from memprobe.outcomes import Reason
from memprobe.types import DocumentEvent, MemoryItem, Protocol
from tests.adapters.graphiti_site import Site, forms, prompts, session, site
from tests.adapters.support import START, event
from tests.support.fake_server import FakeServer

if version_of("graphiti-core") is None or version_of("kuzu") is None:
    pytest.skip("pip install 'memprobe-audit[graphiti]'", allow_module_level=True)

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEA = "My favourite tea is Oolong from Taiwan."
OTHER_TEA = "My favourite tea is Sencha."
PARTS = ("graph.kuzu.z", "state.json", "snapshot.json")
PORTO = "I live in Porto and I walk along the river."


@pytest.fixture(scope="module")
def running() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def server(running: FakeServer) -> FakeServer:
    running.seen.clear()
    return running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(
    running: FakeServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(home))
        async with site(tmp_path_factory.mktemp("run"), running, patch) as made:
            yield made
        # Telemetry would keep an identifier there.
        assert list(home.rglob("*graphiti*")) == []


@pytest_asyncio.fixture(loop_scope="module")
async def here(place: Site) -> AsyncIterator[Site]:
    yield place
    await place.close_stores()


def kind(items: list[MemoryItem], name: str) -> list[MemoryItem]:
    return [item for item in items if item.fields["category"] == name]


async def test_sessions_become_facts_entities_and_episodes(here: Site, server: FakeServer) -> None:
    store = await here.store("graph")
    await store.write(session(1, TEA, PORTO))
    items = await store.dump()
    facts, entities, episodes = (kind(items, k) for k in ("fact", "entity", "episode"))
    assert [*facts, *entities, *episodes] == items
    when = START + timedelta(days=1)
    since = f" (since {when.date()})"
    assert [f.content for f in facts] == [f"User says: {TEA}{since}", f"User says: {PORTO}{since}"]
    assert facts[0].fields == {
        "category": "fact",
        "relation": "SPEAKS_OF",
        "source": "User",
        "target": "Oolong",
        "valid_at": when.isoformat(),
        "invalid_at": None,
        "expired_at": None,
        "sessions": ["s0001"],
        "session_id": "s0001",
        "operations": [{"operation": "created", "session_id": "s0001"}],
    }
    assert {e.fields["name"] for e in entities} == {"User", "Oolong", "Porto", "Assistant"}
    (episode,) = episodes
    assert episode.content == f"User: {TEA}\nAssistant: Noted.\nUser: {PORTO}\nAssistant: Noted."
    assert episode.fields["source_description"] == "conversation"
    assert {item.event_time for item in items} == {when}
    assert len({item.id for item in items}) == len(items)
    asked = server.chats[0].body
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("mock", 0.0, 16384)
    assert {seen.path for seen in server.seen} == {"/v1/chat/completions"}


async def test_a_fact_that_is_contradicted_ends_and_both_sessions_are_told(here: Site) -> None:
    store = await here.store("change")
    await store.write(session(1, TEA))
    await store.write(session(2, PORTO))
    await store.write(session(3, OTHER_TEA))
    old, _, new = kind(await store.dump(), "fact")
    first, last = (START + timedelta(days=n) for n in (1, 3))
    assert old.content.endswith(f" (from {first.date()} until {last.date()})")
    assert old.event_time == first
    # The moment at which it ended is the session's, not that of this test.
    assert old.fields["invalid_at"] == old.fields["expired_at"] == last.isoformat()
    assert old.fields["operations"] == [
        {"operation": "created", "session_id": "s0001"},
        {"operation": "invalidated", "session_id": "s0003"},
    ]
    assert new.fields["expired_at"] is None
    await store.write(session(4, OTHER_TEA))
    *_, again = kind(await store.dump(), "fact")
    assert again.id == new.id
    assert again.fields["sessions"] == ["s0003", "s0004"]
    assert again.fields["operations"] == [
        {"operation": "created", "session_id": "s0003"},
        {"operation": "repeated", "session_id": "s0004"},
    ]


async def test_a_search_gives_facts_best_first(here: Site, server: FakeServer) -> None:
    store = await here.store("search")
    await store.write(session(1, TEA, PORTO, OTHER_TEA))
    asked = len(server.chats)
    found = await store.search("favourite Oolong tea", 2)
    assert found[0].content.startswith("User says: My favourite tea is Oolong")
    assert (found[0].fields["source"], found[0].fields["target"]) == ("User", "Oolong")
    scores = [item.score for item in found]
    assert None not in scores
    assert scores == sorted(scores, key=float, reverse=True)
    assert len(await store.search("favourite tea", 1)) == 1
    for nothing in ("", "  \n", "zzz unheard-of", "??? (\"' AND *"):
        assert kind(await store.search(nothing, 3), "episode") == []
    assert await store.search("  ", 3) == []
    # The library leaves words out above 128 of them; what is near is found all the same.
    assert await store.search(f"User says: {TEA} " * 40, 3) != []
    assert len(server.chats) == asked, "a search asks no model"


async def test_the_label_of_a_session_is_told_under_paper_only(
    here: Site, server: FakeServer
) -> None:
    store = await here.store("label")
    await store.write(session(1, TEA, label="perturbation"))
    assert "perturbation" not in str(await store.dump())
    assert "perturbation" not in prompts(server)
    store = await here.store("label_paper", Protocol.PAPER)
    await store.write(session(1, TEA, label="perturbation"))
    items = await store.dump()
    (fact,), (episode,) = kind(items, "fact"), kind(items, "episode")
    assert episode.fields["source_description"] == "perturbation"
    # The publication's reader saw bare facts.
    assert fact.content == f"User says: {TEA}"
    assert fact.fields["valid_at"] is not None


async def test_messages_and_documents_are_episodes(here: Site, server: FakeServer) -> None:
    store = await here.store("messages")
    await store.write(event(PORTO))
    await store.write(event("The Douro is the river of Porto.", role="assistant"))
    when = datetime(2024, 3, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    document = DocumentEvent(
        text="The Arrabida bridge is closed.", author="city", event_time=when, session_id="d1"
    )
    await store.write(document)
    first, second = kind(await store.dump(), "episode")
    assert (first.content, first.event_time) == (f"User: {PORTO}", event(PORTO).event_time)
    assert second.content == "[city, 2024-03-01] The Arrabida bridge is closed."
    assert second.fields["source"] == "text"
    # kuzu keeps no zones: the moment is the same all the same.
    assert second.event_time == when
    assert "Douro" not in prompts(server)
    with pytest.raises(UnsupportedEvent, match="role 'system'"):
        await store.write(event("x", role="system"))
    with pytest.raises(UnsupportedEvent, match="lone surrogate at position 7"):
        await store.write(event("broken \ud83d"))
    both = await here.store("both", store="both")
    await both.write(event("The Douro is the river of Porto.", role="assistant"))
    (episode,) = kind(await both.dump(), "episode")
    assert episode.content == "Assistant: The Douro is the river of Porto."


# The words of each are its own, or an answer from before would come out of the ledger.
MALFORMED = [
    ("Lighthouse", "ExtractedEntities", 0, "I found the user and some tea."),
    ("Windmill", "ExtractedEntities", 0, '{"entities": []}'),
    ("Harbour", "ExtractedEntities", 0, "[]"),
    ("Foundry", "ExtractedEdges", 1, '{"edges": [{"fact": "x"}]}'),
    # The library passes over these two with a line in its log.
    ("Chapel", "EdgeTimestamps", 2, "yesterday"),
    ("Viaduct", "EdgeTimestamps", 2, '{"since": "yesterday"}'),
]


@pytest.mark.parametrize(("word", "form", "order", "text"), MALFORMED)
async def test_an_answer_that_cannot_be_read_is_an_error_with_a_name(
    word: str, form: str, order: int, text: str, here: Site, server: FakeServer
) -> None:
    store = await here.store(f"malformed_{word}")
    server.script(*[None] * order, {"mode": "", "content": text})
    with pytest.raises(CallFailed, match=f"graphiti: no {form} in the answer") as caught:
        await store.write(session(1, f"I keep bees behind the {word}.", replies=False))
    assert caught.value.reason is Reason.INVALID_OUTPUT
    assert forms(server)[order] == form
    assert forms(server).count(form) == 1, "the same question is not asked again"
    here.ledger.flush()
    rows = [row["call_id"] for row in here.ledger.calls("test")]
    assert any(str(row).startswith(str(caught.value.call_id)) for row in rows)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("truncated", Reason.TRUNCATED),
        ("refusal", Reason.REFUSAL),
        ("content_policy", Reason.REFUSAL),
    ],
)
async def test_what_the_model_did_instead_is_told(
    mode: str, reason: Reason, here: Site, server: FakeServer
) -> None:
    store = await here.store(f"instead_{mode}")
    server.script(mode)
    with pytest.raises(CallFailed) as caught:
        await store.write(session(1, f"I once saw the {mode} of Lisbon."))
    assert caught.value.reason is reason
    assert await store.dump() == []
    await store.write(session(2, PORTO))
    assert len(kind(await store.dump(), "episode")) == 1


async def test_under_paper_a_lost_session_is_passed_over(here: Site, server: FakeServer) -> None:
    store = await here.store("paper", Protocol.PAPER)
    server.script({"mode": "", "content": "no JSON at all"})
    await store.write(session(1, "I keep bees behind the Brewery."))
    assert await store.dump() == []
    await store.write(session(2, PORTO))
    assert len(kind(await store.dump(), "episode")) == 1


async def test_vectors_that_fail_are_an_error(here: Site) -> None:
    store = await here.store("poison")
    with pytest.raises(AdapterError, match="the embedder failed: RuntimeError: the embedder is"):
        await store.write(session(1, "My cellar holds Arsenic, a poison."))
    with pytest.raises(AdapterError, match="out of order"):
        await store.search("poison", 3)


async def test_a_restored_store_is_the_same_and_goes_on_with_the_same_prompts(
    here: Site, server: FakeServer, tmp_path: Path
) -> None:
    store = await here.store("saved")
    for number, said in enumerate((TEA, PORTO, "I walk Rex daily.", OTHER_TEA), 1):
        await store.write(session(number, said))
    folder = tmp_path / "snapshot"
    folder.mkdir()
    before = await store.dump()
    await store.save(folder)
    assert await store.dump() == before
    found = await store.search("favourite tea", 5)
    assert sum(f.stat().st_size for f in folder.iterdir()) < 2_000_000
    await store.write(session(5, "My favourite tea is Darjeeling.", "I walk Rex at night."))
    after = await store.dump()
    asked = len(server.chats)
    restored = await here.store("restored")
    await restored.restore(folder)
    assert await restored.dump() == before
    assert await restored.search("favourite tea", 5) == found
    await restored.write(session(5, "My favourite tea is Darjeeling.", "I walk Rex at night."))
    assert await restored.dump() == after
    assert len(server.chats) == asked, "every prompt was known: none differs by a byte"
    with pytest.raises(SnapshotError, match="only an empty store"):
        await restored.restore(folder)


async def test_equal_sessions_give_equal_stores_whatever_is_searched_between(
    here: Site, server: FakeServer
) -> None:
    events = [session(n, f"My favourite tea is Tea{n}.", f"Note {n} is Red.") for n in range(1, 8)]
    one, two = await here.store("one"), await here.store("two")
    for each in events:
        await one.write(each)
    asked = len(server.chats)
    for each in events:
        await two.search("favourite tea", 1)
        await two.write(each)
    assert len(server.chats) == asked
    assert await one.dump() == await two.dump()
    assert fingerprint(await one.dump()) == fingerprint(await two.dump())


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (PARTS[1], lambda raw: raw + b" ", "does not match the hash"),
        (PARTS[0], None, "is missing"),
        (PARTS[2], lambda raw: raw.replace(b'"count": ', b'"count": 9'), "rows announced"),
    ],
)
async def test_a_snapshot_that_is_not_whole_is_refused(
    name: str, change: Any, said: str, here: Site, tmp_path: Path
) -> None:
    store = await here.store("whole")
    await store.write(session(1, TEA))
    await store.save(tmp_path)
    path = tmp_path / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    other = await here.store("other")
    with pytest.raises(SnapshotError, match=said):
        await other.restore(tmp_path)


SABOTAGED = """
from adapters.memory.graphiti import Graphiti

class Sabotaged(Graphiti):
    card = Graphiti.card.model_copy(update={"name": "sabotaged"})
    async def write(self, event):
        if event.text.startswith("User: Cypher "):
            query = event.text.removeprefix("User: Cypher ")
            await self._engine._driver.execute_query(query)
            return
        await super().write(event)
"""


@pytest.mark.parametrize(
    "query",
    [
        "MATCH (n:RelatesToNode_) DETACH DELETE n",
        "MATCH (n:RelatesToNode_)-[r:RELATES_TO]->(m:Entity) DELETE r",
        "MATCH (n:Entity) SET n.group_id = 'elsewhere'",
        "CREATE (n:Community {uuid: 'c', group_id: 'memprobe'})",
    ],
)
async def test_a_dump_that_is_not_all_is_an_error(query: str, here: Site, tmp_path: Path) -> None:
    path = tmp_path / "sabotaged.py"
    path.write_text(SABOTAGED)
    store = await here.store("sabotaged", system=f"{path}:Sabotaged")
    await store.write(session(1, TEA))
    assert len(await store.dump()) == 5
    await store.write(session(2, f"Cypher {query}", replies=False))
    with pytest.raises(AdapterError, match="the dump is not complete"):
        await store.dump()


async def test_nothing_is_reached_for_beyond_loopback_and_no_key_is_kept(
    here: Site, tmp_path: Path
) -> None:
    with NetworkGuard() as guard:
        store = await here.store("network")
        await store.write(session(1, TEA))
        await store.search("tea", 3)
        await store.save(tmp_path)
        await store.close()
    assert guard.attempts == []
    key = store._services.models.api_key  # type: ignore[union-attr]
    files = {name: (tmp_path / name).read_bytes() for name in PARTS}
    assert not any(key.encode() in raw for raw in files.values())
    assert json.loads(files["snapshot.json"])["system"] == "graphiti"


async def test_times_are_utc(here: Site) -> None:
    store = await here.store("zones")
    east = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    await store.write(session(1, TEA, at=east))
    (fact,) = kind(await store.dump(), "fact")
    assert fact.event_time == east
    assert fact.fields["valid_at"] == east.astimezone(UTC).isoformat()
