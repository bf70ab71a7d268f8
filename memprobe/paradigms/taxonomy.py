"""Why a probe was not answered right: which failure, and on which side of the memory.

**Side**, from where the evidence is that the probe needs (values as whole tokens,
see `scoring.values`; what a reader saw counts as stored):

- `storage`: a part of it is in no stored item. Current value "Quayside Pool"; every
  item says "swims at Harrow Baths".
- `retrieval`: all of it is stored, a part is not in what the reader saw. Item 7 of 9
  has "Quayside Pool", the search brought items 1 to 5.
- `readout`: the reader saw all of it and answered wrong.

What is needed: `current_value` the value that holds; `previous_value` the old value;
`change` both values after an update, the value that holds otherwise; `temporal` the new
value and the trigger (as much of it as the scorer asks for); `source` and
`conflict_value` the contested value and, where it was no word of the user, in the same
item a word of its source. An item that rules a value out ("no longer at Harrow
Baths") is evidence of what was, not of what holds.

**Failure**, the first that applies:

1. `missed_update`: after an update the answer keeps the old state: current value
   "Harrow Baths"; or `changed: false`; or the user's own change told as not accepted.
2. `over_update`: without one the answer takes the new state over: current value
   "Quayside Pool" where Dov swims; `changed: true`; `applies_to_target: true`.
3. `retrieval_miss`: the side is retrieval. Previous value "unknown", and item 2, not
   among the five that were found, says "swims at Harrow Baths".
4. `temporal`: a temporal probe. "In May, no trigger known": the sauna's closing is
   in no item, or it was seen and not told.
5. Side storage: `historical_erasure` for a previous value ("Harrow Baths" was
   overwritten), `source_loss` for source and conflict ("somebody swims at Quayside
   Pool": Dov is gone), else `extraction`: it was said and never kept ("unknown", as no
   item names a pool).
6. Side readout: `integration` when no seen item has all of it ("Harrow Baths" in item
   1, "Quayside Pool" in item 7) or the answer names the old and the new value beside
   each other; else `extraction`: one seen item has all of it and the answer does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memprobe.paradigms.protocol import RULES
from memprobe.paradigms.scoring.results import Key, Score, key_of
from memprobe.paradigms.scoring.strict import (
    allowed_sources,
    says_changed,
    shares_trigger,
    told_sources,
)
from memprobe.paradigms.scoring.values import named
from memprobe.paradigms.spec import Episode, Expected, Probe, ProbeType


class Failure(StrEnum):
    """What went wrong; the module tells the rule of each."""

    MISSED_UPDATE = "missed_update"
    OVER_UPDATE = "over_update"
    HISTORICAL_ERASURE = "historical_erasure"
    SOURCE_LOSS = "source_loss"
    TEMPORAL = "temporal"
    RETRIEVAL_MISS = "retrieval_miss"
    INTEGRATION = "integration"
    EXTRACTION = "extraction"


class Side(StrEnum):
    """Where it went wrong."""

    STORAGE = "storage"
    RETRIEVAL = "retrieval"
    READOUT = "readout"


@dataclass(frozen=True, slots=True)
class Stored:
    """An item of a memory, or a part of what a reader saw of it."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A failure, its side, why in a sentence, and the items that the sentence is about.

    The items are those that the reader saw the evidence in (readout), that had it and
    were not seen (retrieval), or that have what there is of it (storage; where there
    is nothing, those that name the other value).
    """

    failure: Failure
    side: Side
    evidence: str
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """A piece of evidence: what it is in words, and whether a text has it."""

    what: str
    holds: Callable[[str], bool]


def needs(key: Key) -> tuple[Need, ...]:
    """The pieces of evidence without which a probe cannot be answered from a memory."""
    old, new = (key.initial,), (key.new,)
    updates = RULES[key.condition].expected is Expected.UPDATE
    before = Need(
        f'the old value "{key.initial}"', lambda text: named(old, text, new, ruled_out=True)
    )
    kept = Need(f'the value "{key.initial}"', lambda text: named(old, text, new))
    now = Need(f'the new value "{key.new}"', lambda text: named(new, text, old))
    match key.probe_type:
        case ProbeType.CURRENT:
            return (now if updates else kept,)
        case ProbeType.PREVIOUS:
            return (before,)
        case ProbeType.CHANGE:
            return (before, now) if updates else (kept,)
        case ProbeType.TEMPORAL:
            if key.temporal is None:
                return (now,)
            trigger = Need(
                f'the trigger "{key.temporal.trigger}"', lambda text: shares_trigger(key, text)
            )
            return (now, trigger)
        case ProbeType.SOURCE | ProbeType.CONFLICT:
            return (now,) if updates else _contested(key)


def _contested(key: Key) -> tuple[Need, ...]:
    value = key.conflict.value if key.conflict is not None else key.new

    def mentioned(text: str) -> bool:
        return named((value, key.new), text, (key.initial,), ruled_out=True)

    def with_source(text: str) -> bool:
        return mentioned(text) and bool(told_sources(key, text.lower()) & allowed_sources(key))

    return (
        Need(f'the contested value "{value}"', mentioned),
        Need("a word of its source", with_source),
    )


def _flag(answer: Mapping[str, Any], name: str) -> bool | None:
    value = answer.get(name)
    if isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""


_VALUE_FIELD = {ProbeType.CURRENT: "answer", ProbeType.TEMPORAL: "new_value"}


def _behaviour(key: Key, answer: Mapping[str, Any]) -> Failure | None:
    """What the answer did with the new state, whatever was stored."""
    kind = key.probe_type
    if kind is ProbeType.PREVIOUS:
        return None
    said = _text(answer, _VALUE_FIELD.get(kind, "current_value"))
    old, new = named((key.initial,), said, (key.new,)), named((key.new,), said, (key.initial,))
    changed = _flag(answer, "changed")
    if changed is None and kind is ProbeType.CHANGE:
        changed = says_changed(_text(answer, "answer").lower())
    accepted = _flag(answer, "accepted")
    if RULES[key.condition].expected is Expected.UPDATE:
        keeps = (old and not new) or changed is False or accepted is False
        return Failure.MISSED_UPDATE if keeps else None
    takes = changed is True or accepted is True or _flag(answer, "applies_to_target") is True
    return Failure.OVER_UPDATE if takes or (new and not old) else None


def _names_both(key: Key, answer: Mapping[str, Any]) -> bool:
    said = " ; ".join(
        _text(answer, name)
        for name in ("answer", "current_value")
        if key.probe_type is not ProbeType.PREVIOUS or name == "answer"
    )
    return named((key.initial,), said, (key.new,)) and named((key.new,), said, (key.initial,))


def _side(
    pieces: Sequence[Need], stored: Sequence[Stored], seen: Sequence[Stored]
) -> tuple[Side, list[Need]]:
    """The side, and the pieces that are missing there."""
    unseen = [need for need in pieces if not any(need.holds(item.text) for item in seen)]
    if not unseen:
        return Side.READOUT, []
    absent = [need for need in unseen if not any(need.holds(item.text) for item in stored)]
    return (Side.STORAGE, absent) if absent else (Side.RETRIEVAL, unseen)


def _failure(
    key: Key,
    answer: Mapping[str, Any],
    side: Side,
    pieces: Sequence[Need],
    seen: Sequence[Stored],
) -> Failure:
    shown = _behaviour(key, answer)
    if shown is not None:
        return shown
    if side is Side.RETRIEVAL:
        return Failure.RETRIEVAL_MISS
    if key.probe_type is ProbeType.TEMPORAL:
        return Failure.TEMPORAL
    if side is Side.STORAGE:
        match key.probe_type:
            case ProbeType.PREVIOUS:
                return Failure.HISTORICAL_ERASURE
            case ProbeType.SOURCE | ProbeType.CONFLICT:
                return Failure.SOURCE_LOSS
        return Failure.EXTRACTION
    whole = any(all(need.holds(item.text) for need in pieces) for item in seen)
    return Failure.EXTRACTION if whole and not _names_both(key, answer) else Failure.INTEGRATION


def _holders(pieces: Sequence[Need], items: Sequence[Stored]) -> tuple[str, ...]:
    found = [item.id for item in items if any(need.holds(item.text) for need in pieces)]
    return tuple(dict.fromkeys(found))


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return f"{'item' if len(ids) == 1 else 'items'} {', '.join(ids[:5])}{more}"


def _evidence(
    key: Key,
    side: Side,
    missing: Sequence[Need],
    pieces: Sequence[Need],
    stored: Sequence[Stored],
    seen: Sequence[Stored],
) -> tuple[str, tuple[str, ...]]:
    what = " and ".join(need.what for need in missing or pieces)
    if side is Side.READOUT:
        ids = _holders(pieces, seen)
        return f"the reader saw {what} ({_listed(ids)})", ids
    if side is Side.RETRIEVAL:
        ids = _holders(missing, stored)
        return f"{what}: stored ({_listed(ids)}), not in what the reader saw", ids
    ids = _holders(pieces, stored)
    if ids:
        return f"{what}: in no stored item; the rest is in {_listed(ids)}", ids
    values = (key.initial, key.new)
    rival = Need("the other value", lambda text: named(values, text, ruled_out=True))
    ids = _holders([rival], stored)
    if ids:
        return f"{what}: in no stored item; a value of the fact is in {_listed(ids)}", ids
    return f"{what}: in no stored item", ()


def diagnose_key(
    key: Key,
    answer: Mapping[str, Any] | None,
    score: Score,
    stored: Sequence[Stored],
    seen: Sequence[Stored],
) -> Diagnosis | None:
    """`diagnose` from a probe's key alone."""
    if not score.match.scored or score.match.value == "correct":
        return None
    pieces = needs(key)
    side, missing = _side(pieces, stored, seen)
    failure = _failure(key, answer or {}, side, pieces, seen)
    evidence, ids = _evidence(key, side, missing, pieces, stored, seen)
    return Diagnosis(failure, side, evidence, ids)


def diagnose(
    episode: Episode,
    probe: Probe,
    answer: Mapping[str, Any] | None,
    score: Score,
    stored: Sequence[Stored],
    seen: Sequence[Stored],
) -> Diagnosis | None:
    """Why an answer is partial or incorrect; None when it is correct or was not scored.

    `answer` is the reader's parsed answer (`{"answer": text}` for free text, None for
    none), `stored` the whole memory, `seen` what the reader was given of it.
    """
    return diagnose_key(key_of(episode, probe), answer, score, stored, seen)
