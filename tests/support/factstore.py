"""Fact stores behind a real door, gateway and ledger, with a fake server as their model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from adapters.memory.contract.models import ContractModels, contract_models
from adapters.memory.factstore import FactStore
from adapters.memory.factstore.options import Options
from memprobe.config import RunConfig
from memprobe.ports import Embedder
from memprobe.systems import Services
from memprobe.types import DocumentEvent, MemoryItem, Protocol
from tests.adapters.support import WordEmbedder, scope
from tests.support import fake_memory_factstore as fake
from tests.support.fake_server import FakeServer


def document(text: str, day: str, author: str = "Ana Brandt") -> DocumentEvent:
    """A document of a day, `2025-01-15`."""
    moment = datetime.fromisoformat(f"{day}T09:00:00").replace(tzinfo=UTC)
    return DocumentEvent(text=text, author=author, event_time=moment, session_id=f"d_{day}")


async def embedded(
    embedder: Embedder | None = None, protocol: Protocol = Protocol.STRICT, **options: JsonValue
) -> FactStore:
    """An opened store without a model."""
    published = Options.published() if protocol is Protocol.PAPER else {}
    given = Options.model_validate({**published, **options})
    store = FactStore(Services(embedder or WordEmbedder(), protocol, options=given))
    await store.open(scope())
    return store


class FactstoreBench:
    """Makes stores that share a model, and says what it answers next."""

    def __init__(self, server: FakeServer, models: ContractModels, stack: AsyncExitStack) -> None:
        self.server, self._models, self._stack = server, models, stack

    async def store(self, protocol: Protocol = Protocol.STRICT, **options: JsonValue) -> FactStore:
        """An opened store with a key of its own."""
        published = Options.published() if protocol is Protocol.PAPER else {}
        line = self._models.lines("factstore", "u", "rollout", 1)
        given = Options.model_validate({**published, **options})
        made = FactStore(Services(WordEmbedder(), protocol, line.access, given))
        await made.open(scope())
        self._stack.push_async_callback(made.close)
        return made

    async def tell(
        self,
        store: FactStore,
        event: DocumentEvent,
        *observations: dict[str, Any],
        decide: tuple[dict[str, Any], ...] = (),
        synthesise: tuple[str, ...] = (),
    ) -> None:
        """Write an event of which the model says just this."""
        said = {
            "extract": [json.dumps({"observations": list(observations)})],
            "decide": [json.dumps(one) for one in decide],
            "synthesise": [json.dumps({"statement": text}) for text in synthesise],
        }
        fake.SCRIPT.update(said)
        await store.write(event)
        assert not any(fake.SCRIPT.values()), "the store asked less than was expected"

    def kinds(self) -> list[str | None]:
        """The questions that reached the model, in order."""
        return [fake.kind_of(seen.body) for seen in self.server.chats]


@asynccontextmanager
async def factstore_bench(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FactstoreBench]:
    """A bench whose ledger is in the folder."""
    with FakeServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "placeholder")
        config = RunConfig(name="r1", model="openai/mock")
        try:
            async with AsyncExitStack() as stack:
                models = await stack.enter_async_context(
                    contract_models(config, WordEmbedder(), folder)
                )
                yield FactstoreBench(server, models, stack)
        finally:
            fake.SCRIPT.clear()


def fact(items: list[MemoryItem], fact_id: str) -> dict[str, Any]:
    """The fields of one fact of a dump."""
    return dict(next(item.fields for item in items if item.id == fact_id))


def changes(fields: dict[str, Any]) -> list[tuple[str, float, str]]:
    """A fact's history as change, confidence and day."""
    return [(r["change"], r["confidence"], r["time"][:10]) for r in fields["history"]]
