"""Who brought a value up, what became of it, and what set a change off: read from cues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.models.embedded.probe_cues import cues, first_person
from adapters.models.embedded.probe_features import Key, Mention, Reading
from adapters.models.embedded.probe_text import ASSISTANT, FACT, TOOL, USER, Turn, sentences, stems
from adapters.models.embedded.probe_timeline import Timeline

_DOCUMENT = re.compile(
    r"\b(?:pages?|dashboards?|wiki|snapshots?|exports?|configs?|settings|readme|docs?|documents?"
    r"|documentation|logs?|screenshots?|cache|database|spreadsheets?|files?|manual|handbook"
    r"|calendar|printouts?|listing|records?|systems?|apps?|sites?|websites?|brochures?|leaflets?"
    r"|sheets?|lists?|entry|report|archive|tool|template|poster|notice|backup|dump|directory)\b",
    re.IGNORECASE,
)
_THEIR_OWN = re.compile(
    r"\b(?:he|she|they)(?:['’](?:s|re|ve|d))?\s+(?:\w+\s+)?(?:has|have|had|is|are|uses?|used|goes|go"
    r"|went|switched|moved|changed|picked|chose|signed|registered|works?|runs?|plays?|meets?|got"
    r"|set|put|booked|buys?|means?|meant)\b"
    r"|\b(?:his|her|their)\s+(?:own\b|\w+)|\b(?:of|for) (?:his|her|their|theirs)\b",
    re.IGNORECASE,
)
_TO_THE_USER = re.compile(
    r"\b(?:ought|should|must|might|could|suggest\w*|recommend\w*|reckon\w*|guess\w*|heard|rumou?r"
    r"|told me|idea|I['’]?d be|you should|you ought|try)\b",
    re.IGNORECASE,
)
_CAUSE = re.compile(
    r"\b(?:because|since|as|so|after|when|due to|thanks to|that['’]s why|reason|which is why"
    r"|clos(?:ed?|es|ing)|cancel\w*|cut(?:ting)?|end(?:ed|s|ing)?|stopp\w*|fail\w*|broke\w*|burst"
    r"|left|leav(?:es|ing)|retir\w*|los[te]|lost|sold|bought|taken over|withdr\w*|announc\w*|mov\w*"
    r"|found|rang|wrote|sign\w*|went down|shut\w*|flood\w*|merg\w*|pull\w*|drop\w*|rais\w*|doubl\w*"
    r"|can['’]?t|cannot|couldn['’]?t|no longer|need\w*|want\w*|must|ha(?:s|d|ve) to)\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"^\W*(?:please|can you|could you|would you|write|draft|make|add|show|give|help|update|what"
    r"|how|which|should|shall|do i|is it|ok|okay|thanks|great|lovely|perfect|yes|no|good|nice)\b",
    re.IGNORECASE,
)
TRIGGER_WORDS, REASON_WORDS = 60, 40


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who brought a value up, whose it is (another's: `foreign`), and the turn that shows it."""

    source: str
    foreign: bool
    turn: Turn | None
    sentence: str = ""


def find_key(reading: Reading, key: Key) -> Key | None:
    """The candidate that a named value is: the same tokens, or one inside the other."""
    if key in reading.called:
        return key
    words = set(key)
    near = [k for k in reading.called if set(k) <= words or words <= set(k)]
    return min(near, key=lambda k: (len(set(k) ^ words), k)) if words and near else None


def attribute(reading: Reading, timeline: Timeline, key: Key) -> Attribution:
    """Who brought a value up, from the entry that is most to the point, of equals the later."""
    mine = [m for m in reading.mentions if m.key == key]
    if timeline.told is not None and timeline.new == key:
        return _by_turn(reading, timeline.told)
    if not mine:
        return Attribution("unknown", False, None)
    last = max(1, len(reading.relevance) - 1)
    near: dict[int, float] = {}
    for m in mine:
        at = m.turn.entry
        point = reading.near[at, m.turn.place] + LATER * at / last
        near[at] = max(near.get(at, point), point)
    entry = max(near, key=lambda e: (round(near[e], 9), e))
    first = min((m for m in mine if m.turn.entry == entry), key=lambda m: (m.turn.place, m.place))
    return _by_turn(reading, first)


