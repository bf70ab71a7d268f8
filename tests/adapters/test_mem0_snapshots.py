"""mem0's stores on disk: saved, restored elsewhere, and asking nothing twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.memory import mem0_engine
from adapters.memory.mem0_engine import MEMORIES, MESSAGES, VECTORS, Engine, Settings
from memprobe.errors import SnapshotError
from memprobe.systems import ModelAccess
from memprobe.types import MessageEvent
from tests.adapters.mem0_site import existing, prompts, site
from tests.adapters.support import WordEmbedder, event
from tests.support.fake_server import FakeServer

pytest.importorskip("mem0", reason="mem0ai is not installed: pip install 'memprobe-audit[mem0]'")

HOME = Path(__file__).resolve().parents[2]
DEAD = ModelAccess("http://127.0.0.1:9/v1", "none", "mock", "words")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield running


def talk() -> list[MessageEvent]:
    """More messages than a prompt shows; the same words in another order score the same."""
    said = [
        "I like tea.",
        "like I tea.",
        "rain falls often here",
        "tea. I like",
        "often here rain falls",
        "I like tea.",
        "here rain falls often",
        "tea. like I",
        "bees are kind",
        "I like tea. mk0123abcd00001",
        "thanks",
        "I live in Porto by the sea. " * 8,
        "I like tea. mk0123abcd00001",
        "like tea. I",
        "Which tea. should I drink in the rain?",
        "falls here often rain",
        "I like tea. and rain and bees and chess",
        "I like salt.",
    ]
    return [event(text, episode=1 + n // 4, turn=n % 4) for n, text in enumerate(said)]


def fresh(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


async def test_a_restored_store_goes_on_as_if_never_stopped(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        whole = await here.store("whole")
        for said in talk():
            await whole.write(said)
        wanted, found = await whole.dump(), await whole.search("tea in the rain", 5)
        asked, encoded = prompts(server), list(here.embedder.encoded)
        bags = [[tuple(sorted(text.split())) for text in existing(p)] for p in asked]
        assert any(len(bag) != len(set(bag)) for bag in bags), "no tie was tried"
        assert any(p.count("\nuser: ") > 10 for p in asked), "no prompt was full"
        calls = here.gateway.new_calls

        for cut in (1, 9, 12, 15):
            half = await here.store(f"half{cut}")
            for said in talk()[:cut]:
                await half.write(said)
            folder = fresh(tmp_path, f"snapshot{cut}")
            await half.save(folder)
            await half.close()
            rest = await here.store(f"rest{cut}")
            here.embedder.encoded.clear()
            await rest.restore(folder)
            assert here.embedder.encoded == []
            for said in talk()[cut:]:
                await rest.write(said)
            assert await rest.dump() == wanted
            assert await rest.search("tea in the rain", 5) == found
    # Every prompt was known to the ledger: the same bytes.
    assert here.gateway.new_calls == calls == len(asked)
    assert prompts(server) == asked
    assert len(encoded) > len(asked)


async def test_equal_stores_give_equal_snapshots(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        folders = []
        for name in ("a", "b"):
            store = await here.store(name)
            for said in talk()[:12]:
                await store.write(said)
            folders.append(fresh(tmp_path, f"snap_{name}"))
            await store.save(folders[-1])
        third = await here.store("c")
        await third.restore(folders[0])
        folders.append(fresh(tmp_path, "snap_c"))
        await third.save(folders[-1])
    contents = [{p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders]
    assert contents[0] == contents[1] == contents[2]
    assert set(contents[0]) == {MEMORIES, VECTORS, MESSAGES, "snapshot.json"}


async def test_a_store_comes_back_in_a_new_process(server: FakeServer, tmp_path: Path) -> None:
    folder = fresh(tmp_path, "snapshot")
    async with site(tmp_path) as here:
        store = await here.store()
        for said in talk():
            await store.write(said)
        wanted = [item.model_dump(mode="json") for item in await store.dump()]
        await store.save(folder)
    script = textwrap.dedent("""
        import asyncio, json, sys
        from pathlib import Path
        from adapters.memory.mem0 import Mem0
        from memprobe.systems import ModelAccess, Services
        from tests.adapters.support import WordEmbedder, scope

        async def main():
            models = ModelAccess("http://127.0.0.1:9/v1", "none", "mock", "words")
            embedder = WordEmbedder()
            store = Mem0(Services(embedder=embedder, models=models))
            await store.open(scope("elsewhere"))
            await store.restore(Path(sys.argv[1]))
            items = [item.model_dump(mode="json") for item in await store.dump()]
            await store.close()
            assert embedder.encoded == []
            print(json.dumps(items))

        asyncio.run(main())
    """)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(folder)],
        cwd=HOME,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == wanted


async def test_snapshots_that_cannot_be_trusted_are_refused(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store("a")
        await store.write(event("I moved to Porto."))
        good = fresh(tmp_path, "good")
        await store.save(good)
        with pytest.raises(SnapshotError, match="only an empty store"):
            await store.restore(good)
        empty = await here.store("b")
        with pytest.raises(SnapshotError, match="is missing"):
            await empty.restore(fresh(tmp_path, "nothing"))
        for part in (MEMORIES, VECTORS, MESSAGES):
            kept = (good / part).read_bytes()
            (good / part).write_bytes(kept + b"\n")
            with pytest.raises(SnapshotError, match=f"{part} does not match"):
                await empty.restore(good)
            (good / part).unlink()
            with pytest.raises(SnapshotError, match=f"{part} is missing"):
                await empty.restore(good)
            (good / part).write_bytes(kept)
        here.embedder.name = "another"
        with pytest.raises(SnapshotError, match="is needed"):
            await empty.restore(good)
        assert await empty.dump() == []


def rows(count: int, dimensions: int) -> dict[str, bytes]:
    """A snapshot's parts with that many memories."""
    import io

    draw = np.random.default_rng(7)
    buffer = io.BytesIO()
    np.save(buffer, draw.standard_normal((count, dimensions)).astype(np.float32))
    lines = [
        json.dumps(
            {
                "user_id": mem0_engine.USER,
                "data": f"fact number {n}",
                "hash": f"{n}",
                "created_at": "2023-05-07T18:30:00+00:00",
                "updated_at": "2023-05-07T18:30:00+00:00",
            }
        )
        for n in range(count)
    ]
    return {
        MEMORIES: ("\n".join(lines) + "\n").encode(),
        VECTORS: buffer.getvalue(),
        MESSAGES: b"",
    }


