"""Answers of the rules that need no memory: from the gold values alone, in the reader's form.

Source: the published baselines. `latest_value` takes the one of the fact's known
values that was mentioned last, `always_update` the new one, `always_preserve`
the first. None of them tells where a value came from, so every source is
`unknown`; what they say of it in words is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from memprobe.paradigms.checks import latest_value
from memprobe.paradigms.spec import Episode, Probe, ProbeType

LATEST, UPDATE, PRESERVE = "latest_value", "always_update", "always_preserve"

PICKS: Mapping[str, Callable[[Episode], str]] = {
    LATEST: latest_value,
    UPDATE: lambda episode: episode.spec.new_value,
    PRESERVE: lambda episode: episode.spec.initial_value,
}
"""What each rule takes for the current value."""


def reference_answer(name: str, episode: Episode, probe: Probe) -> dict[str, JsonValue]:
    """A rule's answer to a probe, as the JSON object that a reader would give.

    `latest_value` leaves a temporal question unanswered: all fields are there and
    empty, which both scorers find incorrect and neither takes for a failed call.
    Raises `KeyError` for a name that is no rule's.
    """
    value = PICKS[name](episode)
    initial = episode.spec.initial_value
    changed = value != initial
    previous = initial if changed else None
    words = _words(name, value, initial)
    match probe.probe_type:
        case ProbeType.CURRENT:
            return {"answer": value, "reason": words}
        case ProbeType.PREVIOUS:
            return {"answer": previous or "None", "reason": words}
        case ProbeType.CHANGE:
            return {
                "changed": changed,
                "current_value": value,
                "previous_value": previous,
                "reason": words,
            }
        case ProbeType.SOURCE:
            return {
                "source_description": words,
                "source_class": "unknown",
                "action": "",
                "accepted": changed,
                "current_value": value,
                "reason": "",
            }
        case ProbeType.CONFLICT:
            return {
                "conflict_value_mentioned": changed,
                "conflict_value": value if changed else None,
                "source": words,
                "source_class": "unknown",
                "status": "",
                "status_class": "accepted" if changed else "unknown",
                "applies_to_target": changed,
                "current_value": value,
                "reason": "",
            }
        case ProbeType.TEMPORAL:
            silent = name == LATEST
            return {
                "changed": None if silent else changed,
                "trigger": None,
                "old_value": None if silent else previous,
                "new_value": value if changed and not silent else None,
                "timing": None,
                "reason": "" if silent else words,
            }


def _words(name: str, value: str, initial: str) -> str:
    if name == LATEST:
        return f'Last mentioned value is "{value}".'
    if name == UPDATE:
        return f'Changed from "{initial}" to "{value}".'
    return f'It has always been "{initial}".'
