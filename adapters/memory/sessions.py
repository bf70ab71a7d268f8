"""The baselines of the paradigms suite: a store that keeps whole sessions, in eight roles.

A session is one item: a conversation that is written at once, the messages of
one session id that come one by one, or a document. None asks a model or an
embedder, and none is handed gold: what a reference sees of it (`sees_gold` on
its card) is applied by the suite, outside the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from adapters.memory.rag import tokenize
from adapters.memory.refusals import check_text
from adapters.memory.snapshots import read_snapshot, write_snapshot
from memprobe.errors import AdapterError, SnapshotError, UnsupportedEvent
from memprobe.ports import Capabilities
from memprobe.stopwords import STOP_WORDS
from memprobe.systems import SystemCard
from memprobe.types import (
    AccessMode,
    DocumentEvent,
    Event,
    MemoryItem,
    MessageEvent,
    Scope,
    SessionEvent,
    SessionMessage,
)

PART = "sessions.jsonl"
ROLES = ("user", "assistant", "tool_output")
SHORTEST = 3
"""Letters of a word that counts as a keyword."""
_STOP = frozenset(STOP_WORDS.split())


def keywords(query: str) -> frozenset[str]:
    """The words of a query that a search looks for: three letters or more, no stop words."""
    return frozenset(w for w in tokenize(query) if len(w) >= SHORTEST and w not in _STOP)


def keyword_share(wanted: frozenset[str], text: str) -> float:
    """Share of the keywords that occur in a text, as substrings in any case; 0 without keywords."""
    low = text.casefold()
    return sum(word in low for word in wanted) / len(wanted) if wanted else 0.0


@dataclass(slots=True)
class Kept:
    """A kept session. `told` is "session", "message" (it may go on) or "document"."""

    session_id: str
    event_time: datetime
    told: str
    text: str

    def row(self) -> dict[str, str]:
        """As a snapshot keeps it."""
        return {
            "session_id": self.session_id,
            "event_time": self.event_time.isoformat(),
            "told": self.told,
            "text": self.text,
        }

    @classmethod
    def from_row(cls, row: dict[str, str]) -> Kept:
        """The inverse of `row`; raises `KeyError`, `TypeError` or `ValueError`."""
        moment = datetime.fromisoformat(row["event_time"])
        return cls(str(row["session_id"]), moment, str(row["told"]), str(row["text"]))


def _dialogue(event: MessageEvent | SessionEvent, name: str) -> str:
    """An event's lines, `User: ..` and so on; refuses a role that no reader would know."""
    if isinstance(event, MessageEvent):
        said = (SessionMessage(role=event.role, text=event.text),)
        event = SessionEvent(messages=said, event_time=event.event_time, session_id="")
    for message in event.messages:
        if message.role not in ROLES:
            raise UnsupportedEvent(f"{name}: no message of role {message.role!r} is kept")
    return event.text


class SessionStore:
    """Sessions in order. A search ranks them by `rank`, the earlier first where scores are equal.

    An item's id is `s0001` and so on, its time that of the session's beginning;
    `fields` holds the session's own id.
    """

    capabilities = Capabilities(documents=True, sessions=True)
    card: ClassVar[SystemCard]
    true_index: ClassVar[bool] = True
    """Whether a reader is told a session's place among all, or its place among those shown."""

    def __init__(self) -> None:
        self.name = self.card.name
        self._kept: list[Kept] = []
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise AdapterError(f"{self.name}: the store is not open")

    async def open(self, scope: Scope) -> None:
        """An empty store; it lives in this object alone, so no other scope can be seen in it."""
        if self._open:
            raise AdapterError(f"{self.name}: the store is open already")
        self._kept, self._open = [], True

    async def write(self, event: Event) -> None:
        """Keep a session; a message goes to what came of its session before, if anything did."""
        self._check()
        check_text(self.name, event.text)
        if isinstance(event, DocumentEvent):
            told, text = "document", f"[{event.author}, {event.event_time.date()}] {event.text}"
        else:
            told = "message" if isinstance(event, MessageEvent) else "session"
            text = _dialogue(event, self.name)
        begun = self._begun(event.session_id) if told == "message" else None
        if begun is not None:
            begun.text += f"\n{text}"
        else:
            self._kept.append(Kept(event.session_id, event.event_time, told, text))

    def _begun(self, session_id: str) -> Kept | None:
        """The session that a message goes on with."""
        for kept in reversed(self._kept):
            if kept.told == "message" and kept.session_id == session_id:
                return kept
        return None

    def rank(self, query: str, texts: Sequence[str]) -> list[float]:
        """A score for each session, higher is nearer: its share of the query's keywords."""
        wanted = keywords(query)
        return [keyword_share(wanted, text) for text in texts]

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """The `k` best sessions, nearest first."""
        self._check()
        if k < 1:
            raise AdapterError(f"{self.name}: k is {k}, at least 1 is needed")
        scores = self.rank(query, [kept.text for kept in self._kept])
        order = sorted(range(len(scores)), key=lambda place: -scores[place])[:k]
        return [self._item(place, scores[place]) for place in order]

    async def dump(self) -> list[MemoryItem]:
        """Every session in the order of writing."""
        self._check()
        return [self._item(place) for place in range(len(self._kept))]

    def _item(self, place: int, score: float | None = None) -> MemoryItem:
        kept = self._kept[place]
        return MemoryItem(
            id=f"s{place + 1:04d}",
            content=kept.text,
            event_time=kept.event_time,
            score=score,
            fields={"session_id": kept.session_id},
        )

    async def save(self, directory: Path) -> None:
        """Write the sessions and an index with their hash; equal stores give equal bytes."""
        self._check()
        rows = [json.dumps(k.row(), ensure_ascii=False, sort_keys=True) for k in self._kept]
        raw = "".join(f"{row}\n" for row in rows).encode()
        write_snapshot(directory, self.name, "", len(rows), {PART: raw})

    async def restore(self, directory: Path) -> None:
        """Read a snapshot. Raises `SnapshotError` when any part is off."""
        self._check()
        if self._kept:
            raise SnapshotError(f"{self.name}: only an empty store can be restored")
        count, parts = read_snapshot(directory, self.name, "", (PART,))
        try:
            lines = parts[PART].decode().split("\n")[:-1]
            loaded = [Kept.from_row(json.loads(line)) for line in lines]
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"{directory}: unreadable snapshot ({error})") from error
        if len(loaded) != count:
            raise SnapshotError(f"{directory}: {count} sessions announced, {len(loaded)} found")
        self._kept = loaded

    async def close(self) -> None:
        """Drop the sessions."""
        self._kept, self._open = [], False


