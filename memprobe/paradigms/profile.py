"""The behaviour profile of one system in one mode: what its figures allow to be said.

Every sentence is made from figures, with n and interval. A difference counts when its
bootstrap interval (episodes) leaves zero out; otherwise the words are "no difference
shown". Nothing is said of a metric with fewer than `MIN_ITEMS` answers or
`MIN_EPISODES` episodes; such metrics are listed in `unsaid`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

import numpy as np

from memprobe import metrics
from memprobe.metrics import RESAMPLES, Floats
from memprobe.paradigms.bootstrap import SEED, drawn, estimate
from memprobe.paradigms.tally import BEHIND, METRICS, Tally
from memprobe.paradigms.taxonomy import Failure, Side
from memprobe.types import Frozen

MIN_ITEMS = 10
MIN_EPISODES = 6
"""Fewer episodes cannot show a difference at 5 %, even when all of them agree."""
BALANCED = 0.25
"""A system is balanced when the interval of plasticity - stability lies within this of zero."""
HALF = 0.5
MIN_FAILURES = 5
AXES = ("plasticity", "stability", "historical", "source_fidelity", "temporal", "split")
NO_DIFFERENCE = "no difference shown"

_WORDS = {
    "accuracy": "accuracy",
    "plasticity": "plasticity (taking over what should be)",
    "stability": "stability (keeping what should be kept)",
    "historical": "the previous value",
    "source_fidelity": "who said it, and whether it was accepted",
    "temporal": "when and why it changed",
    "split": "updates that come in two parts",
}


class Tendency(StrEnum):
    """Which way a system errs. `undecided`: no difference shown, and too few data for balance."""

    OVER_PLASTIC = "over_plastic"
    OVER_STABLE = "over_stable"
    BALANCED = "balanced"
    UNDECIDED = "undecided"
    UNMEASURED = "unmeasured"


class Said(Frozen):
    """A figure with its 95 % interval and what is behind it.

    `n` items (of the second rate in `n_other`, for a figure made of two) in `n_episodes`
    (of the rate with fewer of them).
    """

    metric: str
    value: float | None
    lo: float | None
    hi: float | None
    n: int
    n_other: int | None
    n_episodes: int


class Point(Frozen):
    """A strength or a weakness: its figure, and the sentence that says it."""

    figure: Said
    sentence: str


class FailureShare(Frozen):
    """How many of the wrong answers have a failure, and on which side of the memory."""

    failure: Failure
    n: int
    share: float
    sides: dict[Side, int]


class Profile(Frozen):
    """What can be said of a system in a mode under one scorer.

    `unsaid` names metrics with too few answers for a word. `failures` go from the most
    frequent down; `dominant` is the first when it is shown to lead the second.
    """

    system: str
    access_mode: str
    k: int | None
    scorer: str
    n: int
    n_errors: int
    n_episodes: int
    tendency: Tendency
    gap: Said
    accuracy: Said
    strengths: tuple[Point, ...]
    weaknesses: tuple[Point, ...]
    failures: tuple[FailureShare, ...]
    dominant: Failure | None
    sentences: tuple[str, ...]
    unsaid: tuple[str, ...]


Diagnosed = tuple[int, Failure, Side | None]
"""A wrong answer: the place of its episode in the tally, its failure and (where known) side."""


def number(value: float | None) -> str:
    """A share as in the sentences: 0.63; a value that is absent is a dash."""
    return "–" if value is None else f"{value:.2f}"


def said_of(figure: Said) -> str:
    """`0.63 (95 % 0.51 to 0.74, n = 112)`."""
    n = f"n = {figure.n}" if figure.n_other is None else f"n = {figure.n} and {figure.n_other}"
    if figure.lo is None or figure.hi is None:
        return f"{number(figure.value)} ({n})"
    return f"{number(figure.value)} (95 % {number(figure.lo)} to {number(figure.hi)}, {n})"


def _enough(figure: Said) -> bool:
    smallest = figure.n if figure.n_other is None else min(figure.n, figure.n_other)
    return smallest >= MIN_ITEMS and figure.n_episodes >= MIN_EPISODES and figure.lo is not None


def _said(tally: Tally, samples: Floats, metric: str) -> Said:
    first, second = BEHIND[metric]
    n_episodes = tally.n_clusters(metric)
    found = estimate(tally.value(metric), samples[:, METRICS.index(metric)], n_episodes)
    return Said(
        metric=metric,
        value=found.value,
        lo=found.lo,
        hi=found.hi,
        n=tally.n(first),
        n_other=None if second is None else tally.n(second),
        n_episodes=n_episodes,
    )


def _tendency(gap: Said) -> Tendency:
    if not _enough(gap) or gap.lo is None or gap.hi is None:
        return Tendency.UNMEASURED
    if gap.lo > 0:
        return Tendency.OVER_PLASTIC
    if gap.hi < 0:
        return Tendency.OVER_STABLE
    within = gap.lo >= -BALANCED and gap.hi <= BALANCED
    return Tendency.BALANCED if within else Tendency.UNDECIDED


_TENDENCY = {
    Tendency.OVER_PLASTIC: "Over-plastic: it takes over more than it should; "
    "plasticity exceeds stability by {gap}.",
    Tendency.OVER_STABLE: "Over-stable: it keeps more than it should; "
    "stability exceeds plasticity by {gap}.",
    Tendency.BALANCED: "Balanced: " + NO_DIFFERENCE + " between plasticity and stability, "
    "and the interval allows a small one only: {gap}.",
    Tendency.UNDECIDED: "Plasticity and stability: " + NO_DIFFERENCE + ", {gap}; "
    "the interval is too wide to call it balanced.",
}


def _gap_sentence(tendency: Tendency, gap: Said) -> str:
    if tendency is Tendency.OVER_STABLE and gap.lo is not None and gap.hi is not None:
        assert gap.value is not None
        turned = {"value": -gap.value, "lo": -gap.hi, "hi": -gap.lo}
        gap = gap.model_copy(update=turned)
    return _TENDENCY[tendency].format(gap=said_of(gap))


_Kind = Literal["strength", "weakness"]


def _point(figure: Said, accuracy: Said, below: bool) -> tuple[_Kind, Point] | None:
    """What an axis is, `below` telling that it is shown to lie below the system's accuracy."""
    assert figure.lo is not None
    assert figure.hi is not None
    name = _WORDS[figure.metric]
    if figure.hi < HALF:
        text = f"Weak in {name}: more often wrong than right, {said_of(figure)}."
        return "weakness", Point(figure=figure, sentence=text)
    if below:
        own = f"below its accuracy of {number(accuracy.value)}"
        text = f"Weaker in {name}: {said_of(figure)}, {own}."
        return "weakness", Point(figure=figure, sentence=text)
    if figure.lo > HALF:
        text = f"Strong in {name}: more often right than wrong, {said_of(figure)}."
        return "strength", Point(figure=figure, sentence=text)
    return None


