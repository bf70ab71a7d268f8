"""Corrected figures of a run: values a user, intervals, and which orders of systems hold.

Everything is resampled over users, 2,000 times by the run's seed, through
`memprobe.metrics`; nothing is drawn a second way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np

from memprobe import metrics
from memprobe.metrics import Floats, Interval, PairedDifference
from tasks.compare import NO_DIFFERENCE
from tasks.corrections_evidence import EMPTY, Blame, Labelled, Mode, Quoting
from tasks.paper_figures import RunValues
from tasks.score import ModeScores

SHOWN, REVERSED, NOT_RANKED, UNDECIDED, EQUAL = (
    *("shown", "the other way round", "not ranked", "not enough users"),
    "equal as published",
)
UNSHOWN = NO_DIFFERENCE
ALPHA = 1 - metrics.CONFIDENCE

PerUser = dict[str, float]


def read_name(mode: str, k: int | None) -> str:
    """A way of reading as a heading: `full store` or `top-5`."""
    return "full store" if k is None and mode == "dump_all" else f"top-{k}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one system: a value a user as published, and as corrected.

    `refused` says why the corrected one enters no ranking; "" if it does. `ranks` is
    False for a figure that systems are not ordered by.
    """

    system: str
    name: str
    published: PerUser
    corrected: PerUser
    total: int
    mode: Mode | None = None
    refused: str = ""
    ranks: bool = True

    @property
    def changed(self) -> bool:
        """Whether the correction changes the figure."""
        return self.published != self.corrected


