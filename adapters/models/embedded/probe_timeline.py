"""One reading of what happened to a fact: the value that held, and the one that replaced it.

Two linear models over the features of mentions, fitted by
`benchmarks/calibrate_probe_reader.py`. The first tells how far a mention states the
fact's value as it holds for the user; summed over the entries it gives the value that
held. The second tells how far a later mention of another value replaces it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters.models.embedded.probe_constants import ProbeConstants
from adapters.models.embedded.probe_features import NAMES, OPEN, Key, Mention, Reading
from adapters.models.embedded.probe_text import FACT, USER
from memprobe.metrics import Floats

REPLACING = (
    "same_form", "value_sim", "shares_word", "old_in_entry", "old_out", "old_stays",
    "old_later", "like_old", "new_in_entry",
)  # fmt: skip
"""What the second model sees beside `NAMES`, of a mention and the value that held."""
_AT = {name: i for i, name in enumerate(NAMES)}
ROUND = 9
HEARD = 0.3
"""Below it an entry adds nothing: many that say nothing must not outweigh one that does."""
KIN = 0.45
"""Cosine from which a word may replace a name, or a name a word."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What became of a fact. `old` is the value that held first, None when none was found.

    `new` is what replaced it, None when nothing did; `strength` is the second model's
    highest probability of a replacement, `told` the mention it was found in.
    """

    old: Key | None
    new: Key | None
    strength: float
    stated: Mention | None
    told: Mention | None

    @property
    def changed(self) -> bool:
        """Whether a value was replaced."""
        return self.new is not None

    @property
    def current(self) -> Key | None:
        """The value that holds at the end."""
        return self.new if self.new is not None else self.old


def chance(rows: Floats, weights: Sequence[float], bias: float) -> Floats:
    """The logistic of each row, rounded so that a platform's last bit decides nothing."""
    if not len(rows):
        return np.zeros(0)
    latent = np.einsum("ij,j->i", rows, np.asarray(weights, dtype=np.float64)) + bias
    out: Floats = np.round(1.0 / (1.0 + np.exp(-np.clip(latent, -30, 30))), ROUND)
    return out


def standing(reading: Reading, held: Floats, early: float) -> list[tuple[float, Key]]:
    """The candidates by how far they are stated over the entries, best first.

    An entry counts once a candidate, by its best mention; the earlier a candidate comes
    up among the entries that state anything, the more it counts.
    """
    best: dict[Key, dict[int, float]] = defaultdict(dict)
    first: dict[Key, int] = {}
    for i, m in enumerate(reading.mentions):
        entry = m.turn.entry
        best[m.key][entry] = max(best[m.key].get(entry, 0.0), float(held[i]))
        first.setdefault(m.key, i)
    span = max(1, max((m.turn.entry for m in reading.mentions), default=0))
    total = {
        key: max(p * p for p in by.values())
        + sum(p * p * (1.0 + early * (1.0 - e / span)) for e, p in sorted(by.items()) if p >= HEARD)
        for key, by in best.items()
    }
    order = sorted(total, key=lambda k: (-round(total[k], ROUND), first[k]))
    return [(total[k], k) for k in order]


