"""Models for a system under check: a door that works, one that never does, and a meter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from adapters.memory.contract.network import trusted
from adapters.memory.registry import Lines
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from adapters.models.provider import Completion, CompletionCall, FaultKind, Provider, ProviderFault
from adapters.models.retry import RetryPolicy
from memprobe.config import RunConfig
from memprobe.ports import Embedder
from memprobe.systems import ModelLine
from memprobe.types import Asker
from storage.ledger import Ledger

Usage = tuple[int, int, int, int, float | None]
"""Sent calls, replayed calls, prompt tokens, completion tokens, US dollars (None = unknown)."""


@dataclass(frozen=True, slots=True)
class ContractModels:
    """Model lines that work, lines whose every call fails, and what was used so far."""

    lines: Lines
    broken: Lines
    usage: Callable[[], Usage]


class _Down:
    """A provider with an outage that does not end."""

    salt = "down"

    async def complete(self, call: CompletionCall) -> Completion:
        raise ProviderFault(FaultKind.SERVER, "the contract's own outage", status=503)

    def window(self, model: str) -> int | None:
        return None

    def count_tokens(self, model: str, text: str) -> int:
        return (len(text) + 3) // 4

    async def close(self) -> None:
        return None


@asynccontextmanager
async def contract_models(
    config: RunConfig,
    embedder: Embedder,
    folder: Path,
    providers: Mapping[str, Provider] | None = None,
) -> AsyncIterator[ContractModels]:
    """Two gateways with a door each, over a ledger in `folder`; closed when the block ends.

    What the working gateway does on the door's behalf is let through the
    contract's network block.
    """
    ledger = Ledger.open(f"sqlite:///{folder / 'ledger.sqlite'}")
    gateway = Gateway(config, ledger, providers or {})
    # A name of its own, so that nothing of the outage counts as the system's.
    down = Gateway(config, ledger, {"*": _Down()}, policy=RetryPolicy(attempts=1))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, ledger.close)
        doors = []
        for each in (gateway, down):
            stack.push_async_callback(each.close)
            door = Door(each, embedder)
            with trusted():
                await door.start()
            stack.push_async_callback(door.stop)
            doors.append(door)

        def lines(door: Door) -> Lines:
            def line(system: str, user: str, stage: str, epoch: int) -> ModelLine:
                asker = Asker(run="check", suite="contract", stage=stage, system=system, user=user)
                return door.line(asker, epoch - 1)

            return line

        yield ContractModels(lines(doors[0]), lines(doors[1]), gateway.usage)
