"""Checks of the documents: length, numbers, noise, scaffolding, styles; words of questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from memprobe.evolution.problems import Findings, Problem
from memprobe.evolution.protocol import NOISE_CLAIMS, NOISE_WORDS, WORDS
from memprobe.evolution.spec import Category, Document, Trajectory
from memprobe.evolution.wording import (
    capitalised,
    dated,
    names,
    number_parts,
    numbers,
    sentences,
    told,
    windows,
)
from memprobe.leakage import content_stems, stem, words

NEARLY = 0.75
"""Share of a noise claim's content words that two sentences must hold."""
ON_TOPIC = 0.6
"""Share of a claim's own content words from which a noise text tells the claim."""
SIMILAR_QUESTION = 0.4
"""Share of a C2 question's content words that its claims may hold."""
STATES = 0.5
"""Share of a claim's content words that an openly stated claim (L1) has in two sentences."""

_FIRM = frozenset(["and", "the", "of", "ltd", "inc", "co", "group"])
_FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
_PREAMBLE = re.compile(
    r"^\W*(?:sure\b|certainly[!,]|of course[!,]|okay, here|absolutely[!,]"
    r"|(?:here(?:['’]s| is| are)|below is|this is|the following is)"
    r" (?:the|a|an|your|my) (?:[\w-]+ ){0,3}"
    r"(?:document|email|e-mail|mail|text|draft|version|notes|minutes|briefing|update|memo|review)\b)",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:let me know if you(?:['’]d| would) like (?:me|any|a different)|i hope this (?:helps|meets)"
    r"|(?:\(|\[)?word count\b|feel free to (?:adjust|modify|edit))",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"\[(?:insert\b[^\]\n]*|(?:your|the|recipient(?:'s)?|sender(?:'s)?|first|last|full|company|"
    r"customer|author|project|team)?[ _-]?(?:name|date|company|customer|author|title|role|number|"
    r"address|signature|recipient|sender|placeholder|details|x+)\b[^\]\n]{0,20})\]"
    r"|\{\{[^}\n]*\}\}|<(?:name|date|company|customer|author|insert[^>\n]*|your[^>\n]*)>"
    r"|\blorem ipsum\b|\bXXX+\b|\bTODO\b",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b"
    r"|\bI(?:['’]m| am) an? (?:ai|(?:large )?language model)\b"
    r"|\bI (?:can(?:not|['’]t)|am unable to) (?:assist|help) with\b",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\b(?:noise_claims?|doc_claims?|expected_facts?|change_reason|trajectory_type|document_type"
    r"|ground truth claims?|forward leakage)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"\*\*[^*\n]+\*\*|^#{1,6} |^\s*\|.*\|\s*$", re.MULTILINE)


def documents(t: Trajectory) -> Iterator[tuple[int | None, str, Document]]:
    """Every document with its state's index and how a message about it begins."""
    for i, state in enumerate(t.states):
        yield i, "", state.document
    for document in t.noise_documents:
        yield None, f"{document.id}: ", document


def _length(t: Trajectory, out: Findings) -> None:
    for i, lead, document in documents(t):
        low, high = WORDS[t.level] if i is not None else NOISE_WORDS
        n = len(document.text.split())
        if not low <= n <= high:
            what = f"at {t.level}" if i is not None else "of noise"
            message = f"{lead}{n} words, a document {what} has {low} to {high}"
            out.error("words", message, "lengthen or shorten it", i)


def _numbers(t: Trajectory, out: Findings) -> None:
    for i, state in enumerate(t.states):
        there = number_parts(state.document.text)
        years = {str(state.document.time.year + d) for d in (-1, 0, 1)}
        for claim in state.doc_claims:
            lacking = [n for n in dict.fromkeys(numbers(claim)) if n not in there]
            if lacking:
                message = f"the text lacks {', '.join(lacking)} of {claim!r}"
                # The time of a document goes with it, and with it the year.
                report = out.warn if set(lacking) <= years else out.error
                report("numbers", message, "write the number in digits", i)


def _named(t: Trajectory, out: Findings) -> None:
    firm = {w for w in words(t.customer) if w not in _FIRM}
    for i, state in enumerate(t.states):
        text = state.document.text
        spoken = set(words(text))
        if firm and not firm & spoken:
            message = f"the text never names {t.customer}"
            out.warn("names", message, "a claim about a firm needs the firm in its document", i)
        there = {stem(w) for w in spoken | capitalised(text)}
        months = dated(text) | number_parts(text)
        for claim in state.doc_claims:
            called = sorted(names(claim) - set(words(t.customer)))
            lacking = [name for name in called if stem(name) not in there]
            lacking += [f"month {m}" for m in sorted(dated(claim) - months, key=int)]
            if lacking:
                message = f"the text lacks {', '.join(lacking)} of {claim!r}"
                out.warn("names", message, "name people, firms, products and months", i)


def _stated(t: Trajectory, out: Findings) -> None:
    if t.level != "L1":
        return
    for i, state in enumerate(t.states):
        for claim in state.doc_claims:
            share = told(claim, state.document.text)
            if share < STATES:
                message = f"two sentences hold {share:.0%} of the words of {claim!r}"
                out.warn("stated", message, "L1 says its claims almost verbatim", i)


@dataclass(frozen=True, slots=True)
class Topic:
    """What a trajectory's claims are about, without the words that all its texts share."""

    claims: tuple[str, ...]
    common: frozenset[str]

    def own(self, claim: str) -> set[str]:
        """Content stems of a claim that are its own."""
        return content_stems(claim) - self.common


def topic_of(t: Trajectory) -> Topic:
    """The claims of a trajectory, and the words of its customer and authors."""
    claims = tuple(dict.fromkeys(c for s in t.states for c in (*s.claims, *s.doc_claims)))
    people = " ".join(f"{a.name} {a.role}" for a in t.authors)
    return Topic(claims, frozenset(content_stems(f"{t.customer} {people}")))


def _noise_claims(t: Trajectory, out: Findings) -> None:
    topic = topic_of(t)
    for i, state in enumerate(t.states):
        noise = state.document.noise_claims
        low, high = NOISE_CLAIMS[t.level]
        if not low <= len(noise) <= high:
            wanted = str(low) if low == high else f"{low} to {high}"
            message = f"{len(noise)} noise claims, {t.level} has {wanted}"
            out.error("noise claims", message, "list the unrelated statements of the text", i)
        for statement in noise:
            if told(statement, state.document.text) < NEARLY:
                message = f"the text does not say {statement!r}"
                out.error("noise claims", message, "list it as it stands in the text", i)
            for claim in topic.claims:
                own = topic.own(claim)
                if own and len(own & content_stems(statement)) >= ON_TOPIC * len(own):
                    message = f"the noise claim {statement!r} tells of {claim!r}"
                    out.warn("noise claims", message, "noise is about other things", i)


def _noise_topic(t: Trajectory, out: Findings) -> None:
    topic = topic_of(t)
    for document in t.noise_documents:
        near = [(w, content_stems(w), number_parts(w)) for w in windows(document.text)]
        for claim in topic.claims:
            own, digits = topic.own(claim), set(numbers(claim))
            for window, stems, there in near:
                shared = sorted(own & stems)
                both = len(shared) + len(digits & there - own)
                if len(shared) >= 2 and both >= ON_TOPIC * len(own | digits):
                    message = f"{document.id}: tells of {claim!r}: {window[:90]!r}"
                    out.error("noise topic", message, "write about another thing")
                    break
                spoken = [w for w in shared if not w.isdigit()]
                if len(spoken) >= 3 or (len(spoken) >= 2 and digits & there):
                    message = f"{document.id}: {', '.join(shared)} of {claim!r}: {window[:90]!r}"
                    out.warn("noise topic", message, "no word of the fact in a noise document")
                    break


def _scaffolding(t: Trajectory, out: Findings) -> None:
    for i, lead, document in documents(t):
        text = document.text
        lines = [line for line in text.splitlines() if line.strip()]
        for what, found in (
            ("a code fence", _FENCE.search(text)),
            ("a preamble", _PREAMBLE.search(lines[0]) if lines else None),
            ("a closing offer", _CLOSING.search(" ".join(lines[-2:]))),
            ("a placeholder", _PLACEHOLDER.search(text)),
            ("a model speaking", _MODEL.search(text)),
            ("a word of the design", _LABEL.search(text)),
        ):
            if found:
                message = f"{lead}{what}: {found.group(0).strip()!r}"
                out.error("scaffolding", message, "leave the document alone", i)
        if found := _MARKUP.search(text):
            message = f"{lead}markup: {found.group(0).strip()[:60]!r}"
            out.warn("scaffolding", message, "people write plain text in mails and notes", i)


@dataclass(frozen=True, slots=True)
class Style:
    """How somebody writes: words a sentence, and shares per 100 words or of all lines."""

    sentence_words: float
    contractions: float
    first_person: float
    marks: float
    list_lines: float

    def like(self, other: Style) -> bool:
        """Whether no figure tells the two apart."""
        return all(
            abs(a - b) <= max(least, _ALIKE * max(a, b))
            for a, b, least in (
                (self.sentence_words, other.sentence_words, 0.0),
                (self.contractions, other.contractions, 0.5),
                (self.first_person, other.first_person, 0.5),
                (self.marks, other.marks, 0.5),
                (self.list_lines, other.list_lines, 0.1),
            )
        )


_ALIKE = 0.15
_LISTED = re.compile(r"^\s*(?:[-*•–]|\d+(?:\.\d+)*[.)]?\s|[A-Z][^.!?]{0,50}$)")


def style_of(texts: list[str]) -> Style:
    """The style of one person's documents."""
    whole = "\n".join(texts)
    n = max(len(whole.split()), 1)
    lines = [line for line in whole.splitlines() if line.strip()]
    found = sentences(whole)
    per = 100 / n
    return Style(
        n / max(len(found), 1),
        per * len(re.findall(r"\w[’'](?:t|s|re|ve|ll|d|m)\b", whole)),
        per * len(re.findall(r"\b(?:I|me|my|we|us|our)\b", whole)),
        per * len(re.findall(r"[!?()]", whole)),
        sum(bool(_LISTED.match(line)) for line in lines) / max(len(lines), 1),
    )


def _styles(t: Trajectory, out: Findings) -> None:
    texts: dict[str, list[str]] = {}
    for _, _, document in documents(t):
        texts.setdefault(document.author, []).append(document.text)
    styles = {name: style_of(own) for name, own in texts.items()}
    for a, b in combinations(styles, 2):
        if styles[a].like(styles[b]):
            message = f"{a} and {b} write alike (sentences, contractions, marks, lists)"
            out.warn("styles", message, "let each author's style show")


def _questions(t: Trajectory, out: Findings) -> None:
    common = topic_of(t).common
    for n, question in enumerate(t.questions):
        based = " ".join(question.claims)
        there = number_parts(f"{based} {question.question}")
        lacking = [k for k in dict.fromkeys(numbers(question.expected_answer)) if k not in there]
        if lacking:
            message = f"the answer to question {n} has {', '.join(lacking)}, its claims do not"
            out.warn("answers", message, "answer from the listed claims")
        asked = content_stems(question.question) - common
        if t.category is Category.RETRIEVAL and asked:
            share = len(asked & content_stems(based)) / len(asked)
            if share > SIMILAR_QUESTION:
                message = f"{share:.0%} of the words of question {n} stand in its claims"
                out.warn("questions", message, "C2 asks in other words than the fact is stored in")


def check(trajectory: Trajectory) -> list[Problem]:
    """Problems of the texts."""
    out = Findings(trajectory.id)
    for rule in (
        _length, _numbers, _named, _stated, _noise_claims, _noise_topic, _scaffolding, _styles,
        _questions,
    ):  # fmt: skip
        rule(trajectory, out)
    return out.problems
