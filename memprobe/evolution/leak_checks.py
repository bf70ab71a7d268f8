"""Forward leakage: does a document tell what only a later one is to bring?

A word is new with a claim when no earlier claim, nor the topic, has it. Patterns
cannot read: a warning is a place to look, and only a sentence that holds a whole
later claim is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from memprobe.evolution.problems import Findings, Problem
from memprobe.evolution.spec import Action, Document, Trajectory
from memprobe.evolution.wording import (
    MONTHS,
    capitalised,
    names,
    number_parts,
    numbers,
    plain,
    sentences,
)
from memprobe.leakage import content_stems, stem
from memprobe.leakage import words as words_of

WHOLE = 0.85
"""Share of a later claim's content words in one sentence that tells it."""
OVERLAP = 0.6
"""Share of a later claim's new words in one sentence that is worth a look."""
RARE_IN = 2
"""Other trajectories whose documents may use a word that still counts as rare."""
CORPUS = 6
"""Trajectories from which on a suite can tell which words are rare."""
_OPEN = re.compile(
    r"\b(?:not|no|never|nobody|nothing|none|cannot|without|instead of|rather than|if|unless"
    r"|whether|should|would|could|might|may|neither|nor|perhaps|maybe)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
_DISTINCT = re.compile(r"\d{3,}|\d\.\d|\d:\d")
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Later:
    """A claim that first appears in a state, with what is new in it."""

    state: int
    claim: str
    stems: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]


def later_claims(t: Trajectory) -> list[Later]:
    """Claims that are new in a state behind the first, by claims or doc_claims."""
    told: set[str] = set()
    known: set[str] = content_stems(f"{t.topic} {t.customer}")
    digits: set[str] = set()
    called: set[str] = names(f"- {t.customer}") | names(t.topic)
    for author in t.authors:
        called |= {w.casefold() for w in author.name.split()}
    found = []
    for i, state in enumerate(t.states):
        said = () if state.action is Action.REINFORCE and i else state.doc_claims
        here = [c for c in dict.fromkeys((*state.claims, *said)) if c not in told]
        if i:
            for claim in here:
                later = Later(
                    i,
                    claim,
                    frozenset(content_stems(claim) - known),
                    frozenset(set(numbers(claim)) - digits),
                    frozenset(names(claim) - called),
                )
                found.append(later)
        for claim in (*here, *state.doc_claims):
            told.add(claim)
            known |= content_stems(claim)
            digits |= number_parts(claim)
            called |= names(claim)
    return found


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    plain: str
    stems: set[str]
    numbers: set[str]


def _sentences(document: Document) -> list[_Sentence]:
    return [
        _Sentence(s, plain(s), content_stems(s), number_parts(s)) for s in sentences(document.text)
    ]


def _whole(later: Later, earlier: Sequence[_Sentence]) -> str | None:
    """The sentence that tells a later claim, if one does."""
    stems, digits = content_stems(later.claim), set(numbers(later.claim))
    wanted = plain(later.claim)
    for one in earlier:
        if wanted in one.plain:
            return one.text
        covered = len(stems & one.stems) >= WHOLE * len(stems) and later.stems <= one.stems
        if stems and covered and digits <= one.numbers and not _OPEN.search(one.text):
            return one.text
    return None


def _overlap(later: Later, earlier: Sequence[_Sentence]) -> tuple[str, set[str]] | None:
    """The sentence with most of a later claim's new words, if that is worth a look."""
    fresh = later.stems | later.numbers
    best: tuple[str, set[str]] | None = None
    for one in earlier:
        shared = (later.stems & one.stems) | (later.numbers & one.numbers)
        enough = len(shared) >= 2 and len(shared) >= OVERLAP * len(fresh)
        if enough and (best is None or len(shared) > len(best[1])):
            best = one.text, set(shared)
    return best


def _tokens(
    later: Later,
    document: Document,
    earlier: Sequence[_Sentence],
    common: Collection[str] | None,
) -> Iterator[str]:
    """New numbers, names and rare words of a later claim that a document holds."""
    stems = content_stems(later.claim)
    for number in sorted(later.numbers):
        distinct = bool(_DISTINCT.search(number)) and not _YEAR.fullmatch(number)
        for one in earlier:
            # A small number or a year says something only beside words of the claim.
            beside = (stems & one.stems) - later.numbers - MONTHS
            if number in one.numbers and (distinct or len(beside) >= 2):
                yield number
                break
    yield from sorted(later.names & capitalised(document.text))
    if common is not None:
        words = set().union(*(one.stems for one in earlier))
        called = {stem(n) for n in later.names}
        spelling = {stem(w): w for w in words_of(later.claim)}
        for word in sorted(later.stems & words - called):
            if len(word) >= 4 and not word.isdigit() and word not in common:
                yield spelling.get(word, word)


def check(trajectory: Trajectory, common: Collection[str] | None = None) -> list[Problem]:
    """Leaks of later claims into earlier documents, noise documents among them.

    `common` are the stems that are no rare words; without it no word counts as rare.
    """
    out = Findings(trajectory.id)
    later = later_claims(trajectory)
    arrived = -1
    for index, document in trajectory.arrivals() if _arrive(trajectory) else _states(trajectory):
        arrived = arrived if index is None else index
        lead = f"{document.id}: " if index is None else ""
        earlier = _sentences(document)
        for one in later:
            if one.state <= arrived:
                continue
            if sentence := _whole(one, earlier):
                message = f"{lead}tells a claim of state {one.state}, {one.claim!r}: {sentence!r}"
                out.error("forward leakage", message, "leave it to its own document", index)
                continue
            if overlap := _overlap(one, earlier):
                sentence, shared = overlap
                message = (
                    f"{lead}{', '.join(sorted(shared))} of a claim of state {one.state}, "
                    f"{one.claim!r}, in {sentence!r}"
                )
                fix = "say it in its own document, or in other words"
                out.warn("forward leakage", message, fix, index)
            elif held := list(_tokens(one, document, earlier, common)):
                message = (
                    f"{lead}holds {', '.join(held)}, new with a claim of state {one.state}: "
                    f"{one.claim!r}"
                )
                fix = "check that the document does not give the claim away"
                out.warn("forward leakage", message, fix, index)
    return out.problems


def _arrive(t: Trajectory) -> bool:
    return len(t.noise_documents) == len(t.noise_after)


def _states(t: Trajectory) -> list[tuple[int | None, Document]]:
    return [(s.index, s.document) for s in t.states]


def common_stems(trajectories: Sequence[Trajectory]) -> frozenset[str] | None:
    """Stems that documents of more than `RARE_IN` trajectories use; None for too few of them."""
    if len(trajectories) < CORPUS:
        return None
    count = Counter(
        word
        for t in trajectories
        for word in set().union(*(content_stems(d.text) for _, d in _all(t)))
    )
    # A trajectory's own use of a word is one of the count.
    return frozenset(word for word, n in count.items() if n > RARE_IN + 1)


def _all(t: Trajectory) -> list[tuple[int | None, Document]]:
    return [*_states(t), *((None, d) for d in t.noise_documents)]
