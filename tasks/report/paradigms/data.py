"""The figures of a paradigms report, asked of the catalog's views.

Those of the page's head are of the base layer and of the scorer of the run's
protocol; other layers and the other scorer have tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from memprobe.paradigms.profile import Profile
from memprobe.types import Protocol, Role
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.paradigms.compare import OWN, ranking
from tasks.paradigms.verdicts import Mode, headline, own_modes
from tasks.paradigms.view import BY_KEYWORDS
from tasks.report.data import (
    COLUMNS,
    Ask,
    Row,
    Running,
    counted,
    figures,
    rejected,
    running,
    unfinished,
)
from tasks.report.packing import variant_name

PROBE_COLUMNS: Mapping[str, str] = {
    **COLUMNS,
    "ingests": "*",
    "probes": "*",
    "answers": "*",
    "probe_verdicts": "*",
    "probe_failures": "*",
    "probe_metrics": "*",
    "probe_comparisons": "*",
    "probe_correlations": "*",
    "probe_profiles": "*",
    "retrievals": "system, user_id, epoch, category, dimension, rank, item_id, score, "
    "md5(content) as content",
}
_PROBES = """
select count(*) as n, count(distinct user_id) as episodes,
  count(distinct user_id) filter (split) as split from probes
"""
_USERS = "select distinct user_id from probes order by user_id"
_CONDITION = """
select system, access_mode, k, condition, any_value(expected) as expected,
  any_value(paradigm) as paradigm,
  avg(correct::integer) filter (scored) as accuracy,
  count(*) filter (scored) as n, count(*) filter (failed) as n_errors
from probe_results where layer = 'base' and scorer = '{scorer}'
group by system, access_mode, k, condition order by all
"""
_WHOLE_UPDATES = """
select system, access_mode, k, avg(correct::integer) filter (scored) as accuracy,
  count(*) filter (scored) as n
from probe_results
where layer = 'base' and scorer = '{scorer}' and not split and expected = 'should_update'
group by system, access_mode, k
"""
_UNSCORED = """
with gone as (
  select layer, system, access_mode, k, coalesce(reason, 'no answer') as reason, failed, scored
  from probe_results where scorer = '{scorer}'
), counted as (
  select layer, system, access_mode, k, reason, failed, scored, count(*) as n from gone group by all
), shares as (
  select *, sum(n) over (partition by layer, system, access_mode, k)::bigint as total from counted
)
select * exclude (scored) from shares where not scored order by all
"""
_INGEST_ERRORS = """
with told as (
  select system, reason, count(*) as n, count(distinct user_id) as episodes,
    mode(detail order by detail) as example
  from ingests where status <> 'scored' group by all
)
select *, (select count(*) from ingests i where i.system = told.system) as total
from told order by system, n desc, reason
"""
_FAILED = """
select f.system, f.user_id, f.epoch, f.layer, f.access_mode, f.k, f.probe_type, f.failure, f.side,
  f.evidence, p.paradigm, p.condition
from probe_failures f left join probes p using (user_id, probe_type)
where f.layer = 'base' and f.scorer = '{scorer}'
order by f.failure, f.side, f.user_id, p.probe_index, f.system, f.access_mode, f.k, f.epoch
"""
_PROFILES = """
select system, access_mode, k, profile_json from probe_profiles
where layer = 'base' and scorer = '{scorer}' order by system, access_mode, k nulls first
"""
_READ = """
select system, access_mode, k, avg(prompt_tokens) as tokens, avg(n_items) as items,
  count(*) filter (status = 'scored') as n, count(*) as n_total
