"""The published scoring rules, faults included, for parity with published verdicts.

Known to be unsound (see `strict` for the corrections): a value counts when it is
a substring; a conflict counts with a wrong value; temporal probes without
structured gold earn points from the field names of the JSON; three source
classes that the schema offers are never correct.
"""

from __future__ import annotations

import math
import re

from pydantic import JsonValue

from memprobe.paradigms.protocol import RULES
from memprobe.paradigms.scoring import cues
from memprobe.paradigms.scoring.parsing import parse_object, text_field
from memprobe.paradigms.scoring.results import Key, Match, Score, unscorable
from memprobe.paradigms.spec import Expected, ProbeType

_LEAD = re.compile(r"^(?:the|a|an|my|our|their|its)\s+.*?\b(?:is|was|are|were|remains)\s+")
_DROPPED = re.compile(r"\b(?:at|on|in|by|around|approximately|about|roughly)\b")
_UNITS = (
    "retries|retry|times|attempts|tries|ms|seconds?|minutes?|hours?|days?|weeks?|months?"
    "|am|pm|gb|mb|kb|tb|px|pt|em|rem|%|percent"
)
_DIGITS = re.compile(rf"^(\d+(?:\.\d+)?)\s*(?:{_UNITS})?$")
_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
)  # fmt: skip
_SOURCE_ALIASES = {
    "third-party": "third_party",
    "thirdparty": "third_party",
    "hallucination": "assistant",
    "assistant_hallucination": "assistant",
}
_STATUS_ALIASES = {
    "different_entity": "other_entity",
    "not accepted": "not_accepted",
    "not_confirmed": "not_accepted",
}

Answer = dict[str, JsonValue]


def normalise(text: str) -> str:
    """A text as the value rules compare it."""
    text = _LEAD.sub("", text.lower().strip())
    text = _DROPPED.sub(" ", text.rstrip(".,;:!? "))
    return " ".join(text.split())


def _number(text: str) -> str | None:
    text = text.strip()
    found = _DIGITS.match(text)
    if found:
        return found.group(1)
    first = text.split(" ", 1)[0] if text else ""
    return str(_WORDS.index(first)) if first in _WORDS else None


def value_match(gold: str, predicted: str) -> bool:
    """The published value rule: substrings in both directions and loose numbers.

    `weekly` is found inside `bi-weekly`, and `11 PM` in any text with the word 11.
    """
    g, p = gold.lower().strip(), predicted.lower().strip()
    if not g or not p:
        return False
    ng, np = normalise(g), normalise(p)
    of_g, of_p = _number(ng), _number(np)
    return (
        g in p
        or (bool(ng) and ng in np)
        or (of_p is not None and np in ng)
        or (of_g is not None and _whole(of_g, p))
        or (of_p is not None and _whole(of_p, g))
    )


def _whole(number: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(number)}\b", text) is not None


def _share(trigger: str, text: str, share: float) -> bool:
    words = [w for w in re.split(r"[\s,]+", trigger.lower()) if len(w) > 3]
    return sum(w in text for w in words) >= max(1, math.ceil(len(words) * share - 1e-9))


def _value(key: Key, answer: Answer | None, text: str) -> Score:
    given = text_field(answer, "answer") if answer is not None and "answer" in answer else text
    hit = value_match(key.gold, given)
    return Score(
        Match.CORRECT if hit else Match.INCORRECT,
        f"{key.gold!r} {'found' if hit else 'not found'}",
        {"value": hit},
    )


def _change(key: Key, answer: Answer | None, text: str) -> Score:
    changed = key.gold.lower().startswith("yes")
    if answer is not None and "changed" in answer:
        hit = (answer["changed"] is True) == changed
        return Score(Match.CORRECT if hit else Match.INCORRECT, "field changed", {"changed": hit})
    p = text.lower()
    negated = any(form in p for form in cues.NO_CHANGE)
    affirm = ("yes" in p[:30] and "no" not in p[:15]) or ("changed" in p and not negated)
    deny = "no" in p or "remains" in p or negated
    hit = affirm if changed else (deny or not affirm)
    return Score(Match.CORRECT if hit else Match.INCORRECT, "free text", {"changed": hit})


def _temporal(key: Key, answer: Answer | None, text: str) -> Score:
    p = text.lower()
    verb = any(v in p for v in cues.CHANGE_VERBS)
    if key.temporal is None:
        direction = verb or "new" in p
        trigger = _agent(key.gold.lower(), p)
        why = "no structured gold: words of the whole text, field names included"
        parts = {"direction": direction, "agent": trigger}
        return Score(_two(direction, trigger), why, parts)
    gold = key.temporal
    if answer is not None:
        direction = value_match(gold.new, text_field(answer, "new_value")) or (
            answer.get("changed") is True
        )
        trigger = _share(gold.trigger, text_field(answer, "trigger").lower(), 0.3)
        old = value_match(gold.old, text_field(answer, "old_value"))
        parts = {"direction": direction, "trigger": trigger, "old_value": old}
        return Score(_two(direction, trigger), "structured answer", parts)
    direction = value_match(gold.new, p) or verb
    groups = [syn for name, syn in cues.TRIGGER_SYNONYMS.items() if name in gold.trigger.lower()]
    trigger = _share(gold.trigger, p, 0.4) or any(any(s in p for s in syn) for syn in groups)
    parts = {
        "direction": direction,
        "trigger": trigger,
        "old_value": value_match(gold.old, p),
        "reason": _share(gold.reason, p, 0.3),
    }
    return Score(_two(direction, trigger), "free text", parts)


