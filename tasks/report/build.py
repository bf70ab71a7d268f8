"""A run's report: one HTML file that needs nothing else, a summary, and every table.

The page opens from disk without a network: plotly.js is in it, and its content
security policy lets only the scripts written here run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from memprobe.text import sanitize
from memprobe.types import Protocol
from storage.files import LocalFiles
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
from tasks.report.tables import WRITERS, Table, md, to_markdown

FOLDER = "report"
_SPLIT = "@@PAYLOADS@@"
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


def _asset(name: str) -> str:
    return resources.files("tasks.report").joinpath("templates", name).read_text(encoding="utf-8")


def script_json(value: Any) -> Markup:
    """JSON for a data script of the page: nothing in it can end or open an element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    # A library's text that ends the element early would show as text on the page.
    return source.replace("</script", "<\\/script")


def _source_hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    return f"'sha256-{digest}'"


def policy(scripts: tuple[str, ...]) -> str:
    """The page's content security policy: these scripts, own styles, no network at all."""
    allowed = " ".join(_source_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
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


def ticked(text: str) -> Markup:
    """A note as HTML: what stands between backticks is code, all of it escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    )


def _facts(data: ReportData) -> list[tuple[str, str]]:
    manifest = data.manifest
    models = {manifest.config.model, *manifest.config.model_roles.values()}
    facts = [
        ("Run", manifest.name),
        ("Status", manifest.status.value),
        ("Models", ", ".join(sorted(models))),
        ("Protocol", manifest.protocol.value),
        ("Data set", f"{manifest.dataset_name}, {manifest.dataset_digest}"),
        ("Seeds", ", ".join(f"{k}={v}" for k, v in sorted(manifest.seeds.items()))),
        ("Started", manifest.created_at),
    ]
    if manifest.parent:
        facts.append(("Derived from", manifest.parent))
    if manifest.note:
        facts.append(("Note", manifest.note))
    return facts


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def _page(
    data: ReportData,
    tables: Mapping[str, Table],
    book: cases.CaseBook,
    rooms: Sequence[Room],
    corrected: Corrections | None,
    beside: Sequence[Table],
) -> tuple[str, str]:
    """The page before and after the users' payloads."""
    made = {chart.id: chart for chart in charts.all_charts(data)}
    plotly = _plotly()
    script = _asset("report.js") + _asset("cases.js")
    environment = Environment(
        loader=DictLoader({"index.html": _asset("index.html.jinja")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ticked"] = ticked
    manifest = data.manifest
    run = shlex.quote(manifest.name)
    page = {
        "run": run,
        "labels": charts.LABEL_NAMES,
        "charts": {chart.id: chart.figure for chart in made.values()},
    }
    html = environment.get_template("index.html").render(
        policy=policy((plotly, script)),
        name=manifest.name,
        css=Markup(_asset("report.css")),
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
        cap_mb=book.cap // (1024 * 1024),
        other_case=f"memprobe sql {run} \"select * from case_file('USER', 'DIMENSION')\"",
        sql_hint=f'memprobe sql {run} "select * from recovery_summary"',
        facts=_facts(data),
        config_json=_pretty(manifest.config.model_dump(mode="json")),
        versions=manifest.versions,
        versions_json=_pretty(manifest.versions),
        prompts_json=_pretty(manifest.prompts),
        page_json=script_json(page),
        plotly=Markup(plotly),
        script=Markup(script),
    )
    before, after = html.rsplit(_SPLIT, 1)
    return sanitize(before.lstrip())[0], sanitize(after)[0]


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
    facts = [f"- {md(name)}: {md(value)}" for name, value in _facts(data)]
    return "\n".join([*lines, "## Reproduce", "", *facts, ""])


def summary(store: RunStore) -> str:
    """`summary_markdown` of a stored run."""
    return summary_markdown(load(store))


def needs_corrections(data: ReportData) -> bool:
    """Whether figures were made by a published procedure, faults included."""
    return data.manifest.origin is not None or data.manifest.protocol is Protocol.PAPER


def build_report(
    store: RunStore, *, cap: int = cases.PAYLOAD_CAP, windows_of: Sequence[str] = ()
) -> Path:
    """Write `report/index.html`, `report/summary.md` and `report/tables/*`.

    `cap` bounds the bytes of the case browser's data; past it the page has the
    first users' cases and says so. `windows_of` names readers (a model, a number of
    tokens, or NAME=TOKENS) whose windows the stores are held against. Returns the
    path of `index.html`; for a run in an object store that is a local copy of what
    was written there.
    """
    data = load(store, windows_of)
    tables = sections.all_tables(data)
    corrected = corrections(store) if needs_corrections(data) else None
    beside = all_tables(corrected) if corrected else ()
    tables |= {table.id: table for table in beside}
    gallery = Gallery()
    book = cases.collect(store, data.users, data.systems, cap, gallery.add)
    tables["gallery"] = gallery.table()
    before, after = _page(data, tables, book, gallery.rooms(), corrected, beside)
    payloads = (
        f'<script type="text/plain" id="user-{place}">{text}</script>\n'
        for place, text in enumerate(book.packed)
    )
    page = "".join((before, *payloads, after)).encode("utf-8")
    _write(store, "index.html", page)
    _write(store, "summary.md", summary_markdown(data).encode("utf-8", "replace"))
    for table in tables.values():
        for kind, write in WRITERS.items():
            _write(store, f"tables/{table.id}.{kind}", write(table).encode("utf-8", "replace"))
    return local_page(store)


def local_page(store: RunStore) -> Path:
    """The page as a file of this machine; of a run in an object store a copy of what lies there."""
    if store.path is not None:
        return store.path / FOLDER / "index.html"
    local = store.scratch() / FOLDER
    LocalFiles(local).write("index.html", store.files.read(f"{FOLDER}/index.html"))
    return local / "index.html"


def _write(store: RunStore, name: str, content: bytes) -> None:
    store.files.write(f"{FOLDER}/{name}", content)