from answers where layer = 'base' group by system, access_mode, k order by all
"""


@dataclass(frozen=True, slots=True)
class ProbeData(Running):
    """All figures of one paradigms run. `refused` says why it is not ranked, "" when it is.

    `metrics` holds rows of `probe_metrics` by (mode, metric, group kind, group name);
    `own` the one mode of each system that it is ranked in.
    """

    scorer: str
    users: tuple[str, ...]
    n_probes: int
    n_split: int
    summary: list[Row]
    layers: list[Row]
    metrics: Mapping[tuple[Mode, str, str, str], Row]
    by_type: list[Row]
    by_paradigm: list[Row]
    by_condition: list[Row]
    whole_updates: Mapping[Mode, Row]
    comparisons: list[Row]
    correlations: list[Row]
    failures: list[Row]
    failed: list[Row]
    changed: list[Row]
    profiles: Mapping[Mode, Profile]
    unscored: list[Row]
    ingest_errors: list[Row]
    read: list[Row]
    own: Mapping[str, Mode]
    refused: str

    def metric(self, mode: Mode, metric: str, kind: str = "", name: str = "") -> Row:
        """A stored figure; no row is one without value, interval and items."""
        return self.metrics.get((mode, metric, kind, name), {})

    @property
    def modes(self) -> list[Mode]:
        """Every way of reading every system, in the order of the headline."""
        return [mode_of(row) for row in self.summary]

    @property
    def ranked(self) -> list[Row]:
        """The summary of each system in its own mode."""
        return [row for row in self.summary if self.own.get(row["system"]) == mode_of(row)]

    def told(self, system: str) -> str:
        """What of the gold a reference is handed; empty for a memory system."""
        card = self.manifest.systems.get(system)
        gold = "none" if card is None else card.sees_gold
        return "" if gold == "none" else f"gold {gold}"

    @property
    def coverage(self) -> tuple[int, int]:
        """Probes with a verdict and probes attempted, over all systems in their own modes."""
        rows = self.ranked
        return sum(row["n"] for row in rows), sum(row["n_total"] for row in rows)


def mode_of(row: Mapping[str, object]) -> Mode:
    """System, access mode and k of a row."""
    return row["system"], row["access_mode"], row["k"]  # type: ignore[return-value]


def name_of(mode: Mode) -> str:
    """A mode as a label, e.g. `amem · retrieve@15`."""
    return f"{mode[0]} · {read_name(mode)}"


def read_name(mode: Mode) -> str:
    """How a system was read, e.g. `retrieve@15`."""
    return variant_name({"access_mode": mode[1], "k": mode[2]})


def address(row: Mapping[str, object]) -> str:
    """A case's place in the browser."""
    parts = (row["user_id"], row["probe_type"], row["system"], variant_name(row))
    return "#" + "/".join(quote(str(part), safe="") for part in parts)


def load(store: RunStore, windows_of: Sequence[str] = ()) -> ProbeData:
    """Ask for every figure of the report; `windows_of` names windows to hold stores against.

    Raises `UsageError` for a window that nobody knows.
    """
    with figures(store, "paradigms", PROBE_COLUMNS) as ask:
        return _load(store, ask, windows_of)


def _refused(store: RunStore) -> str:
    """Why the systems are not ranked; empty when they are."""
    for found in ranking(store):
        if found.access_mode == OWN:
            return "; ".join(
                f"{gone.system} has {gone.n_scored}/{gone.n_total} probes scored, under the "
                f"threshold of {found.threshold:.0%}"
                for gone in found.refused
            )
    return ""


