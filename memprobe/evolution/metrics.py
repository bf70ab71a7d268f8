"""Intrinsic and extrinsic metrics of one trajectory, as pure functions over records.

Source: the published metrics, with our resolution where they are silent
(`docs/evolution-suite.md`). A rate over nothing has the value None, and an item
without a score enters no rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from memprobe.evolution.records import (
    Answer,
    Attribution,
    ClaimVerdict,
    Confidence,
    Figure,
    Operation,
    StateActions,
    Verdict,
    across,
    figure,
    of_state,
)
from memprobe.evolution.spec import Action
from memprobe.outcomes import Unscored

PRIORITY = (
    Action.SUPERSEDE,
    Action.CONFLICT,
    Action.UPDATE,
    Action.CREATE,
    Action.REINFORCE,
    Action.NONE,
)
"""Which of several operations that match a document equally well is its dominant action."""
CHANGES = frozenset({Action.UPDATE, Action.SUPERSEDE, Action.CONFLICT})
"""Expected actions that change a fact; a system detects the change by any of them."""
REPLACES = frozenset({Action.UPDATE, Action.SUPERSEDE})
ALIASES = {"skip": Action.NONE}
"""Published names of actions that are no label of the set."""
_SAME = 1e-9


def parse_action(name: str) -> Action:
    """A system's label as an action; raises `ValueError` for one that is not in the set."""
    low = name.strip().casefold()
    try:
        return ALIASES.get(low) or Action(low)
    except ValueError:
        known = ", ".join([*Action, *ALIASES])
        raise ValueError(f"no action {name!r}; there are {known}") from None


# Claims


GATE = 0.8
"""A fact is a candidate for a claim when its cosine is above this."""
UNGATED_K = 10
"""Nearest facts that are candidates whatever their cosine."""


def candidates(cosines: Mapping[str, float], *, gated: bool = True) -> list[str]:
    """Active facts (id -> cosine with a claim) that a judge is shown, the nearest first.

    `gated` keeps those above 0.8, all of them; without it the nearest ten. Facts of
    one cosine are in the order of their ids. No candidate is a NO without a call.
    """
    nearest = sorted(cosines, key=lambda fact: (-cosines[fact], fact))
    if gated:
        return [fact for fact in nearest if cosines[fact] > GATE]
    return nearest[:UNGATED_K]


def fact_accuracy(verdicts: Sequence[ClaimVerdict], final_state: int) -> Figure:
    """The headline: mean score of the claims expected after the last state."""
    return claim_scores(of_state(verdicts, final_state))


def claim_scores(verdicts: Iterable[ClaimVerdict]) -> Figure:
    """Mean score of claims: YES 1, PARTIAL 0.5, NO 0."""
    return figure(None if v.verdict is None else v.verdict.score for v in verdicts)


def statewise_accuracy(verdicts: Sequence[ClaimVerdict]) -> Figure:
    """Mean over states of the mean score of the claims expected there."""
    return across(claim_scores(of_state(verdicts, s)) for s in sorted({v.state for v in verdicts}))


def claim_coverage(verdicts: Iterable[ClaimVerdict]) -> Figure:
    """Share of claims with a YES (reconstructed: PARTIAL covers nothing)."""
    return figure(None if v.verdict is None else v.verdict is Verdict.YES for v in verdicts)


def miss_rate(verdicts: Iterable[ClaimVerdict]) -> Figure:
    """Share of claims without a YES: a PARTIAL is missed, and counts half in the accuracy."""
    return figure(None if v.verdict is None else v.verdict is not Verdict.YES for v in verdicts)


def gate_changes(gated: Sequence[ClaimVerdict], ungated: Sequence[ClaimVerdict]) -> Figure:
    """Share of claims whose verdict the cosine gate changes, over claims that both judged.

    A claim that only one side attempted is left out; one that either side could not
    score counts as attempted. Raises `ValueError` when a side judges a claim of a state twice.
    """
    first, second = _by_claim(gated), _by_claim(ungated)
    pairs = [(first[key], second[key]) for key in sorted(first.keys() & second.keys())]
    return figure(None if a is None or b is None else a is not b for a, b in pairs)


