"""The tables of the corrections: corrected figures beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memprobe import metrics
from tasks.corrections import Corrections
from tasks.corrections_evidence import EMPTY, Mode, Quoting, Refused, Replies, Scores, Unmeasured
from tasks.corrections_figures import (
    NOT_RANKED,
    REVERSED,
    SHOWN,
    UNSHOWN,
    Figure,
    Ranking,
    Rate,
    rate_interval,
    read_name,
)
from tasks.report.tables import Column, Table
from tasks.score import ModeScores

_SYSTEM = Column("system", "System")
_READ = Column("read", "Read")
_INTERVAL = Column("interval", "95 % interval", "interval")
_RESAMPLED = f"Intervals: cluster bootstrap over users, {metrics.RESAMPLES:,} resamples, seed "


def _bounds(found: metrics.Interval | None) -> tuple[float, float] | None:
    return (found.lo, found.hi) if found else None


def _read(mode: Mode) -> dict[str, str]:
    return {"system": mode[0], "read": read_name(mode[1], mode[2])}


def _share(n: int, total: int) -> str:
    return f"{n:,}/{total:,}"


def scores(found: Sequence[Figure], seed: int) -> Table:
    """A, D, C and B, as published and as corrected, each with n and an interval."""
    rows = [
        {
            "system": figure.system,
            "figure": figure.name,
            "published": metrics.mean([*figure.published.values()]),
            "published_n": _share(len(figure.published), figure.total),
            "corrected": metrics.mean([*figure.corrected.values()]),
            "corrected_n": _share(len(figure.corrected), figure.total),
            "interval": _bounds(metrics.cluster_interval([*figure.corrected.values()], seed=seed)),
            "why": "; ".join(
                why
                for why in (
                    "unmeasured left out" if figure.changed else "",
                    f"not ranked: {figure.refused}" if figure.refused else "",
                )
                if why
            ),
        }
        for figure in found
    ]
    return Table(
        "strict-scores",
        "Scores, as published and corrected (mean over users)",
        (
            _SYSTEM,
            Column("figure", "Figure"),
            Column("published", "Published", "score"),
            Column("published_n", "n/N users"),
            Column("corrected", "Corrected", "score"),
            Column("corrected_n", "n/N users"),
            _INTERVAL,
            Column("why", "Why"),
        ),
        rows,
        (f"{_RESAMPLED}{seed}.",),
    )


def attribution(rated: Sequence[Rate], quotes: Sequence[Quoting], seed: int) -> Table:
    """Labels and recovery rate, as published and corrected."""
    empty = {q.mode for q in quotes if q.transcript == EMPTY}
    rows = []
    for rate in rated:
        label = rate.printed_labels
        total = sum(label.values())
        own = rate.corrected
        ok = sum(n for n, _ in own.values()) if own is not None else None
        lost = sum(n for _, n in own.values()) if own is not None else None
        whys = []
        if rate.mode in empty:
            whys.append("empty transcripts: " + ("no estimate" if own is None else "an estimate"))
        elif rate.left_out:
            whys.append("unmeasured left out")
        rows.append(
            {
                **_read(rate.mode),
                "ok": label.get("ok", 0),
                "memory": label.get("memory_failure", 0),
                "agent": label.get("agent_elicitation_failure", 0),
                "user": label.get("simulator_too_strict", 0),
                "task": label.get("task_design_failure", 0),
                "rate": Rate.of(rate.printed),
                "ok_strict": ok,
                "memory_strict": lost,
                "silent_strict": None if own is None else rate.silent,
                "left_out": rate.left_out,
                "rate_strict": Rate.of(own),
                "n": "" if ok is None or lost is None else _share(ok + lost, total),
                "interval": None if own is None else _bounds(rate_interval(own, seed)),
                "why": "; ".join(whys),
            }
        )
    return Table(
        "strict-attribution",
        "Attribution (targets) and recovery rate, as published and corrected",
        (
            _SYSTEM,
            _READ,
            Column("ok", "Recovered", "int"),
            Column("memory", "Memory", "int"),
            Column("agent", "Agent", "int"),
            Column("user", "User", "int"),
            Column("task", "Task", "int"),
            Column("rate", "Rate", "percent"),
            Column("ok_strict", "Recovered, corrected", "int"),
            Column("memory_strict", "Memory, corrected", "int"),
            Column("silent_strict", "Not disclosed, corrected", "int"),
            Column("left_out", "Left out", "int"),
            Column("rate_strict", "Rate, corrected", "percent"),
            Column("n", "n/N targets"),
            _INTERVAL,
            Column("why", "Why"),
        ),
        rows,
        (
            "Rate: recovered / (recovered + lost by the memory). Not disclosed is Agent and User "
            "together: which of the two, only a model can say.",
            f"{_RESAMPLED}{seed}.",
        ),
        empty="no attributions",
    )


def coverage(strict: Mapping[Mode, ModeScores], gone: Sequence[Unmeasured]) -> Table:
    """Measured targets of every row, and why the others were not."""
    reasons: dict[Mode, list[str]] = {}
    zero: dict[Mode, int] = {}
    for one in gone:
        reasons.setdefault(one.mode, []).append(f"{one.n:,} {one.reason}")
        zero[one.mode] = zero.get(one.mode, 0) + one.scored
    rows = [
        {
            **_read(mode),
            "measured": _share(n := int(own.scored.sum()), total := int(own.total.sum())),
            "coverage": 100 * n / total if total else None,
            "zero": zero.get(mode, 0),
            "reasons": ", ".join(reasons.get(mode, [])),
        }
        for mode, own in strict.items()
    ]
    return Table(
        "strict-coverage",
        "Coverage: targets that were measured",
        (
            _SYSTEM,
            _READ,
            Column("measured", "Measured n/N"),
            Column("coverage", "Coverage", "percent"),
            Column("zero", "Not measured but scored 0", "int"),
            Column("reasons", "Reasons"),
        ),
        rows,
    )


def _named(ranking: Ranking, result: str) -> str:
    return ", ".join(f"{p.first} - {p.second}" for p in ranking.having(result)) or "none"


def orders(ranked: Sequence[Ranking]) -> Table:
    """The published order by each figure, and how much of it the data show."""
    rows = [
        {
            "figure": ranking.figure,
            "order": ranking.order,
            "shown": _share(len(ranking.having(SHOWN)), len(ranking.pairs)),
            "not_shown": _named(ranking, UNSHOWN),
            "reversed": _named(ranking, REVERSED),
            "not_ranked": _named(ranking, NOT_RANKED),
        }
        for ranking in ranked
    ]
    return Table(
        "strict-rankings",
        "Which published orders survive",
        (
            Column("figure", "Figure"),
            Column("order", "Published, highest first"),
            Column("shown", "Pairs whose order is shown"),
            Column("not_shown", f"Pairs: {UNSHOWN}"),
            Column("reversed", "Pairs: the other way round"),
            Column("not_ranked", "Pairs: too little measured"),
        ),
        rows,
        (
            "Highest first, which is not best first: fewer turns (C) are better. A pair with too "
            "little measured is compared on the users that both systems have, and not ranked.",
        ),
        empty="there are no two systems to order",
    )


def pairs(ranked: Sequence[Ranking]) -> Table:
    """Every pair of systems by every figure."""
    rows = [
        {
            "figure": pair.figure,
            "first": pair.first,
            "second": pair.second,
            "published": pair.published,
            "difference": pair.corrected.difference,
            "interval": _bounds(pair.corrected.interval),
            "p": pair.p_holm,
            "users": pair.corrected.n,
            "result": pair.result,
        }
        for ranking in ranked
        for pair in ranking.pairs
    ]
    return Table(
        "strict-pairs",
        "Paired differences, first minus second",
        (
            Column("figure", "Figure"),
            Column("first", "First"),
            Column("second", "Second"),
            Column("published", "Published", "score"),
            Column("difference", "Corrected", "score"),
            _INTERVAL,
            Column("p", "p (Holm)", "score"),
            Column("users", "Users", "int"),
            Column("result", "Published order"),
        ),
        rows,
        (
            "Published: the difference of the published means. Corrected: over the users that both "
            "systems have. Shown: the interval leaves out zero and p, corrected over the pairs of "
            "the figure, is at most 0.05. Fewer than six users never show a difference.",
        ),
        empty="there are no two systems to compare",
    )


def oracle(rows: Sequence[Refused]) -> Table:
    """Targets that the oracle refused and that were recovered."""
    return Table(
        "strict-oracle",
        "Targets that the oracle refused, recovered all the same",
        (
            _SYSTEM,
            _READ,
            Column("recovered", "Recovered", "int"),
            Column("refused", "Refused and measured", "int"),
        ),
        [{**_read(r.mode), "recovered": r.recovered, "refused": r.refused} for r in rows],
        empty="the oracle refused no target",
    )


def replies(kept: Sequence[Replies]) -> Table:
    """Assistant replies that stores hold word for word."""
    return Table(
        "strict-replies",
        "Assistant replies that the stores hold word for word",
        (
            _SYSTEM,
            Column("last", "Last of an episode n/N"),
            Column("earlier", "Earlier n/N"),
            Column("lost", "Last ones lost", "int"),
        ),
        [
            {
                "system": r.system,
                "last": _share(r.last_kept, r.last),
                "earlier": _share(r.earlier_kept, r.earlier),
                "lost": r.last - r.last_kept if r.loses_last else None,
            }
            for r in kept
        ],
        ("Lost is counted where a system keeps replies at all.",),
        empty="no dialogue is stored",
    )


def retrieval(found: Sequence[Scores]) -> Table:
    """What the scores of retrieved items are."""
    return Table(
        "strict-retrieval",
        "Scores of retrieved items",
        (
            _SYSTEM,
            Column("kind", "From the best item on"),
            Column("low", "Lowest", "score"),
            Column("high", "Highest", "score"),
            Column("scored", "With a score n/N"),
            Column("short", "Searches with fewer than k items n/N"),
        ),
        [
            {
                "system": s.system,
                "kind": s.kind,
                "low": s.low,
                "high": s.high,
                "scored": _share(s.scored, s.items),
                "short": _share(s.short, s.asked),
            }
            for s in found
        ],
        empty="no system was searched",
    )


def all_tables(found: Corrections) -> tuple[Table, ...]:
    """Every table of the corrections, in the order of the page."""
    return (
        scores(found.figures, found.seed),
        attribution(found.rates, found.quotes, found.seed),
        coverage(found.strict, found.unmeasured),
        orders(found.rankings),
        pairs(found.rankings),
        oracle(found.refused),
        replies(found.replies),
        retrieval(found.scores),
    )
