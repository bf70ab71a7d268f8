"""A-MEM's snapshots, restores and replays; and stores beside each other."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.memory.amem import AMem
from adapters.memory.contract.bench import marker
from adapters.memory.snapshots import INDEX
from memprobe.errors import SnapshotError
from memprobe.types import MessageEvent, Protocol
from tests.adapters.support import WordEmbedder, event
from tests.support.amem import PAPER, STRICT, AmemBench, amem_bench, lines, new, saved, snapshot

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("protocol", [STRICT, PAPER])
PARTS = ["notes.jsonl", "indexed.jsonl", "texts.jsonl", "vectors.npy", "state.json"]
TOPICS = ("rope", "sail", "anchor", "harbour", "tide")
RELOAD = """
import asyncio, json, sys
from pathlib import Path
from adapters.memory.amem import AMem
from memprobe.systems import ModelAccess, Services
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, scope

async def main(folder, protocol):
    embedder = WordEmbedder()
    access = ModelAccess("http://127.0.0.1:9/v1", "none", "m", "e")
    store = AMem(Services(embedder, Protocol(protocol), access))
    await store.open(scope())
    await store.restore(Path(folder))
    encoded = len(embedder.encoded)
    dump = [item.model_dump(mode="json") for item in await store.dump()]
    found = [item.model_dump(mode="json") for item in await store.search("rope", 5)]
    await store.close()
    print(json.dumps({"dump": dump, "found": found, "encoded": encoded}))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AmemBench]:
    async with amem_bench(new(tmp_path / "ledger"), monkeypatch) as made:
        yield made


def dialogue(episodes: int, first: int = 1) -> list[MessageEvent]:
    """Three user messages and two replies an episode."""
    found = []
    for episode in range(first, first + episodes):
        for turn in (1, 2, 3):
            topic = TOPICS[(episode + turn) % len(TOPICS)]
            text = f"My {topic} number {episode}.{turn} is {topic}"
            found.append(event(text, episode=episode, turn=turn))
            if turn < 3:
                found.append(event("Tell me more.", role="assistant", episode=episode, turn=turn))
    return found


async def fill(store: AMem, events: Sequence[MessageEvent]) -> None:
    for one in events:
        await store.write(one)


@BOTH
async def test_equal_stores_give_equal_bytes(
    bench: AmemBench, tmp_path: Path, protocol: Protocol
) -> None:
    first, second = [await bench.store(protocol, name=n) for n in "ab"]
    for store in (first, second):
        await fill(store, dialogue(3))
    bytes_of = await snapshot(first, tmp_path / "a")
    assert await snapshot(second, tmp_path / "b") == bytes_of
    assert set(bytes_of) == {INDEX, *PARTS}
    again = await bench.store(protocol, name="c")
    await again.restore(tmp_path / "a")
    assert await snapshot(again, tmp_path / "c") == bytes_of


@BOTH
async def test_a_restore_encodes_nothing_and_goes_on(
    bench: AmemBench, tmp_path: Path, protocol: Protocol
) -> None:
    """The store of an interrupted run ends as that of one that was not."""
    whole = await bench.store(protocol, name="whole", evo_threshold=2)
    await fill(whole, dialogue(5))
    calls = len(bench.bodies)

    early = await bench.store(protocol, name="early", evo_threshold=2)
    await fill(early, dialogue(3))
    await snapshot(early, tmp_path / "checkpoint")
    # Killed in the middle of the fourth episode; what it wrote since is lost.
    await fill(early, dialogue(1, 4)[:2])
    await early.close()

    embedder = WordEmbedder()
    resumed = await bench.store(protocol, embedder=embedder, name="resumed", evo_threshold=2)
    await resumed.restore(tmp_path / "checkpoint")
    assert embedder.encoded == []
    await fill(resumed, dialogue(2, 4))
    # The same prompts as before: the ledger answers, the model is not asked again.
    assert len(bench.bodies) == calls
    assert await resumed.dump() == await whole.dump()
    assert await resumed.search("my rope", 7) == await whole.search("my rope", 7)
    assert await snapshot(resumed, tmp_path / "r") == await snapshot(whole, tmp_path / "w")
    marks = [item.fields["evolution"] for item in await whole.dump()]
    assert any(isinstance(mark, dict) and mark["consolidated"] for mark in marks)