def _load(store: RunStore, ask: Ask, windows_of: Sequence[str]) -> ProbeData:
    manifest = store.reload_manifest()
    scorer = headline(store).value
    order = {name: place for place, name in enumerate(manifest.system_names)}
    refused = _refused(store)
    layers = ask("select * from probe_summary_layers")
    summary = [r for r in layers if r["layer"] == "base" and r["scorer"] == scorer]
    own = own_modes([mode_of(row) for row in summary], manifest.systems)

    def place(row: Row) -> tuple[bool, float, int, str, str, int]:
        mode = mode_of(row)
        best_first = 0.0 if refused else -(row["accuracy"] or 0.0)
        others = own.get(mode[0]) != mode
        return others, best_first, order.get(mode[0], len(order)), mode[0], mode[1], mode[2] or 0

    summary.sort(key=place)
    systems = [row["system"] for row in summary if own.get(row["system"]) == mode_of(row)]
    systems += [name for name in manifest.system_names if name not in systems]
    probes = ask(_PROBES)[0]
    of_scorer = f"where scorer = '{scorer}'"
    of_base = f"{of_scorer} and layer = 'base'"
    return ProbeData(
        **running(ask, manifest, systems, windows_of),
        scorer=scorer,
        users=tuple(row["user_id"] for row in ask(_USERS)),
        n_probes=probes["n"],
        n_split=probes["split"],
        summary=summary,
        layers=layers,
        metrics={
            (mode_of(row), row["metric"], row["group_kind"], row["group_name"]): row
            for row in ask(f"select * from probe_metrics {of_base}")
        },
        by_type=ask(f"select * from probe_by_type {of_scorer}"),
        by_paradigm=ask(f"select * from probe_by_paradigm {of_scorer}"),
        by_condition=ask(_CONDITION.format(scorer=scorer)),
        whole_updates={mode_of(r): r for r in ask(_WHOLE_UPDATES.format(scorer=scorer))},
        comparisons=ask(f"select * from probe_comparisons {of_base}"),
        correlations=ask(f"select * from probe_correlations {of_scorer} order by all"),
        failures=ask(f"select * from probe_failures_summary {of_scorer}"),
        failed=ask(_FAILED.format(scorer=scorer)),
        changed=ask("select * from probe_changed_verdicts where layer = 'base'"),
        profiles={
            mode_of(row): Profile.model_validate_json(row["profile_json"])
            for row in ask(_PROFILES.format(scorer=scorer))
        },
        unscored=ask(_UNSCORED.format(scorer=scorer)),
        ingest_errors=ask(_INGEST_ERRORS),
        read=ask(_READ),
        own=own,
        refused=refused,
    )


def notice(manifest: Manifest) -> str:
    """The report's first line: who read the memories, and what that is good for."""
    reader = manifest.config.model_of(Role.READER)
    if reader.startswith("embedded/"):
        return (
            "Read by the embedded reader, deterministic and extractive: good for comparing memory "
            "systems and for regression gates, not comparable with published figures."
        )
    return f"Answers by the reader model {reader}; verdicts by rules, without a model."


def leaks(data: ProbeData) -> list[str]:
    """What the published protocol lets slip, as far as this run has it."""
    if data.manifest.protocol is not Protocol.PAPER:
        return []
    said = [
        "protocol paper: a published procedure is reproduced, faults included. Its scorer stands "
        "in front, the corrected one beside it; a session that could not be written is passed over."
    ]
    if data.config.hide_session_type:
        said.append("Its leak of session types is closed (hide_session_type).")
    else:
        said.append(
            "Its leak of session types is reproduced: memory systems get each session's type as "
            "a label, and the reader of a baseline sees it in the headers."
        )
    asked = sorted(BY_KEYWORDS & set(data.systems))
    if asked:
        said.append(
            "Its leak of gold into the search is reproduced: the search of "
            f"{' and '.join(asked)} is for words of the true, the contested and the distractor "
            "values."
        )
    return [" ".join(said)]


def warnings(data: ProbeData) -> list[str]:
    """What a reader must know before any figure."""
    out = leaks(data)
    told = [f"{s} ({data.told(s)})" for s in data.systems if data.told(s)]
    if told:
        out.append(
            f"References that are handed gold on purpose, no memory systems: {', '.join(told)}."
        )
    out += unfinished(data.manifest)
    absent = [system for system in data.systems if system not in data.own]
    if absent:
        out.append(f"No answers are stored of {', '.join(absent)}.")
    if data.refused:
        out.append(f"Not ranked: {data.refused}.")
    return out + rejected(data.manifest)


def coverage_line(data: ProbeData) -> str:
    """How much of what was to be measured was, before any figure."""
    n, total = data.coverage
    if not total:
        return "Coverage: no scored samples."
    lost = sum(row["n"] for row in data.ingest_errors)
    sessions = sum(row["messages"] for row in data.ingestion)
    text = f"Coverage: {n:,}/{total:,} probes scored ({n / total:.1%}), {total - n:,} errors"
    if sessions:
        text += f"; {lost:,} of {counted(sessions, 'session')} could not be written"
    return f"{text}."
