"""Test doubles and shorthand for memory systems."""

import hashlib
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from adapters.memory.registry import Registry
from memprobe.errors import MemProbeError
from memprobe.ports import MemorySystem
from memprobe.systems import ModelAccess
from memprobe.types import MessageEvent, Protocol, Scope

START = datetime(2023, 5, 7, 18, 30, tzinfo=UTC)


class WordEmbedder:
    """Hashed bags of words: deterministic, needs no model; counts what it encodes."""

    name = "words"
    dimensions = 64

    def __init__(self) -> None:
        self.encoded: list[str] = []

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        self.encoded += texts
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        row = [0.0] * self.dimensions
        for word in text.lower().split():
            digest = hashlib.sha256(word.encode("utf-8", "replace")).digest()
            row[digest[0] % self.dimensions] += 1.0
        norm = math.sqrt(sum(x * x for x in row)) or 1.0
        return [x / norm for x in row]


def scope(name: str = "a", user: str = "user_001") -> Scope:
    return Scope(run="test", system="test", user=user, key=f"test_{name}")


def event(text: str, *, role: str = "user", episode: int = 1, turn: int = 1) -> MessageEvent:
    return MessageEvent(
        role=role,
        text=text,
        event_time=START + timedelta(days=episode, minutes=turn),
        session_id=f"s{episode:04d}",
        episode=episode,
        turn=turn,
    )


async def opened(
    name: str, embedder: WordEmbedder | None = None, protocol: Protocol = Protocol.STRICT
) -> MemorySystem:
    system = Registry(embedder or WordEmbedder(), protocol).create(name, "user_001")
    await system.open(scope())
    return system


async def two_episodes(system: MemorySystem) -> None:
    """As the rollout writes them: the message that was answered, then its reply."""
    await system.write(event("plan a trip", turn=1))
    await system.write(event("where to?", role="assistant", turn=1))
    await system.write(event("Lisbon, I hate heat", turn=2))
    await system.write(event("go in March", role="assistant", turn=2))
    await system.write(event("thanks", turn=3))
    await system.write(event("write a poem", episode=2, turn=1))
    await system.write(event("roses are red", role="assistant", episode=2, turn=1))
    await system.write(event("lovely", episode=2, turn=2))


class FixedLine:
    """A model line whose other end nobody watches."""

    def __init__(self, access: ModelAccess) -> None:
        self.access = access
        self.begun: list[str] = []
        self.failures: list[MemProbeError] = []
        self.closed = False

    def begin(self, item: str) -> None:
        self.begun.append(item)

    def failure(self) -> MemProbeError | None:
        return self.failures.pop() if self.failures else None

    def close(self) -> None:
        self.closed = True
