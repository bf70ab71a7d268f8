"""MemoryOS's snapshots, restores and replays: a restart loses nothing, heat included."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.memory.contract.bench import marker
from adapters.memory.memoryos import MemoryOS
from adapters.memory.memoryos.snapshot import PARTS
from adapters.memory.snapshots import INDEX
from memprobe.errors import SnapshotError
from memprobe.types import Event, Protocol
from tests.adapters.support import WordEmbedder
from tests.support import fake_memory_memoryos as fake
from tests.support.memoryos import (
    PAPER,
    STRICT,
    MemoryOSBench,
    message,
    new,
    of,
    said,
    saved,
    serving,
    snapshot,
)

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("protocol", [STRICT, PAPER])
TOPICS = ("rope of the boat", "sail of the boat", "basil for the sauce", "harbour at night")
RELOAD = """
import asyncio, json, sys
from pathlib import Path
from adapters.memory.memoryos import MemoryOS
from memprobe.systems import ModelAccess, Services
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, scope

async def main(folder, protocol):
    embedder = WordEmbedder()
    access = ModelAccess("http://127.0.0.1:9/v1", "none", "m", "e")
    store = MemoryOS(Services(embedder, Protocol(protocol), access))
    await store.open(scope())
    await store.restore(Path(folder))
    encoded = len(embedder.encoded)
    dump = [item.model_dump(mode="json") for item in await store.dump()]
    found = [item.model_dump(mode="json") for item in await store.search("boat", 15)]
    await store.close()
    print(json.dumps({"dump": dump, "found": found, "encoded": encoded}))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def bench() -> Iterator[MemoryOSBench]:
    with serving() as made:
        yield made


def life(first: int, last: int) -> list[Event]:
    """An episode a number: a session, then messages of which the last gets no answer."""
    found: list[Event] = []
    for number in range(first, last + 1):
        topic = TOPICS[number % len(TOPICS)]
        found.append(said(number, f"My {topic}, number {number}"))
        found.append(message(f"The {topic} again", episode=number, turn=1))
        found.append(message("Tell me more.", role="assistant", episode=number, turn=1))
        found.append(message(f"Thanks for the {topic}", episode=number, turn=2))
    return found


async def live(store: MemoryOS, first: int, last: int) -> None:
    """Write, and read after each episode: reading changes the store, too."""
    for event in life(first, last):
        await store.write(event)
        if isinstance(event.session_id, str) and event.text.startswith("Thanks"):
            await store.search("my boat and its rope", 5)


@BOTH
async def test_equal_stores_give_equal_bytes(
    bench: MemoryOSBench, tmp_path: Path, protocol: Protocol
) -> None:
    first, second = [await bench.store(protocol, name=n) for n in "ab"]
    for store in (first, second):
        await live(store, 1, 4)
    bytes_of = await snapshot(first, tmp_path / "a")
    assert await snapshot(second, tmp_path / "b") == bytes_of
    assert set(bytes_of) == {INDEX, *PARTS}
    again = await bench.store(protocol, name="c")
    await again.restore(tmp_path / "a")
    assert await snapshot(again, tmp_path / "c") == bytes_of


@BOTH
async def test_a_restart_loses_nothing(
    bench: MemoryOSBench, tmp_path: Path, protocol: Protocol
) -> None:
    """The store of an interrupted run ends as that of one that was not, by the same prompts."""
    whole = await bench.store(protocol, name="whole")
    await live(whole, 1, 7)
    asked = [seen.body["messages"] for seen in bench.server.chats]

    early = await bench.store(protocol, name="early")
    await live(early, 1, 4)
    await snapshot(early, tmp_path / "checkpoint")
    before = len(bench.server.chats)
    # Killed in the middle of the fifth episode; what it wrote since is lost.
    for event in life(5, 5)[:3]:
        await early.write(event)
    await early.close()

    embedder = WordEmbedder()
    resumed = await bench.store(protocol, embedder=embedder, name="resumed")
    await resumed.restore(tmp_path / "checkpoint")
    assert embedder.encoded == []
    start = len(bench.server.chats)
    await live(resumed, 5, 7)
    again = [seen.body["messages"] for seen in bench.server.chats[start:]]
    done = before - len(asked)
    assert sorted(map(json.dumps, again)) == sorted(map(json.dumps, asked[done:]))
    assert await resumed.dump() == await whole.dump()
    assert await resumed.search("my boat", 15) == await whole.search("my boat", 15)
    assert await snapshot(resumed, tmp_path / "r") == await snapshot(whole, tmp_path / "w")
    # All that a restart could lose is there: heat, visits, links, a profile, a waiting message.
    segments = await of(whole, "segment_summary")
    assert any(s.fields["N_visit"] for s in segments)
    assert len({s.fields["H_segment"] for s in segments}) > 1
    assert any(p.fields["pre_page"] for p in await of(whole, "page"))
    assert await of(whole, "profile")
    assert await of(whole, "user_knowledge")
    assert not (await of(whole, "short_term"))[-1].fields["answered"]


