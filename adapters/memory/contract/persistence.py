"""Checks of snapshots, and that what goes wrong is heard."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adapters.memory.contract.bench import Bench, Violation, marker, message
from memprobe.ports import MemorySystem
from memprobe.types import MemoryItem

QUERY = "the code of my desk"


def summary(items: list[MemoryItem], *, times: bool) -> list[list[str | None]]:
    """What must survive a restore, of each item: content and, where asked, event time."""
    return [
        [i.content, i.event_time.isoformat() if times and i.event_time else None] for i in items
    ]


async def save_and_restore(bench: Bench) -> None:
    """A store saved here is the same store in a new process."""
    times = bench.passed.get("event_time", True)
    store = await bench.open("saved")
    for i in range(1, 9):
        role = "user" if i % 2 else "assistant"
        await store.write(message(f"Desk {i} – ключ {marker('desk', i)}", number=i, role=role))
    before = summary(await store.dump(), times=times)
    folder = bench.folder("snapshot")
    await store.save(folder)
    if summary(await store.dump(), times=times) != before:
        raise Violation("a store that `save` leaves as it is", "another dump after it", "only read")
    found = len(await store.search(QUERY, 3)) if bench.can.top_k else 0
    await store.close()
    restored = await _restored(bench, folder, times)
    if restored["dump"] != before:
        raise Violation(
            f"the {len(before)} items that were saved, in their order",
            f"{len(restored['dump'])} items, "
            f"{sum(row in restored['dump'] for row in before)} of them equal",
            "write all state into the directory in `save` and read it back in `restore`",
        )
    if bench.can.top_k and found and not restored["found"]:
        raise Violation(
            "a restored store that can be searched",
            "no results",
            "restore the index as well, or rebuild it",
        )


async def _restored(bench: Bench, folder: Path, times: bool) -> dict[str, Any]:
    if bench.spec is None:
        store = await bench.open("restored")
        await store.restore(folder)
        found = len(await store.search(QUERY, 3)) if bench.can.top_k else 0
        return {"dump": summary(await store.dump(), times=times), "found": found}
    answer = bench.workdir / f"{folder.parent.name}_restored.json"
    line = None
    if bench.models is not None and bench.can.takes_llm:
        line = bench.models.lines(bench.card.name, "contract", "check", 1)
    order = {
        "spec": bench.spec,
        "protocol": bench.protocol.value,
        "models": asdict(line.access) if line else None,
        "options": {bench.card.name: dict(bench.options)} if bench.options else {},
        "scope": bench.scope("restored").model_dump(),
        "folder": str(folder),
        "answer": str(answer),
        "times": times,
        "query": QUERY if bench.can.top_k else None,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "adapters.memory.contract.reload",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)},
    )
    try:
        _, stderr = await process.communicate(json.dumps(order).encode())
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        lines = stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise Violation(
            "a restore in a new process",
            lines[-1],
            "let `restore` need nothing but the directory that `save` filled",
        )
    result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    bench.attempts += result["attempts"]
    return result


async def _raises(call: Awaitable[object]) -> bool:
    try:
        await call
    except Exception:
        return True
    return False


async def errors_surface(bench: Bench) -> None:
    """What cannot be done raises; an adapter that stays silent turns faults into low scores."""
    store: MemorySystem = await bench.open("errors")
    if not await _raises(store.restore(bench.folder("no_snapshot"))):
        raise Violation(
            "an error from `restore` of an empty directory",
            "silence: a lost snapshot would become an empty store",
            "raise `memprobe.SnapshotError` when a file is missing or does not match",
        )
    await store.close()
    if not await _raises(store.write(message("too late"))):
        raise Violation(
            "an error from `write` after `close`",
            "silence: the message is lost and nobody knows",
            "raise when the store is not open, and catch nothing you cannot repair",
        )
    await store.close()
