"""Comparisons of the paradigms suite: two runs or layers paired by episode, and the ranking.

The results have the shape of `tasks.compare`, `n_users` being episodes: each row is one
system in one mode and its accuracy; `by_metric` has plasticity, stability and sp_balance,
too. Both sides are held over the probes that both have a verdict on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memprobe.agreement import agreement
from memprobe.errors import UsageError
from memprobe.metrics import Interval
from memprobe.paradigms import bootstrap
from memprobe.paradigms.bootstrap import Difference
from memprobe.paradigms.metrics import Result
from memprobe.paradigms.scoring.results import Match
from memprobe.paradigms.tally import Sheet, Tally
from storage.catalog import connect
from storage.runs import RunStore
from tasks.compare import (
    NO_DIFFERENCE,
    Compared,
    Comparison,
    Ranked,
    Ranking,
    Shortfall,
    Side,
    mode_name,
)
from tasks.paradigms.verdicts import Mode, Verdicts, headline, own_modes, stored_verdicts
from tasks.score import BASE, NOTHING

METRICS = ("accuracy", "plasticity", "stability", "sp_balance")
OWN = "own reading"
"""Stands for an access mode in a ranking of all systems, each read as its card says."""

_GRADES = {Match.INCORRECT: 0.0, Match.PARTIAL: 0.5, Match.CORRECT: 1.0}


@dataclass(frozen=True, slots=True)
class ProbeCompared(Compared):
    """One metric of one system in one mode on both sides; `kappa` is over all three verdicts."""

    metric: str = "accuracy"


@dataclass(frozen=True, slots=True)
class ProbeComparison(Comparison):
    """Two sides compared; `rows` are those of accuracy, `by_metric` those of all metrics."""

    scorer: str = "strict"
    by_metric: tuple[ProbeCompared, ...] = ()


def _side(side: Side, scorer: str) -> Verdicts:
    found = stored_verdicts(side.store, side.layer, scorer)
    if not found.modes:
        with connect(side.store, ("probe_verdicts",)) as connection:
            rows = connection.execute(
                "SELECT DISTINCT layer FROM probe_verdicts ORDER BY 1"
            ).fetchall()
        names = ", ".join(row[0] for row in rows) or "none"
        raise UsageError(f"{side.name} has no verdicts; layers there are: {names}")
    return found


def _graded(results: Sequence[Result]) -> dict[tuple[str, int, str], float]:
    return {
        (r.episode, r.epoch, r.probe_type.value): _GRADES[r.score.match]
        for r in results
        if r.score.match.scored
    }


def _kappa(mine: Sequence[Result], other: Sequence[Result], seed: int) -> tuple[float | None, int]:
    """Quadratic weighted kappa of the verdicts on the probes that both have one on."""
    first, second = _graded(mine), _graded(other)
    both = sorted(first.keys() & second.keys())
    if not both:
        return None, 0
    found = agreement(
        [slot[0] for slot in both],
        [first[slot] for slot in both],
        [second[slot] for slot in both],
        scale=(0.0, 0.5, 1.0),
        seed=seed,
    )
    return found.kappa, found.n_items


def _interval(found: Difference) -> Interval | None:
    return None if found.lo is None or found.hi is None else Interval(found.lo, found.hi)


def _finding(found: Difference, p_holm: float | None) -> str:
    if found.difference is None:
        return NOTHING
    if not bootstrap.shown(found, p_holm):
        return NO_DIFFERENCE
    return "first is higher" if found.difference > 0 else "second is higher"


def compare(first: Side, second: Side, scorer: str | None = None) -> ProbeComparison:
    """Compare what both sides have, paired by episode; the scorer is that of the first's protocol.

    Holm's correction runs over the systems and modes of one metric. Raises `UsageError`
    when the runs used different suites or a side has no verdicts.
    """
    ours, theirs = first.store.manifest, second.store.manifest
    if ours.dataset_digest != theirs.dataset_digest:
        raise UsageError(
            f"{first.name} and {second.name} used different data sets "
            f"({ours.dataset_name} {ours.dataset_digest[:12]}, "
            f"{theirs.dataset_name} {theirs.dataset_digest[:12]}); their episodes cannot be paired"
        )
    by = scorer or headline(first.store).value
    left, right = _side(first, by), _side(second, by)
    common = [mode for mode in left.modes if mode in right.results]
    pairs = [_paired(left.results[mode], right.results[mode]) for mode in common]
    rows: dict[str, list[ProbeCompared]] = {metric: [] for metric in METRICS}
    found = [bootstrap.differences([pair], METRICS)[0] for pair in pairs]
    kappas = [_kappa(left.results[m], right.results[m], bootstrap.SEED) for m in common]
    for metric in METRICS:
        corrected = bootstrap.adjusted([one[metric] for one in found])
        for mode, pair, one, p_holm, kappa in zip(
            common, pairs, found, corrected, kappas, strict=True
        ):
            rows[metric].append(_row(metric, mode, pair, one[metric], p_holm, kappa))
    missing = [
        f"{mode[0]} {mode_name(mode[1], mode[2])}: only in {side.name}"
        for side, has, others in ((first, left, right), (second, right, left))
        for mode in has.modes
        if mode not in others.results
    ]
    every = tuple(row for metric in METRICS for row in rows[metric])
    return ProbeComparison(
        first.name,
        second.name,
        tuple(rows["accuracy"]),
        tuple(missing),
        scorer=by,
        by_metric=every,
    )


def _paired(mine: Sequence[Result], other: Sequence[Result]) -> tuple[Tally, Tally]:
    slots = sorted({r.slot for r in mine} | {r.slot for r in other})
    return bootstrap.in_common(Sheet(mine, slots), Sheet(other, slots))


def _row(
    metric: str,
    mode: Mode,
    pair: tuple[Tally, Tally],
    found: Difference,
    p_holm: float | None,
    kappa: tuple[float | None, int],
) -> ProbeCompared:
    system, access_mode, k = mode
    return ProbeCompared(
        system=system,
        access_mode=access_mode,
        k=k,
        n_users=found.n_episodes,
        first=pair[0].value(metric),
        second=pair[1].value(metric),
        difference=found.difference,
        interval=_interval(found),
        p_value=found.p,
        p_holm=p_holm,
        kappa=kappa[0],
        n_items=kappa[1],
        finding=_finding(found, p_holm),
        metric=metric,
    )


def ranking(store: RunStore, layer: str = BASE, scorer: str | None = None) -> list[Ranking]:
    """Rank a run's systems by accuracy: first each in its own reading, then in each mode and k.

    `b` of a place is accuracy. One with a system below the run's coverage threshold
    is not ranked; the refusal names the systems and the reasons. The first has
    `OWN` for its access mode and is there whenever there is a verdict.
    """
    verdicts = stored_verdicts(store, layer, scorer)
    if not verdicts.modes:
        return []
    own = own_modes(verdicts.modes, store.manifest.systems)
    groups: list[tuple[str, int | None, list[Mode]]] = [(OWN, None, list(own.values()))]
    for access_mode, k in sorted({m[1:] for m in verdicts.modes}, key=lambda m: (m[0], m[1] or 0)):
        groups.append((access_mode, k, [m for m in verdicts.modes if m[1:] == (access_mode, k)]))
    threshold = store.manifest.config.coverage_threshold
    out = []
    for access_mode, k, modes in groups:
        refused = tuple(
            Shortfall(m[0], *verdicts.coverage(m), dict(verdicts.reasons[m]))
            for m in modes
            if not verdicts.covered(m, threshold)
        )
        places = () if refused else _places(verdicts, modes)
        out.append(Ranking(access_mode, k, places, refused, threshold))
    return out


def _places(verdicts: Verdicts, modes: Sequence[Mode]) -> tuple[Ranked, ...]:
    tallies = {mode: verdicts.sheets[mode].tally() for mode in modes}
    spread = {
        mode: bootstrap.estimates([tally], seed=verdicts.draws[mode])[0]
        for mode, tally in tallies.items()
    }
    values = {mode: tally.value("accuracy") for mode, tally in tallies.items()}
    ordered = sorted(modes, key=lambda m: (-(values[m] or 0.0), m[0]))
    sheets = verdicts.sheets
    neighbours = [bootstrap.in_common(sheets[a], sheets[b]) for a, b in pairwise(ordered)]
    found = bootstrap.differences(neighbours, ("accuracy",))
    places = []
    for place, mode in enumerate(ordered):
        one = spread[mode]["accuracy"]
        tied = False
        if place < len(found):
            after = found[place]["accuracy"]
            tied = not bootstrap.shown(after, bootstrap.adjusted([after])[0])
        assert one.value is not None, "a mode without verdicts is refused"
        interval = None if one.lo is None or one.hi is None else Interval(one.lo, one.hi)
        n = tallies[mode].n_episodes("accuracy")
        places.append(Ranked(mode[0], one.value, interval, n, tied))
    return tuple(places)
