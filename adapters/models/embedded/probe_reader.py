"""Answers the questions of the paradigms suite without a model, by extraction.

The reader gets what any reader of the prompt gets: the kind of question, its words,
and the entries of the memory as shown. It takes one reading of what became of the fact
(`probe_timeline`) and answers from it, so that its answers about one fact, to the
questions put in the same words, do not contradict each other.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from adapters.models.embedded.probe_constants import ProbeConstants, constants
from adapters.models.embedded.probe_features import Key, Reading, read_mentions
from adapters.models.embedded.probe_question import Question, read_question
from adapters.models.embedded.probe_source import Attribution, attribute, find_key, trigger_of
from adapters.models.embedded.probe_spans import key_of
from adapters.models.embedded.probe_text import in_order, near_entries, read_turns, stems
from adapters.models.embedded.probe_timeline import Timeline, read_timeline
from adapters.models.minilm import MiniLM
from memprobe.stopwords import STOP_WORDS
from prompts.probe_answers import (
    ChangeAnswer,
    ConflictAnswer,
    SourceAnswer,
    TemporalAnswer,
    ValueAnswer,
)

KEPT = 256
"""Readings that are kept, the latest ones: a store is asked several questions in a row."""
_STOP = frozenset(re.findall(r"\S+", STOP_WORDS))
_NEXT_WORD = re.compile(r"^\s([a-z][a-z-]+)\b")
_WHEN = re.compile(
    r"\b(?:yesterday|today|last (?:week|month|night|\w+day)|this (?:week|month|morning)"
    r"|since \w+|as of \w+(?: \w+)?|from \w+day|on \w+day|\d{4}-\d{2}-\d{2})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class View:
    """Entries as they were read for one question, and what they tell."""

    question: Question
    reading: Reading
    timeline: Timeline

    def name(self, key: Key | None) -> str:
        """What a value is called: its commonest spelling, with the noun that goes with it."""
        if key is None:
            return ""
        called = self.reading.called[key]
        after = self._next_words(key)
        if not after:
            return called
        word, n = min(after.items(), key=lambda w: (-w[1], w[0]))
        often = n >= 2 and n >= 0.6 * sum(1 for m in self.reading.mentions if m.key == key)
        asked = bool(stems(word)) and stems(word) <= self.question.subject
        other = self.timeline.old if key != self.timeline.old else None
        shared = other is not None and word in self._next_words(other)
        return f"{called} {word}" if often or asked or shared else called

    def _with_noun(self, said: str, key: Key | None) -> str:
        """A name as the question has it, with the noun that follows it there and in the entries."""
        if key is None:
            return said
        after = re.search(rf"{re.escape(said)}\s([a-z][a-z-]+)\b", self.question.text)
        follows = after is not None and after.group(1) in self._next_words(key)
        return f"{said} {after.group(1)}" if after is not None and follows else said

    def _next_words(self, key: Key) -> Counter[str]:
        found: Counter[str] = Counter()
        for m in self.reading.mentions:
            after = _NEXT_WORD.match(m.sentence[m.span.end :]) if m.key == key else None
            if after and m.span.kind == "name" and after.group(1) not in _STOP:
                found[after.group(1)] += 1
        return found

    @property
    def named(self) -> tuple[str, Key | None]:
        """The value a question names, as it spells it, and the candidate it is (if any)."""
        found = [(s.text, find_key(self.reading, key_of(s.text))) for s in self.question.named]
        if not found:
            return "", None
        found = [(self._with_noun(said, key), key) for said, key in found]
        rivals = [f for f in found if f[1] is not None and f[1] != self.timeline.old]
        return (rivals or [f for f in found if f[1] is not None] or found)[0]


class ProbeReader:
    """The extractive reader. Same entries, same question, same answer, bit for bit."""

    def __init__(self, embedder: MiniLM, fitted: ProbeConstants | None = None) -> None:
        self._embedder = embedder
        self._constants = fitted or constants()
        self._kept: OrderedDict[str, View] = OrderedDict()

    async def answer(
        self, probe_type: str, question: str, entries: Sequence[Mapping[str, str]]
    ) -> BaseModel:
        """The answer to one question, of the type its probe asks for.

        Raises `ValueError` for a kind of question that the suite does not have.
        """
        if probe_type not in _ANSWERS:
            raise ValueError(f"no probe type {probe_type!r}; there are: {', '.join(_ANSWERS)}")
        view = await self.view(probe_type, question, entries)
        return _ANSWERS[probe_type](view)

    async def view(
        self, probe_type: str, question: str, entries: Sequence[Mapping[str, str]]
    ) -> View:
        """The entries read for a question, from the kept ones when they were read before."""
        asked = read_question(
            question, probe_type in _ASK_VALUES, probe_type in ("source", "conflict_value")
        )
        texts = near_entries(in_order(entries), asked.subject)
        facts = [asked.phrase, *sorted(asked.subject), "", *sorted(asked.forms), "", *texts]
        key = hashlib.sha256("\x1f".join(facts).encode("utf-8", "replace")).hexdigest()
        kept = self._kept.get(key)
        if kept is None:
            reading = await read_mentions(self._embedder, read_turns(texts), asked)
            kept = View(asked, reading, read_timeline(reading, self._constants))
            self._kept[key] = kept
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return View(asked, kept.reading, kept.timeline)


def _why(view: View) -> str:
    line = view.timeline
    if line.old is None:
        return "no entry states a value"
    said = f"stated: {line.stated.sentence[:200]}" if line.stated else ""
    if line.told is None:
        return f"{said}; nothing replaced it"
    return f"{said}; replaced: {line.told.sentence[:200]}"


def _current(view: View) -> ValueAnswer:
    return ValueAnswer(answer=view.name(view.timeline.current) or "unknown", reason=_why(view))


def _previous(view: View) -> ValueAnswer:
    before = view.timeline.old if view.timeline.changed else None
    return ValueAnswer(answer=view.name(before) or "unknown", reason=_why(view))


def _change(view: View) -> ChangeAnswer:
    line = view.timeline
    return ChangeAnswer(
        changed=line.changed,
        current_value=view.name(line.current),
        previous_value=view.name(line.old) if line.changed else None,
        reason=_why(view),
    )


def _source(view: View) -> SourceAnswer:
    line = view.timeline
    said, key = view.named
    if not said:
        # The source of what holds: no other value is named.
        key = line.current
    if key is None:
        return SourceAnswer(source_class="unknown", accepted=False, reason=_why(view))
    found = (
        Attribution("user", False, None) if key == line.old else attribute(view.reading, line, key)
    )
    holds = key == line.current
    return SourceAnswer(
        source_description=found.sentence[:200],
        source_class=found.source,
        action="stated" if holds else "mentioned",
        accepted=holds,
        current_value=view.name(line.current),
        reason=_why(view),
    )


def _conflict(view: View) -> ConflictAnswer:
    line = view.timeline
    said, key = view.named
    if key is None or key not in view.reading.called:
        return ConflictAnswer(
            conflict_value_mentioned=False,
            conflict_value=None,
            source_class="unknown",
            status_class="unknown",
            applies_to_target=False,
            current_value=view.name(line.current),
            reason=f"no entry names {said!r}" if said else "the question names no value",
        )
    found = attribute(view.reading, line, key)
    holds = key == line.current
    source = {"user": "unknown", "tool": "stale_tool"}.get(found.source, found.source)
    return ConflictAnswer(
        conflict_value_mentioned=True,
        conflict_value=said,
        source=found.sentence[:200],
        source_class=source,
        status_class=_status(found, line, key),
        applies_to_target=holds,
        current_value=view.name(line.current),
        reason=_why(view),
    )


def _status(found: Attribution, line: Timeline, key: Key) -> str:
    if key == line.current:
        return "accepted"
    if key == line.old:
        return "superseded"
    if found.source in ("stale_tool", "tool"):
        return "stale"
    return "other_entity" if found.foreign else "not_accepted"


def _temporal(view: View) -> TemporalAnswer:
    line = view.timeline
    if not line.changed or line.told is None:
        return TemporalAnswer(
            changed=False, trigger=None, new_value=None, old_value=None, reason=_why(view)
        )
    trigger, reason = trigger_of(view.reading, line)
    when = _WHEN.search(line.told.turn.text)
    return TemporalAnswer(
        changed=True,
        trigger=trigger or line.told.sentence[:300],
        old_value=view.name(line.old),
        new_value=view.name(line.new),
        timing=when.group() if when else None,
        reason=reason,
    )


_ASK_VALUES = ("current_value", "previous_value")
_ANSWERS = {
    "current_value": _current,
    "previous_value": _previous,
    "change": _change,
    "source": _source,
    "conflict_value": _conflict,
    "temporal": _temporal,
}
