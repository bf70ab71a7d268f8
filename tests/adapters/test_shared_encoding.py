"""Stores share one embedder: one that gives up must not take the others with it."""

import asyncio
import threading

import numpy as np
import pytest

from adapters.models.minilm import DIMENSIONS, MiniLM


async def test_a_cancelled_caller_does_not_cancel_what_others_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = MiniLM()
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def forward(text: str) -> object:
        loop.call_soon_threadsafe(started.set)
        assert release.wait(10)
        return np.ones(DIMENSIONS, dtype=np.float32)

    monkeypatch.setattr(model, "_forward", forward)
    first = asyncio.create_task(model.encode(["tea"]))
    await started.wait()
    second = asyncio.create_task(model.encode(["tea"]))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert await second == [[1.0] * DIMENSIONS]
    await model.close()
