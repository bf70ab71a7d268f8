"""The systems that keep every message: texts, order, protocol, retrieval."""

import asyncio
from datetime import UTC, datetime

import pytest

from adapters.memory.rag import bm25_scores, tokenize
from memprobe import AdapterError, DocumentEvent, UnsupportedEvent
from memprobe.ports import MemorySystem
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, event, opened, scope, two_episodes

STRICT = [
    "[Task 1] plan a trip",
    "Agent: where to?",
    "User: Lisbon, I hate heat",
    "Agent: go in March",
    "User: thanks",
    "[Task 2] write a poem",
    "Agent: roses are red",
    "User: lovely",
]


async def contents(system: MemorySystem) -> list[str]:
    return [item.content for item in await system.dump()]


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_strict_keeps_every_message_in_order(name: str) -> None:
    system = await opened(name)
    await two_episodes(system)
    assert await contents(system) == STRICT


async def test_rag_and_longctx_hold_the_same_items() -> None:
    full, rag = await opened("longctx_full"), await opened("rag")
    for system in (full, rag):
        await two_episodes(system)
    assert await full.dump() == await rag.dump()


async def test_paper_loses_the_last_reply_of_each_episode() -> None:
    system = await opened("longctx_full", protocol=Protocol.PAPER)
    await two_episodes(system)
    lost = {"Agent: go in March", "Agent: roses are red"}
    assert await contents(system) == [text for text in STRICT if text not in lost]
    found = await system.search("go in March roses are red", 8)
    assert lost.isdisjoint(item.content for item in found)


async def test_paper_shows_a_reply_once_the_episode_went_on() -> None:
    system = await opened("longctx_full", protocol=Protocol.PAPER)
    await system.write(event("plan a trip", turn=1))
    await system.write(event("where to?", role="assistant", turn=1))
    assert await contents(system) == ["[Task 1] plan a trip"]
    await system.write(event("Lisbon", turn=2))
    await system.write(event("go in March", role="assistant", turn=2))
    assert await contents(system) == [*STRICT[:2], "User: Lisbon"]


async def test_published_counts_of_a_user() -> None:
    # The released user_001: 31 tasks, 73 user notes, and 73 - 31 = 42 agent notes.
    system = await opened("longctx_full", protocol=Protocol.PAPER)
    turns = [2] * 20 + [3] * 11
    assert sum(turns) == 73
    for episode, n in enumerate(turns, 1):
        for turn in range(1, n + 1):
            await system.write(event(f"message {turn}", episode=episode, turn=turn))
            await system.write(event("reply", role="assistant", episode=episode, turn=turn))
        await system.write(event("bye", episode=episode, turn=n + 1))
    kinds = [item.fields["category"] for item in await system.dump()]
    assert [kinds.count(k) for k in ("task", "user_reply", "agent_reply")] == [31, 73, 42]


async def test_fields_number_tasks_and_turns() -> None:
    system = await opened("longctx_full")
    await two_episodes(system)
    items = await system.dump()
    assert items[0].fields == {"category": "task", "task_index": 1}
    assert items[1].fields == {"category": "agent_reply", "task_index": 1, "turn": 1}
    assert items[2].fields == {"category": "user_reply", "task_index": 1, "turn": 1}
    assert items[4].fields == {"category": "user_reply", "task_index": 1, "turn": 2}
    assert items[6].fields == {"category": "agent_reply", "task_index": 2, "turn": 1}


async def test_a_document_keeps_author_and_date() -> None:
    system = await opened("rag")
    when = datetime(2023, 5, 7, 9, tzinfo=UTC)
    await system.write(
        DocumentEvent(text="Rent rose.", author="Ana", event_time=when, session_id="s")
    )
    (item,) = await system.dump()
    assert item.content == "[Ana, 2023-05-07] Rent rose."
    assert item.event_time == when


