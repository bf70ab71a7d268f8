"""The figures of a report, asked of a run's catalog.

Everything here is aggregated by the catalog; no text of a user or a model is
read. Rows are plain dicts, so that tables and charts can be made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from memprobe.config import RunConfig
from memprobe.types import Category, Protocol, Role
from storage.manifest import Manifest
from storage.runs import RunStore

Row = dict[str, Any]
Ask = Callable[[str], list[Row]]
RESAMPLES = 2000
RECOVERED = 0.75

_OVERLAP = "no difference shown"

PER_USER = """
select system, access_mode, k, user_id, avg(mean) as b from (
  select system, access_mode, k, user_id, epoch, category, avg(score) as mean
  from verdicts where layer = 'base' and score is not null
  group by all
) group by all order by all
"""
CALL_COST = """
select system, count(*) as calls,
  count(*) filter (where cost_usd is null) as unpriced, sum(cost_usd) as cost_usd,
  sum(prompt_tokens) as prompt_tokens, sum(completion_tokens) as completion_tokens
from calls where system <> '' and stage <> 'memory_judge' group by system order by system
"""
LATENCY = """
select phase, system, count(*) as n, median(latency_s) as p50_s,
  quantile_cont(latency_s, 0.95) as p95_s, max(latency_s) as max_s
from operations group by all order by phase, system
"""
JUDGE_CHECK = f"""
select kind, count(*) as n, count(score) as n_scored,
  count(*) filter (where score between expected_min and expected_max) as as_expected,
  count(*) filter (where score >= {RECOVERED}) as judged_recovered, avg(score) as mean_score
from judge_checks group by kind order by kind
"""
UNSCORED = """
with gone as (
  select 'verdicts' as item, system, access_mode, k, reason, status from verdicts
    where layer = 'base'
  union all
  select 'episodes', system, null, null, reason, status from episodes
  union all
  select 'preference scores', system, null, null, reason, status from preference_scores
  union all
  select 'attributions', system, access_mode, k, reason, status from attributions
    where layer = 'base'
  union all
  select 'oracle verdicts', '', null, null, reason, status from oracle_verdicts
  union all
  select 'judge checks', '', null, null, reason, status from judge_checks
), sizes as (
  select item, system, access_mode, k, count(*) as total from gone group by all
)
select item, system, access_mode, k, reason, count(*) as n, any_value(total) as total,
  count(*) filter (where status = 'scored') as scored_zero
from gone join sizes using (item, system)
where reason is not null
  and gone.access_mode is not distinct from sizes.access_mode
  and gone.k is not distinct from sizes.k
group by item, system, gone.access_mode, gone.k, reason
order by item, system, access_mode, k, reason
"""
DUPLICATES = """
select system, avg(items - kinds) as repeated_mean, sum(items) as items,
  sum(items) - sum(kinds) as repeated, count(*) as stores
from (
  select system, user_id, epoch, count(*) as items, count(distinct content) as kinds
  from memory_items group by all
) group by system order by system
"""
PROMPTS = """
select system, access_mode, k, avg(prompt_tokens) as prompt_tokens, avg(n_items) as n_items
from slot_fills where layer = 'base' group by all order by all
"""
ORACLE = """
select count(*) as n, count(*) filter (where can_invite) as can_invite,
  count(*) filter (where status = 'unscored') as unscored from oracle_verdicts
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems read the same way, paired by user.

    `lo` and `hi` bound the mean difference of `better` over `other` at 95 %,
    the p value behind `shown` is Holm-corrected over the pairs of one way.
    """

    access_mode: str
    k: int | None
    better: str
    other: str
    users: int
    difference: float
    lo: float
    hi: float
    p: float
    shown: bool

    @property
    def says(self) -> str:
        """What the data carry, and no more."""
        figures = f"{self.difference:+.3f} [{self.lo:.3f}, {self.hi:.3f}], {self.users} users"
        if not self.shown:
            return f"{self.better} and {self.other}: {_OVERLAP} ({figures})"
        return f"{self.better} recovers more than {self.other} ({figures})"


@dataclass(frozen=True, slots=True)
class ReportData:
    """All figures of one run. `refused` says, by way of reading, why it is not ranked."""

    manifest: Manifest
    users: tuple[str, ...]
    systems: tuple[str, ...]
    summary: list[Row]
    categories: list[Row]
    attribution: list[Row]
    calls: list[Row]
    call_cost: list[Row]
    latency: list[Row]
    judge_check: list[Row]
    unscored: list[Row]
    duplicates: list[Row]
    prompts: list[Row]
    oracle: Row
    comparisons: list[Comparison] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> RunConfig:
        """The run's settings."""
        return self.manifest.config

    @property
    def ways(self) -> list[tuple[str, int | None]]:
        """(access mode, k) in the order of the tables: the whole store first."""
        return sorted(
            {(row["access_mode"], row["k"]) for row in self.summary},
            key=lambda way: (way[0], way[1] or 0),
        )


