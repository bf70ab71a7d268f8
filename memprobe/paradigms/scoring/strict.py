"""The corrected scoring rules.

Departures from the published rules, each with an example:

- **Whole tokens.** A value counts when its tokens stand in the answer, not as a
  substring. `bi-weekly` does not answer `weekly`; `at 11 Oak Street` does not
  answer `11 PM`. Other spellings of the same number, time or date do count
  (`six hours` for `6 hours`, `23:00` for `11 PM`, `May 14th` for `14 May`).
- **One value.** An answer that names the other value of the fact, too
  (`cello or oboe`), is partial, not correct.
- **Not a value that is ruled out.** `no longer Harrow Baths` does not answer `Harrow
  Baths`, and `Quayside Pool, not Harrow Baths` names one value.
- **The right conflict.** `conflict_value_mentioned: true` with another value
  (`conflict_value: "Pine Court Vets"`, gold `Marsh Lane Vets`) is incorrect.
- **No contradiction about application.** `applies_to_target: true` for a value that
  does not apply is wrong even when `current_value` is right, and such an answer is
  partial at best.
- **No credit from field names.** A temporal answer `{"changed": false, "new_value":
  "none"}` is incorrect; published rules find "changed" and "new" in the keys. The
  change must be affirmed *and* its new value named; the fields `trigger` and `reason`
  together hold 30 % of the gold trigger's content words (stems), the fact's own values
  left out, so that repeating "from A to B" tells no trigger.
- **Reachable classes.** `tool` is right where a stale tool spoke, and `other_entity`
  where the value belongs to someone else; the published rules offer both and count
  neither. `hypothetical` names no source and is not offered (`SOURCE_CLASSES`).
- **A source with its verdict.** The class *and* `accepted` must be right; one of them is
  partial. `{"source_class": "third_party", "accepted": true}` is correct as published.
- **Free text by the right list.** A conflict's or a source's words count only when they
  are of the gold class, or of the gold's own label for it ("Dov"): "a mistake by the
  assistant" is no third party. A second source beside the right one is partial.
- **Unreadable is not wrong.** An answer that sets out as JSON and cannot be read, or
  lacks a field that the question needs, is an execution error.
"""

from __future__ import annotations

import math
import re

from memprobe.leakage import content_stems
from memprobe.paradigms.protocol import RULES
from memprobe.paradigms.scoring import cues
from memprobe.paradigms.scoring.paper import Answer, source_class
from memprobe.paradigms.scoring.parsing import looks_like_object, parse_object, text_field
from memprobe.paradigms.scoring.results import ConflictKey, Key, Match, Score, unscorable
from memprobe.paradigms.scoring.values import named
from memprobe.paradigms.spec import Expected, ProbeType

SOURCE_CLASSES = (
    "user", "assistant", "third_party", "tool", "stale_tool", "other_entity", "unknown",
)  # fmt: skip
"""The source classes a reader is offered under `strict`."""
TRIGGER_SHARE = 0.3
FIELDS: dict[ProbeType, tuple[str, ...]] = {
    ProbeType.CURRENT: ("answer",),
    ProbeType.PREVIOUS: ("answer",),
    ProbeType.CHANGE: ("changed",),
    ProbeType.TEMPORAL: ("changed", "new_value", "trigger"),
    ProbeType.SOURCE: ("source_class", "accepted"),
    ProbeType.CONFLICT: (
        "conflict_value_mentioned", "conflict_value", "source_class", "status_class",
        "applies_to_target",
    ),
}  # fmt: skip
"""The fields that each rule reads."""

_NO_CHANGE = re.compile(
    r"\b(?:no change|unchanged|(?:not|n't|never|hasn't|didn't)\s+(?:been\s+)?chang\w*|remains?)\b"
)
_CHANGED = re.compile(
    r"\b(?:chang(?:ed|es|ing)|switch(?:ed|es)?|moved|transferred|updated|adopted|replaced"
    r"|took over|migrated|transitioned)\b"
)
_PERSONS = content_stems("user users person tool assistant her his their another someone")
_NOTHING = frozenset(("", "none", "null", "unknown", "n/a", "not known", "unspecified"))
_USER_WORDS = (
    r"the user (?:\w+ )?(?:stated|said|told|mentioned|announced|reported|communicated|explained)",
    "from the user",
    "by the user",
)


def _is_update(key: Key) -> bool:
    return RULES[key.condition].expected is Expected.UPDATE