async def test_a_role_it_does_not_know_is_refused() -> None:
    system = await opened("longctx_full")
    with pytest.raises(UnsupportedEvent, match="'system'"):
        await system.write(event("be nice", role="system"))
    assert await system.dump() == []


async def test_search_is_cosine_nearest_first() -> None:
    system = await opened("longctx_full")
    await two_episodes(system)
    found = await system.search("User: Lisbon, I hate heat", 3)
    assert found[0].content == "User: Lisbon, I hate heat"
    assert found[0].score == pytest.approx(1.0)
    scores = [item.score for item in found]
    assert scores == sorted(scores, key=lambda s: -(s or 0))
    assert len(found) == 3


async def test_equal_scores_keep_the_order_of_writing() -> None:
    system = await opened("longctx_full")
    for turn in range(1, 6):
        await system.write(event("same words", turn=turn, episode=0))
    found = await system.search("same words", 3)
    assert [item.id for item in found] == ["n000001", "n000002", "n000003"]


async def test_each_text_is_encoded_once() -> None:
    embedder = WordEmbedder()
    system = await opened("rag", embedder)
    await two_episodes(system)
    for _ in range(3):
        await system.search("where to go", 5)
    assert sorted(embedder.encoded) == sorted([*STRICT, *["where to go"] * 3])


async def test_a_failed_encoding_surfaces_and_is_tried_again() -> None:
    class Flaky(WordEmbedder):
        broken = True

        async def encode(self, texts: object) -> list[list[float]]:
            if self.broken:
                raise OSError("out of memory")
            return await super().encode(texts)  # type: ignore[arg-type]

    embedder = Flaky()
    system = await opened("longctx_full", embedder)
    await system.write(event("hello"))
    with pytest.raises(OSError, match="out of memory"):
        await system.search("hello", 1)
    embedder.broken = False
    assert [i.content for i in await system.search("hello", 1)] == ["[Task 1] hello"]


async def test_searches_side_by_side_do_not_mix_up_vectors() -> None:
    system = await opened("longctx_full")
    await two_episodes(system)
    answers = await asyncio.gather(*(system.search(text, 1) for text in STRICT))
    assert [items[0].content for items in answers] == STRICT


@pytest.mark.parametrize("name", ["nomem", "longctx_full", "rag"])
async def test_a_closed_store_refuses(name: str) -> None:
    system = await opened(name)
    await system.close()
    await system.close()
    for call in (system.dump(), system.search("x", 1), system.write(event("x"))):
        with pytest.raises(AdapterError, match="not open"):
            await call
    await system.open(scope())
    assert await system.dump() == []


async def test_a_store_is_not_opened_twice() -> None:
    system = await opened("rag")
    with pytest.raises(AdapterError, match="open already"):
        await system.open(scope("b"))


async def test_nomem_keeps_nothing() -> None:
    system = await opened("nomem")
    await two_episodes(system)
    assert await system.dump() == []
    assert await system.search("trip", 5) == []


def test_bm25_finds_rare_words_of_any_script() -> None:
    texts = ["the cat sat", "東京 の 天気", "the dog ran", "ÉCOLE le matin"]
    assert bm25_scores("東京", texts).argmax() == 1
    assert bm25_scores("école", texts).argmax() == 3
    assert bm25_scores("unheard", texts).tolist() == [0, 0, 0, 0]
    assert bm25_scores("?!", ["...", "!"]).tolist() == [0, 0]
    assert tokenize("It's 5°C") == ["it", "s", "5", "c"]


async def test_a_word_in_common_lifts_a_note() -> None:
    class Blind(WordEmbedder):
        async def encode(self, texts: object) -> list[list[float]]:
            return [[1.0] + [0.0] * 63 for _ in texts]  # type: ignore[attr-defined]

    system = await opened("rag", Blind())
    await two_episodes(system)
    (best,) = await system.search("anything about roses", 1)
    assert best.content == "Agent: roses are red"
    assert best.score == pytest.approx(1 / 61 + 1 / 67)
