"""Comparisons: two runs or layers paired by user, and the ranking of one run's systems.

A difference counts only when its bootstrap interval leaves zero out; otherwise
it is "no difference shown", which is not "no difference".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from memprobe import metrics
from memprobe.agreement import Agreement, agreement
from memprobe.errors import UsageError
from memprobe.metrics import Interval
from storage.catalog import connect
from storage.runs import RunStore
from tasks.reading import is_unknown
from tasks.score import BASE, NOTHING, ModeScores, mode_scores

NO_DIFFERENCE = "no difference shown"


def mode_name(access_mode: str, k: int | None) -> str:
    """`dump_all` or `retrieve@5`."""
    return access_mode if k is None else f"{access_mode}@{k}"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a run and a layer of its verdicts."""

    store: RunStore
    layer: str = BASE

    @property
    def name(self) -> str:
        """`run` or `run@layer`."""
        run = self.store.name
        return run if self.layer == BASE else f"{run}@{self.layer}"


def split_layer(reference: str) -> tuple[str, str]:
    """`run@layer` as run and layer; without `@` the layer is `base`."""
    run, at, layer = reference.rpartition("@")
    if not at:
        return reference, BASE
    if not run or not layer:
        raise UsageError(f"{reference!r}: write RUN or RUN@LAYER")
    return run, layer


@dataclass(frozen=True, slots=True)
class Compared:
    """B of one system in one mode on both sides; `difference` is first - second.

    The means are over the paired users. `p_holm` is corrected over the whole
    comparison. `kappa` is the quadratic weighted agreement of the verdicts on
    the `n_items` items that both sides scored; None where it is undefined.
    """

    system: str
    access_mode: str
    k: int | None
    n_users: int
    first: float | None
    second: float | None
    difference: float | None
    interval: Interval | None
    p_value: float | None
    p_holm: float | None
    kappa: float | None
    n_items: int
    finding: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides compared; `missing` names what only one of them has."""

    first: str
    second: str
    rows: tuple[Compared, ...]
    missing: tuple[str, ...]
    agreement: tuple[Agreed, ...] = ()
    b_error: BError | None = None


@dataclass(frozen=True, slots=True)
class Agreed:
    """How far both sides give one item one score. `system` None: all that both sides have.

    Scope `judged` leaves out items whose label is "unknown" on either side: they score 0
    by rule, and agreement on them says nothing of a judge. Scope `all` has them.
    """

    scope: str
    system: str | None
    access_mode: str | None
    k: int | None
    figures: Agreement


@dataclass(frozen=True, slots=True)
class BError:
    """How far B of a system in a mode lies apart on both sides.

    `mean` is the mean absolute difference over the `n` systems and modes with anything
    judged and no zeros for what was never measured, its interval over users. `kept` of
    `pairs` pairs of systems that are in one mode keep their order; a tie on one side
    only counts as not kept.
    """

    mean: float
    interval: Interval | None
    n: int
    n_users: int
    kept: int
    pairs: int


def _finding(shown: bool, difference: float | None, p_holm: float | None) -> str:
    if difference is None:
        return NOTHING
    if not shown or (p_holm is not None and p_holm > 1 - metrics.CONFIDENCE):
        return NO_DIFFERENCE
    return "first is higher" if difference > 0 else "second is higher"


_ITEMS = """
SELECT system, access_mode, k, user_id, epoch, category, dimension, score, label,
    reason
