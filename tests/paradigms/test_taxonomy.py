"""Failures one by one: which, on which side, and by what evidence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memprobe.paradigms.scoring import Match, Score, key_of, score
from memprobe.paradigms.spec import Episode, ProbeType
from memprobe.paradigms.taxonomy import Diagnosis, Failure, Side, Stored, diagnose, needs
from tests.paradigms.support import NEW, OLD, TRIGGER, episode

OLD_ITEM = Stored("1", f"The user swims at {OLD} on weekdays.")
NEW_ITEM = Stored("7", f"The user now swims at {NEW}.")
NOISE = Stored("3", "The user has a squeaking bicycle chain.")
DOV = Stored("5", f"Dov, a friend, swims at {NEW}.")
SOMEBODY = Stored("6", f"{NEW} was talked about.")
BOTH = Stored("8", f"Moved from {OLD} to {NEW}, as {TRIGGER}.")
GONE = Stored("9", f"No longer {OLD}.")

UPDATE, PRESERVE = episode("authoritative_update"), episode("third_party_noise")
USER = episode("user_explicit")


def found(
    of: Episode,
    kind: ProbeType,
    answer: dict[str, Any],
    stored: list[Stored],
    seen: list[Stored] | None = None,
) -> Diagnosis | None:
    """The diagnosis of an answer, scored by the real scorer."""
    probe = next(p for p in of.probes if p.probe_type is kind)
    made = score(key_of(of, probe), json.dumps(answer))
    return diagnose(of, probe, answer, made, stored, stored if seen is None else seen)


def value(text: str) -> dict[str, Any]:
    return {"answer": text, "reason": ""}


def change(changed: bool, current: str = "") -> dict[str, Any]:
    return {"changed": changed, "current_value": current, "previous_value": None, "reason": ""}


def source(cls: str, accepted: bool | None, current: str = "") -> dict[str, Any]:
    told = {"source_description": "", "action": "", "reason": ""}
    return {**told, "source_class": cls, "accepted": accepted, "current_value": current}


def conflict(mentioned: bool, applies: bool, current: str = "", **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "conflict_value_mentioned": mentioned,
        "conflict_value": NEW if mentioned else None,
        "source": "",
        "source_class": "unknown",
        "status": "",
        "status_class": "unknown",
        "applies_to_target": applies,
        "current_value": current,
        "reason": "",
    }
    return base | more


def temporal(changed: bool, new: str = NEW, trigger: str = "") -> dict[str, Any]:
    base = {"changed": changed, "old_value": OLD, "new_value": new}
    return {**base, "trigger": trigger, "timing": "", "reason": ""}


CURRENT, PREVIOUS, CHANGE = ProbeType.CURRENT, ProbeType.PREVIOUS, ProbeType.CHANGE
SOURCE, CONFLICT, TEMPORAL = ProbeType.SOURCE, ProbeType.CONFLICT, ProbeType.TEMPORAL

M, O, H = Failure.MISSED_UPDATE, Failure.OVER_UPDATE, Failure.HISTORICAL_ERASURE  # noqa: E741
L, T, R = Failure.SOURCE_LOSS, Failure.TEMPORAL, Failure.RETRIEVAL_MISS
J, X = Failure.INTEGRATION, Failure.EXTRACTION
STORAGE, RETRIEVAL, READOUT = Side.STORAGE, Side.RETRIEVAL, Side.READOUT
NONE = value("unknown")

Items = list[Stored]
CASES: list[
    tuple[str, Episode, ProbeType, dict[str, Any], Items, Items, Failure, Side, list[str]]
] = [
    # Missed updates, on each side and by each kind of answer.
    ("the new value was never stored", UPDATE, CURRENT, value(OLD), [OLD_ITEM], [OLD_ITEM],
     M, STORAGE, ["1"]),
    ("it was stored and not found", UPDATE, CURRENT, value(OLD), [OLD_ITEM, NEW_ITEM], [OLD_ITEM],
     M, RETRIEVAL, ["7"]),
    ("it was seen and not believed", UPDATE, CURRENT, value(OLD), [OLD_ITEM, NEW_ITEM],
     [OLD_ITEM, NEW_ITEM], M, READOUT, ["7"]),
    ("no change is told", UPDATE, CHANGE, change(False, OLD), [OLD_ITEM], [OLD_ITEM],
     M, STORAGE, ["1"]),
    ("no change, of both values", UPDATE, CHANGE, change(False), [BOTH], [BOTH], M, READOUT, ["8"]),
    ("no update to tell the time of", UPDATE, TEMPORAL, temporal(False, ""), [OLD_ITEM],
     [OLD_ITEM], M, STORAGE, ["1"]),
    ("the user's word as not accepted", USER, SOURCE, source("user", False, OLD), [NEW_ITEM],
     [NEW_ITEM], M, READOUT, ["7"]),
    # Over-updates.
    ("overwritten by Dov's pool", PRESERVE, CURRENT, value(NEW), [DOV], [DOV], O, STORAGE, ["5"]),
    ("only Dov's pool was found", PRESERVE, CURRENT, value(NEW), [OLD_ITEM, DOV], [DOV],
     O, RETRIEVAL, ["1"]),
    ("Dov's pool was believed", PRESERVE, CURRENT, value(NEW), [OLD_ITEM, DOV], [OLD_ITEM, DOV],
     O, READOUT, ["1"]),
    ("a change that was none", PRESERVE, CHANGE, change(True, NEW), [OLD_ITEM], [OLD_ITEM],
     O, READOUT, ["1"]),
    ("the conflict applies", PRESERVE, CONFLICT, conflict(True, True), [DOV], [DOV],
     O, READOUT, ["5"]),
    ("the conflict is current", PRESERVE, CONFLICT, conflict(True, False, NEW), [DOV], [DOV],
     O, READOUT, ["5"]),
    ("noise as accepted", PRESERVE, SOURCE, source("third_party", True), [DOV], [DOV],
     O, READOUT, ["5"]),
    # History.
    ("the old value was overwritten", UPDATE, PREVIOUS, NONE, [NEW_ITEM], [NEW_ITEM],
     H, STORAGE, ["7"]),
    ("the old value was not found", UPDATE, PREVIOUS, NONE, [OLD_ITEM, NEW_ITEM], [NEW_ITEM],
     R, RETRIEVAL, ["1"]),
    ("the old value, ruled out, is history", UPDATE, PREVIOUS, NONE, [GONE], [GONE],
     X, READOUT, ["9"]),
    # Sources.
    ("whose it was is gone", PRESERVE, CONFLICT, conflict(True, False, OLD), [OLD_ITEM, SOMEBODY],
     [OLD_ITEM, SOMEBODY], L, STORAGE, ["6"]),
    ("the conflict is gone", PRESERVE, CONFLICT, conflict(False, False, OLD), [OLD_ITEM],
     [OLD_ITEM], L, STORAGE, ["1"]),
    ("nobody said it", PRESERVE, SOURCE, source("unknown", None), [NOISE], [NOISE], L, STORAGE, []),
    ("Dov was not found", PRESERVE, SOURCE, source("unknown", None), [OLD_ITEM, DOV], [OLD_ITEM],
     R, RETRIEVAL, ["5"]),
    ("Dov was seen and not told", PRESERVE, SOURCE, source("unknown", None), [DOV], [DOV],
     X, READOUT, ["5"]),
    # Times and triggers.
    ("why is not stored", UPDATE, TEMPORAL, temporal(True), [NEW_ITEM], [NEW_ITEM],
     T, STORAGE, ["7"]),
    ("why was not found", UPDATE, TEMPORAL, temporal(True), [NEW_ITEM, BOTH], [NEW_ITEM],
     R, RETRIEVAL, ["8"]),
    ("why was seen and not told", UPDATE, TEMPORAL, temporal(True), [BOTH], [BOTH],
     T, READOUT, ["8"]),
    # What is left: neither kept nor taken over.
    ("nothing was kept", UPDATE, CURRENT, NONE, [NOISE], [NOISE], X, STORAGE, []),
    ("an empty store", PRESERVE, CURRENT, NONE, [], [], X, STORAGE, []),
    ("it was not found", UPDATE, CURRENT, NONE, [NOISE, NEW_ITEM], [NOISE], R, RETRIEVAL, ["7"]),
    ("one item has it", UPDATE, CURRENT, NONE, [NEW_ITEM], [NEW_ITEM], X, READOUT, ["7"]),
    ("old and new beside each other", UPDATE, CURRENT, value(f"{OLD} or {NEW}"),
     [OLD_ITEM, NEW_ITEM], [OLD_ITEM, NEW_ITEM], J, READOUT, ["7"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "kind", "answer", "stored", "seen", "failure", "side", "items"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_each_failure(
    of: Episode,
    kind: ProbeType,
    answer: dict[str, Any],
    stored: list[Stored],
    seen: list[Stored],
    failure: Failure,
    side: Side,
    items: list[str],
) -> None:
    one = found(of, kind, answer, stored, seen)
    assert one is not None
    assert (one.failure, one.side) == (failure, side), one.evidence
    assert list(one.item_ids) == items, one.evidence
    for item in items:
        assert item in one.evidence


def test_every_failure_and_side_has_a_case() -> None:
    assert {case[6] for case in CASES} == set(Failure)
    assert {case[7] for case in CASES} == set(Side)


def test_pieces_in_several_items_are_to_be_joined() -> None:
    unsure = {"changed": None, "current_value": None, "previous_value": None, "reason": ""}
    apart = found(UPDATE, CHANGE, unsure, [OLD_ITEM, NEW_ITEM])
    assert apart is not None
    assert (apart.failure, apart.side, apart.item_ids) == (J, READOUT, ("1", "7"))
    whole = found(UPDATE, CHANGE, unsure, [OLD_ITEM, NEW_ITEM, BOTH])
    assert whole is not None
    assert whole.failure is X


def test_the_evidence_is_a_sentence() -> None:
    one = found(UPDATE, CURRENT, value(OLD), [OLD_ITEM, NEW_ITEM], [OLD_ITEM])
    assert one is not None
    assert one.evidence == (
        f'the new value "{NEW}": stored (item 7), not in what the reader saw'
    )  # fmt: skip
    lost = found(UPDATE, CURRENT, NONE, [])
    assert lost is not None
    assert lost.evidence == f'the new value "{NEW}": in no stored item'
    many = [Stored(str(i), f"At {NEW}.") for i in range(8)]
    seen = found(UPDATE, CURRENT, NONE, many)
    assert seen is not None
    assert seen.evidence.endswith("(items 0, 1, 2, 3, 4 and 3 more)")
    assert len(seen.item_ids) == 8


def test_what_the_reader_saw_counts_as_stored() -> None:
    """A system may answer a search with a text that none of its items holds."""
    one = found(UPDATE, CURRENT, NONE, [], [NEW_ITEM])
    assert one is not None
    assert one.side is READOUT


def test_an_item_that_rules_the_value_out_does_not_hold_it() -> None:
    one = found(PRESERVE, CURRENT, value("unknown"), [GONE])
    assert one is not None
    assert (one.failure, one.side) == (X, STORAGE)


def test_no_diagnosis_of_what_is_right_or_was_not_scored() -> None:
    assert found(UPDATE, CURRENT, value(NEW), [NEW_ITEM]) is None
    probe = UPDATE.probes[0]
    for match in (Match.SKIP, Match.EXECUTION_ERROR, Match.CORRECT):
        assert diagnose(UPDATE, probe, None, Score(match, ""), [], []) is None
    partial = diagnose(UPDATE, probe, None, Score(Match.PARTIAL, ""), [NEW_ITEM], [NEW_ITEM])
    assert partial is not None
    assert partial.failure is X


def test_free_text_tells_its_behaviour_too() -> None:
    probe = next(p for p in PRESERVE.probes if p.probe_type is CHANGE)
    text = f"Yes, the pool changed to {NEW}."
    made = score(key_of(PRESERVE, probe), text)
    one = diagnose(PRESERVE, probe, {"answer": text}, made, [OLD_ITEM], [OLD_ITEM])
    assert one is not None
    assert one.failure is O


def test_an_update_needs_no_word_of_its_source() -> None:
    probe = next(p for p in USER.probes if p.probe_type is SOURCE)
    assert [need.what for need in needs(key_of(USER, probe))] == [f'the new value "{NEW}"']
