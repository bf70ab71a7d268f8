"""A-MEM takes a session whole: one note, and under paper what the published run let through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.memory.amem import AMem
from memprobe import UnsupportedEvent
from memprobe.types import AccessMode, MemoryItem, Protocol, SessionEvent, SessionMessage
from tests.adapters.support import START, event
from tests.support.amem import (
    PAPER,
    STRICT,
    AmemBench,
    amem_bench,
    analysis,
    evolution,
    lines,
    new,
    snapshot,
)

BOTH = pytest.mark.parametrize("protocol", [STRICT, PAPER])
TEXT = "User: I moved to {town}.\nAssistant: Noted.\nTool output: saved"


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AmemBench]:
    async with amem_bench(new(tmp_path / "ledger"), monkeypatch) as made:
        yield made


def session(number: int, town: str, label: str = "perturbation") -> SessionEvent:
    said = (("user", f"I moved to {town}."), ("assistant", "Noted."), ("tool_output", "saved"))
    return SessionEvent(
        messages=tuple(SessionMessage(role=role, text=text) for role, text in said),
        event_time=START + timedelta(days=number),
        session_id=f"s{number:04d}",
        label=label,
    )


async def two(bench: AmemBench, protocol: Protocol, label: str = "perturbation") -> AMem:
    """A store of two sessions, the second of which changed nothing."""
    store = await bench.store(protocol)
    bench.say(analysis(["Porto"], "A move.", ["home"]))
    bench.say(analysis(["Lisbon"], "Another move.", ["home"]), evolution())
    for number, town in enumerate(("Porto", "Lisbon"), 1):
        await store.write(session(number, town, label))
    return store


def native(item: MemoryItem, *names: str) -> tuple[object, ...]:
    return tuple(item.fields[name] for name in names)


@BOTH
async def test_a_session_is_one_note(bench: AmemBench, protocol: Protocol) -> None:
    store = await two(bench, protocol)
    first, second = await store.dump()
    assert (first.content, second.content) == (
        TEXT.format(town="Porto"),
        TEXT.format(town="Lisbon"),
    )
    assert first.event_time == START + timedelta(days=1)
    assert native(first, "timestamp", "keywords", "context") == (
        "202305081830",
        ["Porto"],
        "A move.",
    )
    assert len(bench.bodies) == 3
    assert lines(bench.asked())[0]["content"] == first.content


async def test_strict_files_a_session_under_what_is_in_it(bench: AmemBench) -> None:
    store = await two(bench, STRICT)
    assert [native(i, "category", "tags") for i in await store.dump()] == [
        ("session", ["home"])
    ] * 2
    found = await store.search("Porto", 15)
    assert {i.content for i in found} == {TEXT.format(town=town) for town in ("Porto", "Lisbon")}
    assert "perturbation" not in "".join(i.model_dump_json() for i in found)
    assert all("perturbation" not in str(body) for body in bench.bodies)


async def test_as_published_its_type_reaches_the_reader(bench: AmemBench) -> None:
    store = await two(bench, PAPER)
    assert [native(i, "category", "tags") for i in await store.dump()] == [
        ("perturbation", ["perturbation"])
    ] * 2
    found = {i.content for i in await store.search("Porto", 15)}
    assert found == {
        f"time: 2023050{day}1830\tcontent: {TEXT.format(town=town)}\tcontext: {context}\t"
        f"keywords: {town}\ttags: perturbation"
        for day, town, context in ((8, "Porto", "A move."), (9, "Lisbon", "Another move."))
    }
    assert lines(bench.asked())[0]["tags"] == ["perturbation"]


async def test_as_published_an_evolution_replaces_the_type(bench: AmemBench) -> None:
    store = await two(bench, PAPER)
    bench.say(
        analysis(["Faro"], "A third.", ["home"]), evolution("strengthen", tags_to_update=["x"])
    )
    await store.write(session(3, "Faro"))
    *_, third = await store.dump()
    assert native(third, "category", "tags") == ("perturbation", ["x"])


async def test_under_paper_a_session_without_a_type_shows_none(bench: AmemBench) -> None:
    store = await two(bench, PAPER, label="")
    assert [native(i, "category", "tags") for i in await store.dump()] == [
        ("session", ["home"])
    ] * 2
    assert all(i.content.endswith("\ttags: home") for i in await store.search("Porto", 15))


@BOTH
async def test_sessions_are_saved_and_messages_as_before(
    bench: AmemBench, tmp_path: Path, protocol: Protocol
) -> None:
    store = await two(bench, protocol)
    await store.write(event("a message", episode=9))
    parts = await snapshot(store, tmp_path / "a")
    *_, last = parts["notes.jsonl"].decode().splitlines()
    assert "whole" not in last
    restored = await bench.store(protocol, name="b")
    await restored.restore(tmp_path / "a")
    assert await restored.search("Porto", 15) == await store.search("Porto", 15)
    assert await snapshot(restored, tmp_path / "b") == parts
    (message,) = [i for i in await restored.search("a message", 15) if "a message" in i.content]
    assert message.content == "a message"


async def test_a_session_that_is_no_unicode_is_refused(bench: AmemBench) -> None:
    store = await bench.store()
    with pytest.raises(UnsupportedEvent, match="lone surrogate"):
        await store.write(session(1, "\ud83d"))
    assert await store.dump() == []


def test_the_suite_reads_fifteen_notes() -> None:
    card = AMem.card
    assert (card.probe_access, card.probe_k) == (AccessMode.RETRIEVE, 15)
    assert card.capabilities.sessions
