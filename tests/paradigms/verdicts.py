"""Verdicts for the tests of statistics: by hand, or drawn with a given chance of being right."""

from __future__ import annotations

import random
from collections.abc import Callable

from memprobe.paradigms.metrics import Result
from memprobe.paradigms.protocol import RULES, probe_order
from memprobe.paradigms.scoring import Match, Score
from memprobe.paradigms.spec import Condition, Domain, Expected, ProbeType

UPDATE, PRESERVE = Condition.AUTHORITATIVE_UPDATE, Condition.THIRD_PARTY_NOISE


def scored(match: Match, probe: ProbeType, status: bool = True) -> Score:
    """A verdict; that of a conflict probe has its status part."""
    return Score(match, "made", {"status": status} if probe is ProbeType.CONFLICT else {})


def of_episode(
    name: str,
    condition: Condition,
    match_of: Callable[[ProbeType], Match],
    *,
    split: bool = False,
    epoch: int = 1,
) -> list[Result]:
    """The four results of an episode."""
    rule = RULES[condition]
    found = []
    for probe in probe_order(condition, split=split):
        match = match_of(probe)
        score = scored(match, probe, match is Match.CORRECT)
        place = (rule.paradigm, condition, Domain.WORK, split)
        found.append(Result(name, *place, probe, rule.expected, score, epoch))
    return found


def drawn(
    seed: int,
    update: float,
    preserve: float,
    *,
    episodes: int = 12,
    error: float = 0.0,
    split_every: int = 3,
) -> list[Result]:
    """Episodes by turns to update and to preserve, right with these chances."""
    draw = random.Random(seed)
    found: list[Result] = []
    for i in range(episodes):
        condition = PRESERVE if i % 2 else UPDATE
        chance = preserve if RULES[condition].expected is Expected.PRESERVE else update

        def match_of(_: ProbeType, chance: float = chance) -> Match:
            if draw.random() < error:
                return Match.EXECUTION_ERROR
            if draw.random() < chance:
                return Match.CORRECT
            return Match.PARTIAL if draw.random() < 0.3 else Match.INCORRECT

        split = condition is UPDATE and i % split_every == 0
        found += of_episode(f"e{i:02d}", condition, match_of, split=split)
    return found
