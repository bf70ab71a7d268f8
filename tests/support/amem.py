"""A-MEM stores behind a real door, gateway and ledger, with a fake server as their model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from adapters.memory.amem import AMem
from adapters.memory.amem.system import Options
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from adapters.models.prices import Price, price_of
from adapters.models.retry import RetryPolicy
from memprobe.config import RunConfig
from memprobe.systems import ModelAccess, Services
from memprobe.types import Asker, MemoryItem, Protocol
from storage.ledger import Ledger
from tests.adapters.support import WordEmbedder, scope
from tests.support.fake_server import FakeServer
from tests.support.gateways import ledger_at

Prices = Callable[[str], Price | None]
STRICT, PAPER = Protocol.STRICT, Protocol.PAPER


def analysis(
    keywords: Sequence[str] = ("key",), context: str = "About it.", tags: Sequence[str] = ("tag",)
) -> str:
    """A model's description of a note."""
    return json.dumps({"keywords": list(keywords), "context": context, "tags": list(tags)})


def evolution(*actions: str, **changes: Any) -> str:
    """A model's decision; without actions and changes: nothing evolves."""
    value: dict[str, Any] = {
        "should_evolve": bool(actions),
        "actions": list(actions),
        "suggested_connections": [],
        "tags_to_update": [],
        "new_context_neighborhood": [],
        "new_tags_neighborhood": [],
    }
    return json.dumps({**value, **changes})


class AmemBench:
    """Makes stores that share a model; remembers the requests."""

    def __init__(
        self, server: FakeServer, ledger: Ledger, prices: Prices | None = None, **config: Any
    ) -> None:
        self.server, self.ledger = server, ledger
        quick = RetryPolicy(base_s=0.001, cap_s=0.01, attempts=2, deadline_factor=50)
        settings = RunConfig(**{"name": "r1", "model": "openai/mock", **config})
        self.gateway = Gateway(settings, ledger, {}, policy=quick, prices=prices or price_of)
        self.door = Door(self.gateway, WordEmbedder())
        self._stores: list[AMem] = []

    async def store(
        self,
        protocol: Protocol = STRICT,
        *,
        embedder: WordEmbedder | None = None,
        name: str = "a",
        **options: JsonValue,
    ) -> AMem:
        """An opened store with a key of its own."""
        published = Options.published() if protocol is PAPER else {}
        asker = Asker(run="r1", suite="recovery", stage="rollout", system="amem", user=name)
        access = ModelAccess(await self.door.start(), self.door.token(asker), "memory", "minilm")
        given = Options.model_validate({**published, **options})
        made = AMem(Services(embedder or WordEmbedder(), protocol, access, given))
        self._stores.append(made)
        await made.open(scope(name))
        return made

    def say(self, *answers: str) -> None:
        """What the model says next, word by word."""
        self.server.script(*({"mode": "", "content": text} for text in answers))

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests that reached the model."""
        return [seen.body for seen in self.server.chats]

    def asked(self, number: int = -1) -> str:
        """The first user message of a request."""
        messages = self.bodies[number]["messages"]
        return str(next(m["content"] for m in messages if m["role"] == "user"))

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        await self.door.stop()
        await self.gateway.close()


@asynccontextmanager
async def amem_bench(
    folder: Path, monkeypatch: pytest.MonkeyPatch, prices: Prices | None = None, **config: Any
) -> AsyncIterator[AmemBench]:
    """A bench whose ledger is in the folder."""
    with FakeServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "placeholder")
        ledger = ledger_at(folder)
        bench = AmemBench(server, ledger, prices, **config)
        try:
            yield bench
        finally:
            await bench.close()
            ledger.close()


def lines(prompt: str) -> list[dict[str, Any]]:
    """The neighbour lines of an evolution prompt, split at their tabs."""
    block = prompt.partition("nearest first:\n")[2]
    return [
        {name: json.loads(value) for name, _, value in (p.partition(": ") for p in row.split("\t"))}
        for row in block.split("\n")
        if row
    ]


def new(folder: Path) -> Path:
    """An empty folder."""
    folder.mkdir(parents=True)
    return folder


def saved(folder: Path) -> dict[str, bytes]:
    """The bytes of a snapshot."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def snapshot(store: AMem, folder: Path) -> dict[str, bytes]:
    """Save into a new folder and give its bytes."""
    await store.save(new(folder))
    return saved(folder)


def tags(items: list[MemoryItem]) -> list[JsonValue]:
    """The tags of each item."""
    return [item.fields["tags"] for item in items]
