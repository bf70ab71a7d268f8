"""What a MemoryOS store holds: pages, segments, knowledge, a profile, and all of them together.

Source: arXiv 2506.06326 and the behaviour of the published `memoryos-pypi`. Names
in an item's `fields` are the published ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pydantic import JsonValue

from adapters.memory.memoryos.pairs import Pair
from adapters.memory.vectors import VectorIndex, Vectors
from memprobe.types import Frozen


class Page(Frozen):
    """A pair that left the short-term memory.

    `defaulted` are calls that failed and were passed over, as the published code does.
    """

    id: str
    pair: Pair
    pre_page: str | None = None
    next_page: str | None = None
    meta_info: str = ""
    defaulted: tuple[str, ...] = ()

    def embedded_text(self) -> str:
        """The text by which the page is found."""
        return self.pair.embedded_text()

    def quoted(self) -> dict[str, str]:
        """What a prompt shows of it."""
        return {
            "time": stamp(self.pair.event_time),
            "user": self.pair.user,
            "assistant": self.pair.assistant,
        }

    def text(self) -> str:
        """What a reader sees of it: both sides, and what the exchange is about so far."""
        lines = [self.pair.text()]
        if self.meta_info:
            lines.append(f"Context: {self.meta_info}")
        return "\n".join(lines)


class Placement(Frozen):
    """A page in a segment; one of two themes has two. `analyzed`: long-term memory has seen it."""

    page: str
    keywords: tuple[str, ...] = ()
    analyzed: bool = False


class Segment(Frozen):
    """Pages on one theme. `event_time` is that of the latest; visits go by the store's clock."""

    id: str
    theme: str
    summary: str
    keywords: tuple[str, ...]
    details: tuple[Placement, ...]
    event_time: datetime
    created: datetime
    last_visit: datetime
    visits: int = 0
    interactions: int = 0
    recency: float = 1.0
    heat: float = 0.0
    lfu: int = 0

    def fields(self) -> dict[str, JsonValue]:
        """Its native fields under the published names."""
        return {
            "category": "segment_summary",
            "theme": self.theme,
            "summary_keywords": list(self.keywords),
            "pages": [placement.page for placement in self.details],
            "N_visit": self.visits,
            "L_interaction": self.interactions,
            "R_recency": self.recency,
            "H_segment": self.heat,
            "access_count_lfu": self.lfu,
            "timestamp": stamp(self.created),
            "last_visit_time": stamp(self.last_visit),
        }


class Knowledge(Frozen):
    """A line about the user or the assistant, and the pages that it was drawn from."""

    id: str
    text: str
    event_time: datetime
    pages: tuple[str, ...]


class Profile(Frozen):
    """The user's traits in the model's words; each update replaces it."""

    text: str
    event_time: datetime
    updates: int = 1
    defaulted: tuple[str, ...] = ()


@dataclass
class Store:
    """All of one store. Records are immutable, so that a copy is cheap and a failed write harmless.

    `last` is the page that left the short-term memory last, `pending` a message of
    the user that nobody has answered yet, `now` the time of the latest event.
    """

    index: VectorIndex
    short: list[Pair] = field(default_factory=list)
    pending: Pair | None = None
    pages: dict[str, Page] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    user_knowledge: list[Knowledge] = field(default_factory=list)
    assistant_knowledge: list[Knowledge] = field(default_factory=list)
    profile: Profile | None = None
    last: Page | None = None
    pairs: int = 0
    segment_count: int = 0
    knowledge_count: int = 0
    now: datetime | None = None

    def copy(self) -> Store:
        """A store that changes on its own."""
        return Store(
            index=self.index.copy(),
            short=list(self.short),
            pending=self.pending,
            pages=dict(self.pages),
            segments=dict(self.segments),
            user_knowledge=list(self.user_knowledge),
            assistant_knowledge=list(self.assistant_knowledge),
            profile=self.profile,
            last=self.last,
            pairs=self.pairs,
            segment_count=self.segment_count,
            knowledge_count=self.knowledge_count,
            now=self.now,
        )

    def waiting(self) -> list[Pair]:
        """The short-term memory with the message that waits for its answer, oldest first."""
        return [*self.short, self.pending] if self.pending else list(self.short)

    def cosines(self, target: Vectors) -> dict[str, float]:
        """The cosine of a unit vector with everything in the index, by id."""
        hits = self.index.closest(target, len(self.index))
        return {hit.id: 1.0 - hit.distance / 2.0 for hit in hits}


def stamp(moment: datetime) -> str:
    """`YYYY-MM-DD HH:MM:SS` on the event's own clock."""
    return moment.strftime("%Y-%m-%d %H:%M:%S")
