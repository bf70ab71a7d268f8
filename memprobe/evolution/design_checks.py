"""Checks of a trajectory's design: ids, times, how claims move, actions, facts, authors."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise

from memprobe.evolution.problems import Findings, Problem
from memprobe.evolution.protocol import NOISE_DOCUMENTS, category_of
from memprobe.evolution.spec import Action, Category, Level, State, Trajectory, TrajectoryType

SPAN = (timedelta(weeks=2), timedelta(days=800))
"""Time between a trajectory's first and last state: weeks to months, some years of drift."""
FINAL_CLAIMS = (3, 6)
QUESTIONS = 3
AUTHORS = (2, 4)
LADDER = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Confidences that labels (.9, .7, .5) and corroboration (+.1 each) can give."""


def _ids(t: Trajectory, out: Findings) -> None:
    if t.category is not category_of(t.id):
        message = f"the id begins with {t.id[:2]}, the category is {t.category}"
        out.error("id", message, "make both the same")
    for i, state in enumerate(t.states):
        if state.index != i:
            message = f"state {i} has index {state.index}"
            out.error("index", message, "count states from 0 in the order of arrival", i)
        if state.document.id != f"{t.id}_d{i}":
            message = f"the document of state {i} is {state.document.id!r}"
            out.error("id", message, f"name it {t.id}_d{i}", i)
    for k, document in enumerate(t.noise_documents, 1):
        if document.id != f"{t.id}_n{k}":
            message = f"noise document {k} is {document.id!r}"
            out.error("id", message, f"name it {t.id}_n{k}")


def _times(t: Trajectory, out: Findings) -> None:
    times = [s.document.time for s in t.states]
    for i, (before, time) in enumerate(pairwise(times), 1):
        if time > before:
            continue
        message = f"{time.isoformat()} is not after {before.isoformat()}"
        if t.category is Category.SYNTHESIS and time < before:
            message += ": an older document arrives late"
            out.warn("time", message, "keep it if late arrival is the point", i)
        else:
            out.error("time", message, "documents arrive in the order of their times", i)
    span = max(times) - min(times)
    if not SPAN[0] <= span <= SPAN[1]:
        message = f"the states span {span.days} days"
        out.warn("time", message, "spread the documents over weeks to months")


def _noise(t: Trajectory, out: Findings) -> None:
    wanted = NOISE_DOCUMENTS if t.category is Category.RETRIEVAL else 0
    if len(t.noise_documents) != wanted:
        message = f"{len(t.noise_documents)} noise documents, {t.category} has {wanted}"
        out.error("noise documents", message, "add or take out noise documents")
    if len(t.noise_after) != len(t.noise_documents):
        message = (
            f"noise_after has {len(t.noise_after)} entries for {len(t.noise_documents)} documents"
        )
        out.error("noise documents", message, "one index for each noise document")
        return
    for document, after in zip(t.noise_documents, t.noise_after, strict=True):
        if not 0 <= after < len(t.states):
            message = f"{document.id}: arrives behind state {after}, which is not there"
            out.error("noise documents", message, "name a state by its index")
            continue
        since = t.states[after].document.time
        until = t.states[after + 1].document.time if after + 1 < len(t.states) else None
        if document.time < since or (until is not None and until > since and document.time > until):
            message = f"{document.id}: {document.time.isoformat()} is not in its place"
            fix = f"a time behind state {after} and before the next one"
            out.error("time", message, fix)


def _changes(t: Trajectory, i: int, before: State, state: State, out: Findings) -> None:
    added = [c for c in state.claims if c not in before.claims]
    gone = [c for c in before.claims if c not in state.claims]
    action, reason = state.action, (state.change_reason or "").strip()
    withdrawn = [c for c in gone if c in t.retracted]
    if gone and action not in (Action.SUPERSEDE, Action.CONFLICT) and withdrawn != gone:
        for claim in gone:
            message = f"a claim vanishes in a state that is to {action}: {claim!r}"
            fix = "repeat it word for word, or make the state supersede it"
            out.error("cumulative", message, fix, i)
    if (gone or action in (Action.SUPERSEDE, Action.CONFLICT)) and not reason:
        message = f"{action} without a change_reason"
        out.error("change reason", message, "say what made the claim change", i)
    match action:
        case Action.CREATE:
            out.error(
                "action", "create is for state 0", "update, reinforce, supersede, conflict", i
            )
        case Action.NONE:
            out.error("action", "none is an action of systems only", "say what is expected", i)
        case Action.REINFORCE if added:
            message = f"reinforce adds {len(added)} claims, first {added[0]!r}"
            out.error("action", message, "a reinforcement adds nothing; else it is an update", i)
        case Action.UPDATE if not added:
            message = "update adds no claim"
            out.error("action", message, "add the detail as a claim, or make it reinforce", i)
        case Action.SUPERSEDE if not gone:
            message = "supersede retires no claim"
            out.error("action", message, "take out what no longer holds, or make it an update", i)
        case Action.CONFLICT if not added:
            message = "conflict adds no claim"
            out.error("action", message, "add the contradicting claim beside the old one", i)
        case _:
            pass
    for claim in added:
        if claim not in state.doc_claims:
            message = f"nothing in doc_claims says the new claim {claim!r}"
            out.error("doc claims", message, "list it in doc_claims in the same words", i)
    if action is Action.REINFORCE and state.confidence < before.confidence:
        message = f"confidence falls from {before.confidence} to {state.confidence} on reinforce"
        out.warn("confidence", message, "corroboration never lowers it", i)


def _states(t: Trajectory, out: Findings) -> None:
    first = t.states[0]
    if first.action is not Action.CREATE:
        message = f"the first state is to {first.action}"
        out.error("action", message, "the first state creates", 0)
    if set(first.doc_claims) != set(first.claims):
        fix = "the first document says all that is known then"
        out.error("doc claims", "doc_claims of state 0 are not its claims", fix, 0)
    for i, state in enumerate(t.states):
        for where, claims in (("claims", state.claims), ("doc_claims", state.doc_claims)):
            for claim, n in Counter(claims).items():
                if n > 1:
                    message = f"{n} times in {where}: {claim!r}"
                    out.error("twice", message, "list it once", i)
        if i and state.action is not Action.REINFORCE:
            for claim in state.doc_claims:
                if claim not in state.claims:
                    message = f"said here, but not among the claims: {claim!r}"
                    out.warn("doc claims", message, "neither rewarded nor held against anyone", i)
        if not any(abs(state.confidence - step) < 1e-9 for step in LADDER):
            message = f"confidence {state.confidence}"
            fix = "0.9, 0.7 or 0.5, and 0.1 more for each corroboration, 1.0 at most"
            out.warn("confidence", message, fix, i)
        if (state.document.host is None) == (t.level is Level.L3):
            what = "no host" if t.level is Level.L3 else "a host"
            message = f"{what} at {t.level}"
            out.error("host", message, "L3 hides its claims in a host text, other levels do not", i)
    for i, (before, state) in enumerate(pairwise(t.states), 1):
        _changes(t, i, before, state, out)
    final = len(t.states[-1].claims)
    if not FINAL_CLAIMS[0] <= final <= FINAL_CLAIMS[1]:
        message = f"{final} claims at the end"
        out.warn("claims", message, "three to six", len(t.states) - 1)


_MOVES: dict[TrajectoryType, tuple[tuple[Action, ...], int]] = {
    TrajectoryType.LINEAR: ((Action.UPDATE, Action.SUPERSEDE), 1),
    TrajectoryType.CONTRADICTION: ((Action.CONFLICT, Action.SUPERSEDE), 1),
    TrajectoryType.SCOPE_EXPANSION: ((Action.UPDATE,), 1),
    TrajectoryType.DRIFT: ((Action.UPDATE, Action.SUPERSEDE), 2),
    TrajectoryType.STABLE: ((Action.REINFORCE,), 1),
}


def _type(t: Trajectory, out: Findings) -> None:
    actions = [s.action for s in t.states]
    kind = t.trajectory_type
    if kind in _MOVES:
        wanted, least = _MOVES[kind]
        if sum(a in wanted for a in actions) < least:
            message = f"{kind} with {', '.join(actions)}"
            fix = f"at least {least} of {' or '.join(wanted)}"
            out.warn("trajectory type", message, fix)
    if kind is TrajectoryType.STABLE and {Action.SUPERSEDE, Action.CONFLICT} & set(actions):
        message = f"stable with {', '.join(actions)}"
        out.warn("trajectory type", message, "what is stable is not replaced or contradicted")


def _retracted(t: Trajectory, out: Findings) -> None:
    ever = {c for s in t.states for c in s.claims}
    final = t.states[-1].claims
    retraction = t.trajectory_type is TrajectoryType.RETRACTION
    if retraction and not t.retracted:
        out.error("retracted", "nothing is retracted", "list the claims that were withdrawn")
    if t.retracted and not retraction:
        message = f"{len(t.retracted)} retracted claims in a {t.trajectory_type} trajectory"
        out.warn("retracted", message, "retracted claims belong to retraction trajectories")
    for claim in t.retracted:
        if claim in final:
            message = f"retracted, yet a final claim: {claim!r}"
            out.error("retracted", message, "take it out of one of the two")
        if claim not in ever:
            message = f"retracted, yet never claimed: {claim!r}"
            out.error("retracted", message, "word it as it stood in claims")


def _facts(t: Trajectory, out: Findings) -> None:
    count = Counter(c for group in t.expected_facts for c in group.claims)
    for claim in t.states[-1].claims:
        if not count[claim]:
            message = f"no expected fact holds the final claim {claim!r}"
            out.error("expected facts", message, "put it into one group", len(t.states) - 1)
    for claim, n in count.items():
        if claim not in t.states[-1].claims:
            message = f"an expected fact holds {claim!r}, which is no final claim"
            out.error("expected facts", message, "word it as in the final claims")
        if n > 1:
            message = f"{n} expected facts hold {claim!r}"
            out.error("expected facts", message, "each final claim is in exactly one group")


def said_by(t: Trajectory, claims: tuple[str, ...]) -> set[str]:
    """Authors of the documents whose doc_claims hold one of the claims, word for word."""
    return {s.document.author for s in t.states if set(claims) & set(s.doc_claims)}


def _authors(t: Trajectory, out: Findings) -> None:
    known = [a.name for a in t.authors]
    for name, n in Counter(known).items():
        if n > 1:
            out.error("authors", f"{n} authors are {name!r}", "one entry for each person")
    if not AUTHORS[0] <= len(known) <= AUTHORS[1]:
        out.warn("authors", f"{len(known)} authors", "two to four people")
    styles: dict[str, str] = {}
    for author in t.authors:
        style = " ".join(author.style.casefold().split())
        if style in styles:
            message = f"{author.name} and {styles[style]} have one style: {author.style!r}"
            out.error("styles", message, "give each person a way of writing")
        styles.setdefault(style, author.name)
    writers = {s.document.author for s in t.states}
    for i, state in enumerate(t.states):
        if state.document.author not in known:
            message = f"{state.document.author!r} is not among the authors"
            out.error("authors", message, "list this person with role and style", i)
    for document in t.noise_documents:
        if document.author not in known:
            message = f"{document.id}: {document.author!r} is not among the authors"
            out.warn("authors", message, "list this person with role and style")
    for name in known:
        if name not in writers | {d.author for d in t.noise_documents}:
            out.warn("authors", f"{name!r} wrote nothing", "take this person out")
    _attribution(t, known, out)


def _attribution(t: Trajectory, known: list[str], out: Findings) -> None:
    everything = {c for s in t.states for c in s.claims}
    # A restatement in other words may have said anything: then nobody can be ruled out for sure.
    verbatim = all(set(s.doc_claims) <= everything for s in t.states)
    for group in t.expected_facts:
        first = group.claims[0]
        if group.authors is None:
            if t.category is Category.AUTHORS:
                message = f"no authors of the fact with {first!r}"
                out.error("attribution", message, "name those who said it")
            continue
        for name, n in Counter(group.authors).items():
            if n > 1:
                message = f"{name!r} twice among the authors of {first!r}"
                out.error("attribution", message, "an author counts once")
            if name not in known:
                message = f"{name!r}, author of {first!r}, is not among the authors"
                out.error("attribution", message, "spell the name as in authors")
        said = said_by(t, group.claims)
        for name in sorted(set(group.authors) & set(known) - said):
            message = f"no document of {name} says {first!r}"
            fix = "take the name out, or add the claim to doc_claims"
            out.add("error" if verbatim else "warning", "attribution", message, fix)
        for name in sorted(said - set(group.authors)):
            message = f"{name} says {first!r} and is not among its authors"
            fix = "add the name, or take the claim out of doc_claims"
            out.add("error" if verbatim else "warning", "attribution", message, fix)


def _questions(t: Trajectory, out: Findings) -> None:
    if len(t.questions) != QUESTIONS:
        out.warn("questions", f"{len(t.questions)} questions", f"{QUESTIONS} questions")
    for n, question in enumerate(t.questions):
        for claim in question.claims:
            if claim not in t.states[-1].claims:
                message = f"question {n} rests on {claim!r}, which is no final claim"
                out.error("questions", message, "a question is about what holds at the end")
    for text, n in Counter(q.question.casefold() for q in t.questions).items():
        if n > 1:
            out.error("questions", f"{n} times the question {text!r}", "ask something else")


def check(trajectory: Trajectory) -> list[Problem]:
    """Problems of the design."""
    out = Findings(trajectory.id)
    for rule in (
        _ids, _times, _noise, _states, _type, _retracted, _facts, _authors, _questions,
    ):  # fmt: skip
        rule(trajectory, out)
    return out.problems
