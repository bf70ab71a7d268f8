"""The figures of a report, asked of the catalog's views.

Everything here is aggregated by the database; no text of a user or a model is
read. Rows are plain dicts, so that tables and charts can be made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from adapters.models.embedded.rubric import rubric
from adapters.models.windows import Window, asked_window, well_known
from memprobe import metrics
from memprobe.config import RunConfig
from memprobe.types import Category, Protocol, Role, SuiteName
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.footprint import reader_window

Row = dict[str, Any]
Ask = Callable[[str], list[Row]]
ALPHA = 0.05
RECOVERED = 0.75

_OVERLAP = "no difference shown"

PER_USER = """
select system, access_mode, k, user_id, b from user_recovery
where layer = 'base' and b is not null
order by all
"""
CALL_COST = """
with priced as (
  select system, outcome, call_id, prompt_tokens, completion_tokens, ledger_hit,
    case when ledger_hit
      then max(cost_usd) filter (not ledger_hit) over (partition by call_id)
      else cost_usd end as cost_usd
  from calls
)
select system, count(*) as calls, sum(cost_usd) as cost_usd,
  count(*) filter (where cost_usd is null and outcome <> 'not_judged') as unpriced
from priced where system <> '' group by system order by system
"""
LATENCY = """
select * from memory_phases where n is not null order by phase, system
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
  select 'verdicts, read in parts', system, access_mode, k, reason, status from verdicts
    where layer = 'chunked'
  union all
  select 'episodes', system, null, null, reason, status from episodes
  union all
  select 'preference scores', system, null, null, reason, status from preference_scores
  union all
  select 'attributions', system, access_mode, k, reason, status from attributions
    where layer = 'base'
  union all
  select 'attributions, read in parts', system, access_mode, k, reason, status from attributions
    where layer = 'chunked'
  union all
  select 'oracle verdicts', '', null, null, reason, status from oracle_verdicts
  union all
  select 'judge checks', '', null, null, reason, status from judge_checks
), counted as (
  select item, system, access_mode, k, reason, count(*) as n,
    count(*) filter (where status = 'scored') as scored_zero
  from gone group by all
), shares as (
  select *, sum(n) over (partition by item, system, access_mode, k)::bigint as total from counted
)
select * from shares where reason is not null
order by item, system, access_mode, k nulls first, reason
"""
STORES = """
select system, tokens from store_footprint where tokens is not null order by system, tokens
"""
ORACLE = """
select count(*) as n, count(*) filter (where can_invite) as can_invite,
  count(*) filter (where status = 'unscored') as unscored from oracle_verdicts
"""


def counted(n: int, noun: str) -> str:
    """A number with its noun, e.g. `1 user` or `8 users`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


TARGETS = """
select count(*) as n from (select distinct user_id, category, dimension from verdicts)
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
        figures = (
            f"{self.difference:+.3f} [{self.lo:.3f}, {self.hi:.3f}], {counted(self.users, 'user')}"
        )
        if not self.shown:
            return f"{self.better} and {self.other}: {_OVERLAP} ({figures})"
        return f"{self.better} recovers more than {self.other} ({figures})"


@dataclass(frozen=True, slots=True)
class Running:
    """What a run of any suite took: calls, money, time and the sizes of its stores."""

    manifest: Manifest
    systems: tuple[str, ...]
    calls: list[Row]
    call_cost: list[Row]
    latency: list[Row]
    duplicates: list[Row]
    footprint: list[Row]
    stores: list[Row]
    ingestion: list[Row]
    windows: tuple[Window, ...]

    @property
    def config(self) -> RunConfig:
        """The run's settings."""
        return self.manifest.config

    @property
    def user(self) -> str:
        """What has a store of its own: a user, or an episode."""
        return "episode" if self.config.suite == "paradigms" else "user"

    @property
    def written(self) -> str:
        """What is written into a store at a time: a message, or a session."""
        return "session" if self.config.suite == "paradigms" else "message"


def running(
    ask: Ask, manifest: Manifest, systems: Sequence[str], windows_of: Sequence[str]
) -> dict[str, Any]:
    """The fields of `Running`."""
    return {
        "manifest": manifest,
        "systems": tuple(systems),
        "calls": ask("select * from calls_summary"),
        "call_cost": ask(CALL_COST),
        "latency": ask(LATENCY),
        "duplicates": ask("select * from duplicates_summary"),
        "footprint": ask("select * from footprint"),
        "stores": ask(STORES),
        "ingestion": ask("select * from ingestion"),
        "windows": windows_for(manifest.config, windows_of),
    }


