"""Checkpoints: what they hold, and that a damaged one is never taken for an empty store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memprobe.errors import SnapshotError
from tasks.checkpoint import POINTER, Checkpoints, digest_tree, write_atomic
from tests.adapters.support import event, opened


async def saved(folder: Path, mark: str = "mark") -> Checkpoints:
    system = await opened("longctx_full")
    checkpoints = Checkpoints(folder, mark)
    for number in (1, 2):
        await system.write(event(f"message {number}", episode=number))
        await checkpoints.commit(system, number, {"episodes": [{"episode": number}]})
    await system.close()
    return checkpoints


def folders(work: Path) -> list[str]:
    return sorted(path.name for path in work.glob("episode-*"))


async def test_the_last_commit_comes_back(tmp_path: Path) -> None:
    found = (await saved(tmp_path)).load()
    assert found is not None
    assert (found.episode, found.state) == (2, {"episodes": [{"episode": 2}]})
    system = await opened("longctx_full")
    await system.restore(found.store)
    contents = [item.content for item in await system.dump()]
    assert contents == ["[Task 1] message 1", "[Task 2] message 2"]
    await system.close()


async def test_older_folders_go_once_the_pointer_has_moved(tmp_path: Path) -> None:
    await saved(tmp_path)
    assert folders(tmp_path) == ["episode-0002"]


async def test_a_folder_without_its_pointer_is_no_checkpoint(tmp_path: Path) -> None:
    """A kill between store and pointer: the earlier checkpoint stands and is overwritten later."""
    checkpoints = await saved(tmp_path)
    half = tmp_path / "episode-0003" / "store"
    half.mkdir(parents=True)
    (half / "notes.jsonl").write_text("half", encoding="utf-8")
    found = checkpoints.load()
    assert found is not None
    assert found.episode == 2
    system = await opened("longctx_full")
    await checkpoints.commit(system, 3, {})
    await system.close()
    again = checkpoints.load()
    assert again is not None
    assert again.episode == 3


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, "mark").load() is None


async def test_another_fingerprint_starts_anew(tmp_path: Path) -> None:
    await saved(tmp_path)
    assert Checkpoints(tmp_path, "other").load() is None


@pytest.mark.parametrize("part", ["store/notes.jsonl", "store/vectors.npy", "state.json"])
@pytest.mark.parametrize("change", ["cut", "gone", "more"])
async def test_a_changed_part_is_an_error(tmp_path: Path, part: str, change: str) -> None:
    """Case resume-in-memory-store: hash of the store, verified at resume."""
    checkpoints = await saved(tmp_path)
    path = tmp_path / "episode-0002" / part
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if change == "cut" else path.read_bytes() + b" ")
    with pytest.raises(SnapshotError, match="ledger; delete"):
        checkpoints.load()


async def test_a_file_too_many_is_an_error(tmp_path: Path) -> None:
    checkpoints = await saved(tmp_path)
    (tmp_path / "episode-0002" / "store" / "extra").touch()
    with pytest.raises(SnapshotError, match="does not match"):
        checkpoints.load()


@pytest.mark.parametrize("field", ["fingerprint", "episode", "folder", "store", "state"])
async def test_a_pointer_without_a_field_is_an_error(tmp_path: Path, field: str) -> None:
    checkpoints = await saved(tmp_path)
    pointer = json.loads((tmp_path / POINTER).read_bytes())
    del pointer[field]
    (tmp_path / POINTER).write_text(json.dumps(pointer), encoding="utf-8")
    with pytest.raises(SnapshotError):
        checkpoints.load()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"fingerprint": "mark", "folder": 3}'])
async def test_an_unreadable_pointer_is_an_error(tmp_path: Path, text: str) -> None:
    checkpoints = await saved(tmp_path)
    (tmp_path / POINTER).write_text(text, encoding="utf-8")
    with pytest.raises(SnapshotError):
        checkpoints.load()


def test_tree_digest_covers_names_and_contents(tmp_path: Path) -> None:
    digests = set()
    for name, text in (("a", "xy"), ("b", "xy"), ("a", "x"), ("ax", "y")):
        folder = tmp_path / f"{name}-{text}"
        folder.mkdir()
        (folder / name).write_text(text, encoding="utf-8")
        digests.add(digest_tree(folder))
    assert len(digests) == 4


def test_atomic_write_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"old", b"new"):
        write_atomic(path, data)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