def _agent(gold: str, p: str) -> bool:
    for name, words in cues.AGENTS.items():
        if name in gold:
            return any(w in p for w in words)
    return True


def _two(first: bool, second: bool) -> Match:
    return (Match.INCORRECT, Match.PARTIAL, Match.CORRECT)[first + second]


def source_class(key: Key) -> str:
    """The gold class: of the conflict, else by the condition (all updates: the user)."""
    if key.conflict is not None:
        return _SOURCE_ALIASES.get(key.conflict.source, key.conflict.source)
    of = RULES[key.condition].perturbation.source_type.value
    return "user" if of == "user_explicit" else _SOURCE_ALIASES.get(of, of)


def _source(key: Key, answer: Answer | None, text: str) -> Score:
    gold = source_class(key)
    if answer is not None:
        given = text_field(answer, "source_class").lower().strip()
        given = _SOURCE_ALIASES.get(given, given)
        same = given == gold
        updates = RULES[key.condition].expected is Expected.UPDATE
        accepted = answer.get("accepted") is updates
        parts = {"source": same, "accepted": accepted}
        why = f"class {given or 'missing'!r}, gold {gold!r}"
        if same:
            return Score(Match.CORRECT, why, parts)
        credit = accepted and given not in ("", "unknown")
        return Score(Match.PARTIAL if credit else Match.INCORRECT, why, parts)
    p, g = text.lower(), key.gold.lower()
    canonical = any(v.lower() in p for v in (key.initial, key.new))
    if g in p:
        return Score(Match.CORRECT, "free text: the gold text", {"source": True})
    groups = [syn for name, syn in cues.SOURCE_CONCEPTS.items() if name in g]
    hits = sum(any(re.search(s, p) for s in syn) for syn in groups)
    if groups and hits:
        full = hits == len(groups) or canonical
        return Score(
            Match.CORRECT if full else Match.PARTIAL, "free text: concepts", {"source": full}
        )
    found = sum(any(w in p for w in words) for words in cues.STRUCTURE)
    if found < 2:
        return Score(Match.INCORRECT, f"free text: {found} of 3 cues", {"source": False})
    match = Match.CORRECT if canonical else Match.PARTIAL
    return Score(match, f"free text: {found} of 3 cues", {"source": canonical})


def _conflict(key: Key, answer: Answer | None, text: str) -> Score:
    gold = key.conflict
    parts = (
        _conflict_fields(key, answer)
        if answer is not None
        else _conflict_words(key, text.lower().strip())
    )
    applicable = "no conflict in the gold" if gold is None else "conflict"
    form = "fields" if answer is not None else "free text"
    right = sum(parts.values())
    if not parts["value"]:
        match = Match.INCORRECT
    else:
        match = Match.CORRECT if right >= 3 else Match.PARTIAL
    listed = ", ".join(f"{k}={v}" for k, v in parts.items())
    return Score(match, f"{applicable}, {form}: {listed}", parts)


def _conflict_fields(key: Key, answer: Answer) -> dict[str, bool]:
    gold = key.conflict
    mentioned = answer.get("conflict_value_mentioned") is True
    if gold is None:
        return {"value": not mentioned, "source": True, "status": True, "applicability": True}
    given = text_field(answer, "source_class").lower().strip()
    status = text_field(answer, "status_class").lower().strip()
    status = _STATUS_ALIASES.get(status, status)
    remains = not gold.applies and value_match(gold.remains, text_field(answer, "current_value"))
    return {
        "value": mentioned,
        "source": _SOURCE_ALIASES.get(given, given) == source_class(key),
        "status": status == _STATUS_ALIASES.get(gold.status, gold.status),
        "applicability": answer.get("applies_to_target") is gold.applies or remains,
    }


def _conflict_words(key: Key, p: str) -> dict[str, bool]:
    gold = key.conflict
    if gold is None:
        none = p.startswith("no")
        return {"value": none, "source": True, "status": True, "applicability": True}
    return {
        "value": value_match(gold.value, p) or p.startswith("yes"),
        "source": any(w in p for words in cues.CONFLICT_SOURCES.values() for w in words),
        "status": any(re.search(w, p) for words in cues.CONFLICT_STATUS.values() for w in words),
        "applicability": value_match(gold.remains, p)
        or any(re.search(w, p) for w in cues.NOT_APPLIED),
    }


_RULES = {
    ProbeType.CURRENT: _value,
    ProbeType.PREVIOUS: _value,
    ProbeType.CHANGE: _change,
    ProbeType.TEMPORAL: _temporal,
    ProbeType.SOURCE: _source,
    ProbeType.CONFLICT: _conflict,
}


def score(key: Key, predicted: str) -> Score:
    """Score a reader's text by the published rules."""
    apart = unscorable(key, predicted)
    if apart is not None:
        return apart
    return _RULES[key.probe_type](key, parse_object(predicted), predicted)
