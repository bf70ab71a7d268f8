"""Checks that a store holds what was written to it and nothing else."""

from __future__ import annotations

import asyncio

from adapters.memory.contract.bench import Bench, NotApplicable, Violation, marker, message, shown
from memprobe.ports import MemorySystem

STORES = 4
EACH = 8


async def _absent(bench: Bench, store: MemorySystem, word: str, where: str) -> None:
    items = list(await store.dump()) if bench.can.full_dump else []
    if bench.can.top_k:
        items += await store.search(f"the code {word}", max(bench.ks))
    for item in items:
        if word in item.content:
            raise Violation(
                "a store without the messages of another",
                f"{shown(item.content)} in {where}",
                "keep state on the object (no class attribute or module global), name what is "
                "shared by `scope.key`, and empty it in `open`",
            )


async def isolation(bench: Bench) -> None:
    """What one store was told is in no other store, and not in a new one of the same name.

    Both users have the same name; only the scope's key tells them apart.
    """
    word = marker("canary")
    first = await bench.open("isolation_a", user="Ana Li")
    await first.write(message(f"My door has the code {word}."))
    if not bench.can.concurrent_stores:
        await first.close()
    second = await bench.open("isolation_b", user="Ana Li")
    await _absent(bench, second, word, "the store of another user of the same name")
    await first.close()
    await second.close()
    again = await bench.open("isolation_a", user="Ana Li")
    await _absent(bench, again, word, "a store opened anew under the same scope")


async def concurrent_stores(bench: Bench) -> None:
    """Stores written at the same time in one process each keep their own messages."""
    bench.needs_stores()
    if not bench.can.concurrent_stores:
        raise NotApplicable("declares concurrent_stores=False: it gets a process of its own")
    if not bench.passed.get("isolation", True):
        raise NotApplicable("stores are not isolated, see the check isolation")
    stores = [
        await bench.open(f"concurrent_{i}", user="00000000-0000-0000-0000-000000000001")
        for i in range(STORES)
    ]

    async def fill(number: int, store: MemorySystem) -> None:
        for i in range(EACH):
            word = marker(f"side{number}", i)
            await store.write(message(f"My cupboard {i} has the code {word}.", number=i))
            await asyncio.sleep(0)

    await asyncio.gather(*(fill(n, store) for n, store in enumerate(stores)))
    for n, store in enumerate(stores):
        for m in range(STORES):
            for i in range(EACH):
                there = bool(await bench.find(store, marker(f"side{m}", i)))
                if there != (m == n):
                    raise Violation(
                        f"{EACH} messages of its own in each of {STORES} stores",
                        f"message {i} of store {m} {'also in' if there else 'missing from'} "
                        f"store {n}",
                        "share no 'current user' between objects, or declare "
                        "concurrent_stores=False",
                    )


async def label_leak(bench: Bench) -> None:
    """Identifiers of the harness are no part of what is remembered."""
    bench.needs_stores()
    store = await bench.open("labels")
    label = marker("label")
    for number in (1, 2):
        text = f"My shed has the code {marker('shed', number)}."
        await store.write(message(text, number=number, session=f"s_{label}"))
    for number in (1, 2):
        for item in await bench.find(store, marker("shed", number)):
            if label in item.content:
                raise Violation(
                    "content without the session id",
                    shown(item.content),
                    "keep the session id in `fields`; a reader must not see it",
                )
