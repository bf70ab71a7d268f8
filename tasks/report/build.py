"""The report of a recovery run: the page, the summary and every table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from memprobe.types import Protocol
from storage.runs import RunStore
from tasks.corrections import Corrections, corrections
from tasks.report import cases, charts, sections
from tasks.report.corrected import all_tables
from tasks.report.data import (
    Comparison,
    ReportData,
    counted,
    load,
    verdict_notice,
    warnings,
    way_name,
)
from tasks.report.gallery import Gallery, Room
from tasks.report.packing import CaseBook
from tasks.report.page import facts_of, render, write_report
from tasks.report.tables import Table, md, to_markdown

_SECTIONS = (
    ("headline", "Recovery"),
    ("access", "Whole store and top-k"),
    ("category", "Categories"),
    ("lost", "Where targets were lost"),
    ("price", "Footprint and cost"),
    ("ingest", "Ingestion"),
    ("speed", "Latency"),
    ("corrections", "Corrections"),
    ("trust", "Judge check and coverage"),
    ("spent", "Calls"),
    ("gallery", "Gallery"),
    ("cases", "Cases"),
    ("reproduce", "Reproduce"),
)


MANY = 6
"""Pairs without a difference that are named one by one; more are counted."""


def statements(data: ReportData) -> list[str]:
    """What the paired comparisons show, in words: what is shown first, a line a pair."""
    ways: dict[str, list[Comparison]] = {}
    for c in data.comparisons:
        ways.setdefault(way_name(c.access_mode, c.k), []).append(c)
    lines: list[str] = []
    for way, pairs in ways.items():
        if way in data.refused:
            continue
        rest = [c for c in pairs if not c.shown]
        lines += [f"{way}: {c.says}" for c in pairs if c.shown]
        if len(rest) > MANY:
            lines.append(f"{way}: no difference shown in {len(rest)} of {len(pairs)} pairs")
        else:
            lines += [f"{way}: {c.says}" for c in rest]
    return lines


def _page(
    data: ReportData,
    tables: Mapping[str, Table],
    book: CaseBook,
    rooms: Sequence[Room],
    corrected: Corrections | None,
    beside: Sequence[Table],
) -> tuple[str, str]:
    """The page before and after the users' payloads."""
    made = {chart.id: chart for chart in charts.all_charts(data)}
    manifest = data.manifest
    run = shlex.quote(manifest.name)
    page = {
        "run": run,
        "labels": charts.LABEL_NAMES,
        "charts": {chart.id: chart.figure for chart in made.values()},
    }
    return render(
        "index.html.jinja",
        "cases.js",
        manifest,
        page,
        notice=verdict_notice(manifest),
        warnings=warnings(data),
        sections=[s for s in _SECTIONS if s[0] != "corrections" or corrected is not None],
        rooms=rooms,
        corrected=corrected,
        beside=beside,
        counted=counted,
        n_users=len(data.users),
        n_targets=data.n_targets,
        systems=data.systems,
        tables=tables,
        charts=made,
        statements=statements(data),
        oracle=data.oracle,
        book=book,
        other_case=f"memprobe sql {run} \"select * from case_file('USER', 'DIMENSION')\"",
        sql_hint=f'memprobe sql {run} "select * from recovery_summary"',
    )


def summary_markdown(data: ReportData) -> str:
    """The report in short, for a terminal, a pull request or a Prefect artifact."""
    tables = sections.all_tables(data)
    lines = [f"# {md(data.manifest.name)}", "", verdict_notice(data.manifest), ""]
    lines += [f"> **Note.** {md(warning)}\n" for warning in warnings(data)]
    lines.append(to_markdown(tables["headline"]))
    said = statements(data)
    if said:
        lines += ["## What the comparison shows", "", *(f"- {md(s)}" for s in said), ""]
    shown = (
        *("attribution", "dump-readers", "judge-check", "judge-agreement", "polarity"),
        *("audit", "unscored"),
    )
    lines += [to_markdown(tables[name]) for name in shown if name in tables]
    facts = [f"- {md(name)}: {md(value)}" for name, value in facts_of(data.manifest)]
    return "\n".join([*lines, "## Reproduce", "", *facts, ""])


def recovery_summary(store: RunStore) -> str:
    """`summary_markdown` of a stored run."""
    return summary_markdown(load(store))


def needs_corrections(data: ReportData) -> bool:
    """Whether figures were made by a published procedure, faults included."""
    return data.manifest.origin is not None or data.manifest.protocol is Protocol.PAPER


def build_recovery_report(store: RunStore, *, cap: int, windows_of: Sequence[str]) -> Path:
    """`tasks.report.build_report` of a recovery run."""
    data = load(store, windows_of)
    tables = sections.all_tables(data)
    corrected = corrections(store) if needs_corrections(data) else None
    beside = all_tables(corrected) if corrected else ()
    tables |= {table.id: table for table in beside}
    gallery = Gallery()
    book = cases.collect(store, data.users, data.systems, cap, gallery.add)
    tables["gallery"] = gallery.table()
    html = _page(data, tables, book, gallery.rooms(), corrected, beside)
    return write_report(store, html, book.packed, summary_markdown(data), tables.values())