FROM verdicts WHERE layer = ? AND status = 'scored'
"""


Mode = tuple[str, str, int | None]
"""System, access mode and k."""
Item = tuple[float, str | None]
"""Score and label."""
Items = dict[Mode, dict[tuple[Any, ...], Item]]


def _items(side: Side) -> tuple[list[ModeScores], Items, set[Mode]]:
    """Scores, items, and the modes that hold zeros for what was never measured."""
    with connect(side.store, ("verdicts", "targets")) as connection:
        scores = mode_scores(connection, side.layer)
        rows = connection.execute(_ITEMS, [side.layer]).fetchall()
        if not scores:
            layers = connection.execute("SELECT DISTINCT layer FROM verdicts ORDER BY 1").fetchall()
            names = ", ".join(row[0] for row in layers) or "none"
            raise UsageError(f"{side.name} has no verdicts; layers there are: {names}")
    items: Items = {}
    unmeasured: set[Mode] = set()
    for system, access_mode, k, *item, score, label, reason in rows:
        mode = (system, access_mode, k)
        items.setdefault(mode, {})[tuple(item)] = (score, label)
        if reason is not None:
            unmeasured.add(mode)
    return scores, items, unmeasured


def _pairs(mode: Mode, first: Items, second: Items) -> list[tuple[str, float, float, bool]]:
    """User, both scores, and whether both labels say something, of the items of both sides."""
    mine, other = first.get(mode, {}), second.get(mode, {})
    out = []
    for item in sorted(mine.keys() & other.keys()):
        (a, a_label), (b, b_label) = mine[item], other[item]
        said = all(label is not None and not is_unknown(label) for label in (a_label, b_label))
        out.append((item[0], a, b, said))
    return out


def _agreed(modes: Sequence[Mode], first: Items, second: Items, seed: int) -> list[Agreed]:
    """Agreement over all modes and of each, with and without the labels "unknown"."""
    pairs = {mode: _pairs(mode, first, second) for mode in modes}
    groups: list[tuple[Mode | None, list[tuple[str, float, float, bool]]]] = [
        (None, [pair for mode in modes for pair in pairs[mode]]),
        *pairs.items(),
    ]
    out = []
    for scope in ("judged", "all"):
        for mode, found in groups:
            kept = [pair for pair in found if pair[3] or scope == "all"]
            if not kept:
                continue
            users, a, b, _ = zip(*kept, strict=True)
            try:
                figures = agreement(users, a, b, seed=seed)
            except ValueError:
                # A judge of another scale: there is no agreement figure for it.
                continue
            system, access_mode, k = mode or (None, None, None)
            out.append(Agreed(scope, system, access_mode, k, figures))
    return out


def _b_error(
    modes: Sequence[Mode], mine: Sequence[ModeScores], other: Sequence[ModeScores], seed: int
) -> BError | None:
    """The error of B over systems and modes, on the users that have a B in all of them."""
    if not modes:
        return None
    per_user = [(a.by_user(), b.by_user()) for a, b in zip(mine, other, strict=True)]
    users = sorted(set.intersection(*(set(x) for pair in per_user for x in pair)))
    users = [u for u in users if all(x[u] is not None for pair in per_user for x in pair)]
    if not users:
        return None
    values = np.array([[[_number(x[u]) for x in pair] for pair in per_user] for u in users])
    means = values.mean(axis=0)
    samples = metrics.bootstrap_means(values[:, :, 0] - values[:, :, 1], seed=seed)
    errors = np.abs(samples).mean(axis=1)
    kept = pairs = 0
    for (i, first), (j, second) in combinations(enumerate(modes), 2):
        if first[1:] == second[1:]:
            pairs += 1
            kept += int(np.sign(means[i, 0] - means[j, 0]) == np.sign(means[i, 1] - means[j, 1]))
    return BError(
        float(np.abs(means[:, 0] - means[:, 1]).mean()),
        metrics.interval(errors) if len(users) > 1 else None,
        len(modes),
        len(users),
        kept,
        pairs,
    )


def compare(first: Side, second: Side) -> Comparison:
    """Compare what both sides have: each system and mode, paired by user.

    Raises `UsageError` when the runs used different data sets (their users are
    not the same people) or a side has no verdicts.
    """
    ours, theirs = first.store.manifest, second.store.manifest
    if ours.dataset_digest != theirs.dataset_digest:
        raise UsageError(
            f"{first.name} and {second.name} used different data sets "
            f"({ours.dataset_name} {ours.dataset_digest[:12]}, "
            f"{theirs.dataset_name} {theirs.dataset_digest[:12]}); their users cannot be paired"
        )
    seed = ours.config.seed
    mine, my_items, my_zeros = _items(first)
    other, other_items, other_zeros = _items(second)
    left = {(s.system, s.access_mode, s.k): s for s in mine}
    right = {(s.system, s.access_mode, s.k): s for s in other}
    common = [key for key in left if key in right]
    pairs = [(left[key].by_user(), right[key].by_user()) for key in common]
    found = [metrics.paired_difference(a, b, seed=seed) for a, b in pairs]
    tested = [i for i, f in enumerate(found) if f.p_value is not None]
    holm = metrics.holm([p for i in tested if (p := found[i].p_value) is not None])
    adjusted = dict(zip(tested, holm, strict=True))
    agreed = _agreed(common, my_items, other_items, seed)
    by_mode = {(x.system, x.access_mode, x.k): x.figures for x in agreed if x.scope == "all"}
    rows = []
    for index, (key, (a, b), pair) in enumerate(zip(common, pairs, found, strict=True)):
        both = [u for u in sorted(a) if a[u] is not None and b.get(u) is not None]
        same = by_mode.get(key)
        p_holm = adjusted.get(index)
        rows.append(
            Compared(
                *key,
                n_users=pair.n,
                first=metrics.mean([_number(a[u]) for u in both]),
                second=metrics.mean([_number(b[u]) for u in both]),
                difference=pair.difference,
                interval=pair.interval,
                p_value=pair.p_value,
                p_holm=p_holm,
                kappa=same.kappa if same else None,
                n_items=same.n_items if same else len(_pairs(key, my_items, other_items)),
                finding=_finding(pair.shown, pair.difference, p_holm),
            )
        )
    missing = [
        f"{key[0]} {mode_name(key[1], key[2])}: only in {side.name}"
        for side, keys, others in ((first, left, right), (second, right, left))
        for key in keys
        if key not in others
    ]
    # Where nobody said anything, or a procedure scores what it never measured, both sides
    # are 0 by rule, and no error could show.
    judged = {(x.system, x.access_mode, x.k) for x in agreed if x.scope == "judged"}
    modes = [key for key in common if key in judged - my_zeros - other_zeros]
    error = _b_error(modes, [left[m] for m in modes], [right[m] for m in modes], seed)
    return Comparison(first.name, second.name, tuple(rows), tuple(missing), tuple(agreed), error)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A system that too little of could be scored, and the unscored items by reason."""

    system: str
    n_scored: int
    n_total: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in a ranking. `tied` tells that no difference to the next place is shown."""

    system: str
    b: float
    interval: Interval | None
    n_users: int
    tied: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Systems by B in one mode; empty and with `refused` when coverage does not allow it."""

    access_mode: str
    k: int | None
    places: tuple[Ranked, ...]
    refused: tuple[Shortfall, ...]
    threshold: float

    @property
    def message(self) -> str:
        """Why there is no ranking; "" when there is one."""
        if not self.refused:
            return ""
        parts = []
        for short in self.refused:
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(short.reasons.items()))
            share = short.n_scored / short.n_total
            parts.append(
                f"{short.system} {short.n_scored}/{short.n_total} scored = {share:.1%} ({reasons})"
            )
        mode = mode_name(self.access_mode, self.k)
        return f"no ranking of {mode} below {self.threshold:.0%} coverage: {'; '.join(parts)}"