LATER = 0.25
"""How much more the last entry counts than the first when a value's source is looked for."""


def _by_turn(reading: Reading, mention: Mention) -> Attribution:
    turn = mention.turn
    beside = [t for t in reading.turns if t.entry == turn.entry]
    users = " ".join(t.text for t in beside if t.role in (USER, FACT))
    if turn.role == TOOL:
        stale = any("stale" in cues(t.text) or "wrong" in cues(t.text) for t in beside)
        return Attribution("stale_tool" if stale else "tool", False, turn, mention.sentence)
    if turn.role == ASSISTANT:
        return Attribution("assistant", False, turn, mention.sentence)
    around = _around(turn, mention)
    shown = cues(around)
    spoken_by_other = bool(shown & {"third", "they", "hearsay", "owner"})
    old_paper = bool(_DOCUMENT.search(turn.text)) and "stale" in cues(users)
    if old_paper and not cues(mention.sentence) & {"third", "hearsay"}:
        return Attribution("stale_tool", False, turn, mention.sentence)
    if spoken_by_other:
        own = bool(_THEIR_OWN.search(around)) or "they" in shown
        foreign = own and not _TO_THE_USER.search(mention.sentence)
        return Attribution("third_party", foreign, turn, mention.sentence)
    return Attribution("user", False, turn, mention.sentence)


def _around(turn: Turn, mention: Mention) -> str:
    """A mention's sentence with its neighbours."""
    all_of = sentences(turn.text)
    return " ".join(all_of[max(0, mention.place - 1) : mention.place + 2])


def _told(text: str) -> bool:
    return not text.rstrip("\"'”’) ").endswith("?") and not (
        _REQUEST.match(text) and not _CAUSE.search(text)
    )


def trigger_of(reading: Reading, timeline: Timeline) -> tuple[str, str]:
    """What set a change off and what was said beside it, in the user's own sentences.

    Looked for in the turns up to the statement of the change, and in the nearest earlier
    entry in which the user speaks of the old value or the subject with a word of ending.
    """
    told = timeline.told
    if told is None:
        return "", ""
    pool: list[tuple[float, int, str]] = []
    entry = told.turn.entry
    spoken = [t for t in reading.turns if t.role in (USER, FACT)]
    before = _earlier(reading, spoken, timeline, entry)
    order = 0
    for turn in spoken:
        if turn.entry not in (entry, before):
            continue
        for sentence in sentences(turn.text):
            order += 1
            if not _told(sentence):
                continue
            weight = float(len(_CAUSE.findall(sentence))) + 0.5 * ("negated" in cues(sentence))
            weight += 1.0 if turn.entry == before else 0.0
            weight -= 0.25 * abs(turn.place - told.turn.place) if turn.entry == entry else 0.0
            pool.append((round(weight, 9), order, sentence))
    best = sorted(pool, key=lambda p: (-p[0], p[1]))
    first = _cut(best[:3], TRIGGER_WORDS)
    return first, _cut(best[3:6], REASON_WORDS)


def _cut(chosen: Sequence[tuple[float, int, str]], limit: int) -> str:
    words = " ".join(s for _, _, s in sorted(chosen, key=lambda p: p[1])).split()
    return " ".join(words[:limit])


def _earlier(
    reading: Reading, spoken: Sequence[Turn], timeline: Timeline, entry: int
) -> int | None:
    """The entry before the change in which an ending or an event round the subject is told."""
    best: tuple[float, int] | None = None
    for index in range(max(0, entry - REACH), entry):
        said = [t.text for t in spoken if t.entry == index]
        events = sum(len(_CAUSE.findall(text)) for text in said)
        if events < 2 or not any(first_person(t) for t in said):
            continue
        if any(_names_old(s, timeline) and "stay" in cues(s) for t in said for s in sentences(t)):
            continue
        weight = round(reading.relevance[index] + 0.1 * min(events, 5), 9)
        if best is None or weight >= best[0]:
            best = (weight, index)
    return best[1] if best is not None else None


REACH = 4
"""How many entries before a change its cause is looked for."""


def _names_old(sentence: str, timeline: Timeline) -> bool:
    return bool(timeline.old) and set(timeline.old or ()) <= {
        w.lower().strip(".,;:!?") for w in sentence.split()
    } | stems(sentence)
