"""The baselines that keep whole sessions: what is one item, what is found, what comes back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.memory.registry import BUILT_IN, Registry
from adapters.memory.sessions import (
    BASELINES,
    FullContext,
    NaiveRag,
    Recency,
    SessionStore,
    TimeAwareRag,
    keyword_share,
    keywords,
)
from adapters.memory.snapshots import INDEX
from memprobe.errors import AdapterError, SnapshotError, UnsupportedEvent
from memprobe.types import (
    AccessMode,
    DocumentEvent,
    MessageEvent,
    Scope,
    SessionEvent,
    SessionMessage,
)
from tests.adapters.support import WordEmbedder

START = datetime(2025, 3, 3, 9, tzinfo=UTC)
SCOPE = Scope(run="r", system="s", user="int_01a", key="k")


def session(number: int, *said: tuple[str, str], label: str = "") -> SessionEvent:
    return SessionEvent(
        messages=tuple(SessionMessage(role=role, text=text) for role, text in said),
        event_time=START + timedelta(days=number),
        session_id=f"s{number:04d}",
        label=label,
    )


def message(number: int, minute: int, role: str, text: str) -> MessageEvent:
    when = START + timedelta(days=number, minutes=minute)
    return MessageEvent(role=role, text=text, event_time=when, session_id=f"s{number:04d}")


async def opened(cls: type[SessionStore] = FullContext) -> SessionStore:
    store = cls()
    await store.open(SCOPE)
    return store


async def test_a_session_is_one_item_without_its_label() -> None:
    store = await opened()
    said = (("user", "Which pool?"), ("assistant", "None."), ("tool_output", "pool: shut\nat 9"))
    await store.write(session(1, *said, label="filler_near_miss"))
    (item,) = await store.dump()
    assert item.content == "User: Which pool?\nAssistant: None.\nTool output: pool: shut\nat 9"
    assert item.event_time == START + timedelta(days=1)
    assert item.fields == {"session_id": "s0001"}
    assert "near_miss" not in item.model_dump_json()


async def test_messages_make_the_same_session_as_one_write() -> None:
    """Two sessions told in turns stay two, each in its order and at the time of its beginning."""
    whole, told = await opened(), await opened()
    await whole.write(session(1, ("user", "a"), ("assistant", "b"), ("tool_output", "c")))
    await whole.write(session(2, ("user", "d")))
    for event in (
        message(1, 0, "user", "a"),
        message(2, 0, "user", "d"),
        message(1, 5, "assistant", "b"),
        message(1, 6, "tool_output", "c"),
    ):
        await told.write(event)
    assert await told.dump() == await whole.dump()


async def test_documents_and_whole_sessions_are_never_joined() -> None:
    store = await opened()
    document = DocumentEvent(text="The lift.", author="Ana", event_time=START, session_id="s0001")
    await store.write(document)
    await store.write(document)
    await store.write(session(1, ("user", "a")))
    await store.write(message(1, 0, "user", "b"))
    await store.write(session(1, ("user", "c")))
    await store.write(message(1, 1, "user", "d"))
    assert [item.content for item in await store.dump()] == [
        "[Ana, 2025-03-03] The lift.",
        "[Ana, 2025-03-03] The lift.",
        "User: a",
        "User: b\nUser: d",
        "User: c",
    ]


async def test_what_cannot_be_kept_is_refused_and_leaves_no_trace() -> None:
    store = await opened()
    for event in (
        message(1, 0, "system", "be brief"),
        session(1, ("user", "fine"), ("narrator", "she left")),
        message(1, 0, "user", "broken \ud83d tail"),
        session(1, ("user", "fine"), ("assistant", "\udc00")),
    ):
        with pytest.raises(UnsupportedEvent):
            await store.write(event)
    assert await store.dump() == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("What is the pool I swim at now?", {"pool", "swim"}),
        ("Did the user's POOL change to 11 PM or 250 ms?", {"user", "pool", "change", "250"}),
        ("Où nage-t-elle ? Bains d'été", {"nage", "elle", "bains", "été"}),
        ("Is it so?", set()),
    ],
)
def test_keywords_are_words_of_three_letters_that_are_no_stop_words(
    query: str, words: set[str]
) -> None:
    assert keywords(query) == words


def test_a_keyword_counts_as_a_substring_in_any_case() -> None:
    wanted = frozenset({"pool", "swim"})
    assert keyword_share(wanted, "Whirlpools") == 0.5
    assert keyword_share(wanted, "SWIMMING at the Pool") == 1
    assert keyword_share(wanted, "tides") == 0
    assert keyword_share(frozenset(), "pool") == 0


async def filled(cls: type[SessionStore]) -> SessionStore:
    store = await opened(cls)
    texts = ("tides", "a pool", "a swim in the pool", "ferns", "the pool", "soup", "swimming")
    for number, text in enumerate(texts, 1):
        await store.write(session(number, ("user", text)))
    return store


@pytest.mark.parametrize("cls", [NaiveRag, TimeAwareRag])
async def test_the_best_share_comes_first_and_the_earlier_of_equals(
    cls: type[SessionStore],
) -> None:
    found = await (await filled(cls)).search("Which pool do I swim in?", 5)
    assert [item.id for item in found] == ["s0003", "s0002", "s0005", "s0007", "s0001"]
    assert [item.score for item in found] == [1, 0.5, 0.5, 0.5, 0]


async def test_recency_gives_the_last_whatever_is_asked() -> None:
    store = await filled(Recency)
    for query in ("pool", "tides", ""):
        found = await store.search(query, Recency.card.probe_k)
        assert [item.id for item in found] == ["s0007", "s0006", "s0005", "s0004", "s0003"]


async def test_fewer_than_one_item_cannot_be_asked_for() -> None:
    with pytest.raises(AdapterError, match="k is 0"):
        await (await filled(NaiveRag)).search("pool", 0)


async def test_a_restored_store_goes_on_with_the_session_that_was_begun(tmp_path: Path) -> None:
    store, other = await filled(NaiveRag), await opened(NaiveRag)
    last = message(9, 1, "assistant", "line\u2028separator\nand more")
    await store.write(message(9, 0, "user", "and now"))
    await store.save(tmp_path)
    await other.restore(tmp_path)
    for one in (store, other):
        await one.write(last)
    assert await other.dump() == await store.dump()
    assert len(await other.dump()) == 8
    assert await other.search("swim", 3) == await store.search("swim", 3)


async def test_a_snapshot_of_another_baseline_or_a_changed_one_is_refused(tmp_path: Path) -> None:
    await (await filled(NaiveRag)).save(tmp_path)
    with pytest.raises(SnapshotError, match="naive_rag"):
        await (await opened(Recency)).restore(tmp_path)
    with pytest.raises(SnapshotError, match="empty"):
        await (await filled(NaiveRag)).restore(tmp_path)
    part = tmp_path / "sessions.jsonl"
    part.write_bytes(part.read_bytes().replace(b"tides", b"rides"))
    with pytest.raises(SnapshotError, match=INDEX):
        await (await opened(NaiveRag)).restore(tmp_path)


def test_each_is_built_in_with_the_published_reading() -> None:
    registry = Registry(WordEmbedder())
    cards = {name: registry.card(name) for name in BASELINES}
    assert set(cards) <= set(BUILT_IN)
    everything = (AccessMode.DUMP_ALL, 15)
    best = (AccessMode.RETRIEVE, 5)
    assert {name: (card.probe_access, card.probe_k) for name, card in cards.items()} == {
        "full_context": everything,
        "naive_rag": best,
        "time_aware_rag": best,
        "recency": best,
        "oracle_rag": everything,
        "latest_value": everything,
        "always_update": everything,
        "always_preserve": everything,
    }
    both = {name for name, card in cards.items() if card.suites == ("recovery", "paradigms")}
    assert both == {"full_context", "naive_rag", "time_aware_rag", "recency"}
    assert {name for name, card in cards.items() if card.sees_gold == "none"} == both
    assert cards["oracle_rag"].sees_gold == "sessions"
    for card in cards.values():
        assert not card.capabilities.needs_llm
        assert not card.capabilities.needs_embedder
        assert any("reference" in note for note in card.notes)