@BOTH
async def test_a_new_process_finds_the_same_store(
    bench: MemoryOSBench, tmp_path: Path, protocol: Protocol
) -> None:
    store = await bench.store(protocol)
    await live(store, 1, 3)
    await snapshot(store, tmp_path / "a")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RELOAD, str(tmp_path / "a"), protocol.value),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    told = json.loads(out)
    assert told["encoded"] == 0
    assert told["dump"] == [item.model_dump(mode="json") for item in await store.dump()]
    found = [item.model_dump(mode="json") for item in await store.search("boat", 15)]
    assert told["found"] == found


async def test_an_empty_store_can_be_saved_and_restored(
    bench: MemoryOSBench, tmp_path: Path
) -> None:
    bytes_of = await snapshot(await bench.store(), tmp_path / "a")
    restored = await bench.store(name="b")
    await restored.restore(tmp_path / "a")
    assert await restored.dump() == []
    assert await snapshot(restored, tmp_path / "b") == bytes_of


async def test_only_an_empty_store_can_be_restored(bench: MemoryOSBench, tmp_path: Path) -> None:
    store = await bench.store()
    await store.write(message("x"))
    await snapshot(store, tmp_path / "a")
    with pytest.raises(SnapshotError, match="empty"):
        await store.restore(tmp_path / "a")


async def test_a_smaller_short_term_memory_moves_the_rest_on(
    bench: MemoryOSBench, tmp_path: Path
) -> None:
    wide = await bench.store(short_term_capacity=6, heat_threshold=99)
    for number in range(1, 6):
        await wide.write(said(number, f"topic{number}"))
    await snapshot(wide, tmp_path / "a")
    narrow = await bench.store(name="b", short_term_capacity=2, heat_threshold=99)
    await narrow.restore(tmp_path / "a")
    await narrow.write(said(6, "topic6"))
    assert [i.content.split()[1] for i in await of(narrow, "short_term")] == ["topic5", "topic6"]
    moved = {str(i.fields["page_id"]) for i in await of(narrow, "page")}
    assert moved == {f"page_0000{n}" for n in range(1, 5)}


async def test_a_part_that_is_missing_or_torn_is_an_error(
    bench: MemoryOSBench, tmp_path: Path
) -> None:
    store = await bench.store()
    await live(store, 1, 2)
    whole = tmp_path / "whole"
    await snapshot(store, whole)
    for part in (*PARTS, INDEX):
        for fault in ("missing", "torn"):
            folder = shutil.copytree(whole, tmp_path / f"{part}_{fault}")
            if fault == "missing":
                (folder / part).unlink()
            else:
                (folder / part).write_bytes((folder / part).read_bytes()[:-3] + b"x")
            broken = await bench.store(name="broken")
            with pytest.raises(SnapshotError):
                await broken.restore(folder)
            assert await broken.dump() == []
            await broken.close()


def forged(parts: dict[str, bytes], folder: Path) -> Path:
    """A snapshot of these parts whose hashes hold."""
    new(folder)
    for name, raw in parts.items():
        (folder / name).write_bytes(raw)
    index = json.loads(parts[INDEX])
    index["parts"] = {n: hashlib.sha256(saved(folder)[n]).hexdigest() for n in index["parts"]}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    return folder


async def test_parts_of_two_snapshots_do_not_pass_for_one(
    bench: MemoryOSBench, tmp_path: Path
) -> None:
    store = await bench.store()
    await live(store, 1, 2)
    one = await snapshot(store, tmp_path / "one")
    await live(store, 3, 3)
    two = await snapshot(store, tmp_path / "two")
    index = {name: one[name] for name in ("texts.jsonl", "vectors.npy")}
    state = json.loads(two["state.json"])
    unplaced = {**state, "segments": state["segments"][:-1]}
    mixed = {
        "index": {**two, **index},
        "unplaced": {**two, "state.json": json.dumps(unplaced).encode()},
        "no_state": {**two, "state.json": b"{}"},
        "count": {**two, INDEX: two[INDEX].replace(b'"count": ', b'"count": 1')},
    }
    for name, parts in mixed.items():
        with pytest.raises(SnapshotError):
            await (await bench.store(name=name)).restore(forged(parts, tmp_path / name))


async def test_stores_written_at_once_keep_apart(bench: MemoryOSBench) -> None:
    stores = [await bench.store(name=f"user{n}") for n in range(3)]

    async def one(number: int) -> None:
        for turn in range(1, 7):
            text = f"My locker {turn} has the code {marker(f'mos{number}', turn)}"
            await stores[number].write(said(turn, text))

    await asyncio.gather(*(one(n) for n in range(3)))
    for number, store in enumerate(stores):
        text = "\n".join(item.content for item in await store.dump())
        for other in range(3):
            there = [marker(f"mos{other}", turn) in text for turn in range(1, 7)]
            assert there == [other == number] * 6


async def test_a_search_during_a_write_is_not_forgotten(bench: MemoryOSBench) -> None:
    store = await bench.store(heat_threshold=99)
    for number in range(1, 4):
        await store.write(said(number, "boat boat"))
    await asyncio.gather(
        store.write(said(4, "boat boat")),
        *(store.search("boat", 3) for _ in range(3)),
        store.write(said(5, "boat boat")),
    )
    assert next(s.fields["N_visit"] for s in await of(store, "segment_summary")) == 3
    assert len(await of(store, "short_term")) == 2
    assert fake.SCRIPT == {}
