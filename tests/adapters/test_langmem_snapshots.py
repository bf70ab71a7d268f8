"""LangMem's stores on disk: saved, restored elsewhere, and asking nothing twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from adapters.memory.langmem import MEMORIES, STATE, VECTORS
from memprobe.errors import SnapshotError
from memprobe.types import SessionEvent
from tests.adapters.test_langmem import server, session, site  # noqa: F401
from tests.support.fake_server import FakeServer

pytest.importorskip("langmem", reason="pip install 'memprobe-audit[langmem]'")

HOME = Path(__file__).resolve().parents[2]


def talk() -> list[SessionEvent]:
    """Sessions that add, patch, remove, repeat and say the same in other words' order."""
    said = [
        "I like tea. mk0123abcd00001",
        "I keep bees behind the house and sell honey on Saturdays.",
        "I keep bees behind the house and sell honey on Sundays.",
        "rain falls often here",
        "often here rain falls",
        "thanks",
        "Forget that rain falls often here",
        "I live in Porto by the sea. " * 8,
    ]
    return [session(n, ("user", text), ("assistant", "Noted.")) for n, text in enumerate(said, 1)]


def fresh(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


async def test_a_restored_store_goes_on_as_if_never_stopped(
    server: FakeServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        whole = await here.store("whole")
        for said in talk():
            await whole.write(said)
        wanted, found = await whole.dump(), await whole.search("rain in the house", 5)
        assert any(item.fields["changes"] for item in wanted)
        asked = len(server.chats)
        for cut in (1, 3, 6):
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
            assert await rest.search("rain in the house", 5) == found
            again = fresh(tmp_path, f"again{cut}")
            await rest.save(again)
        whole_folder = fresh(tmp_path, "whole")
        await whole.save(whole_folder)
        for part in (MEMORIES, VECTORS, STATE):
            assert (again / part).read_bytes() == (whole_folder / part).read_bytes()
    # Every prompt was known to the ledger: the same bytes, session names included.
    assert len(server.chats) == asked


async def test_a_store_comes_back_in_a_new_process(
    server: FakeServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = fresh(tmp_path, "snapshot")
    async with site(tmp_path) as here:
        store = await here.store()
        for said in talk():
            await store.write(said)
        wanted = [item.model_dump(mode="json") for item in await store.dump()]
        await store.save(folder)
    code = """
        import asyncio, json, sys
        from pathlib import Path
        from adapters.memory.langmem import LangMem
        from memprobe.systems import ModelAccess, Services
        from tests.adapters.support import WordEmbedder, scope

        async def main():
            dead = ModelAccess("http://127.0.0.1:9/v1", "none", "mock", "words")
            store = LangMem(Services(embedder=WordEmbedder(), models=dead))
            await store.open(scope())
            await store.restore(Path(sys.argv[1]))
            items = [item.model_dump(mode="json") for item in await store.dump()]
            await store.close()
            print(json.dumps(items))

        asyncio.run(main())
    """
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(code), str(folder)],
        cwd=HOME,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == wanted


async def test_a_damaged_or_foreign_snapshot_is_refused(
    server: FakeServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = fresh(tmp_path, "snapshot")
    async with site(tmp_path) as here:
        store = await here.store()
        await store.write(talk()[0])
        await store.save(folder)
        with pytest.raises(SnapshotError, match="only an empty store"):
            await store.restore(folder)
        rows = (folder / MEMORIES).read_bytes()
        other = await here.store("b")
        (folder / MEMORIES).write_bytes(rows[:-4])
        with pytest.raises(SnapshotError, match="does not match the hash"):
            await other.restore(folder)
        (folder / MEMORIES).unlink()
        with pytest.raises(SnapshotError, match="is missing"):
            await other.restore(folder)
        assert await other.dump() == []
