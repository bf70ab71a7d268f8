"""Our share of mem0's ingestion time: the adapter, the door, the gateway and the ledger.

    python -m benchmarks.bench_mem0 [--messages 40] [--rounds 3]

The same messages are added by the library on its own, asking the fake server
directly, and through the adapter of a run, whose calls pass the door, the gateway,
litellm and a durable ledger on their way to the same server. Both have the same
vectors: the library on its own asks a second fake server without latency for them,
the adapter's come from an embedder in this process. Each message goes through all in
turn, and medians are compared. Share: the time that ours takes longer, of ours.
`as_installed` is the library on its own with its databases syncing to the disk, which
the adapter switches off and the library on its own has switched off too in `direct`.
`cpu_ms` is this process's own, which a busy machine changes less than wall time.
Needs the extra `mem0`. Target: at most 5 % when the model takes 250 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.memory import mem0_engine
from adapters.memory.guard import Guard
from adapters.memory.mem0 import Mem0, Mem0Options
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from benchmarks import common
from memprobe.config import RunConfig
from memprobe.systems import Services
from memprobe.types import Asker, MessageEvent, Scope
from storage.ledger import Ledger
from tests.support import fake_answers

LATENCY_S = 0.25
TARGET = 0.05
START = datetime(2024, 3, 1, 9, tzinfo=UTC)
DIMENSIONS = 384


class Hashed:
    """The fake server's vectors, made in this process."""

    name, dimensions = "hashed", DIMENSIONS

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        return [fake_answers.vector(text.replace("\n", " "), DIMENSIONS) for text in texts]


def messages(number: int, label: str) -> list[MessageEvent]:
    return [
        MessageEvent(
            role="user",
            text=f"On day {i} of {label} I walked to the market, bought {i % 7} pears and "
            f"talked to neighbour number {i * 13 % 17} about the garden.",
            event_time=START + timedelta(minutes=i),
            session_id=f"s{i // 5:04d}",
            episode=1 + i // 5,
            turn=i % 5,
        )
        for i in range(number)
    ]


class Alone:
    """The library on its own; `sync` leaves its databases as they are installed."""

    def __init__(self, chat: str, embeddings: str, folder: str, *, sync: bool) -> None:
        llm = {"model": "mock", "api_key": "x", "openai_base_url": chat, "temperature": 0.0}
        places = {"path": f"{folder}/q", "embedding_model_dims": DIMENSIONS, "on_disk": True}
        embedder = {"model": "m", "api_key": "x", "openai_base_url": embeddings}
        self.memory = mem0_engine.library().Memory.from_config(
            {
                "llm": {"provider": "openai", "config": {**llm, "max_tokens": 2000}},
                "embedder": {"provider": "openai", "config": embedder},
                "vector_store": {
                    "provider": "qdrant",
                    "config": {"collection_name": "mem0", **places},
                },
                "history_db_path": f"{folder}/h.db",
            }
        )
        self.memory.vector_store._bm25_encoder = False
        if not sync:
            mem0_engine.spare_the_disk(self.memory)

    async def write(self, event: MessageEvent) -> None:
        # As a script would: nothing else runs, so nothing is kept waiting.
        self.memory.add(
            [{"role": "user", "content": event.text}],
            user_id="bench",
            metadata={"created_at": event.event_time.isoformat()},
        )

    async def close(self) -> int:
        held = len(self.memory.get_all(filters={"user_id": "bench"}, top_k=10000)["results"])
        self.memory.vector_store.client.close()
        self.memory.close()
        return held


class Ours:
    """A run's store, behind its guard."""

    def __init__(self, door: Door, label: str) -> None:
        who = Asker(run="bench", suite="recovery", stage="rollout", system="mem0", user=label)
        line = door.line(who)
        services = Services(embedder=Hashed(), models=line.access, options=Mem0Options())
        self.store = Guard(Mem0(services), Mem0.card, line=line)
        self.scope = Scope(run="bench", system="mem0", user=label, key=label)

    async def write(self, event: MessageEvent) -> None:
        await self.store.write(event)

    async def close(self) -> int:
        held = len(await self.store.dump())
        await self.store.close()
        return held


async def play(
    arms: dict[str, Alone | Ours],
    said: list[MessageEvent],
    taken: dict[str, list[tuple[float, float]]],
) -> None:
    """Each message through each arm in turn, so that all meet the same load of the machine."""
    for event in said:
        for name, arm in arms.items():
            begun, cpu = time.perf_counter(), time.process_time()
            await arm.write(event)
            spent = (time.perf_counter() - begun, time.process_time() - cpu)
            taken.setdefault(name, []).append(spent)
    held = {name: await arm.close() for name, arm in arms.items()}
    assert len(set(held.values())) == 1, f"not the same work: {held}"
    assert held["ours"] >= len(said), f"{held} memories of {len(said)} messages"


async def measure(latency: float, number: int, rounds: int) -> dict[str, Any]:
    taken: dict[str, list[tuple[float, float]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        common.fake_server() as vectors,
        common.fake_server(latency) as chat,
    ):
        ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
        gateway = Gateway(RunConfig(name="bench", model="openai/mock"), ledger, {})
        async with Door(gateway, Hashed()) as door:
            for turn in range(rounds + 1):
                place = Path(folder, str(turn))
                own = Ours(door, f"u{turn}")
                await own.store.open(own.scope)
                arms: dict[str, Alone | Ours] = {
                    "direct": Alone(chat, vectors, f"{place}/direct", sync=False),
                    "as_installed": Alone(chat, vectors, f"{place}/plain", sync=True),
                    "ours": own,
                }
                # The first round only warms up.
                said = messages(number if turn else 3, f"week {turn}")
                await play(arms, said, taken if turn else {})
            assert gateway.new_calls == rounds * number + 3
        await gateway.close()
        ledger.close()
    wall, cpu = (
        {name: 1000 * statistics.median(pair[n] for pair in pairs) for name, pairs in taken.items()}
        for n in (0, 1)
    )
    added = wall["ours"] - wall["direct"]
    return {
        "latency_s": latency,
        "timed": len(taken["ours"]),
        **{f"{name}_ms": round(value, 2) for name, value in wall.items()},
        **{f"{name}_cpu_ms": round(value, 2) for name, value in cpu.items()},
        "added_ms": round(added, 2),
        "added_cpu_ms": round(cpu["ours"] - cpu["direct"], 2),
        "share": round(added / wall["ours"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    slow, fast = (
        asyncio.run(measure(latency, given.messages, given.rounds)) for latency in (LATENCY_S, 0.0)
    )
    result = {
        "messages": given.messages,
        "rounds": given.rounds,
        "load": round(os.getloadavg()[0], 1),
        "share": slow["share"],
        "with_latency": slow,
        "without_latency": fast,
        "target_share": TARGET,
    }
    print(json.dumps(common.record("mem0", result, given.out)))


if __name__ == "__main__":
    main()
