"""A place to run graphiti's real library: fake provider, gateway, door, and processes of its own.

It is never loaded here: its database and cognee's cannot be in one process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.memory.isolated import Isolated, Pool
from adapters.memory.registry import Registry
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from memprobe.config import RunConfig
from memprobe.types import Asker, Protocol, SessionEvent, SessionMessage
from storage.ledger import Ledger
from tests.adapters.support import START, WordEmbedder, scope
from tests.support.fake_server import FakeServer
from tests.support.gateways import ledger_at


class FailingEmbedder(WordEmbedder):
    """Fails on texts with the word `poison`."""

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        if any("poison" in text for text in texts):
            raise RuntimeError("the embedder is out of order")
        return await super().encode(texts)


class Site:
    """Stores by name, in processes that are used again."""

    def __init__(self, ledger: Ledger, door: Door, embedder: FailingEmbedder) -> None:
        self.ledger, self._door, self._embedder = ledger, door, embedder
        self.pool = Pool()
        self._opened: list[Isolated] = []

    async def store(
        self,
        name: str,
        protocol: Protocol = Protocol.STRICT,
        system: str = "graphiti",
        **options: Any,
    ) -> Isolated:
        def line(system: str, user: str, stage: str, epoch: int) -> Any:
            who = Asker(run="test", suite="paradigms", stage=stage, system=system, user=user)
            return self._door.line(who)

        registry = Registry(
            self._embedder,
            protocol,
            line,
            names=[system],
            options={system: options} if options else {},
        )
        registry._pool = self.pool
        made = registry.create(system, name)
        assert isinstance(made, Isolated)
        await made.open(scope(name))
        self._opened.append(made)
        return made

    async def close_stores(self) -> None:
        while self._opened:
            await self._opened.pop().close()


@asynccontextmanager
async def site(folder: Path, server: FakeServer, patch: Any) -> AsyncIterator[Site]:
    """Everything closed at the end."""
    patch.setenv("OPENAI_BASE_URL", server.url)
    patch.setenv("OPENAI_API_KEY", "x")
    ledger = ledger_at(folder)
    gateway = Gateway(RunConfig(name="test", model="openai/mock"), ledger, {})
    embedder = FailingEmbedder()
    try:
        async with Door(gateway, embedder) as door:
            here = Site(ledger, door, embedder)
            try:
                yield here
            finally:
                here.pool.close()
    finally:
        await gateway.close()
        ledger.close()


def session(
    number: int, *said: str, label: str = "", at: datetime | None = None, replies: bool = True
) -> SessionEvent:
    """What a user said in one session, with a reply that says nothing to each."""
    messages = []
    for text in said:
        messages.append(SessionMessage(role="user", text=text))
        if replies:
            messages.append(SessionMessage(role="assistant", text="Noted."))
    return SessionEvent(
        messages=tuple(messages),
        event_time=at or START + timedelta(days=number),
        session_id=f"s{number:04d}",
        label=label,
    )


def prompts(server: FakeServer) -> str:
    """All that the model was shown."""
    return "\n".join(
        str(message["content"]) for seen in server.chats for message in seen.body["messages"]
    )


def forms(server: FakeServer) -> list[str]:
    """The names of the answers that were asked for, in order."""
    return [seen.body["response_format"]["json_schema"]["name"] for seen in server.chats]