_BY_WORDS = "share of the query's keywords that occur in the session, 0 to 1"
_GOLD_WORDS = (
    "Under --protocol paper the suite adds the fact's values, its distractors and its "
    "type to the query, as published: the retrieval then knows the gold."
)


def _card(name: str, title: str, summary: str, **more: Any) -> SystemCard:
    return SystemCard(
        name=name,
        title=title,
        summary=summary,
        licence="Apache-2.0",
        capabilities=SessionStore.capabilities,
        **{"score_scale": _BY_WORDS, **more},
    )


def _reference(name: str, title: str, summary: str, sees: str, note: str) -> SystemCard:
    return _card(
        name,
        title,
        summary,
        suites=("paradigms",),
        probe_access=AccessMode.DUMP_ALL,
        sees_gold=sees,
        notes=(note, "No memory system: compare with it, do not rank it."),
    )


class FullContext(SessionStore):
    """Everything is read."""

    card = _card(
        "full_context",
        "Full context (every session)",
        "Keeps whole sessions; the reader sees all of them in order.",
        probe_access=AccessMode.DUMP_ALL,
        reply_access="dump_all",
        notes=("A reference of the paradigms suite: what can be read when nothing is lost.",),
    )


class NaiveRag(SessionStore):
    """The sessions that share most words with the question, as if there were no others."""

    card = _card(
        "naive_rag",
        "Sessions by keywords",
        "Keeps whole sessions; the reader sees the 5 with most words of the question.",
        probe_k=5,
        notes=(
            "A reference of the paradigms suite: the shown sessions are numbered anew.",
            _GOLD_WORDS,
        ),
    )
    true_index = False


class TimeAwareRag(SessionStore):
    """`NaiveRag` whose reader is told where each session stood."""

    card = _card(
        "time_aware_rag",
        "Sessions by keywords, with their place",
        "As naive_rag, and the reader is told which of all sessions each one is.",
        probe_k=5,
        notes=(
            "A reference of the paradigms suite: the shown sessions keep their numbers.",
            _GOLD_WORDS,
        ),
    )


class Recency(SessionStore):
    """The last sessions, whatever the question."""

    card = _card(
        "recency",
        "The last sessions",
        "Keeps whole sessions; the reader sees the last 5, whatever is asked.",
        probe_k=5,
        score_scale="number of the session, the last is highest",
        notes=("A reference of the paradigms suite: retrieval that ignores the question.",),
    )
    true_index = False

    def rank(self, query: str, texts: Sequence[str]) -> list[float]:
        """The later, the nearer."""
        return [float(place) for place in range(1, len(texts) + 1)]


class OracleRag(SessionStore):
    """The sessions that hold the fact, picked by the suite."""

    card = _reference(
        "oracle_rag",
        "Oracle retrieval",
        "The reader sees the sessions that state or challenge the fact, and no others.",
        "sessions",
        "A reference that is handed gold: the suite picks the sessions by their part in the "
        "design. It bounds what a perfect retrieval would gain.",
    )


class LatestValue(SessionStore):
    """Answers with the value that was mentioned last."""

    card = _reference(
        "latest_value",
        "Rule: the latest value",
        "Answers with the one of the fact's known values that was mentioned last.",
        "values",
        "A reference that is handed gold: the fact's values. No reader is asked, and "
        "temporal questions stay unanswered.",
    )


class AlwaysUpdate(SessionStore):
    """Answers that the new value holds."""

    card = _reference(
        "always_update",
        "Rule: always update",
        "Answers that the new value holds, in every episode.",
        "values",
        "A reference that is handed gold: the fact's values. No reader is asked. All "
        "plasticity, no stability.",
    )


class AlwaysPreserve(SessionStore):
    """Answers that the first value holds."""

    card = _reference(
        "always_preserve",
        "Rule: always preserve",
        "Answers that the first value holds, in every episode.",
        "values",
        "A reference that is handed gold: the fact's values. No reader is asked. All "
        "stability, no plasticity.",
    )


BASELINES: dict[str, type[SessionStore]] = {
    cls.card.name: cls
    for cls in (
        FullContext, NaiveRag, TimeAwareRag, Recency, OracleRag, LatestValue, AlwaysUpdate,
        AlwaysPreserve,
    )
}  # fmt: skip
"""The baselines by name."""
