"""How far raters agree with the judge, with the attribution, and with each other.

Shares and kappas come with 95 % intervals by cluster bootstrap over users, and with
their counts. The human is the reference: sensitivity is the share of what humans call
recovered (0.75 or more) that the judge calls so, specificity that of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from memprobe import metrics
from memprobe.metrics import SCALE, Floats, Interval
from tasks.audit.words import CAUSE_ORDER, OK_SCORE

ALL = "all raters"
JUDGE, ATTRIBUTION = "judge", "attribution"

Row = Mapping[str, Any]
Pair = tuple[str, int, int, float]
"""User, the reference's place, the other's place, and the item's weight."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A share or a kappa with its interval; `n` of `of` items it is about."""

    value: float | None
    interval: Interval | None
    n: int
    of: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """A rater beside the judge, the attribution, or another rater.

    `within_one` and `bias` (other - rater) are of scores only; kappa is quadratic
    weighted for scores, unweighted for labels. `weighted` is `exact` with every item
    weighted by what it stands for in the run. `confusion[i][j]` counts items that the
    rater put in place i of `names` and the other in place j.
    """

    rater: str
    beside: str
    scale: str
    n: int
    of: int
    users: int
    exact: Figure
    weighted: float | None
    within_one: Figure | None
    kappa: Figure
    bias: float | None
    sensitivity: Figure | None
    specificity: Figure | None
    names: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SheetFigures:
    """All agreements of one sheet of `items` items."""

    sheet: str
    layer: str
    items: int
    raters: tuple[str, ...]
    agreements: tuple[Agreement, ...]


_SCORES = tuple(f"{value:g}" for value in SCALE)
_PLACE = {value: place for place, value in enumerate(SCALE)}
_LABEL = {label: place for place, label in enumerate(CAUSE_ORDER)}


def figures(sheet: str, layer: str, items: int, rows: Sequence[Row], seed: int = 0) -> SheetFigures:
    """The figures of a sheet's stored answers (rows of the table `audits`)."""
    raters = tuple(sorted({row["rater"] for row in rows}))
    found: list[Agreement] = []
    for rater in (*raters, *((ALL,) if len(raters) > 1 else ())):
        mine = [row for row in rows if rater in (row["rater"], ALL)]
        of = items * (len(raters) if rater == ALL else 1)
        scores = _pairs(mine, "human_score", "judge_score", _PLACE)
        found.append(_agreement(rater, JUDGE, "score", _SCORES, scores, of, seed))
        labels = _pairs(mine, "human_label", "judge_label", _LABEL)
        found.append(_agreement(rater, ATTRIBUTION, "label", CAUSE_ORDER, labels, of, seed))
    by_rater = {
        rater: {row["item_id"]: row for row in rows if row["rater"] == rater} for rater in raters
    }
    for first, second in combinations(raters, 2):
        both = [
            {**by_rater[first][item], "other": by_rater[second][item]}
            for item in sorted(by_rater[first].keys() & by_rater[second].keys())
        ]
        for name, scale, names, places in (
            ("human_score", "score", _SCORES, _PLACE),
            ("human_label", "label", CAUSE_ORDER, _LABEL),
        ):
            sided = [{**row, "theirs": row["other"][name]} for row in both]
            pairs = _pairs(sided, name, "theirs", places)
            found.append(_agreement(first, second, scale, names, pairs, items, seed))
    return SheetFigures(sheet, layer, items, raters, tuple(found))


def _pairs(rows: Sequence[Row], mine: str, other: str, places: Mapping[Any, int]) -> list[Pair]:
    return [
        (row["user_id"], places[row[mine]], places[row[other]], row["weight"])
        for row in rows
        if row[mine] in places and row[other] in places
    ]


def _agreement(
    rater: str,
    beside: str,
    scale: str,
    names: tuple[str, ...],
    pairs: Sequence[Pair],
    of: int,
    seed: int,
) -> Agreement:
    size = len(names)
    users = sorted({user for user, *_ in pairs})
    at = {user: place for place, user in enumerate(users)}
    cells = np.zeros((len(users), size * size))
    for user, first, second, _ in pairs:
        cells[at[user], first * size + second] += 1
    resampled = metrics.bootstrap_ratios(cells, np.ones_like(cells), seed=seed)
    total = cells.sum(axis=0)
    first_of, second_of = np.divmod(np.arange(size * size), size)
    steps = np.abs(first_of - second_of)
    n = len(pairs)

    def figure(statistic: Callable[[Floats], Floats], counted: int, whole: int) -> Figure:
        value = float(statistic(total[None, :])[0])
        samples = statistic(resampled) if len(users) > 1 else np.array([])
        return Figure(None if np.isnan(value) else value, metrics.interval(samples), counted, whole)

    def share(hits: Any, among: Any) -> Figure:
        def of_counts(counts: Floats) -> Floats:
            return _divided(counts[:, hits & among].sum(axis=1), counts[:, among].sum(axis=1))

        return figure(of_counts, int(total[hits & among].sum()), int(total[among].sum()))

    everything = np.ones(size * size, dtype=bool)
    ordered = scale == "score"
    distance = steps**2 if ordered else (steps > 0).astype(np.int64)
    weight = sum(w for *_, w in pairs)
    same = sum(w for _, first, second, w in pairs if first == second)
    high = np.array([float(name) >= OK_SCORE for name in names]) if ordered else np.array([])
    judged = ordered and beside == JUDGE
    means = [SCALE[second] - SCALE[first] for _, first, second, _ in pairs] if ordered else []
    return Agreement(
        rater=rater,
        beside=beside,
        scale=scale,
        n=n,
        of=of,
        users=len(users),
        exact=share(steps == 0, everything),
        weighted=same / weight if weight else None,
        within_one=share(steps <= 1, everything) if ordered else None,
        kappa=figure(lambda counts: _kappa(counts, distance, size), n, of),
        bias=metrics.mean(means),
        sensitivity=share(high[second_of], high[first_of]) if judged else None,
        specificity=share(~high[second_of], ~high[first_of]) if judged else None,
        names=names,
        confusion=tuple(tuple(int(value) for value in row) for row in total.reshape(size, size)),
    )


def _divided(top: Floats, bottom: Floats) -> Floats:
    out: Floats = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def _kappa(counts: Floats, distance: Any, size: int) -> Floats:
    """Weighted kappa of each row of counts, shape (n, size * size); NaN where undefined.

    The counts may be of any scale: a kappa does not change with it (Cohen 1968).
    """
    tables = counts.reshape(len(counts), size, size)
    mine, other = tables.sum(axis=2), tables.sum(axis=1)
    expected = (mine[:, :, None] * other[:, None, :]).reshape(len(counts), -1)
    whole = counts.sum(axis=1)
    return 1.0 - _divided(
        (counts * distance).sum(axis=1) * whole, (expected * distance).sum(axis=1)
    )