def _two(first: bool, second: bool) -> Match:
    return (Match.INCORRECT, Match.PARTIAL, Match.CORRECT)[first + second]


def _value(key: Key, answer: Answer | None, text: str) -> Score:
    given = text_field(answer, "answer") if answer is not None else text
    to_new = key.probe_type is ProbeType.CURRENT and _is_update(key)
    mine, rival = (key.new, key.initial) if to_new else (key.initial, key.new)
    right = (key.gold, mine)
    hit = named(right, given, (rival,))
    other = named((rival,), given, right)
    parts = {"value": hit, "only": hit and not other}
    if hit and other:
        return Score(Match.PARTIAL, f"names {rival!r}, too", parts)
    if hit:
        return Score(Match.CORRECT, f"names {key.gold!r}", parts)
    return Score(Match.INCORRECT, f"does not name {key.gold!r} as whole words", parts)


def _change(key: Key, answer: Answer | None, text: str) -> Score:
    gold = key.gold.lower().startswith("yes")
    said = answer["changed"] if answer is not None else says_changed(text.lower())
    hit = said is gold
    why = f"says changed={said}, gold {gold}"
    return Score(Match.CORRECT if hit else Match.INCORRECT, why, {"changed": hit})


def says_changed(text: str) -> bool | None:
    """Whether a text in lower case affirms a change; None when it tells neither."""
    first = re.match(r"\W*(yes|no)\b", text)
    if first:
        return first.group(1) == "yes"
    if _NO_CHANGE.search(text):
        return False
    return True if _CHANGED.search(text) else None


def _temporal(key: Key, answer: Answer | None, text: str) -> Score:
    new = key.temporal.new if key.temporal is not None else key.new
    if answer is not None:
        changed = answer["changed"] is True
        direction = changed and named((new, key.new), text_field(answer, "new_value"))
        told = f"{text_field(answer, 'trigger')} {text_field(answer, 'reason')}"
        has_trigger = text_field(answer, "trigger").strip().lower() not in _NOTHING
    else:
        changed = says_changed(text.lower()) is True
        direction = changed and named((new, key.new), text)
        told, has_trigger = text, changed
    if not changed:
        return Score(Match.INCORRECT, "no change is affirmed", {"direction": False})
    if key.temporal is None:
        parts = {"direction": direction, "trigger_given": has_trigger}
        return Score(_two(direction, direction and has_trigger), "no structured gold", parts)
    trigger = shares_trigger(key, told)
    parts = {"direction": direction, "trigger": trigger}
    if answer is not None:
        parts["old_value"] = named((key.temporal.old, key.initial), text_field(answer, "old_value"))
    why = f"direction={direction}, trigger={trigger}"
    return Score(_two(direction, trigger), why, parts)


def shares_trigger(key: Key, told: str) -> bool:
    """Whether a text holds enough of a structured gold's trigger."""
    assert key.temporal is not None
    gold = content_stems(key.temporal.trigger)
    own = content_stems(f"{key.initial} {key.new} user")
    gold = gold - own or gold
    found = len(gold & content_stems(told))
    return found >= max(1, math.ceil(TRIGGER_SHARE * len(gold) - 1e-9))


def allowed_sources(key: Key) -> frozenset[str]:
    """The source classes that are right for a key."""
    gold = source_class(key)
    also = set()
    if gold == "stale_tool":
        also.add("tool")
    if key.conflict is not None and key.conflict.status == "different_entity":
        also.add("other_entity")
    return frozenset({gold} | also)


def _class(text: str) -> str:
    name = re.sub(r"[\s-]+", "_", text.strip().lower())
    return {"thirdparty": "third_party", "hallucination": "assistant",
            "assistant_hallucination": "assistant"}.get(name, name)  # fmt: skip


def _words(text: str, words: tuple[str, ...]) -> bool:
    """Whether an expression occurs at the start of a word; short ones as a whole word."""
    ends = {True: r"\b", False: ""}
    return any(re.search(rf"\b(?:{w}){ends[len(w) <= 4]}", text) for w in words)


def told_sources(key: Key, text: str) -> set[str]:
    """The source classes that a free text tells of, by the word lists and the gold's label."""
    found = {name for name, words in cues.CONFLICT_SOURCES.items() if _words(text, words)}
    if _words(text, _USER_WORDS):
        found.add("user")
    label = content_stems(key.conflict.label) if key.conflict is not None else set()
    if (label - _PERSONS) & content_stems(text):
        found.add(source_class(key))
    return found


