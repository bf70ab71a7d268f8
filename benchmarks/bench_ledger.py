"""How fast the ledger replays through `Gateway.ask`, and what durability costs a write.

    python -m benchmarks.bench_ledger [--calls 5000]

Writes `benchmarks/results/ledger.json`. Target: 3,000 replays a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from adapters.models.gateway import Gateway
from adapters.models.provider import Completion, CompletionCall
from benchmarks import common
from memprobe.chat import ChatRequest
from memprobe.config import RunConfig
from memprobe.types import Asker, Message, Role, Usage
from prompts.answers import JudgeAnswer
from storage.ledger import Ledger

TARGET = 3000.0


class Instant:
    """A provider that answers at once, so that only our own time is measured."""

    salt = ""

    async def complete(self, call: CompletionCall) -> Completion:
        usage = Usage(prompt_tokens=300, cached_tokens=0, completion_tokens=20)
        return Completion('{"score": 0.75, "reason": "close"}', "stop", usage)

    def window(self, model: str) -> int | None:
        return None

    def count_tokens(self, model: str, text: str) -> int:
        return len(text) // 4

    async def close(self) -> None:
        return None


def requests(count: int, run: str) -> list[ChatRequest]:
    """Judge-sized questions, each with a text of its own."""
    return [
        ChatRequest(
            role=Role.JUDGE,
            messages=(
                Message(role="system", content="You compare what was recovered. " * 40),
                Message(role="user", content=f"Recovered {i}: " + "words of a label " * 20),
            ),
            asker=Asker(run=run, suite="recovery", stage="recover", user="u", item=str(i)),
            prompt="judge@1",
            answer=JudgeAnswer,
            temperature=0.0,
        )
        for i in range(count)
    ]


async def measure(calls: int, folder: str) -> dict[str, Any]:
    url = f"sqlite:///{folder}/ledger.db"
    config = RunConfig(name="bench", model="openai/instant")
    ledger = Ledger.open(url)
    chat = Gateway(config, ledger, {"*": Instant()}, prices=lambda model: None)
    asked = requests(calls, "bench")
    begun = time.perf_counter()
    for start in range(0, calls, 64):
        await asyncio.gather(*(chat.ask(r) for r in asked[start : start + 64]))
    written = time.perf_counter() - begun
    ledger.close()

    ledger = Ledger.open(url)
    chat = Gateway(config, ledger, {"*": Instant()}, prices=lambda model: None)
    rates: list[float] = []
    quiet: list[float] = []
    for round_ in range(2):
        again = requests(calls, f"again-{round_}")
        begun, busy = time.perf_counter(), time.process_time()
        for request in again:
            await chat.ask(request)
        ledger.flush()
        rates.append(calls / (time.perf_counter() - begun))
        quiet.append(calls / (time.process_time() - busy))
    assert chat.new_calls == 0
    ledger.close()
    return {
        "durable_writes_per_s_64_at_once": round(calls / written),
        "replays_per_s_from_file": round(rates[0]),
        "replays_per_s_warm": round(rates[1]),
        "replays_per_cpu_second_from_file": round(quiet[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(given.calls, folder))
    result = {
        "calls": given.calls,
        **figures,
        "ratio_to_target": round(figures["replays_per_s_from_file"] / TARGET, 2),
    }
    print(json.dumps(common.record("ledger", result, given.out)))


if __name__ == "__main__":
    main()
