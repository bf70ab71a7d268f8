"""A place to run mem0's and langmem's real libraries: fake provider, gateway, ledger and door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.memory.mem0 import Mem0
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from memprobe.config import RunConfig
from memprobe.systems import ModelAccess, Services
from memprobe.types import Asker, Protocol
from storage.ledger import Ledger
from tests.adapters.support import WordEmbedder, scope
from tests.support.fake_server import FakeServer
from tests.support.gateways import ledger_at


class Site:
    """Stores by name; `embedder` counts what it encodes and fails on `poison`."""

    def __init__(
        self, gateway: Gateway, door: Door, embedder: WordEmbedder, kind: Any = Mem0
    ) -> None:
        self.gateway, self.door, self.embedder, self.kind = gateway, door, embedder, kind
        self.stores: list[Any] = []

    def access(self, user: str = "user_001") -> ModelAccess:
        system = self.kind.card.name
        who = Asker(run="test", suite="recovery", stage="rollout", system=system, user=user)
        return self.door.access(self.door.token(who))

    async def store(
        self, name: str = "a", protocol: Protocol = Protocol.STRICT, **options: Any
    ) -> Any:
        services = Services(
            embedder=self.embedder,
            protocol=protocol,
            models=self.access(name),
            options=self.kind.Options(**options),
        )
        made = self.kind(services)
        await made.open(scope(name))
        self.stores.append(made)
        return made


class PoisonedEmbedder(WordEmbedder):
    """Fails on a text of its own making that holds the word `poison`."""

    poison = ""

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        if self.poison and any(self.poison in t and not t.startswith("user:") for t in texts):
            raise RuntimeError("the embedder is out of order")
        return await super().encode(texts)


@asynccontextmanager
async def site(
    folder: Path,
    provider: Any = None,
    embedder: WordEmbedder | None = None,
    kind: Any = Mem0,
    **config: Any,
) -> AsyncIterator[Site]:
    """Everything closed at the end. `provider` stands in for the wire to the model."""
    ledger: Ledger = ledger_at(folder)
    settings = RunConfig(**{"name": "test", "model": "openai/mock", **config})
    gateway = Gateway(settings, ledger, {} if provider is None else {"*": provider})
    chosen = embedder or PoisonedEmbedder()
    try:
        async with Door(gateway, chosen) as door:
            here = Site(gateway, door, chosen, kind)
            try:
                yield here
            finally:
                for store in here.stores:
                    await store.close()
    finally:
        await gateway.close()
        ledger.close()


def prompts(server: FakeServer) -> list[str]:
    """The user part of every extraction prompt that arrived, in order."""
    return [seen.body["messages"][-1]["content"] for seen in server.chats]


def existing(prompt: str) -> list[str]:
    """The memories that a prompt shows."""
    start = prompt.index("## Existing Memories\n") + len("## Existing Memories\n")
    return [row["text"] for row in json.JSONDecoder().raw_decode(prompt[start:])[0]]