@BOTH
async def test_a_new_process_finds_the_same_store(
    bench: AmemBench, tmp_path: Path, protocol: Protocol
) -> None:
    store = await bench.store(protocol)
    await fill(store, dialogue(2))
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
    found = [item.model_dump(mode="json") for item in await store.search("rope", 5)]
    assert told["found"] == found


async def test_under_paper_a_restored_index_still_shows_the_first_insertion(
    bench: AmemBench, tmp_path: Path
) -> None:
    store = await bench.store(PAPER)
    await fill(store, dialogue(3))
    changed = [i for i in await store.dump() if i.fields["evolved_by"]]
    assert changed
    await snapshot(store, tmp_path / "a")
    restored = await bench.store(PAPER, name="b")
    await restored.restore(tmp_path / "a")
    await restored.write(event(changed[0].content, episode=9))
    line = next(row for row in lines(bench.asked()) if row["id"] == changed[0].id)
    assert (line["tags"], line["context"]) != (
        changed[0].fields["tags"],
        changed[0].fields["context"],
    )


async def test_an_empty_store_can_be_saved_and_restored(bench: AmemBench, tmp_path: Path) -> None:
    bytes_of = await snapshot(await bench.store(), tmp_path / "a")
    restored = await bench.store(name="b")
    await restored.restore(tmp_path / "a")
    assert await restored.dump() == []
    assert await snapshot(restored, tmp_path / "b") == bytes_of


async def test_only_an_empty_store_can_be_restored(bench: AmemBench, tmp_path: Path) -> None:
    store = await bench.store()
    await store.write(event("x"))
    await snapshot(store, tmp_path / "a")
    with pytest.raises(SnapshotError, match="empty"):
        await store.restore(tmp_path / "a")


async def test_a_part_that_is_missing_or_torn_is_an_error(bench: AmemBench, tmp_path: Path) -> None:
    store = await bench.store()
    await fill(store, dialogue(1))
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


async def test_parts_of_two_snapshots_do_not_pass_for_one(bench: AmemBench, tmp_path: Path) -> None:
    """Hashes that hold are not enough: notes and index must be of the same store."""
    store = await bench.store()
    await store.write(event("rope"))
    one = await snapshot(store, tmp_path / "one")
    await store.write(event("sail", turn=2))
    two = await snapshot(store, tmp_path / "two")
    mixed = new(tmp_path / "mixed")
    for name, raw in {
        **two,
        "texts.jsonl": one["texts.jsonl"],
        "vectors.npy": one["vectors.npy"],
    }.items():
        (mixed / name).write_bytes(raw)
    index = json.loads(two[INDEX])
    index["parts"] = {n: hashlib.sha256(saved(mixed)[n]).hexdigest() for n in index["parts"]}
    (mixed / INDEX).write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(SnapshotError, match="do not belong together"):
        await (await bench.store(name="b")).restore(mixed)


async def test_stores_written_at_once_keep_apart(bench: AmemBench) -> None:
    """The published one resets a process-wide index; here every store has its own."""
    stores = [await bench.store(name=f"user{n}") for n in range(3)]

    async def one(number: int) -> None:
        for turn in range(1, 7):
            text = f"My locker {turn} has the code {marker(f'amem{number}', turn)}"
            await stores[number].write(event(text, turn=turn))

    await asyncio.gather(*(one(n) for n in range(3)))
    for number, store in enumerate(stores):
        wanted = [marker(f"amem{number}", turn) for turn in range(1, 7)]
        dump = await store.dump()
        assert [i.content.rpartition(" ")[2] for i in dump] == wanted
        found = await store.search(f"the code {marker('amem0', 1)}", 10)
        assert {i.id for i in found} == {i.id for i in dump}


async def test_writes_to_one_store_take_turns(bench: AmemBench) -> None:
    store = await bench.store()
    await asyncio.gather(*(store.write(event(f"note {n}", turn=n)) for n in range(1, 6)))
    dump = await store.dump()
    assert [item.content for item in dump] == [f"note {n}" for n in range(1, 6)]
    assert [item.fields["category"] for item in dump] == ["task", *["user"] * 4]
