"""MemoryOS stores over a server that answers by content, and short ways to write to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.memory.memoryos import MemoryOS, Options
from memprobe.systems import ModelAccess, Services
from memprobe.types import MemoryItem, MessageEvent, Protocol, SessionEvent, SessionMessage
from tests.adapters.support import START, WordEmbedder, scope
from tests.support import fake_memory_memoryos as fake
from tests.support.fake_server import FakeServer

STRICT, PAPER = Protocol.STRICT, Protocol.PAPER


class MemoryOSBench:
    """Makes opened stores that share a server; tells what they asked it."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.stores: list[MemoryOS] = []

    async def store(
        self,
        protocol: Protocol = STRICT,
        *,
        embedder: WordEmbedder | None = None,
        access: ModelAccess | None = None,
        name: str = "a",
        **options: Any,
    ) -> MemoryOS:
        """An opened store; two pairs of short-term memory unless told otherwise."""
        published = Options.published() if protocol is PAPER else {}
        given = Options.model_validate({**published, "short_term_capacity": 2, **options})
        access = access or ModelAccess(self.server.url, "key", "mock", "words")
        made = MemoryOS(Services(embedder or WordEmbedder(), protocol, access, given))
        self.stores.append(made)
        await made.open(scope(name))
        return made

    def asked(self) -> list[str]:
        """The kinds of the questions so far, in the order in which they came."""
        return [str(fake.kind_of(seen.body)) for seen in self.server.chats]

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """The requests of one kind, in order."""
        return [s.body for s in self.server.chats if fake.kind_of(s.body) == kind]

    def quoted(self, kind: str, name: str, number: int = -1) -> Any:
        """What a question of a kind quotes behind a name."""
        return fake.quoted(str(self.bodies(kind)[number]["messages"][1]["content"]), name)

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


@contextmanager
def serving() -> Iterator[MemoryOSBench]:
    """A bench with a server and no scripted answers left over."""
    fake.SCRIPT.clear()
    with FakeServer() as server:
        yield MemoryOSBench(server)
    fake.SCRIPT.clear()


def say(kind: str, *answers: str) -> None:
    """What the model says next to a kind of question."""
    fake.SCRIPT.setdefault(kind, []).extend(answers)


def themes(*contents: str, keywords: Sequence[str] = ()) -> str:
    """An answer that names a theme for each content."""
    return json.dumps([{"theme": "t", "keywords": list(keywords), "content": c} for c in contents])


def learnt(user: Sequence[str] = (), assistant: Sequence[str] = ()) -> str:
    """An answer with two marked sections."""
    parts = []
    for mark, lines in ((fake.USER_SECTION, user), (fake.ASSISTANT_SECTION, assistant)):
        parts += [mark, *(f"- {line}" for line in lines or ("None",))]
    return "\n".join(parts)


def at(day: float) -> datetime:
    """A moment so many days after the first."""
    return START + timedelta(days=day)


def said(number: int, user: str, reply: str = "Noted.", day: float | None = None) -> SessionEvent:
    """A session of one exchange."""
    when = at(number if day is None else day)
    messages = (
        SessionMessage(role="user", text=user),
        SessionMessage(role="assistant", text=reply),
    )
    return SessionEvent(messages=messages, event_time=when, session_id=f"s{number:04d}")


def message(text: str, role: str = "user", episode: int = 1, turn: int = 1) -> MessageEvent:
    return MessageEvent(
        role=role,
        text=text,
        event_time=at(episode) + timedelta(minutes=turn),
        session_id=f"s{episode:04d}",
        episode=episode,
        turn=turn,
    )


async def tell(store: MemoryOS, *texts: str, first: int = 1) -> None:
    """One exchange a day."""
    for number, text in enumerate(texts, first):
        await store.write(said(number, text))


async def of(store: MemoryOS, category: str) -> list[MemoryItem]:
    """The dump's items of one category."""
    return [item for item in await store.dump() if item.fields["category"] == category]


async def contents(store: MemoryOS, category: str) -> list[str]:
    return [item.content for item in await of(store, category)]


def new(folder: Path) -> Path:
    """An empty folder."""
    folder.mkdir(parents=True)
    return folder


def saved(folder: Path) -> dict[str, bytes]:
    """The bytes of a snapshot."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


async def snapshot(store: MemoryOS, folder: Path) -> dict[str, bytes]:
    """Save into a new folder and give its bytes."""
    await store.save(new(folder))
    return saved(folder)