_REASONS = """
SELECT system, access_mode, k, reason, count(*) FROM verdicts
WHERE layer = ? AND status = 'unscored' GROUP BY ALL
"""


def ranking(store: RunStore, layer: str = BASE) -> list[Ranking]:
    """Rank the systems of a run in each access mode and k.

    A mode with a system below the run's coverage threshold is not ranked; the
    refusal names the systems and the reasons.
    """
    config = store.manifest.config
    with connect(store, ("verdicts", "targets")) as connection:
        scores = mode_scores(connection, layer)
        reasons: dict[tuple[Any, ...], dict[str, int]] = {}
        for system, mode, k, reason, n in connection.execute(_REASONS, [layer]).fetchall():
            reasons.setdefault((system, mode, k), {})[reason] = n
    out = []
    for mode, k in dict.fromkeys((s.access_mode, s.k) for s in sorted(scores, key=_mode_key)):
        mine = [s for s in scores if (s.access_mode, s.k) == (mode, k)]
        refused = tuple(
            Shortfall(
                s.system,
                int(s.scored.sum()),
                int(s.total.sum()),
                reasons.get((s.system, mode, k), {}),
            )
            for s in mine
            if s.scored.sum() < config.coverage_threshold * s.total.sum() or not s.scored.sum()
        )
        places = () if refused else _places(mine, config.seed)
        out.append(Ranking(mode, k, places, refused, config.coverage_threshold))
    return out


def _mode_key(scores: ModeScores) -> tuple[str, int]:
    return scores.access_mode, scores.k or 0


def _places(scores: Sequence[ModeScores], seed: int) -> tuple[Ranked, ...]:
    means = {s.system: metrics.mean(s.user_scores()) for s in scores}
    ordered = sorted(scores, key=lambda s: (-_number(means[s.system]), s.system))
    places = []
    for place, entry in enumerate(ordered):
        tied = False
        if place + 1 < len(ordered):
            after = ordered[place + 1]
            pair = metrics.paired_difference(entry.by_user(), after.by_user(), seed=seed)
            tied = not pair.shown
        values = entry.user_scores()
        places.append(
            Ranked(
                entry.system,
                _number(means[entry.system]),
                metrics.cluster_interval(values, seed=seed),
                int((~(values != values)).sum()),
                tied,
            )
        )
    return tuple(places)