def _by_claim(verdicts: Sequence[ClaimVerdict]) -> dict[tuple[int, str], Verdict | None]:
    found = {(v.state, v.claim): v.verdict for v in verdicts}
    if len(found) != len(verdicts):
        raise ValueError("a claim of a state was judged twice")
    return found


# Actions


def dominant(operations: Iterable[Operation]) -> Action:
    """The action of the operation that best matches a document's claims.

    Matches that are equal to nine digits are decided by `PRIORITY`; no operation at
    all is `none`.
    """
    found = list(operations)
    if not found:
        return Action.NONE
    best = max(o.match for o in found)
    tied = [o.action for o in found if best - o.match <= _SAME]
    return min(tied, key=PRIORITY.index)


def action_right(expected: Action, actual: Action, *, lenient: bool = False) -> bool:
    """Whether an action is the expected one.

    `lenient` lets supersede pass for conflict: the published decision prompt does not
    offer conflict, so its systems cannot give that label.
    """
    if lenient and expected is Action.CONFLICT and actual is Action.SUPERSEDE:
        return True
    return actual is expected


def action_accuracy(states: Iterable[StateActions], *, lenient: bool = False) -> Figure:
    """Share of states whose dominant action is the expected one."""
    return figure(
        None
        if isinstance(s.operations, Unscored)
        else action_right(s.expected, dominant(s.operations), lenient=lenient)
        for s in states
    )


def action_confusion(states: Iterable[StateActions]) -> Counter[tuple[Action, Action]]:
    """States by (expected, dominant) action, without those whose actions could not be seen."""
    return Counter(
        (s.expected, dominant(s.operations))
        for s in states
        if not isinstance(s.operations, Unscored)
    )


def update_recall(states: Iterable[StateActions]) -> Figure:
    """Share of transitions that should change a fact where a fact of the topic was changed.

    Transitions are states from the second on that expect update, supersede or
    conflict. Detected is one with such an operation on a relevant fact that was there
    before. A fact that is created beside the old one detects nothing.
    """
    return figure(
        None
        if isinstance(s.operations, Unscored)
        else any(o.action in CHANGES and o.pre_existing and o.relevant for o in s.operations)
        for s in states
        if s.state >= 1 and s.expected in CHANGES
    )


def false_updates(states: Iterable[StateActions]) -> Figure:
    """Share of states that expect reinforce in which a relevant fact was updated or superseded.

    Operations on facts of other topics (a noise claim's) are no false update.
    """
    return figure(
        None
        if isinstance(s.operations, Unscored)
        else any(o.action in REPLACES and o.relevant for o in s.operations)
        for s in states
        if s.expected is Action.REINFORCE
    )


# Facts


def confidence_error(states: Iterable[Confidence]) -> Figure:
    """Mean absolute error of the confidence over states; a missing fact has confidence 0."""
    return figure(
        None if isinstance(s.actual, Unscored) else abs(s.expected - (s.actual or 0.0))
        for s in states
    )


def author_count(authors: Iterable[str]) -> int:
    """Distinct contributors, names compared without case: one author twice counts once."""
    return len(_names(authors))


def author_error(groups: Iterable[Attribution]) -> Figure:
    """Mean distance of the number of authors from the expected one, over fact groups."""
    return figure(
        None
        if isinstance(g.actual, Unscored)
        else abs(author_count(g.actual) - author_count(g.expected))
        for g in groups
    )


def author_sets(groups: Iterable[Attribution]) -> Figure:
    """Share of fact groups with exactly the expected authors, names compared without case."""
    return figure(
        None if isinstance(g.actual, Unscored) else _names(g.actual) == _names(g.expected)
        for g in groups
    )


def _names(authors: Iterable[str]) -> set[str]:
    return {" ".join(name.split()).casefold() for name in authors}


# Answers


def extrinsic(answers: Iterable[Answer]) -> Figure:
    """Mean score of the answers to a trajectory's questions."""
    return figure(None if a.verdict is None else a.verdict.score for a in answers)
