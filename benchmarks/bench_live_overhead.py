"""CPU time a live call costs through the gateway, against bare `litellm.acompletion`.

    python -m benchmarks.bench_live_overhead [--calls 400]

Both send the same judge question to the fake server, which runs in a process of
its own. Writes `benchmarks/results/live_overhead.json`. Target: 1 ms on top.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import prompts
from adapters.models.gateway import Gateway
from adapters.models.litellm_loader import load_litellm
from adapters.models.questions import schema_of
from benchmarks import common
from memprobe.chat import ChatRequest
from memprobe.config import RunConfig
from memprobe.types import Asker, Role
from prompts.answers import JudgeAnswer
from storage.ledger import Ledger

AT_ONCE = 16


def question(label: str) -> ChatRequest:
    asker = Asker(run="bench", suite="recovery", stage="recover", user="u", item=label)
    truth = {"dimension": "tea", "short": "green tea", "explanation": "green tea with lemon"}
    return prompts.load("judge").request(Role.JUDGE, asker, {**truth, "label": label})


async def spend(
    asked: list[ChatRequest], call: Callable[[ChatRequest], Awaitable[object]]
) -> float:
    """CPU milliseconds of this process for one call."""
    begun = time.process_time()
    for start in range(0, len(asked), AT_ONCE):
        await asyncio.gather(*(call(request) for request in asked[start : start + AT_ONCE]))
    return 1000 * (time.process_time() - begun) / len(asked)


async def bare(request: ChatRequest) -> object:
    schema = {"name": "answer", "schema": schema_of(JudgeAnswer)[0], "strict": True}
    return await load_litellm().acompletion(
        model="openai/mock",
        messages=[{"role": m.role, "content": m.content} for m in request.messages],
        temperature=request.temperature,
        response_format={"type": "json_schema", "json_schema": schema},
        timeout=60,
        num_retries=0,
        max_retries=0,
    )


async def measure(calls: int, folder: str, rounds: int) -> dict[str, float]:
    ledger = Ledger.open(f"sqlite:///{folder}/ledger.db")
    chat = Gateway(RunConfig(name="bench", model="openai/mock"), ledger, {})
    await spend([question(f"warm {i}") for i in range(32)], bare)
    await spend([question(f"warm {i}") for i in range(32)], chat.ask)
    plain: list[float] = []
    through: list[float] = []
    for number in range(rounds):
        plain.append(await spend([question(f"b{number}-{i}") for i in range(calls)], bare))
        through.append(await spend([question(f"g{number}-{i}") for i in range(calls)], chat.ask))
    assert chat.new_calls == calls * rounds + 32
    await chat.close()
    ledger.close()
    return {
        "litellm_cpu_ms": round(statistics.median(plain), 3),
        "gateway_cpu_ms": round(statistics.median(through), 3),
        "added_cpu_ms": round(statistics.median(through) - statistics.median(plain), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with common.fake_server(), tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(given.calls, folder, given.rounds))
    result = {
        "calls": given.calls,
        "rounds": given.rounds,
        **figures,
        "target_added_ms": 1.0,
    }
    print(json.dumps(common.record("live_overhead", result, given.out)))


if __name__ == "__main__":
    main()