def _undecided(figure: Said) -> str:
    return f"{_capital(_WORDS[figure.metric])}: {NO_DIFFERENCE} from one half, {said_of(figure)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shares(diagnosed: Sequence[Diagnosed]) -> tuple[FailureShare, ...]:
    total = len(diagnosed)
    counts = Counter(failure for _, failure, _ in diagnosed)
    sides = Counter((failure, side) for _, failure, side in diagnosed)
    order = sorted(counts, key=lambda f: (-counts[f], list(Failure).index(f)))
    return tuple(
        FailureShare(
            failure=failure,
            n=counts[failure],
            share=counts[failure] / total,
            sides={side: sides[failure, side] for side in Side if sides[failure, side]},
        )
        for failure in order
    )


def _leads(
    diagnosed: Sequence[Diagnosed], shares: Sequence[FailureShare], episodes: int, seed: int
) -> bool:
    """Whether the most frequent failure is shown to be more frequent than the second."""
    if episodes < MIN_EPISODES:
        return False
    if len(shares) < 2:
        return True
    per_episode = np.zeros((episodes, 1))
    sign = {shares[0].failure: 1.0, shares[1].failure: -1.0}
    for at, failure, _ in diagnosed:
        per_episode[at, 0] += sign.get(failure, 0.0)
    samples = metrics.bootstrap_means(per_episode, resamples=RESAMPLES, seed=seed)[:, 0]
    found = metrics.interval(samples)
    return found is not None and found.lo > 0