@dataclass(frozen=True, slots=True)
class ReportData(Running):
    """All figures of one recovery run. `refused` says, by way of reading, why it is not ranked."""

    users: tuple[str, ...]
    n_targets: int
    summary: list[Row]
    categories: list[Row]
    attribution: list[Row]
    judge_check: list[Row]
    unscored: list[Row]
    budget: list[Row]
    readers: list[Row]
    agreement: list[Row]
    polarity: list[Row]
    audits: list[Row]
    oracle: Row
    comparisons: list[Comparison] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

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


def compare(per_user: Sequence[Row], seed: int) -> list[Comparison]:
    """All pairs of systems for each way of reading, over the users that both have."""
    ways: dict[tuple[str, int | None], dict[str, dict[str, float | None]]] = {}
    for row in per_user:
        systems = ways.setdefault((row["access_mode"], row["k"]), {})
        systems.setdefault(row["system"], {})[row["user_id"]] = row["b"]
    out: list[Comparison] = []
    for (mode, k), systems in sorted(ways.items(), key=lambda w: (w[0][0], w[0][1] or 0)):
        found = [_pair(systems, *names, seed) for names in combinations(sorted(systems), 2)]
        tested = [f for f in found if f[2].p_value is not None]
        adjusted = metrics.holm([f[2].p_value or 0.0 for f in tested])
        for (better, other, pair), p in zip(tested, adjusted, strict=True):
            if pair.difference is None or pair.interval is None:
                continue
            out.append(
                Comparison(
                    mode,
                    k,
                    better,
                    other,
                    pair.n,
                    pair.difference,
                    pair.interval.lo,
                    pair.interval.hi,
                    p,
                    pair.shown and p < ALPHA,
                )
            )
    return out


