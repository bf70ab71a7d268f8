"""Heavy libraries are imported one at a time."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.models.loading import LOADING, loaded


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, str]]:
    """A module that is half made until the event is set."""
    go = threading.Event()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_library.py").write_text(
        "import sys\nsys.modules['tests_gate'].wait(10)\nvalue = 1\n"
    )
    monkeypatch.setitem(sys.modules, "tests_gate", go)  # type: ignore[arg-type]
    yield go, "slow_library"
    sys.modules.pop("slow_library", None)


async def test_a_half_made_module_is_not_handed_out(slow: tuple[threading.Event, str]) -> None:
    go, name = slow
    started = threading.Event()

    def elsewhere() -> None:
        with LOADING:
            started.set()
            __import__(name)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(started.wait, 10)
    asked = asyncio.create_task(loaded(name))
    await asyncio.sleep(0)
    assert not asked.done(), "the module is still being made"
    go.set()
    module = await asked
    await asyncio.to_thread(thread.join)
    assert module.value == 1  # type: ignore[attr-defined]


async def test_a_module_that_is_there_is_handed_out_at_once() -> None:
    assert await loaded("json") is sys.modules["json"]


async def test_a_module_that_is_missing_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        await loaded("no_such_library")