def engine() -> Engine:
    return Engine(Settings(DEAD, WordEmbedder.dimensions, 0.0, 2000, strict=True))


def test_a_dump_above_the_published_page_is_whole() -> None:
    count = mem0_engine.PAGE + 150
    store = engine()
    try:
        store.load(count, rows(count, WordEmbedder.dimensions))
        found = store.dump()
        assert [row["memory"] for row in found] == [f"fact number {n}" for n in range(count)]
    finally:
        store.close()


def test_parts_that_do_not_belong_together_are_refused() -> None:
    store = engine()
    try:
        parts: dict[str, Any] = rows(3, WordEmbedder.dimensions)
        for faults in (
            {MEMORIES: parts[MEMORIES].split(b"\n", 1)[1]},
            {VECTORS: b"no array"},
            {MESSAGES: b"[1]\n"},
            {MEMORIES: b"{}\n{}\n{}\n"},
            {VECTORS: rows(3, 5)[VECTORS]},
        ):
            with pytest.raises(SnapshotError, match="unreadable snapshot"):
                store.load(3, parts | faults)
            assert store.dump() == []
        store.load(3, parts)
        assert len(store.dump()) == 3
    finally:
        store.close()


def test_the_clock_decides_nothing_about_the_messages_shown() -> None:
    store = engine()
    try:
        database: Any = store._memory.db
        for number in range(14):
            message = [{"role": "user", "content": f"message {number}"}]
            database.save_messages(message, "user_id=memprobe")
            # As if another machine, whose clock is ahead, had written it.
            store._order_messages()
        shown = database.get_last_messages("user_id=memprobe", limit=10)
        assert [m["content"] for m in shown] == [f"message {n}" for n in range(4, 14)]
    finally:
        store.close()