def way_name(mode: str | None, k: int | None) -> str:
    """A way of reading as it is printed, e.g. `retrieve k=5`."""
    return "" if mode is None else mode if k is None else f"{mode} k={k}"


def bootstrap_difference(pairs: np.ndarray, seed: int) -> tuple[float, float, float]:
    """95 % interval and two-sided p of a mean difference, users resampled.

    `pairs` holds one difference per user. The p value is twice the smaller
    share of resampled means on one side of zero, with one added to both counts
    so that it is never 0.
    """
    rng = np.random.default_rng(seed)
    users = len(pairs)
    means = np.empty(RESAMPLES)
    step = max(1, 4_000_000 // max(users, 1))
    for start in range(0, RESAMPLES, step):
        stop = min(start + step, RESAMPLES)
        picks = rng.integers(0, users, size=(stop - start, users))
        means[start:stop] = pairs[picks].mean(axis=1)
    lo, hi = np.quantile(means, [0.025, 0.975])
    side = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return float(lo), float(hi), min(1.0, 2 * (side + 1) / (RESAMPLES + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p values, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = highest
    return adjusted


def compare(per_user: Sequence[Row], seed: int) -> list[Comparison]:
    """All pairs of systems for each way of reading, over the users that both have."""
    ways: dict[tuple[str, int | None], dict[str, dict[str, float]]] = {}
    for row in per_user:
        systems = ways.setdefault((row["access_mode"], row["k"]), {})
        systems.setdefault(row["system"], {})[row["user_id"]] = row["b"]
    out: list[Comparison] = []
    for (mode, k), systems in sorted(ways.items(), key=lambda w: (w[0][0], w[0][1] or 0)):
        names = sorted(systems)
        found: list[tuple[str, str, np.ndarray]] = []
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                shared = sorted(systems[first].keys() & systems[second].keys())
                if len(shared) < 2:
                    continue
                pairs = np.array([systems[first][u] - systems[second][u] for u in shared])
                if pairs.mean() < 0:
                    first_, second_, pairs = second, first, -pairs
                else:
                    first_, second_ = first, second
                found.append((first_, second_, pairs))
        tested = [bootstrap_difference(pairs, seed) for _, _, pairs in found]
        adjusted = holm([p for _, _, p in tested])
        for (better, other, pairs), (lo, hi, _), p in zip(found, tested, adjusted, strict=True):
            shown = lo > 0 and p < 0.05
            mean = float(pairs.mean())
            out.append(Comparison(mode, k, better, other, len(pairs), mean, lo, hi, p, shown))
    return out


def refusals(summary: Sequence[Row], threshold: float) -> dict[str, str]:
    """Why a way of reading is not ranked, by its name: too few items could be scored."""
    out: dict[str, str] = {}
    for row in summary:
        share = row["n_scored"] / row["n_total"] if row["n_total"] else 0.0
        if share < threshold:
            name = way_name(row["access_mode"], row["k"])
            said = (
                f"{row['system']} has {row['n_scored']}/{row['n_total']} items scored "
                f"({share:.1%}), under the threshold of {threshold:.0%}"
            )
            out[name] = f"{out[name]}; {said}" if name in out else said
    return out


def verdict_notice(manifest: Manifest) -> str:
    """The report's first line: whose verdicts these are, and what they are good for."""
    judge = manifest.config.model_of(Role.JUDGE)
    if manifest.embedded:
        return (
            "Embedded deterministic verdicts: good for comparing memory systems and for "
            "regression gates, not comparable with published LLM-judged figures."
        )
    return f"Verdicts by the judge model {judge}."


def warnings(data: ReportData) -> list[str]:
    """What a reader must know before any figure."""
    manifest, config = data.manifest, data.manifest.config
    out: list[str] = []
    if manifest.self_judged:
        out.append(
            f"self judged: {config.model_of(Role.JUDGE)} judges answers that it helped to "
            "produce. Read absolute levels with care."
        )
    if manifest.protocol is Protocol.PAPER:
        out.append(
            "protocol paper: a published procedure is reproduced, faults included. An outage "
            "or an overflow scores 0, and top-k attribution is judged on empty transcripts."
        )
    if manifest.status.value != "complete":
        out.append(f"The run is {manifest.status.value}; figures cover what is stored so far.")
    for way, why in data.refused.items():
        out.append(f"Not ranked, {way}: {why}.")
    if manifest.dropped_params:
        models = ", ".join(sorted(manifest.dropped_params))
        out.append(f"Parameters were rejected by {models}; such calls are not deterministic.")
    return out


def load(store: RunStore, ask: Ask | None = None) -> ReportData:
    """Ask the catalog for every figure of the report."""
    ask = ask or catalog_ask(store)
    manifest = store.reload_manifest()
    order = {name: place for place, name in enumerate(manifest.config.systems)}
    summary = ask("select * from recovery_summary")
    summary.sort(
        key=lambda r: (
            r["access_mode"],
            r["k"] or 0,
            -(r["b_mean"] if r["b_mean"] is not None else -1.0),
            order.get(r["system"], len(order)),
        )
    )
    refused = refusals(summary, manifest.config.coverage_threshold)
    for row in summary:
        if way_name(row["access_mode"], row["k"]) in refused:
            row["refused"] = True
    summary.sort(
        key=lambda r: (
            (r["access_mode"], r["k"] or 0, order.get(r["system"], len(order)))
            if r.get("refused")
            else (r["access_mode"], r["k"] or 0, 0)
        )
    )
    stored = [r["system"] for r in ask("select distinct system from verdicts order by system")]
    systems = sorted(set(stored) | {r["system"] for r in summary}, key=lambda s: order.get(s, 999))
    oracle = ask(ORACLE)
    return ReportData(
        manifest=manifest,
        users=tuple(
            r["user_id"] for r in ask("select distinct user_id from verdicts order by user_id")
        ),
        systems=tuple(systems),
        summary=summary,
        categories=ask("select * from recovery_by_category"),
        attribution=ask("select * from attribution_counts"),
        calls=ask("select * from calls_summary"),
        call_cost=ask(CALL_COST),
        latency=ask(LATENCY),
        judge_check=ask(JUDGE_CHECK),
        unscored=ask(UNSCORED),
        duplicates=ask(DUPLICATES),
        prompts=ask(PROMPTS),
        oracle=oracle[0] if oracle else {},
        comparisons=compare(ask(PER_USER), manifest.config.seed),
        refused=refused,
    )


def catalog_ask(store: RunStore) -> Ask:
    """Queries against the run's catalog, which is built first."""
    from storage.catalog import build_catalog, query

    build_catalog(store)

    def ask(sql: str) -> list[Row]:
        result = query(store, sql)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    return ask


CATEGORY_NAMES = {
    Category.SKILL.value: "Skill",
    Category.KNOWLEDGE.value: "Knowledge",
    Category.EPISODIC.value: "Episodic",
    Category.SELF_MODEL.value: "Self model",
    Category.PREFERENCE.value: "Assistance preference",
}