def _source(key: Key, answer: Answer | None, text: str) -> Score:
    allowed = allowed_sources(key)
    if answer is None:
        if key.gold.casefold() in text.casefold():
            return Score(Match.CORRECT, "free text: the gold text", {"source": True})
        told = told_sources(key, text.lower())
        right = bool(told & allowed)
        # What the user said of a value is no second source, nor is what an update replaced.
        rivals = set() if _is_update(key) else told - allowed - {"user"}
        match = _two(right, right and not rivals)
        return Score(match, f"free text tells {sorted(told)}", {"source": right})
    given = _class(text_field(answer, "source_class"))
    same = given in allowed
    accepted = answer["accepted"] is _is_update(key)
    parts = {"source": same, "accepted": accepted}
    why = f"class {given!r} of {sorted(allowed)}, accepted {'right' if accepted else 'wrong'}"
    if given in ("", "unknown"):
        return Score(Match.INCORRECT, why, parts)
    return Score(_two(same, accepted), why, parts)


def _conflict(key: Key, answer: Answer | None, text: str) -> Score:
    gold = key.conflict
    if gold is None:
        said = answer["conflict_value_mentioned"] if answer is not None else _says_any(text)
        hit = said is False
        why = "no value conflicts in the gold"
        return Score(Match.CORRECT if hit else Match.INCORRECT, why, {"value": hit})
    parts = (
        _conflict_fields(key, gold, answer)
        if answer is not None
        else _conflict_words(key, gold, text)
    )
    why = ", ".join(f"{k}={v}" for k, v in parts.items())
    if not parts["value"]:
        return Score(Match.INCORRECT, why, parts)
    full = parts["applicability"] and sum(parts.values()) >= 3
    return Score(Match.CORRECT if full else Match.PARTIAL, why, parts)


def _says_any(text: str) -> bool | None:
    first = re.match(r"\W*(yes|no)\b", text.lower())
    return None if first is None else first.group(1) == "yes"


def _conflict_fields(key: Key, gold: ConflictKey, answer: Answer) -> dict[str, bool]:
    status = _class(text_field(answer, "status_class"))
    status = {"different_entity": "other_entity", "not_confirmed": "not_accepted"}.get(
        status, status
    )
    wanted = "other_entity" if gold.status == "different_entity" else gold.status
    return {
        "value": answer["conflict_value_mentioned"] is True
        and named((gold.value, key.new), text_field(answer, "conflict_value"), (gold.remains,)),
        "source": _class(text_field(answer, "source_class")) in allowed_sources(key),
        "status": status == wanted,
        "applicability": answer["applies_to_target"] is gold.applies,
    }


def _conflict_words(key: Key, gold: ConflictKey, text: str) -> dict[str, bool]:
    low = text.lower()
    return {
        "value": named((gold.value, key.new), text, (gold.remains,))
        and _says_any(text) is not False,
        "source": bool(told_sources(key, low) & allowed_sources(key)),
        "status": _words(low, cues.CONFLICT_STATUS[gold.status]),
        "applicability": named((gold.remains,), text) or _words(low, cues.NOT_APPLIED),
    }


_RULES = {
    ProbeType.CURRENT: _value,
    ProbeType.PREVIOUS: _value,
    ProbeType.CHANGE: _change,
    ProbeType.TEMPORAL: _temporal,
    ProbeType.SOURCE: _source,
    ProbeType.CONFLICT: _conflict,
}


def _readable(answer: Answer) -> Answer:
    """Booleans that a reader wrote as words, as booleans."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    flags = ("changed", "accepted", "conflict_value_mentioned", "applies_to_target")
    return {
        k: words.get(v.strip().lower(), v) if k in flags and isinstance(v, str) else v
        for k, v in answer.items()
    }


def score(key: Key, predicted: str) -> Score:
    """Score a reader's text by the corrected rules."""
    apart = unscorable(key, predicted)
    if apart is not None:
        return apart
    answer = parse_object(predicted) if looks_like_object(predicted) else None
    if answer is None:
        if looks_like_object(predicted):
            return Score(Match.EXECUTION_ERROR, "unreadable: a JSON object that does not parse")
        return _RULES[key.probe_type](key, None, predicted)
    missing = [name for name in FIELDS[key.probe_type] if name not in answer]
    if missing:
        return Score(Match.EXECUTION_ERROR, f"unreadable: no field {', '.join(missing)}")
    return _RULES[key.probe_type](key, _readable(answer), predicted)
