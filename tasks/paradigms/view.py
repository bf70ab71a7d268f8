"""What a reader is shown of a memory, and what a search is asked.

Pure functions. Under the strict protocol nothing of the design reaches either:
no session type, no gold. Under `paper` the two published leaks are reproduced:
headers name a session's type, and the keyword baselines are asked with the gold.
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.memory.sessions import BASELINES, NaiveRag, TimeAwareRag
from memprobe.errors import AdapterError
from memprobe.paradigms.spec import Episode, Probe
from memprobe.systems import SystemCard
from memprobe.types import MemoryItem, Protocol
from tasks.paradigms.inputs import session_id

Entry = dict[str, str]
"""`header` and `text` of one thing that a reader sees."""

BY_KEYWORDS = frozenset({NaiveRag.card.name, TimeAwareRag.card.name})
"""The baselines whose published keywords include the gold; all others are asked the question."""


def query_of(episode: Episode, probe: Probe, protocol: Protocol, card: SystemCard) -> str:
    """What a system is searched with for a probe.

    The question. Under `paper` the keyword baselines get the fact's two values,
    its distractors and its type as well: their published keywords are the words of
    all of these.
    """
    if protocol is not Protocol.PAPER or card.name not in BY_KEYWORDS:
        return probe.question
    spec = episode.spec
    known = (spec.initial_value, spec.new_value, *spec.distractor_values, spec.fact_type)
    return " ".join((probe.question, *known))


def entries_of(
    card: SystemCard,
    items: Sequence[MemoryItem],
    episode: Episode,
    protocol: Protocol,
    *,
    hide_session_type: bool = False,
) -> list[Entry]:
    """A system's items as the reader's entries.

    A baseline's sessions stand in time order under `Session 3 of 22, 2025-01-23`, or
    numbered anew (`Session 3, 2025-01-23`) where the published reader is not told
    their place. Any other system's items keep their order under `Memory 3,
    2025-01-23 18:30`, without a time that the item does not have. Raises
    `AdapterError` for a baseline's item that is of no session of the episode.
    """
    if card.name not in BASELINES:
        return [
            {"header": _memory(number, item), "text": item.content}
            for number, item in enumerate(items, 1)
        ]
    numbered = BASELINES[card.name].true_index
    typed = protocol is Protocol.PAPER and not hide_session_type
    ordered = sorted(_placed(episode, items), key=lambda pair: pair[0])
    entries = []
    for shown, (place, item) in enumerate(ordered, 1):
        session = episode.sessions[place - 1]
        number = f"{place} of {len(episode.sessions)}" if numbered else f"{shown}"
        kind = f" ({session.session_type.value})" if typed else ""
        header = f"Session {number}, {session.time.date()}{kind}"
        entries.append({"header": header, "text": item.content})
    return entries


def oracle_items(episode: Episode, items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Those of a baseline's items that are encodings or perturbations, in their order."""
    return [
        item
        for place, item in _placed(episode, items)
        if not episode.sessions[place - 1].session_type.filler
    ]


def _memory(number: int, item: MemoryItem) -> str:
    if item.event_time is None:
        return f"Memory {number}"
    return f"Memory {number}, {item.event_time:%Y-%m-%d %H:%M}"


def _placed(episode: Episode, items: Sequence[MemoryItem]) -> list[tuple[int, MemoryItem]]:
    """Each item with its session's place in the episode, from 1."""
    places = {session_id(place): place for place in range(1, len(episode.sessions) + 1)}
    found = []
    for item in items:
        place = places.get(str(item.fields.get("session_id")))
        if place is None:
            raise AdapterError(f"item {item.id} is of no session of episode {episode.id}")
        found.append((place, item))
    return found
