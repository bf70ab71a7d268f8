"""What the checks share: results, fresh stores, events and look-ups."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from pydantic import JsonValue

from adapters.memory.contract.models import ContractModels
from memprobe.ids import slug
from memprobe.ports import Capabilities, MemorySystem
from memprobe.systems import SystemCard
from memprobe.types import MemoryItem, MessageEvent, Protocol, Scope

EVENT_TIME = datetime(2023, 5, 7, 18, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of the contract. A skipped check does not apply and counts as passed.

    `figures` are what a check measured, e.g. the price of taking a dialogue in.
    """

    name: str
    passed: bool
    detail: str
    seconds: float
    skipped: bool = False
    figures: dict[str, float | None] | None = None


class Measured(Exception):
    """A check that passed and has figures to show."""

    def __init__(self, detail: str, figures: dict[str, float | None]) -> None:
        super().__init__(detail)
        self.figures = figures


class Violation(Exception):
    """The contract is broken: what was expected, what came, and how to put it right."""

    def __init__(self, expected: str, came: str, fix: str) -> None:
        super().__init__(f"expected {expected}; came {came}; fix: {fix}")


class NotApplicable(Exception):
    """The check does not apply to this system; the message says why."""


def marker(label: str, number: int = 0) -> str:
    """A word that occurs nowhere else and of which no other marker is a part."""
    digest = hashlib.sha256(f"{label}/{number}".encode()).hexdigest()[:8]
    return f"mk{digest}{number:05d}"


def message(
    text: str,
    *,
    number: int = 1,
    role: str = "user",
    at: datetime | None = None,
    session: str = "s0001",
) -> MessageEvent:
    """A dialogue message of one episode, a minute after the one before."""
    when = at or EVENT_TIME + timedelta(minutes=number)
    return MessageEvent(
        role=role, text=text, event_time=when, session_id=session, episode=1, turn=number
    )


@dataclass
class Bench:
    """The system under check and the stores opened by the running check."""

    factory: Callable[[], MemorySystem]
    card: SystemCard
    workdir: Path
    spec: str | None = None
    protocol: Protocol = Protocol.STRICT
    models: ContractModels | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    broken: Callable[[], MemorySystem] | None = None
    ks: tuple[int, ...] = (1, 3, 5, 10)
    items: int = 500
    time_limit: float = 900.0
    passed: dict[str, bool] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    _run: str = field(default_factory=lambda: f"contract_{uuid4().hex[:8]}")
    _opened: list[MemorySystem] = field(default_factory=list)

    @property
    def can(self) -> Capabilities:
        """What the system declares."""
        return self.card.capabilities

    @property
    def asks(self) -> bool:
        """Whether the system works with a language model here."""
        return self.can.needs_llm or (self.can.uses_llm and self.models is not None)

    def scope(self, name: str, user: str = "user_001") -> Scope:
        """A scope of this suite's run; equal names give equal scopes."""
        key = slug(f"{self._run}/{self.card.name}/{name}")
        return Scope(run=self._run, system=self.card.name, user=user, key=key)

    async def open(
        self, name: str, user: str = "user_001", make: Callable[[], MemorySystem] | None = None
    ) -> MemorySystem:
        """A fresh object, opened; it is closed when the check ends."""
        store = (make or self.factory)()
        self._opened.append(store)
        await store.open(self.scope(name, user))
        return store

    async def close_all(self) -> None:
        """Close what the check opened, the last first; `close` may be called twice."""
        while self._opened:
            await self._opened.pop().close()

    def folder(self, name: str) -> Path:
        """A new empty directory."""
        path = self.workdir / self._run / name
        path.mkdir(parents=True)
        return path

    async def find(self, store: MemorySystem, word: str) -> list[MemoryItem]:
        """The items that hold a word: of the dump, or of a search where there is no full dump."""
        if self.can.full_dump:
            items = await store.dump()
        else:
            items = await store.search(word, max(self.ks))
        return [item for item in items if word in item.content]

    def needs_stores(self) -> None:
        """Raise `NotApplicable` for a system that keeps nothing."""
        if not self.can.stores:
            raise NotApplicable("declares stores=False: it keeps nothing")

    def needs_verbatim(self) -> None:
        """Raise `NotApplicable` for a system that rewrites what it is told."""
        self.needs_stores()
        if not self.can.verbatim:
            raise NotApplicable("declares verbatim=False: it rewrites what it is told")


def shown(text: object, limit: int = 120) -> str:
    """A short, printable form of what came."""
    raw = ascii(text) if isinstance(text, str) else repr(text)
    return raw if len(raw) <= limit else f"{raw[:limit]}... ({len(raw)} characters)"
