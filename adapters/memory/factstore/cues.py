"""Reading statements without a model: which sentences are kept, how sure they are, what marks them.

The rules are our own. They know English words; a sentence in another language is kept
as a plain, explicit statement.
"""

from __future__ import annotations

import re

from adapters.memory.factstore.records import Draft, Label
from adapters.memory.factstore.texts import Part
from memprobe.evolution.wording import MONTHS, body, names, numbers, sentences
from memprobe.leakage import content_stems, stem, words

SHORTEST = {"document": 4, "dialogue": 3}
"""Words that a statement has at least."""

_BULLET = re.compile(r"^(?:[-*•–—>·]+|\d+(?:\.\d+)+|\d+[.)]|[a-z][.)])\s+")
_LEAD_IN = re.compile(r"^((?:\S+\s+){0,13}\S+):\s+((?:\S+\s+){4,}\S+)$", re.DOTALL)
_MONTH = "|".join(sorted(m.capitalize() for m in MONTHS if not m.endswith("day")))
_DATE = re.compile(
    rf"\b(?:\d{{1,2}}\.? (?:{_MONTH})(?: \d{{4}})?|(?:{_MONTH}) \d{{1,2}}(?:, \d{{4}})?"
    rf"|(?:{_MONTH}) \d{{4}}|\d{{4}}-\d{{2}}-\d{{2}}|Q[1-4](?: \d{{4}})?)\b"
)
_WHY = re.compile(r"\b(?:because|due to|so that|in order to)\b\s+(.+)", re.IGNORECASE)
_WHERE = re.compile(r"\b(?:in|at|near) ((?:[A-Z][\w'’-]+)(?: [A-Z][\w'’-]+)*)")
_ENTITY = re.compile(r"[A-Z][\w&'’.-]*\w(?: (?:& |of |de |van )?[A-Z][\w&'’.-]*\w)*")
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I’m|I've|I’ve|I'd|I’d|my|me|we|our)\b", re.IGNORECASE)


def _any(phrases: str) -> re.Pattern[str]:
    """Any of the phrases as whole words; ` / ` stands between them."""
    found = "|".join(phrase.strip() for phrase in phrases.split(" / "))
    return re.compile(rf"\b(?:{found})\b", re.IGNORECASE)


LOW = _any(
    "seems? / seemingly / apparently / presumably / perhaps / supposedly / i guess / i suspect / "
    "it looks as if / rumours? / i heard / unclear / not sure / might be"
)
MEDIUM = _any(
    "may / might / could / consider(?:s|ed|ing)? / propos(?:e|es|ed|al|ing) / suggest(?:s|ed)? / "
    "evaluat(?:e|es|ed|ing) / discuss(?:ed|ing)? / plan(?:s|ned)? to / planned for / probably / "
    "likely / expects? / intends? / draft / tentative(?:ly)? / preliminary / provisional(?:ly)? / "
    "not (?:yet )?(?:final|decided|settled) / about / roughly / estimated? / i think"
)
CHANGED = _any(
    "no longer / not any ?more / instead(?: of)? / replac(?:e|es|ed|ing) / switched / migrated / "
    "moved (?:to|from|away) / changed (?:to|from|its|his|her|their|my|our) / as of / now / "
    "from now on / has become / used to / withdr(?:ew|awn?) / retract(?:s|ed) / cancel(?:s|led) / "
    "retired / abandoned / scrapped / revoked / discontinued / raised (?:to|from) / postponed / "
    "lowered (?:to|from) / correct(?:ion|ed) / actually / these days / "
    rf"since (?:\d{{1,2}} )?(?:{_MONTH})"
)
DECIDED = _any(
    "decided / decision / agreed / approved / settled / final(?:ly)? / confirmed / resolved / "
    "ruled / signed off / mandatory"
)
_KINDS = (
    ("addition", _any("also / too / as well / in addition / additionally / another / besides")),
    ("change", CHANGED),
    ("decision", DECIDED),
    ("plan", _any("will / plan(?:s|ned|ning)? / going to / intends? / next (?:week|month|year)")),
    ("requirement", _any("must / needs? to / requires? / has to / have to")),
    ("preference", _any("prefers? / likes? / loves? / hates? / enjoys? / favou?rite / rather")),
    ("risk", _any("risks? / danger / threat(?:ens)? / worr(?:y|ied)")),
)


def missing(old: str, new: str) -> list[str]:
    """Names and numbers of a statement that another does not have, sorted."""
    held = set(numbers(new)) | set(words(new))
    lost = [n for n in numbers(old) if n not in held]
    # A name is looked for as words: it may open the new statement, or have lost its hyphen.
    lost += [name for name in names(old) if not set(words(name)) <= held]
    return sorted(dict.fromkeys(lost))


def drafts(part: Part, *, document: bool) -> list[Draft]:
    """The statements of what one speaker says, in order.

    A document's sentence is kept when it is whole and has a name or a number in
    it; a dialogue's when it has three words. Questions are kept as the user's requests.
    """
    text = body(part.text) if document else part.text
    # A name that opens a sentence is known by the others.
    known = names(text)
    found = (_draft(sentence, part.speaker, document, known) for sentence in sentences(text))
    return [draft for draft in found if draft is not None]


def _draft(sentence: str, speaker: str, document: bool, known: set[str]) -> Draft | None:
    plain = _BULLET.sub("", sentence)
    whole = plain != sentence or plain.rstrip("\"'”’)")[-1:] in ".!…"
    lead = _LEAD_IN.match(plain)
    what = (lead[2] if lead else plain).strip()
    if lead and what[0].islower():
        what = what[0].upper() + what[1:]
    asked = what.endswith("?")
    if len(words(what)) < SHORTEST["document" if document else "dialogue"]:
        return None
    if document and (asked or not whole or not _telling(what, known)):
        return None
    if asked and (speaker != "user" or len(words(what)) < 5):
        return None
    why, where, when = _WHY.search(what), _WHERE.search(what), _DATE.search(what)
    entities = tuple(dict.fromkeys(_ENTITY.findall(what)))
    return Draft(
        what=what,
        speaker=speaker,
        category="request" if asked else _kind(plain),
        who=speaker if _FIRST_PERSON.search(what) else next(iter(entities), ""),
        when=when[0] if when else "",
        why=why[1].rstrip(".!… ") if why else "",
        where=where[1] if where else "",
        label=_label(what),
        entities=entities,
    )


def _telling(text: str, known: set[str]) -> bool:
    """Whether a sentence has a name or a number, and says something of it."""
    said = words(text)
    named = {w for name in names(text) for w in words(name)} | (known & set(said[:1]))
    stems = {s for s in content_stems(text) if not s.isdigit()} - {stem(m) for m in MONTHS}
    plain = stems - {stem(w) for w in named}
    return bool(named or numbers(text)) and bool(plain) and len(stems) > 1


def _label(text: str) -> Label:
    if LOW.search(text):
        return "Low"
    return "Medium" if MEDIUM.search(text) else "High"


def _kind(text: str) -> str:
    return next((kind for kind, cue in _KINDS if cue.search(text)), "state")
