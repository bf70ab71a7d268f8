"""A run's stored verdicts as results, by system, mode and k: what every figure stands on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memprobe.paradigms.bootstrap import seeds
from memprobe.paradigms.metrics import Result
from memprobe.paradigms.scoring.results import Match, Score
from memprobe.paradigms.spec import Condition, Domain, Expected, Paradigm, ProbeType
from memprobe.paradigms.tally import Mask, Sheet, Slot, group_masks
from memprobe.systems import SystemCard
from memprobe.types import AccessMode, Protocol
from storage.catalog import connect
from storage.runs import RunStore

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES = ("probes", "probe_verdicts", "probe_failures")
FULL_CONTEXT = "full_context"

Mode = tuple[str, str, int | None]
"""System, access mode and k."""


@dataclass(frozen=True)
class Verdicts:
    """All verdicts of one layer and scorer.

    `results` has one for each slot (episode, epoch, probe) of each mode: a slot that
    broke off without a row is an execution error. `reasons` counts why there is none.
    """

    scorer: str
    slots: tuple[Slot, ...]
    results: Mapping[Mode, Sequence[Result]]
    reasons: Mapping[Mode, Counter[str]]

    @property
    def modes(self) -> list[Mode]:
        """The modes in report order."""
        return list(self.results)

    @cached_property
    def sheets(self) -> dict[Mode, Sheet]:
        """Every mode's results, ready to be counted; all over the same slots."""
        return {mode: Sheet(results, self.slots) for mode, results in self.results.items()}

    @cached_property
    def draws(self) -> dict[Mode, int]:
        """The seed of each mode's own draws."""
        return dict(zip(self.modes, seeds(len(self.modes)), strict=True))

    @cached_property
    def groups(self) -> dict[tuple[str, str], Mask]:
        """The slots of each group, by kind and name; ("", "") is the whole."""
        if not self.results:
            return {}
        facts = {result.slot: result for result in next(iter(self.results.values()))}
        return group_masks(facts, self.slots)

    def coverage(self, mode: Mode) -> tuple[int, int]:
        """Scored and attempted probes of a mode."""
        tally = self.sheets[mode].tally()
        n = tally.n("accuracy")
        return n, n + tally.n_errors("accuracy")

    def covered(self, mode: Mode, threshold: float) -> bool:
        """Whether enough of a mode could be scored for a ranking."""
        scored, total = self.coverage(mode)
        return scored > 0 and scored >= threshold * total

    @property
    def full_context(self) -> Mode | None:
        """The mode that others are held against: full context, read whole where it is."""
        found = [mode for mode in self.results if mode[0] == FULL_CONTEXT]
        return min(found, key=_mode_order, default=None)


def _mode_order(mode: Mode) -> tuple[bool, int]:
    return mode[1] != AccessMode.DUMP_ALL, -(mode[2] or 0)


_PROBES = """
SELECT user_id, probe_type, expected, paradigm, condition, domain, split
FROM probes ORDER BY user_id, probe_index
"""
_VERDICTS = """
SELECT system, access_mode, k, user_id, epoch, probe_type, match, parts_json, why, status, reason
FROM probe_verdicts WHERE layer = ? AND scorer = ?
"""


def _score(row: Sequence[Any]) -> Score:
    match, parts, why, state, reason = row
    if state == "unscored":
        kind = Match.SKIP if match == Match.SKIP.value else Match.EXECUTION_ERROR
        return Score(kind, reason)
    return Score(Match(match), why or "", json.loads(parts or "{}"))


def _result(fact: Sequence[Any], epoch: int, score: Score) -> Result:
    user, probe, expected, paradigm, condition, domain, split = fact
    return Result(
        user,
        Paradigm(paradigm),
        Condition(condition),
        Domain(domain),
        split,
        ProbeType(probe),
        Expected(expected),
        score,
        epoch,
    )


def load_verdicts(
    connection: DuckDBPyConnection, layer: str, scorer: str, order: Sequence[str] = ()
) -> Verdicts:
    """The verdicts of a layer under a scorer; systems in `order`, others by name behind them."""
    probes = connection.execute(_PROBES).fetchall()
    rows = connection.execute(_VERDICTS, [layer, scorer]).fetchall()
    place = {name: i for i, name in enumerate(order)}
    epochs = sorted({row[4] for row in rows})
    facts = {(row[0], ProbeType(row[1])): row for row in probes}
    slots = tuple(
        (user, epoch, probe) for user, probe in facts for epoch in epochs
    )  # fmt: skip
    found: dict[Mode, dict[Slot, Score]] = {}
    for system, access_mode, k, user, epoch, probe, *verdict in rows:
        mode = (system, access_mode, k)
        found.setdefault(mode, {})[user, epoch, ProbeType(probe)] = _score(verdict)
    modes = sorted(found, key=lambda m: (place.get(m[0], len(place)), m[0], m[1], m[2] or 0))
    results: dict[Mode, list[Result]] = {}
    reasons: dict[Mode, Counter[str]] = {}
    gone = Score(Match.EXECUTION_ERROR, "no answer")
    for mode in modes:
        results[mode], reasons[mode] = [], Counter()
        for slot in slots:
            score = found[mode].get(slot, gone)
            results[mode].append(_result(facts[slot[0], slot[2]], slot[1], score))
            if score.match is Match.EXECUTION_ERROR:
                reasons[mode][score.reason] += 1
    return Verdicts(scorer, slots, results, reasons)


def stored_verdicts(store: RunStore, layer: str, scorer: str | None = None) -> Verdicts:
    """`load_verdicts` of a run; without a scorer that of the run's protocol."""
    manifest = store.manifest
    with connect(store, TABLES) as connection:
        return load_verdicts(
            connection, layer, scorer or headline(store).value, manifest.system_names
        )


def headline(store: RunStore) -> Protocol:
    """The scorer whose figures stand in front: that of the run's protocol."""
    return store.manifest.config.protocol


def own_modes(modes: Sequence[Mode], cards: Mapping[str, SystemCard]) -> dict[str, Mode]:
    """One mode for each system: the one its card names where the run has it.

    Else the whole store, else the search with the most items.
    """
    out: dict[str, Mode] = {}
    for system in dict.fromkeys(mode[0] for mode in modes):
        mine = [mode for mode in modes if mode[0] == system]
        card = cards.get(system)
        if card is not None:
            named = (system, card.probe_access.value)
            k = card.probe_k if card.probe_access is AccessMode.RETRIEVE else None
            exact = [mode for mode in mine if mode[:2] == named and mode[2] == k]
            mine = exact or [mode for mode in mine if mode[:2] == named] or mine
        out[system] = min(mine, key=_mode_order)
    return out
