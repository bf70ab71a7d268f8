"""A scripted provider, a clock that jumps, and short ways to ask."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from adapters.models.gateway import Gateway
from adapters.models.prices import Price
from adapters.models.provider import Completion, CompletionCall, ProviderFault
from adapters.models.retry import RetryPolicy
from memprobe.chat import ChatRequest
from memprobe.config import RunConfig
from memprobe.types import Asker, Message, Role, Usage
from prompts.answers import JudgeAnswer
from storage.ledger import Ledger

MODEL = "openai/mock"
GOOD = '{"score": 0.75, "reason": "close"}'
Step = str | Completion | BaseException


def completion(text: str | None, finish: str = "stop", **changes: Any) -> Completion:
    usage = changes.pop("usage", Usage(prompt_tokens=100, cached_tokens=0, completion_tokens=20))
    return Completion(text=text, finish_reason=finish, usage=usage, **changes)


class Scripted:
    """Plays its steps in order, then repeats the last; remembers the calls."""

    salt = ""

    def __init__(self, *steps: Step, gate: asyncio.Event | None = None) -> None:
        self.steps = list(steps) or [GOOD]
        self.calls: list[CompletionCall] = []
        self.gate = gate
        self.arrived = asyncio.Event()

    async def complete(self, call: CompletionCall) -> Completion:
        step = self.steps[min(len(self.calls), len(self.steps) - 1)]
        self.calls.append(call)
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(step, BaseException):
            raise step
        return completion(step) if isinstance(step, str) else step

    def window(self, model: str) -> int | None:
        return 8192

    def count_tokens(self, model: str, text: str) -> int:
        return len(text) // 4

    async def close(self) -> None:
        return None


class Hanging(Scripted):
    """Never answers."""

    async def complete(self, call: CompletionCall) -> Completion:
        self.calls.append(call)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def policy(self, **changes: Any) -> RetryPolicy:
        return RetryPolicy(sleep=self.sleep, clock=self, rng=random.Random(7), **changes)


def ledger_at(folder: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{folder / 'ledger.db'}")


def on_disk(folder: Path) -> bytes:
    """All bytes of the ledger's files."""
    return b"".join(path.read_bytes() for path in folder.glob("ledger.db*"))


def gateway(
    ledger: Ledger,
    provider: Any,
    *,
    policy: RetryPolicy | None = None,
    price: Callable[[str], Price | None] = lambda model: None,
    **config: Any,
) -> Gateway:
    settings = RunConfig(**{"name": "r1", "model": MODEL, **config})
    providers = {"*": provider, "embedded": provider}
    return Gateway(settings, ledger, providers, policy=policy or Clock().policy(), prices=price)


def request(
    text: str = "How near is it?",
    *,
    role: Role = Role.JUDGE,
    answer: type[BaseModel] | None = JudgeAnswer,
    system: str = "rag",
    item: str = "",
    **changes: Any,
) -> ChatRequest:
    asker = Asker(run="r1", suite="recovery", stage="recover", system=system, user="u1", item=item)
    messages = (Message(role="user", content=text),)
    return ChatRequest(
        role=role, messages=messages, asker=asker, prompt="judge@1", answer=answer, **changes
    )


def fault(kind: Any, detail: str = "said no", **changes: Any) -> ProviderFault:
    return ProviderFault(kind, detail, **changes)
