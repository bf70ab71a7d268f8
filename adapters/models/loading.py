"""Heavy libraries are imported one at a time.

They import parts of each other in circles. Python would let two threads that wait for
each other's module go on with one half made, and an import, or the first use, then
fails for no fault of the library's.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from types import ModuleType

LOADING = threading.RLock()
"""Held by whoever imports a heavy library."""


async def loaded(name: str) -> ModuleType:
    """The module of that name; other coroutines go on while it is imported."""
    if name in sys.modules and not _busy():
        return sys.modules[name]
    return await asyncio.to_thread(_load, name)


def _busy() -> bool:
    """Whether another thread is importing, so that what is there may be half made."""
    if not LOADING.acquire(blocking=False):
        return True
    LOADING.release()
    return False


def _load(name: str) -> ModuleType:
    with LOADING:
        return importlib.import_module(name)
