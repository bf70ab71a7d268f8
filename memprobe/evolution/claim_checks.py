"""Checks of single claims: one fact, one sentence, understood without its document."""

from __future__ import annotations

import re

from memprobe.evolution.problems import Findings, Problem
from memprobe.evolution.spec import Trajectory
from memprobe.evolution.wording import names, sentences

LONGEST = 30
"""Words of a claim that still reads as one fact."""

_PRONOUN = re.compile(
    r"(?:it|its|it's|they|their|theirs|them|he|she|his|her|hers|him|we|our|ours|us|i|my|mine"
    r"|you|your|this|that|these|those|there|here|both|such|the (?:former|latter|same|above))\b",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"\b(?:we|our|ours|us|my|mine|you|your)\b|\bI(?:'|’|\b)")
_AUXILIARY = (
    "is are was were has have had will would does do did must may might can cannot could should "
    "shall isn't aren't wasn't weren't won't doesn't don't"
)
_VERBS = """
 accepts adds allows answers applies approves asks began begins blocks books bought buys calls
 carries changes charges checks closes comes confirms connects contains costs counts covers
 decided decides deletes delivers demands denies depends deploys drops encrypts ends expires falls
 fails feeds gets gives goes governs handles held holds hosts ingests joins keeps kept lasts leads
 leaves limits lives loads made makes manages meets mounts moved moves needs offers opens owns
 paid passes pays permits processes produces provides publishes puts raises ran reaches reads
 rebuilds receives records refuses rejects releases removes replaces replicates requires restarts
 restores retains retrains returns rotates runs scans sends serves sets shows signs sits sold
 splits stands starts stays stops stores supports switched switches takes tells throws took
 trains travels treats triggers uses waits went withdrew works writes wrote
"""
_VERB = "|".join(re.escape(v) for v in (_AUXILIARY + _VERBS).split())
_GENERIC = re.compile(
    r"(?:the|this) (?:(?-i:[a-z])[\w-]* )?(project|team|company|customer|client|firm|vendor"
    r"|supplier|organi[sz]ation|department|document|meeting|author|decision|proposal|plan|system|service"
    r"|platform|solution|topic|change|migration|budget|deadline)"
    rf"(?= (?:(?:{_VERB})|\w{{3,}}ed)\b)",
    re.IGNORECASE,
)
_ADVERB = r"(?:(?:then|now|also|therefore|still|only|no longer|never|always|thus|not)\s+)?"
_JOINED = re.compile(
    rf"\b(?:and|but)\s+{_ADVERB}({'|'.join(re.escape(v) for v in _AUXILIARY.split())})\b",
    re.IGNORECASE,
)
_JOINED_VERB = re.compile(rf"\b(?:and|but)\s+{_ADVERB}((?:{_VERB})|\w{{3,}}ed)\b", re.IGNORECASE)
_CLAUSES = re.compile(
    rf"\b(?:{_VERB})\b.*?(?:,\s*|\b)(?:and|but|while|whereas)\s+"
    rf"(?!(?:{_VERB})\b)(?:[\w'’%-]+\s+){{1,5}}(?:{_VERB})\b",
    re.IGNORECASE,
)
_BUT = re.compile(r",\s*(?:but|while|whereas|although|though)\b", re.IGNORECASE)


def joined(claim: str) -> tuple[str, bool] | None:
    """Two facts in one claim: the words that join them, and whether that is beyond doubt."""
    if found := _JOINED.search(claim) or _BUT.search(claim):
        return found.group(0), True
    if (found := _JOINED_VERB.search(claim)) and re.search(
        rf"\b(?:{_VERB}|\w{{3,}}ed)\b", claim[: found.start()], re.IGNORECASE
    ):
        return found.group(0), False
    if found := _CLAUSES.search(claim):
        return found.group(0), False
    return None


def _atomic(claim: str, where: str, out: Findings, state: int | None) -> None:
    fix = "make each fact a claim of its own"
    if len(sentences(claim)) > 1:
        out.error("atomic", f"{where} has several sentences: {claim!r}", fix, state)
    if ";" in claim:
        out.error("atomic", f"{where} has a semicolon: {claim!r}", fix, state)
    if found := joined(claim):
        words, certain = found
        message = f"{where} joins two facts by {words!r}: {claim!r}"
        out.add("error" if certain else "warning", "atomic", message, fix, state)
    if (n := len(claim.split())) > LONGEST:
        message = f"{where} has {n} words, more than {LONGEST}: {claim!r}"
        out.warn("atomic", message, "shorten it, or split it", state)


def _alone(claim: str, where: str, out: Findings, state: int | None) -> None:
    fix = "name the subject: a claim is read without its document"
    if found := _PRONOUN.match(claim):
        out.error(
            "self-contained", f"{where} starts with {found.group(0)!r}: {claim!r}", fix, state
        )
    elif found := _SPEAKER.search(claim):
        message = f"{where} speaks for its author ({found.group(0)!r}): {claim!r}"
        out.error("self-contained", message, fix, state)
    elif found := _GENERIC.match(claim):
        message = f"{where} does not say which {found.group(1)}: {claim!r}"
        out.error("self-contained", message, fix, state)
    elif not names(claim) and not any(c.isupper() for c in claim[1:]):
        out.warn("self-contained", f"{where} names nobody and nothing: {claim!r}", fix, state)


def check_claim(claim: str, where: str, out: Findings, state: int | None) -> None:
    """The rules of one claim's wording."""
    if claim != " ".join(claim.split()):
        out.error("claim", f"{where} has stray blanks: {claim!r}", "one blank between words", state)
    _atomic(claim, where, out, state)
    _alone(claim, where, out, state)


def check(trajectory: Trajectory) -> list[Problem]:
    """Problems of the claims' wording, each claim where it first stands."""
    out = Findings(trajectory.id)
    seen: set[str] = set()
    for i, state in enumerate(trajectory.states):
        for where, claims in (("claim", state.claims), ("doc_claim", state.doc_claims)):
            for claim in claims:
                if claim not in seen:
                    seen.add(claim)
                    check_claim(claim, where, out, i)
    return out.problems
