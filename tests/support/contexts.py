"""A run's context on a small data set made in code, with a real run store and registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.memory.registry import Registry
from memprobe.config import RunConfig
from memprobe.dataset import BankEntry, Dataset, Pool, Profile, TaskEntry, User, content_digest
from memprobe.ports import MemorySystem
from memprobe.systems import SystemCard
from memprobe.types import Category, Event, MemoryItem, Scope
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.context import RunContext
from tests.adapters.support import WordEmbedder
from tests.support.chat_double import ChatDouble

LAYOUT = (
    (Category.SKILL, "knot_skill"),
    (Category.KNOWLEDGE, "tide_knowledge"),
    (Category.EPISODIC, "harbour_accident"),
    (Category.SELF_MODEL, "patience_view"),
    (Category.PREFERENCE, "answer_length"),
    (Category.PREFERENCE, "tone_wish"),
)
"""Category and dimension of each target; the bank and the tasks come in this order."""


def pool() -> Pool:
    """Five categories with two dimensions each."""
    return Pool.model_validate(
        {
            "format": "memprobe.recovery.pool/1",
            "origin": "made for tests",
            "categories": [
                {
                    "name": category.value,
                    "slots": max(1, sum(c is category for c, _ in LAYOUT)),
                    "boundary": f"Everything of the kind {category.value}, and nothing else.",
                    "dimensions": [
                        {
                            "name": name,
                            "axis": f"How is it with {name}?",
                            "examples": ["well", "badly"],
                            "framework": "none",
                        }
                        for name in [d for c, d in LAYOUT if c is category]
                        + [f"spare_{category.value}"]
                    ],
                }
                for category in Category
            ],
        }
    )


def profile() -> Profile:
    return Profile.model_validate(
        {
            "age_info": {"age": 40, "age_group": "adult"},
            "gender": "female",
            "location": {"country": "Norway", "city": "Bodo"},
            "career_info": {"status": "Sails a ferry"},
            "personal_values": {"values_orientation": "steady hands"},
            "life_attitude": {
                "attitude": "One thing at a time",
                "attitude_details": "She waits until the coffee is cold.",
                "coping_mechanism": "Walks along the pier",
            },
            "personal_story": {"personal_story": "She has sailed since school."},
            "interests": {"interests": ["kites"]},
        }
    )


def user(user_id: str, number: int, targets: int) -> User:
    """A user whose texts hold words that no other text has: `gold<n>x<i>short` and the like."""
    bank: dict[Category, list[BankEntry]] = {}
    tasks = []
    for i, (category, dimension) in enumerate(LAYOUT[:targets], 1):
        entry = BankEntry(
            dimension=dimension,
            short=f"gold{number}x{i}short in brief",
            explanation=f"She has gold{number}x{i}explained. It stays hidden{number}x{i}detail.",
        )
        bank.setdefault(category, []).append(entry)
        tasks.append(
            TaskEntry(
                task=f"Help user {number} with errand {i} please.",
                rationale=f"rationale{number}x{i}",
                target_category=category,
                target_dimension=dimension,
                target_short=entry.short,
            )
        )
    return User(
        user_id=user_id,
        profile=profile(),
        memory_bank={c: tuple(entries) for c, entries in bank.items()},
        tasks=tuple(tasks),
    )


def dataset(*users: User) -> Dataset:
    """By default two users, with six and with five targets."""
    chosen = users or (user("user_001", 1, 6), user("user_002", 2, 5))
    made = pool()
    raw = [u.model_dump_json().encode() for u in chosen]
    digest = content_digest(made.model_dump_json().encode(), *raw)
    return Dataset(name="made", users=chosen, pool=made, digest=digest)


Fault = Callable[[str, Any], None]


@dataclass
class Recorded:
    """A memory system that notes each call in a journal.

    `fault` may raise instead of a call, `pause` holds a write up, `twist` changes an answer.
    """

    inner: MemorySystem
    journal: list[tuple[str, ...]]
    events: list[Event]
    queries: list[tuple[str, int]]
    fault: Fault
    twist: Callable[[str, Any], Any]
    pause: Callable[[Event], Awaitable[None]]

    def __post_init__(self) -> None:
        self.capabilities = self.inner.capabilities

    async def _call(self, name: str, detail: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        self.journal.append((name, *([str(detail)] if detail is not None else [])))
        self.fault(name, detail)
        return self.twist(name, await call())

    async def open(self, scope: Scope) -> None:
        await self._call("open", None, lambda: self.inner.open(scope))

    async def write(self, event: Event) -> None:
        self.journal.append(("write", getattr(event, "role", "document"), event.text))
        self.fault("write", event)
        await self.pause(event)
        await self.inner.write(event)
        self.events.append(event)

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        self.queries.append((query, k))
        found: list[MemoryItem] = await self._call(
            "search", query, lambda: self.inner.search(query, k)
        )
        return found

    async def dump(self) -> list[MemoryItem]:
        found: list[MemoryItem] = await self._call("dump", None, self.inner.dump)
        return found

    async def save(self, directory: Path) -> None:
        await self._call("save", None, lambda: self.inner.save(directory))

    async def restore(self, directory: Path) -> None:
        await self._call("restore", None, lambda: self.inner.restore(directory))

    async def close(self) -> None:
        await self._call("close", None, self.inner.close)


def no_fault(name: str, detail: Any) -> None:
    """Nothing fails."""


async def no_pause(event: Event) -> None:
    """Nothing is held up."""


def as_it_is(name: str, answer: Any) -> Any:
    """The system's own answer."""
    return answer


@dataclass
class RecordedSystems:
    """The real registry, with every store it makes recorded."""

    registry: Registry
    journal: list[tuple[str, ...]]
    events: list[Event] = field(default_factory=list)
    queries: list[tuple[str, int]] = field(default_factory=list)
    fault: Fault = no_fault
    twist: Callable[[str, Any], Any] = as_it_is
    pause: Callable[[Event], Awaitable[None]] = no_pause

    def card(self, name: str) -> SystemCard:
        return self.registry.card(name)

    def create(self, name: str, user: str, stage: str = "rollout", epoch: int = 1) -> MemorySystem:
        return Recorded(
            self.registry.create(name, user, stage, epoch),
            self.journal,
            self.events,
            self.queries,
            lambda call, detail: self.fault(call, detail),
            lambda call, answer: self.twist(call, answer),
            lambda event: self.pause(event),
        )


@dataclass
class Bench:
    """A context with its doubles at hand."""

    context: RunContext
    chat: ChatDouble
    systems: RecordedSystems

    @property
    def journal(self) -> list[tuple[str, ...]]:
        return self.chat.journal

    def rows(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """Rows of a table with these values, in stored order."""
        found = self.context.store.read(table)
        return [r for r in found if all(r[k] == v for k, v in where.items())]


def bench(
    location: Path, chat: ChatDouble | None = None, data: Dataset | None = None, **settings: Any
) -> Bench:
    """A run at a location; one that is there already is opened, as a resumed process would."""
    chat = chat or ChatDouble()
    data = data or dataset()
    config = RunConfig(name="t1", **({"model": chat.model} | settings))
    if RunStore.exists(location):
        store = RunStore.open(location)
    else:
        manifest = Manifest.start(config, dataset_name=data.name, dataset_digest=data.digest)
        store = RunStore.create(location, manifest)
    embedder = WordEmbedder()
    systems = RecordedSystems(Registry(embedder, config.protocol), chat.journal)
    return Bench(RunContext(config, data, store, chat, embedder, systems), chat, systems)
