"""Mem-T stores over a scripted server, and short ways to say what the policy says."""

from __future__ import annotations

import json
from typing import Any

from adapters.memory.memt import MemT, Options
from memprobe.systems import ModelAccess, Services
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, scope
from tests.support.fake_memory_memt import call
from tests.support.fake_server import FakeServer

PROTOCOLS = (Protocol.STRICT, Protocol.PAPER)


def says(*calls: str) -> dict[str, Any]:
    """A scripted answer of these texts."""
    return {"mode": "", "content": "\n".join(calls)}


def fact(text: str, start: str = "", end: str = "") -> str:
    return call("create_fact", fact=text, start_time=start, end_time=end)


def added(text: str, **times: str) -> str:
    return call("add_item", document=text, **times)


def store(
    server: FakeServer,
    protocol: Protocol = Protocol.STRICT,
    embedder: WordEmbedder | None = None,
    **options: Any,
) -> MemT:
    """An unopened store that asks the server."""
    access = ModelAccess(server.url, "key", "mock", "words")
    defaults = Options.published() if protocol is Protocol.PAPER else {}
    given = Options.model_validate({**defaults, **options})
    return MemT(Services(embedder or WordEmbedder(), protocol, access, given))


async def opened(
    server: FakeServer,
    protocol: Protocol = Protocol.STRICT,
    embedder: WordEmbedder | None = None,
    **options: Any,
) -> MemT:
    system = store(server, protocol, embedder, **options)
    await system.open(scope())
    return system


async def rows(system: MemT, category: str) -> list[dict[str, Any]]:
    """The dump's items of one collection: id, content and metadata."""
    return [
        {"id": i.id, "content": i.content, "time": i.event_time, **dict(i.fields["metadata"])}  # type: ignore[arg-type]
        for i in await system.dump()
        if i.fields["category"] == category
    ]


def asked(server: FakeServer, tool: str) -> list[dict[str, Any]]:
    """Bodies of the requests that offered a tool, in order."""
    return [s.body for s in server.chats if f'"name": "{tool}"' in s.body["messages"][0]["content"]]


def told(body: dict[str, Any], label: str) -> Any:
    """The JSON value after a label in a request's first user message."""
    text: str = body["messages"][1]["content"]
    start = text.index(f"{label}:") + len(label) + 1
    return json.JSONDecoder().raw_decode(text[start:].lstrip())[0]
