"""Snapshots: equal stores give equal bytes, and a torn one is never an empty store."""

import json
from pathlib import Path

import pytest

from adapters.memory.notes import NOTES, VECTORS
from adapters.memory.snapshots import INDEX
from memprobe import SnapshotError
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, event, opened, two_episodes

KEEPERS = ["longctx_full", "rag"]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def new(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def saved(name: str, folder: Path, protocol: Protocol = Protocol.STRICT) -> Path:
    system = await opened(name, protocol=protocol)
    await two_episodes(system)
    new(folder)
    await system.save(folder)
    return folder


@pytest.mark.parametrize("name", KEEPERS)
async def test_equal_stores_give_equal_bytes(name: str, tmp_path: Path) -> None:
    first = await saved(name, tmp_path / "a")
    second = await saved(name, tmp_path / "b")
    assert bytes_of(first) == bytes_of(second)
    again = await opened(name)
    await again.restore(first)
    (tmp_path / "c").mkdir()
    await again.save(tmp_path / "c")
    assert bytes_of(tmp_path / "c") == bytes_of(first)


@pytest.mark.parametrize("name", KEEPERS)
async def test_a_restore_encodes_nothing_and_goes_on(name: str, tmp_path: Path) -> None:
    folder = await saved(name, tmp_path / "a")
    whole = await opened(name)
    await two_episodes(whole)
    embedder = WordEmbedder()
    system = await opened(name, embedder)
    await system.restore(folder)
    assert embedder.encoded == []
    assert await system.dump() == await whole.dump()
    for store in (system, whole):
        await store.write(event("and now a song", episode=3))
    assert await system.dump() == await whole.dump()
    assert await system.search("a song", 3) == await whole.search("a song", 3)
    assert embedder.encoded.count("[Task 3] and now a song") == 1


async def test_paper_survives_a_restore(tmp_path: Path) -> None:
    folder = await saved("longctx_full", tmp_path / "a", Protocol.PAPER)
    system = await opened("longctx_full", protocol=Protocol.PAPER)
    await system.restore(folder)
    assert "Agent: roses are red" not in [item.content for item in await system.dump()]


@pytest.mark.parametrize("name", KEEPERS)
@pytest.mark.parametrize("part", [NOTES, VECTORS, INDEX])
async def test_a_missing_part_is_an_error(name: str, part: str, tmp_path: Path) -> None:
    folder = await saved(name, tmp_path / "a")
    (folder / part).unlink()
    with pytest.raises(SnapshotError, match="missing"):
        await (await opened(name)).restore(folder)


@pytest.mark.parametrize("part", [NOTES, VECTORS, INDEX])
async def test_a_torn_part_is_an_error(part: str, tmp_path: Path) -> None:
    folder = await saved("rag", tmp_path / "a")
    raw = (folder / part).read_bytes()
    (folder / part).write_bytes(raw[: len(raw) // 2])
    system = await opened("rag")
    with pytest.raises(SnapshotError):
        await system.restore(folder)
    assert await system.dump() == []


async def test_counts_must_agree(tmp_path: Path) -> None:
    folder = await saved("rag", tmp_path / "a")
    index = json.loads((folder / INDEX).read_bytes())
    index["count"] += 1
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(SnapshotError, match="9 notes announced, 8 notes and 8 vectors"):
        await (await opened("rag")).restore(folder)


async def test_a_snapshot_of_another_system_is_refused(tmp_path: Path) -> None:
    folder = await saved("longctx_full", tmp_path / "a")
    with pytest.raises(SnapshotError, match="longctx_full"):
        await (await opened("rag")).restore(folder)
    with pytest.raises(SnapshotError, match="nomem"):
        await (await opened("nomem")).restore(folder)


async def test_only_an_empty_store_is_restored(tmp_path: Path) -> None:
    folder = await saved("rag", tmp_path / "a")
    system = await opened("rag")
    await system.write(event("hello"))
    with pytest.raises(SnapshotError, match="empty store"):
        await system.restore(folder)