def _failure_sentences(
    diagnosed: Sequence[Diagnosed], shares: Sequence[FailureShare], leads: bool
) -> list[str]:
    total = len(diagnosed)
    if total < MIN_FAILURES:
        return []
    first = shares[0]
    where = ", ".join(f"{n} in {side.value}" for side, n in first.sides.items())
    text = f"{first.n} of {total} wrong answers ({first.share:.0%}) are {first.failure}"
    text += f": {where}" if where else ""
    if leads:
        return [f"Dominant failure: {text}."]
    if len(shares) < 2:
        return [f"Failures: {text}; too few episodes to say more."]
    second = shares[1]
    return [
        f"Failures: {text}; {NO_DIFFERENCE} from {second.failure} ({second.n} of {total})."
    ]  # fmt: skip


def build_profile(
    system: str,
    access_mode: str,
    k: int | None,
    scorer: str,
    tally: Tally,
    diagnosed: Sequence[Diagnosed] = (),
    *,
    seed: int = SEED,
) -> Profile:
    """The profile of a system's tally over all its probes and of its diagnosed wrong answers."""
    samples = next(drawn([tally], seed=seed))
    accuracy, gap = (_said(tally, samples, m) for m in ("accuracy", "sp_gap"))
    tendency = _tendency(gap)
    sentences: list[str] = []
    unsaid: list[str] = []
    if _enough(accuracy):
        sentences.append(f"Accuracy {said_of(accuracy)}.")
    else:
        unsaid.append("accuracy")
    if tendency is Tendency.UNMEASURED:
        unsaid.append("sp_gap")
    else:
        sentences.append(_gap_sentence(tendency, gap))
    points: dict[_Kind, list[Point]] = {"strength": [], "weakness": []}
    own = samples[:, METRICS.index("accuracy")]
    for axis in AXES:
        figure = _said(tally, samples, axis)
        if not _enough(figure):
            unsaid.append(axis)
            continue
        lag = metrics.interval(samples[:, METRICS.index(axis)] - own)
        found = _point(figure, accuracy, lag is not None and lag.hi < 0)
        if found is None:
            sentences.append(_undecided(figure))
        else:
            points[found[0]].append(found[1])
            sentences.append(found[1].sentence)
    delta = _said(tally, samples, "split_delta")
    if not _enough(delta):
        unsaid.append("split_delta")
    elif delta.lo is not None and delta.hi is not None:
        shown = "less" if delta.hi < 0 else "more" if delta.lo > 0 else ""
        of = f"split against whole episodes: {said_of(delta)}"
        sentences.append(
            f"It gets {shown} right when an update comes in two parts than in whole episodes, "
            f"some of which hold no update; {of}."
            if shown
            else f"{_capital(of)}, {NO_DIFFERENCE}."
        )
    shares = _shares(diagnosed)
    leads = bool(shares) and _leads(diagnosed, shares, len(tally.counted), seed)
    sentences += _failure_sentences(diagnosed, shares, leads)
    return Profile(
        system=system,
        access_mode=access_mode,
        k=k,
        scorer=scorer,
        n=tally.n("accuracy"),
        n_errors=tally.n_errors("accuracy"),
        n_episodes=tally.n_episodes("accuracy"),
        tendency=tendency,
        gap=gap,
        accuracy=accuracy,
        strengths=tuple(points["strength"]),
        weaknesses=tuple(points["weakness"]),
        failures=shares,
        dominant=shares[0].failure if leads and len(diagnosed) >= MIN_FAILURES else None,
        sentences=tuple(sentences),
        unsaid=tuple(unsaid),
    )
