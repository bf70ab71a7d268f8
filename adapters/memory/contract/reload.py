"""Restores a snapshot in a process of its own: `python -m adapters.memory.contract.reload`.

Reads an order as JSON from standard input and writes the dump to the file that
the order names, so that a system may print what it likes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from adapters.memory.calls import HeldLine
from adapters.memory.contract.network import NetworkGuard
from adapters.memory.contract.persistence import summary
from adapters.memory.registry import Registry
from adapters.models.minilm import MiniLM
from memprobe.systems import ModelAccess
from memprobe.types import Protocol, Scope


async def reload(order: dict[str, Any]) -> dict[str, Any]:
    """Load the system by its name, restore the folder, and tell what is in the store."""
    models = order["models"]
    registry = Registry(
        MiniLM(),
        Protocol(order["protocol"]),
        (lambda *_: HeldLine(ModelAccess(**models))) if models else None,
        names=[order["spec"]],
        options=order["options"],
    )
    with NetworkGuard() as guard:
        store = registry.create(order["spec"], order["scope"]["user"])
        await store.open(Scope(**order["scope"]))
        try:
            await store.restore(Path(order["folder"]))
            dump = summary(await store.dump(), times=order["times"])
            found = len(await store.search(order["query"], 3)) if order["query"] else 0
        finally:
            await store.close()
            registry.close()
    return {"dump": dump, "found": found, "attempts": guard.attempts}


def main() -> None:
    """Entry point of the module."""
    order = json.load(sys.stdin)
    result = json.dumps(asyncio.run(reload(order)))
    Path(order["answer"]).write_text(result, encoding="utf-8")


if __name__ == "__main__":
    main()
