"""Whatever a memory system does, a run sees valid items or an error with a name."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.guard import FINGERPRINT, Guard, clean_items
from adapters.memory.registry import Registry
from memprobe.errors import AdapterContractError, AdapterError, CallFailed, SnapshotError
from memprobe.outcomes import Reason
from memprobe.ports import Capabilities
from memprobe.systems import SystemCard
from memprobe.types import Event, MemoryItem, Scope

from .support import WordEmbedder, event, scope

NO_ID: dict[str, Any] = {"content": "no id"}
CARD = SystemCard(
    name="odd", title="Odd", summary="odd", licence="MIT", capabilities=Capabilities()
)


class Odd:
    """Keeps what it is told; a test replaces one method."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self.items: list[MemoryItem] = []

    async def open(self, scope: Scope) -> None:
        self.items = []

    async def write(self, event: Event) -> None:
        self.items.append(MemoryItem(id=str(len(self.items)), content=event.text))

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        return self.items[:k]

    async def dump(self) -> list[MemoryItem]:
        return self.items

    async def save(self, directory: Path) -> None:
        (directory / "items").write_text("\n".join(i.content for i in self.items))

    async def restore(self, directory: Path) -> None:
        lines = (directory / "items").read_text().splitlines()
        self.items = [MemoryItem(id=str(n), content=line) for n, line in enumerate(lines)]

    async def close(self) -> None:
        pass


async def told(system: Odd, *texts: str, seconds: float = 60.0) -> Guard:
    guard = Guard(system, CARD, seconds)
    await guard.open(scope())
    for text in texts:
        await guard.write(event(text))
    return guard


def item(**changes: object) -> MemoryItem:
    return MemoryItem(id="1", content="tea").model_copy(update=changes)


@pytest.mark.parametrize(
    "found",
    [
        None,
        {"results": []},
        (item(),),
        ["tea"],
        [item(content=None)],
        [item(id=7)],
        [item(score=float("nan"))],
        [item(score=float("inf"))],
        [item(score="0.9")],
        [MemoryItem.model_construct(**NO_ID)],
    ],
)
def test_what_is_no_list_of_items_is_named_and_never_nothing_found(found: object) -> None:
    with pytest.raises(AdapterContractError, match="odd: search"):
        clean_items("odd", "search", found)


def test_text_that_cannot_be_stored_is_made_storable() -> None:
    odd = item(content="broken \ud83d tail", fields={"x": float("inf"), "y": ["\udc00"]})
    (cleaned,) = clean_items("odd", "dump", [odd])
    assert cleaned.content == "broken \ufffd tail"
    assert cleaned.fields == {"x": "inf", "y": ["\ufffd"]}


async def test_a_list_changed_after_it_was_handed_out_stays_as_it_was() -> None:
    system = Odd()
    guard = await told(system, "tea", "cat")
    dumped = await guard.dump()
    system.items.clear()
    assert [i.content for i in dumped] == ["tea", "cat"]


async def _exits(*_: object) -> list[MemoryItem]:
    sys.exit(0)


async def _cancels(*_: object) -> list[MemoryItem]:
    raise asyncio.CancelledError


@pytest.mark.parametrize("broken", [_exits, _cancels])
async def test_a_library_that_stops_the_process_or_itself_fails_its_call(
    broken: Callable[..., Awaitable[list[MemoryItem]]],
) -> None:
    system = Odd()
    guard = await told(system, "tea")
    system.search = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(AdapterError, match="odd: search"):
        await guard.search("tea", 5)


async def test_a_run_that_is_stopped_stops_a_call_that_is_under_way() -> None:
    system = Odd()
    guard = await told(system, "tea")
    started = asyncio.Event()

    async def hangs(*_: object) -> list[MemoryItem]:
        started.set()
        return await asyncio.Future()

    system.search = hangs  # type: ignore[assignment, method-assign]
    task = asyncio.create_task(guard.search("tea", 5))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_never_comes_back_is_a_timeout_and_the_store_is_given_up() -> None:
    system = Odd()
    guard = await told(system, "tea", seconds=0.0)

    async def hangs(*_: object) -> None:
        await asyncio.Future()

    system.write = hangs  # type: ignore[assignment, method-assign]
    with pytest.raises(CallFailed) as failed:
        await guard.write(event("cat"))
    assert failed.value.reason is Reason.TIMEOUT
    with pytest.raises(AdapterError, match="given up"):
        await guard.dump()


async def test_a_timeout_of_the_systems_own_is_its_own_error() -> None:
    system = Odd()
    guard = await told(system, "tea")

    async def late(*_: object) -> list[MemoryItem]:
        raise TimeoutError("database")

    system.search = late  # type: ignore[assignment, method-assign]
    with pytest.raises(TimeoutError, match="database"):
        await guard.search("tea", 5)


async def test_a_restored_store_is_the_saved_one(tmp_path: Path) -> None:
    guard = await told(Odd(), "tea", "cat")
    await guard.save(tmp_path)
    again = await told(Odd())
    await again.restore(tmp_path)
    assert [i.content for i in await again.dump()] == ["tea", "cat"]


@pytest.mark.parametrize("kept", ["", "tea", "tea\ndog", "tea\ncat\ncat"])
async def test_a_store_that_comes_back_as_another_is_refused(tmp_path: Path, kept: str) -> None:
    guard = await told(Odd(), "tea", "cat")
    await guard.save(tmp_path)
    (tmp_path / "items").write_text(kept)
    again = await told(Odd())
    with pytest.raises(SnapshotError, match="not the saved one"):
        await again.restore(tmp_path)


@pytest.mark.parametrize("note", ["", '{"count": 2', "[]", "null", "7", '{"sha256": ""}'])
async def test_a_damaged_note_of_what_was_saved_is_named(tmp_path: Path, note: str) -> None:
    guard = await told(Odd(), "tea", "cat")
    await guard.save(tmp_path)
    (tmp_path / FINGERPRINT).write_text(note)
    again = await told(Odd())
    with pytest.raises(SnapshotError, match="unreadable"):
        await again.restore(tmp_path)


async def test_the_built_in_systems_stand_behind_the_guard(tmp_path: Path) -> None:
    for name in ("nomem", "longctx_full", "rag"):
        source = Registry(WordEmbedder(), guarded=True)
        store, again = source.create(name, "u"), source.create(name, "u")
        await store.open(scope())
        await store.write(event("I drink tea"))
        folder = tmp_path / name
        folder.mkdir()
        await store.save(folder)
        await again.open(scope("b"))
        await again.restore(folder)
        assert await again.dump() == await store.dump()
        await store.close()
        await again.close()