def replacing_rows(reading: Reading, held: Floats, old: Key) -> tuple[list[int], Floats]:
    """The mentions that could replace a value, by index, with `NAMES` + `REPLACING` each."""
    mentions, rows = reading.mentions, reading.rows
    mine = [i for i, m in enumerate(mentions) if m.key == old]
    start = min((mentions[i].turn.entry for i in mine), default=0)
    forms = {mentions[i].span.kind for i in mine}
    by_entry: dict[int, list[int]] = defaultdict(list)
    for i in mine:
        by_entry[mentions[i].turn.entry].append(i)
    later = _later(reading, held, mine)
    within: dict[tuple[Key, int], int] = defaultdict(int)
    for m in mentions:
        within[m.key, m.turn.entry] += 1
    kin = {
        key: float(np.einsum("d,d->", vector, reading.vectors[old]))
        for key, vector in reading.vectors.items()
    }
    chosen = [
        i
        for i, m in enumerate(mentions)
        if m.key != old
        and m.turn.role in (USER, FACT)
        and (m.turn.entry > start or (m.turn.entry == start and rows[i][_AT["cue_change"]]))
        and not set(m.key) <= set(old)
        and _may_replace(m.span.kind, forms, kin[m.key])
    ]
    out = []
    for i in chosen:
        m = mentions[i]
        entry = m.turn.entry
        beside = by_entry.get(entry, [])
        out.append(
            [
                *rows[i],
                float(m.span.kind in forms),
                kin[m.key],
                float(bool(set(m.key) & set(old))),
                float(bool(beside)),
                max((_out(rows[j]) for j in beside), default=0.0),
                max((float(rows[j][_AT["cue_stay"]]) for j in beside), default=0.0),
                later.get(entry, 0.0),
                _likeness(reading, m, mine),
                min(3.0, within[m.key, entry]) / 3.0,
            ]
        )
    return chosen, np.array(out, dtype=np.float64).reshape(len(out), len(NAMES) + len(REPLACING))


def _may_replace(kind: str, forms: set[str], kin: float) -> bool:
    """Whether a span is the kind of thing that the old value is: in form, or near in meaning."""
    return kind in forms or (kind in OPEN and bool(forms & OPEN) and kin >= KIN)


def _out(row: Floats) -> float:
    """Whether the old value is told of as given up."""
    return float(max(row[_AT[n]] for n in ("out_of", "after_old", "cue_stale")))


def _likeness(reading: Reading, mention: Mention, mine: Sequence[int]) -> float:
    """How near a mention's turn is to what the user said of the old value in other entries."""
    others = sorted(
        {
            (t.entry, t.place)
            for t in (reading.mentions[i].turn for i in mine)
            if t.entry != mention.turn.entry and t.role in (USER, FACT)
        }
    )
    if not others:
        return 0.0
    here = reading.said[mention.turn.entry, mention.turn.place]
    return float(np.einsum("id,d->i", np.stack([reading.said[p] for p in others]), here).max())


def _later(reading: Reading, held: Floats, mine: Sequence[int]) -> dict[int, float]:
    """For each entry, how firmly the user states the old value again in entries after it.

    A restatement with a word of staying counts in full, a bare one little: an old
    invoice names the old value, too. Two in full are as much as it gets.
    """
    peak: dict[int, float] = defaultdict(float)
    for i in mine:
        m, row = reading.mentions[i], reading.rows[i]
        if m.turn.role not in (USER, FACT):
            continue
        stays = row[_AT["cue_stay"]] or row[_AT["turn_stay"]]
        firm = float(held[i]) * (1.0 if stays else 0.3) * (0.3 if row[_AT["cue_stale"]] else 1.0)
        peak[m.turn.entry] = max(peak[m.turn.entry], firm)
    last = max((m.turn.entry for m in reading.mentions), default=0)
    out: dict[int, float] = {}
    running = 0.0
    for entry in range(last, -1, -1):
        out[entry] = min(2.0, running) / 2.0
        running += peak.get(entry, 0.0)
    return out


def read_timeline(reading: Reading, constants: ProbeConstants) -> Timeline:
    """The reading of a fact's course, from the mentions of all its candidates."""
    held = chance(reading.rows, constants.holds, constants.holds_bias)
    order = standing(reading, held, constants.early)
    if not order or order[0][0] < constants.least:
        return Timeline(None, None, 0.0, None, None)
    old = order[0][1]
    stated = max(
        (i for i, m in enumerate(reading.mentions) if m.key == old),
        key=lambda i: (float(held[i]), -i),
    )
    chosen, rows = replacing_rows(reading, held, old)
    odds = chance(rows, constants.replaces, constants.replaces_bias)
    top = max(range(len(chosen)), key=lambda j: (float(odds[j]), j), default=None)
    strength = float(odds[top]) if top is not None else 0.0
    if top is None or strength < constants.change:
        return Timeline(old, None, strength, reading.mentions[stated], None)
    told = reading.mentions[chosen[top]]
    return Timeline(old, told.key, strength, reading.mentions[stated], told)