def _pair(
    systems: dict[str, dict[str, float | None]], first: str, second: str, seed: int
) -> tuple[str, str, metrics.PairedDifference]:
    pair = metrics.paired_difference(systems[first], systems[second], seed=seed)
    if pair.difference is not None and pair.difference < 0:
        swapped = metrics.paired_difference(systems[second], systems[first], seed=seed)
        return second, first, swapped
    return first, second, pair


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
        known = rubric().held_out
        return (
            "Embedded deterministic verdicts: good for comparing memory systems and for "
            "regression gates, not comparable with published LLM-judged figures. Against a "
            f"language model's verdicts on users held out: kappa {known['kappa']:.2f}, "
            f"{known['threshold_accuracy']:.0%} on the same side of 0.75 (the commoner side alone "
            f"gives {known['base_rate']:.0%}), a system's B off by {known['b_error']:.3f}. Not "
            "for attribution in detail, close rankings or single targets."
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
    out += unfinished(manifest)
    out += [f"Not ranked, {way}: {why}." for way, why in data.refused.items()]
    return out + rejected(manifest)


def unfinished(manifest: Manifest) -> list[str]:
    """What a reader must know of a run that is not complete."""
    if manifest.status.value == "complete":
        return []
    return [f"The run is {manifest.status.value}; figures cover what is stored so far."]


def rejected(manifest: Manifest) -> list[str]:
    """What a reader must know of parameters that a model did not take."""
    if not manifest.dropped_params:
        return []
    models = ", ".join(sorted(manifest.dropped_params))
    return [f"Parameters were rejected by {models}; such calls are not deterministic."]


def load(store: RunStore, windows_of: Sequence[str] = ()) -> ReportData:
    """Ask for every figure of the report; `windows_of` names windows to hold stores against.

    Raises `UsageError` for a window that nobody knows.
    """
    with figures(store) as ask:
        return _load(store, ask, windows_of)


def windows_for(config: RunConfig, asked: Sequence[str]) -> tuple[Window, ...]:
    """The reader's own window if it is known, those asked for, and the well-known ones."""
    found = [asked_window(text) for text in asked]
    own = reader_window(config)
    if own is not None:
        found.insert(0, Window(config.model_of(Role.SLOT_FILL), own, "reader"))
    found += well_known()
    # The first of a name counts: a reader whose window was set by hand is not the table's.
    return tuple(
        {window.name: window for window in reversed(found)}[name]
        for name in dict.fromkeys(w.name for w in found)
    )


def _load(store: RunStore, ask: Ask, windows_of: Sequence[str]) -> ReportData:
    manifest = store.reload_manifest()
    order = {name: place for place, name in enumerate(manifest.system_names)}
    summary = ask("select * from recovery_summary")
    refused = refusals(summary, manifest.config.coverage_threshold)

    def place(row: Row) -> tuple[str, int, float, int]:
        ranked = way_name(row["access_mode"], row["k"]) not in refused
        best_first = -(row["b_mean"] or 0.0) if ranked else 0.0
        return row["access_mode"], row["k"] or 0, best_first, order.get(row["system"], len(order))

    summary.sort(key=place)
    stored = [r["system"] for r in ask("select distinct system from verdicts order by system")]
    systems = sorted(set(stored) | {r["system"] for r in summary}, key=lambda s: order.get(s, 999))
    oracle = ask(ORACLE)
    return ReportData(
        **running(ask, manifest, systems, windows_of),
        users=tuple(
            r["user_id"] for r in ask("select distinct user_id from verdicts order by user_id")
        ),
        n_targets=ask(TARGETS)[0]["n"],
        summary=summary,
        categories=ask("select * from recovery_by_category"),
        attribution=ask("select * from attribution_counts"),
        judge_check=ask(JUDGE_CHECK),
        unscored=ask(UNSCORED),
        budget=ask("select * from budget_probe"),
        readers=ask("select * from dump_readers"),
        agreement=ask("select * from judge_agreement"),
        polarity=ask("select * from polarity_summary"),
        audits=ask("select * from audits order by sheet, rater, item_id"),
        oracle=oracle[0] if oracle else {},
        comparisons=compare(ask(PER_USER), manifest.config.seed),
        refused=refused,
    )


COLUMNS = {
    # A store of any suite is one that something was written into.
    "ingests": "system, user_id, epoch",
    "probes": "user_id",
    "probe_verdicts": "system, user_id",
    "verdicts": "system, user_id, epoch, layer, access_mode, k, category, dimension, score, "
    "status, reason, detail, md5(label) as label, judge_model, null::varchar as judge_reason",
    "targets": "user_id, category, dimension",
    "episodes": "system, user_id, epoch, episode, category, dimension, end_reason, n_turns, "
    "status, reason, detail",
    "preference_scores": "system, user_id, epoch, episode, turn, score, status, reason, detail",
    "turn_scores": "system, user_id, epoch, episode, turn, score, status, reason, detail",
    "memory_items": "system, user_id, epoch, seq, chars, md5(content) as content",
    "retrievals": "system, user_id, epoch, category, dimension, rank, md5(content) as content",
    "slot_fills": "system, user_id, layer, access_mode, k, n_items, prompt_tokens, status, reason",
    "slot_fill_parts": "* exclude (label, label_reason, detail)",
    "attributions": "system, user_id, epoch, layer, access_mode, k, label, status, reason, detail",
    "oracle_verdicts": "user_id, category, dimension, can_invite, status, reason, detail",
    "judge_checks": "*",
    "operations": "*",
    # An item's name tells what a memory was doing; those of other roles are not needed.
    "calls": "* replace (case when role = 'memory' then item end as item)",
    "footprints": "*",
    "import_issues": "system, user_id, table_name, severity",
    "metrics": "*",
    "judge_agreement": "*",
    "polarity": "* replace (md5(label) as label)",
    "audits": "* exclude (note)",
}


@contextmanager
def figures(
    store: RunStore, suite: SuiteName = "recovery", columns: Mapping[str, str] = COLUMNS
) -> Iterator[Ask]:
    """Queries over a run with a suite's views, each table read once and without its texts.

    `columns` are what is read of each table; the others are not there.

    A run of thousands of users has ten thousands of small parts; a view that is
    asked twice would open each of them twice.
    """
    from storage.catalog import connect, view_statements

    with connect(store, list(columns)) as connection:
        connection.execute("create schema narrow")
        for table, wanted in columns.items():
            connection.execute(f"create table narrow.{table} as select {wanted} from main.{table}")
        connection.execute("set search_path = 'narrow,main'")
        for statement in view_statements(suite):
            # The macros read one case's texts, which are not here.
            if "CREATE MACRO" not in statement:
                connection.execute(statement)

        def ask(sql: str) -> list[Row]:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        yield ask


CATEGORY_NAMES = {
    Category.SKILL.value: "Skill",
    Category.KNOWLEDGE.value: "Knowledge",
    Category.EPISODIC.value: "Episodic",
    Category.SELF_MODEL.value: "Self model",
    Category.PREFERENCE.value: "Assistance preference",
}
