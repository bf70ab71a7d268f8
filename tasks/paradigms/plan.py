"""What a run of the paradigms suite will ask for, from the suite's own texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import prompts
from memprobe.config import RunConfig
from memprobe.paradigms.spec import Episode
from memprobe.systems import SystemCard
from memprobe.types import AccessMode, Role
from tasks import plan_assumptions as assumed
from tasks.paradigms.answer import PROMPTS
from tasks.paradigms.context import Reading, readings
from tasks.plan_sums import Plan, Priced, Tally, estimated, plan_of
from tasks.prompt_sizes import CHARS_PER_TOKEN
from tasks.reading import ANSWER_RESERVE

ANSWER = 90
"""Completion tokens of an answer to a probe: six short fields and a sentence of reason."""
SESSION_FACTS = 3
"""Items that a system which extracts keeps of a session."""


class _Estimate(Tally):
    def __init__(self, config: RunConfig, window: int | None) -> None:
        super().__init__(config)
        self.window = window

    def ingest(self, card: SystemCard, episode: Episode) -> float:
        """The sessions of one episode; returns the seconds of their chain."""
        self.unknown_work(card)
        writes = len(episode.sessions)
        if not card.capabilities.sessions:
            writes = sum(len(session.dialogue) for session in episode.sessions)
        return writes * self.memory_work("ingest", card, card.per_message, writes)

    def seen(self, card: SystemCard, way: Reading, episode: Episode) -> float:
        """Tokens of a store that a reader is shown for one probe."""
        sessions = [len(session.text()) / CHARS_PER_TOKEN for session in episode.sessions]
        if not card.capabilities.stores:
            return 0.0
        if not card.capabilities.verbatim:
            items = SESSION_FACTS * len(sessions)
            shown = items if way.mode is AccessMode.DUMP_ALL else min(items, way.k or items)
            return shown * assumed.EXTRACTED_ITEM_TOKENS
        if card.sees_gold == "sessions":
            kept = [not session.session_type.filler for session in episode.sessions]
            return sum(size for size, keep in zip(sessions, kept, strict=True) if keep)
        if way.mode is AccessMode.DUMP_ALL or way.k is None:
            return sum(sessions)
        whole = card.capabilities.sessions
        units = len(sessions) if whole else sum(len(s.dialogue) for s in episode.sessions)
        return sum(sessions) * min(1.0, way.k / units)

    def answer(self, card: SystemCard, episode: Episode) -> float:
        """The probes of one episode in all readings; returns the seconds of the chain."""
        if card.sees_gold == "values":
            return 0.0
        latency = 0.0
        for way in readings(self.config, card):
            shown = self.seen(card, way, episode)
            if self.window is not None and shown + ANSWER_RESERVE > self.window:
                self.notes[
                    f"{card.name}: about {shown:,.0f} tokens of an episode do not fit the window "
                    f"of {self.window:,}; its probes will be unscored (store_overflow)"
                ] = None
                continue
            for probe in episode.probes:
                messages = prompts.load(PROMPTS[probe.probe_type]).render(
                    probe_type=probe.probe_type.value, question=probe.question, entries=[]
                )
                frame = sum(len(m.content) for m in messages) / CHARS_PER_TOKEN
                latency = self.add("answer", card.name, Role.READER, 1, frame + shown, ANSWER)
        searched = any(way.mode is AccessMode.RETRIEVE for way in readings(self.config, card))
        times = len(episode.probes) if searched else 0
        return latency + times * self.memory_work("answer", card, card.per_search, times)


def estimate_paradigms(
    config: RunConfig,
    episodes: Sequence[Episode],
    cards: Sequence[SystemCard],
    *,
    price: Callable[[str], Priced | None],
    window: int | None = None,
) -> Plan:
    """Estimate a run over these episodes; `window` is the reader's, in tokens."""
    work = _Estimate(config, window)
    for card in cards:
        for episode in episodes:
            work.chains.append(work.ingest(card, episode) + work.answer(card, episode))
    for sums in work.sums.values():
        for name in ("calls", "prompt", "cached", "completion", "seconds"):
            setattr(sums, name, getattr(sums, name) * config.epochs)
    n = len(episodes)
    return plan_of(work, [card.name for card in cards], n, n, price, [estimated("")])
