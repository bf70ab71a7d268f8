"""The report of a paradigms run: the page, the summary and every table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memprobe.paradigms.profile import Point, Profile
from storage.runs import RunStore
from tasks.paradigms.score import COMPARED
from tasks.report.data import Row, counted
from tasks.report.packing import PAYLOAD_CAP, CaseBook
from tasks.report.page import facts_of, render, write_report
from tasks.report.paradigms import cases, charts, tables, verdict_tables
from tasks.report.paradigms.data import (
    ProbeData,
    coverage_line,
    load,
    mode_of,
    name_of,
    notice,
    warnings,
)
from tasks.report.paradigms.names import (
    AXIS_NAMES,
    FAILURE_NAMES,
    NO_DIFFERENCE,
    PROBE_NAMES,
)
from tasks.report.tables import Table, display, md, to_markdown

_SECTIONS = (
    ("headline", "Accuracy"),
    ("plane", "Plasticity and stability"),
    ("types", "Probes, paradigms, conditions"),
    ("split", "Split updates"),
    ("axes", "Axes"),
    ("failures", "Why probes failed"),
    ("profiles", "Profiles"),
    ("scorers", "Scorers"),
    ("price", "Price"),
    ("cases", "Cases"),
    ("reproduce", "Reproduce"),
)
_FILTERS = (
    ("user", "Episode"),
    ("target", "Probe"),
    ("system", "System"),
    ("variant", "Read"),
    ("paradigm", "Paradigm"),
    ("match", "Verdict"),
    ("label", "Failure"),
    ("differ", "Scorers"),
)
MANY = 8
"""Shown differences of one metric that are named one by one; more are counted."""


@dataclass(frozen=True, slots=True)
class ProfilePage:
    """What the page says of one system in one mode."""

    anchor: str
    name: str
    told: str
    profile: Profile | None
    figures: Table
    strengths: str
    weaknesses: str
    unsaid: str
    ingestion: str
    errors: list[Row]
    memories: float | None
    counts: str


def statements(data: ProbeData) -> list[str]:
    """What the paired comparisons show, in words; a metric without a difference says so."""
    lines: list[str] = []
    whole = [row for row in data.comparisons if not row["group_kind"]]
    for metric in COMPARED:
        rows = [row for row in whole if row["metric"] == metric]
        ranked = [row for row in rows if tables.result(data, row) != "not ranked"]
        shown = [row for row in ranked if row["shown"]]
        name = AXIS_NAMES.get(metric, metric)
        lines += [f"{name}: {_says(row)}" for row in shown[:MANY]]
        if len(shown) > MANY:
            lines.append(f"{name}: {len(shown) - MANY} more differences are shown in the table")
        rest = len(ranked) - len(shown)
        if rest:
            lines.append(f"{name}: {NO_DIFFERENCE} in {rest} of {counted(len(ranked), 'pair')}")
    return lines


def _says(row: Row) -> str:
    first, second = tables.pair(row, "first"), tables.pair(row, "second")
    value, lo, hi = row["difference"], row["lo"], row["hi"]
    if value < 0:
        first, second = second, first
        value, lo, hi = -value, -hi, -lo
    return (
        f"{name_of(first)} above {name_of(second)} "
        f"({value:+.3f} [{lo:.3f}, {hi:.3f}], {counted(row['n_episodes'], 'episode')})"
    )


def ingestion_line(row: Row | None) -> str:
    """What a session costs a system, in words."""
    if row is None:
        return "no session was written"
    parts = [counted(row["messages"], "session")]
    if row["calls"] is None:
        parts.append("calls not recorded")
    else:
        parts.append(f"{row['calls_per_message']:,.2f} calls a session")
        if row["prompt_tokens"] is None or row["completion_tokens"] is None:
            parts.append("tokens unknown")
        else:
            parts.append(
                f"{row['prompt_tokens_per_message']:,.0f} tokens in and "
                f"{row['completion_tokens_per_message']:,.0f} out a session"
            )
        work = row["work_usd"]
        price = "unknown" if work is None else f"${work / row['messages']:,.4f} a session"
        parts.append(f"price {price}")
    parts.append(f"{display(row['seconds_per_message'], 'seconds')} a session")
    return ", ".join(parts)


def _points(points: Sequence[Point]) -> str:
    """The axes of strengths or weaknesses; the sentences tell more."""
    return ", ".join(
        f"{AXIS_NAMES.get(point.figure.metric, point.figure.metric)} "
        f"{display(point.figure.value, 'score')} (n={point.figure.n})"
        for point in points
    )


def profile_pages(data: ProbeData) -> tuple[list[ProfilePage], list[ProfilePage]]:
    """A page for each system in its own mode, and those of the other modes."""
    ingestion = {row["system"]: row for row in data.ingestion}
    own: list[ProfilePage] = []
    others: list[ProfilePage] = []
    for place, row in enumerate(data.summary):
        mode = mode_of(row)
        found = data.profiles.get(mode)
        page = ProfilePage(
            f"profile-{place}",
            name_of(mode),
            data.told(mode[0]),
            found,
            tables.profile_figures(data, mode),
            _points(found.strengths) if found else "",
            _points(found.weaknesses) if found else "",
            ", ".join(AXIS_NAMES.get(name, name) for name in found.unsaid) if found else "",
            ingestion_line(ingestion.get(mode[0])),
            [lost for lost in data.ingest_errors if lost["system"] == mode[0]],
            row["n_memories"],
            f"{row['n']:,}/{row['n_total']:,} probes scored, {counted(row['n_errors'], 'error')}",
        )
        (own if data.own[mode[0]] == mode else others).append(page)
    return own, others


def _page(data: ProbeData, made: Mapping[str, Table], book: CaseBook) -> tuple[str, str]:
    drawn = {chart.id: chart for chart in charts.all_charts(data)}
    run = shlex.quote(data.manifest.name)
    own, others = profile_pages(data)
    page = {
        "run": run,
        "scorer": data.scorer,
        "probes": PROBE_NAMES,
        "failures": FAILURE_NAMES,
        "charts": {chart.id: chart.figure for chart in drawn.values()},
    }
    return render(
        "paradigms.html.jinja",
        "probe_cases.js",
        data.manifest,
        page,
        notice=notice(data.manifest),
        warnings=warnings(data),
        coverage=coverage_line(data),
        sections=_SECTIONS,
        filters=_FILTERS,
        counted=counted,
        data=data,
        systems=data.systems,
        tables={
            **made,
            "failure-cases": verdict_tables.shown_cases(made["failure-cases"]),
            "changed-verdicts": verdict_tables.shown_changed(made["changed-verdicts"]),
        },
        charts=drawn,
        statements=statements(data),
        profiles=own,
        other_profiles=others,
        failure_names=FAILURE_NAMES,
        book=book,
        other_case=f"memprobe sql {run} \"select * from probe_case where user_id = 'EPISODE'\"",
        sql_hint=f'memprobe sql {run} "select * from probe_summary"',
    )


def summary_of(data: ProbeData) -> str:
    """The report in short, for a terminal, a pull request or a Prefect artifact."""
    made = tables.all_tables(data)
    lines = [f"# {md(data.manifest.name)}", "", md(notice(data.manifest)), ""]
    lines += [md(coverage_line(data)), ""]
    lines += [f"> **Note.** {md(warning)}\n" for warning in warnings(data)]
    lines.append(to_markdown(made["headline"]))
    said = statements(data)
    if said:
        lines += ["## What the comparison shows", "", *(f"- {md(s)}" for s in said), ""]
    own, _ = profile_pages(data)
    sentences = [
        f"- {md(page.name)}: {md(' '.join(page.profile.sentences))}"
        for page in own
        if page.profile is not None and page.profile.sentences
    ]
    if sentences:
        lines += ["## Profiles", "", *sentences, ""]
    shown = ("types", "paradigms", "split", "failures", "unscored", "ingest-errors")
    lines += [to_markdown(made[name]) for name in shown]
    facts = [f"- {md(name)}: {md(value)}" for name, value in facts_of(data.manifest)]
    return "\n".join([*lines, "## Reproduce", "", *facts, ""])


def paradigms_summary(store: RunStore) -> str:
    """The report of a stored run in short, as Markdown."""
    return summary_of(load(store))


def build_paradigms_report(
    store: RunStore, *, cap: int = PAYLOAD_CAP, windows_of: Sequence[str] = ()
) -> Path:
    """`tasks.report.build_report` of a paradigms run."""
    data = load(store, windows_of)
    made = tables.all_tables(data)
    book = cases.collect(store, data.users, data.systems, data.scorer, cap)
    html = _page(data, made, book)
    return write_report(store, html, book.packed, summary_of(data), made.values())