@dataclass(frozen=True, slots=True)
class Rate:
    """Recovered and lost targets by user: as published, and as corrected or None.

    The counts are those of the corrected labels: lost by the memory, not
    disclosed, the task's, and those left out as nothing is known of them.
    """

    mode: Mode
    printed: dict[str, tuple[int, int]]
    printed_labels: dict[str, int]
    corrected: dict[str, tuple[int, int]] | None
    silent: int = 0
    left_out: int = 0
    estimated: bool = False

    @staticmethod
    def of(counts: Mapping[str, tuple[int, int]] | None) -> float | None:
        """ok / (ok + lost) in percent over all users; None for nothing to divide by."""
        ok = sum(n for n, _ in (counts or {}).values())
        lost = sum(n for _, n in (counts or {}).values())
        return 100 * ok / (ok + lost) if ok + lost else None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems by one figure, in the published order, and what the data show of it."""

    figure: str
    first: str
    second: str
    published: float
    corrected: PairedDifference
    p_holm: float | None
    result: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """The published order by one figure, as `a > b = c`, and its pairs."""

    figure: str
    order: str
    pairs: tuple[Pair, ...] = field(default=())

    def having(self, result: str) -> list[Pair]:
        """The pairs of one result."""
        return [pair for pair in self.pairs if pair.result.startswith(result)]


def _by_user(scores: ModeScores | None) -> PerUser:
    found = scores.by_user() if scores else {}
    return {user: b for user, b in found.items() if b is not None}


def figures(values: RunValues, strict: Mapping[Mode, ModeScores], threshold: float) -> list[Figure]:
    """A, D, C and B of every system; B is corrected by `strict`, the measured verdicts alone."""
    out: list[Figure] = []
    for system in values.systems:
        total = len(values.users[system])
        percent = {user: 100 * a for user, a in values.a[system].items()}
        rollout = (("A %", percent), ("D", values.d[system]), ("C", values.c[system]))
        out += [Figure(system, name, own, own, total) for name, own in rollout if own]
    for mode, scores in sorted(values.scores.items(), key=lambda s: (s[0][1], s[0][2] or 0)):
        own = strict.get(mode)
        scored, total = (own.scored.sum(), own.total.sum()) if own else (0, 0)
        low = not total or scored < threshold * total
        out.append(
            Figure(
                mode[0],
                f"B, {read_name(mode[1], mode[2])}",
                _by_user(scores),
                _by_user(own),
                len(values.users[mode[0]]),
                mode,
                f"{int(scored):,}/{int(total):,} targets measured" if low else "",
            )
        )
    out += _changed_categories(values, strict) + _gaps(out)
    place = {system: at for at, system in enumerate(values.systems)}
    return sorted(out, key=lambda f: place.get(f.system, len(place)))


def _categories(scores: ModeScores | None, category: str) -> PerUser:
    if scores is None or category not in scores.categories:
        return {}
    means = scores.category_means()[:, scores.categories.index(category)].tolist()
    return {u: m for u, m in zip(scores.users, means, strict=True) if not math.isnan(m)}


def _changed_categories(values: RunValues, strict: Mapping[Mode, ModeScores]) -> list[Figure]:
    """B by category, where something of it was not measured."""
    made = [
        Figure(
            mode[0],
            f"B {category}, {read_name(mode[1], mode[2])}",
            _categories(scores, category),
            _categories(strict.get(mode), category),
            len(values.users[mode[0]]),
            ranks=False,
        )
        for mode, scores in values.scores.items()
        for category in scores.categories
    ]
    return [figure for figure in made if figure.changed]


def _gaps(found: Sequence[Figure]) -> list[Figure]:
    """What top-k loses of the whole store, of each user that has both."""
    whole = {f.system: f for f in found if f.mode and f.mode[1] == "dump_all"}
    out = []
    for part in found:
        if part.mode is None or part.mode[1] == "dump_all" or part.system not in whole:
            continue
        all_of = whole[part.system]
        published, corrected = (
            {u: a[u] - b[u] for u in sorted(a.keys() & b.keys())}
            for a, b in (
                (all_of.published, part.published),
                (all_of.corrected, part.corrected),
            )
        )
        name = f"Gap, {read_name(part.mode[1], part.mode[2])}"
        out.append(Figure(part.system, name, published, corrected, part.total, ranks=False))
    return out


def rates(
    labelled: Sequence[Labelled], blamed: Sequence[Blame], quotes: Sequence[Quoting]
) -> list[Rate]:
    """The recovery rate of every row.

    A row that was judged on empty transcripts gets an estimate from the
    whole-store rows, unless those were judged on empty ones as well. Targets that
    were never measured are left out of the others.
    """
    transcript = {quote.mode: quote.transcript for quote in quotes}
    rows: dict[Mode, list[Labelled]] = {}
    for one in labelled:
        rows.setdefault(one.mode, []).append(one)
    out = []
    for mode, mine in rows.items():
        printed: dict[str, tuple[int, int]] = {}
        measured: dict[str, tuple[int, int]] = {}
        by_label: dict[str, int] = {}
        silent = left_out = 0
        for one in mine:
            by_label[one.label] = by_label.get(one.label, 0) + one.n
            kept = one.n - one.unmeasured
            left_out += one.unmeasured
            ok, lost = one.label == "ok", one.label == "memory_failure"
            silent += kept * (one.label in ("agent_elicitation_failure", "simulator_too_strict"))
            _add(printed, one.user, one.n * ok, one.n * lost)
            if kept:
                # Of a user with nothing measured there is no rate, not one of 0 in 0.
                _add(measured, one.user, kept * ok, kept * lost)
        if transcript.get(mode) != EMPTY:
            out.append(Rate(mode, printed, by_label, measured, silent, left_out))
            continue
        own = [b for b in blamed if b.mode == mode]
        whole = transcript.get((mode[0], "dump_all", None), EMPTY)
        estimate = {b.user: (b.ok, b.shown) for b in own}
        out.append(
            Rate(
                mode,
                printed,
                by_label,
                None if whole == EMPTY else estimate,
                sum(b.silent for b in own),
                sum(b.unknown + b.other for b in own),
                estimated=True,
            )
        )
    return out


def _add(counts: dict[str, tuple[int, int]], user: str, ok: int, lost: int) -> None:
    had = counts.get(user, (0, 0))
    counts[user] = (had[0] + ok, had[1] + lost)


def _columns(counts: Mapping[str, tuple[int, int]], users: Iterable[str]) -> tuple[Floats, Floats]:
    found = np.array([counts[user] for user in users], dtype=np.float64).reshape(-1, 2)
    return 100 * found[:, 0], found.sum(axis=1)


def rate_interval(counts: Mapping[str, tuple[int, int]], seed: int) -> Interval | None:
    """The interval of a rate in percent over users; None below two of them."""
    if len(counts) < 2:
        return None
    top, bottom = _columns(counts, sorted(counts))
    samples = metrics.bootstrap_ratios(top[:, None], bottom[:, None], seed=seed)
    return metrics.interval(samples[:, 0])


def rate_difference(
    first: Mapping[str, tuple[int, int]], second: Mapping[str, tuple[int, int]], seed: int
) -> PairedDifference:
    """The difference of two rates in percent points over the users that both have.

    As `metrics.paired_difference`, of ratios of sums in place of means.
    """
    users = sorted(first.keys() & second.keys())
    a, b = Rate.of({u: first[u] for u in users}), Rate.of({u: second[u] for u in users})
    if a is None or b is None or len(users) < 2:
        return PairedDifference(len(users), None if a is None or b is None else a - b, None, None)
    tops, bottoms = zip(_columns(first, users), _columns(second, users), strict=True)
    samples = metrics.bootstrap_ratios(np.column_stack(tops), np.column_stack(bottoms), seed=seed)
    drawn = samples[:, 0] - samples[:, 1]
    drawn = drawn[~np.isnan(drawn)]
    below = (int((drawn <= 0).sum()) + 1) / (len(drawn) + 1)
    above = (int((drawn >= 0).sum()) + 1) / (len(drawn) + 1)
    p_value = min(1.0, max(2 * min(below, above), 2.0 ** (1 - len(users))))
    return PairedDifference(len(users), a - b, metrics.interval(drawn), p_value)


@dataclass(frozen=True, slots=True)
class _Side:
    system: str
    published: float
    refused: str


def rankings(found: Sequence[Figure], rated: Sequence[Rate], seed: int) -> list[Ranking]:
    """For each figure its published order, and for each pair what the corrected data show.

    p values are Holm-corrected over the pairs of one figure. Users are those that
    both systems have a corrected value for.
    """
    by_name: dict[str, list[Figure]] = {}
    for figure in found:
        if not figure.ranks:
            continue
        by_name.setdefault(figure.name, []).append(figure)
    out: list[Ranking] = []
    for name, own in by_name.items():
        sides = {
            f.system: _Side(f.system, mean, f.refused)
            for f in own
            if (mean := metrics.mean([*f.published.values()])) is not None
        }
        values: dict[str, PerUser] = {f.system: f.corrected for f in own}

        def differ(a: str, b: str, values: dict[str, PerUser] = values) -> PairedDifference:
            return metrics.paired_difference(values[a], values[b], seed=seed)

        out.append(_ranking(name, [*sides.values()], differ))
    by_read: dict[tuple[str, int | None], list[Rate]] = {}
    for rate in rated:
        by_read.setdefault(rate.mode[1:], []).append(rate)
    for (mode, k), rows in sorted(by_read.items(), key=lambda r: (r[0][0], r[0][1] or 0)):
        sides = {}
        counts: dict[str, dict[str, tuple[int, int]]] = {}
        # A rate that lacks many targets is not ranked, as the score of that row is not.
        low = {f.mode: f.refused for f in found if f.mode}
        for rate in rows:
            published = Rate.of(rate.printed)
            if published is not None:
                why = low.get(rate.mode, "")
                why = why if rate.corrected is not None else "no estimate"
                sides[rate.mode[0]] = _Side(rate.mode[0], published, why)
                counts[rate.mode[0]] = rate.corrected or {}

        def apart(
            a: str, b: str, counts: dict[str, dict[str, tuple[int, int]]] = counts
        ) -> PairedDifference:
            return rate_difference(counts[a], counts[b], seed)

        out.append(_ranking(f"Rate %, {read_name(mode, k)}", [*sides.values()], apart))
    return [ranking for ranking in out if ranking.pairs]


def _ranking(
    name: str, sides: Sequence[_Side], differ: Callable[[str, str], PairedDifference]
) -> Ranking:
    ordered = sorted(sides, key=lambda s: (-s.published, s.system))
    drafts = []
    for first, second in combinations(ordered, 2):
        pair = differ(first.system, second.system)
        drafts.append((first, second, pair))
    tested = [i for i, d in enumerate(drafts) if d[2].p_value is not None]
    holm = metrics.holm([drafts[i][2].p_value or 0.0 for i in tested])
    adjusted = dict(zip(tested, holm, strict=True))
    pairs = [
        Pair(
            name,
            first.system,
            second.system,
            first.published - second.published,
            pair,
            adjusted.get(i),
            _result(first, second, pair, adjusted.get(i)),
        )
        for i, (first, second, pair) in enumerate(drafts)
    ]
    order = ordered[0].system if ordered else ""
    for before, after in pairwise(ordered):
        order += f" {'=' if _equal(before, after) else '>'} {after.system}"
    return Ranking(name, order, tuple(pairs))


def _equal(first: _Side, second: _Side) -> bool:
    return math.isclose(first.published, second.published, rel_tol=0, abs_tol=1e-12)


def _result(first: _Side, second: _Side, pair: PairedDifference, p: float | None) -> str:
    refused = "; ".join(f"{s.system}: {s.refused}" for s in (first, second) if s.refused)
    if refused:
        return f"{NOT_RANKED} ({refused})"
    if pair.difference is None or p is None:
        return UNDECIDED
    if not pair.shown or p > ALPHA:
        return UNSHOWN
    if _equal(first, second):
        return EQUAL
    return SHOWN if pair.difference > 0 else REVERSED
