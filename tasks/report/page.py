"""A report as one HTML file that needs nothing else: assembly shared by the suites.

The page opens from disk without a network: plotly.js is in it, and its content
security policy lets only the scripts written here run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from memprobe.text import sanitize
from storage.files import LocalFiles
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.report.tables import WRITERS, Table

FOLDER = "report"
_SPLIT = "@@PAYLOADS@@"


def asset(name: str) -> str:
    """A template, script or style sheet of the report by its file name."""
    return resources.files("tasks.report").joinpath("templates", name).read_text(encoding="utf-8")


def script_json(value: Any) -> Markup:
    """JSON for a data script of the page: nothing in it can end or open an element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


@cache
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


def ticked(text: str) -> Markup:
    """A note as HTML: what stands between backticks is code, all of it escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    )


def facts_of(manifest: Manifest) -> list[tuple[str, str]]:
    """What a run was, by name, for the end of its report."""
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


def render(
    template: str, script: str, manifest: Manifest, page: Mapping[str, Any], **values: Any
) -> tuple[str, str]:
    """A suite's template over the shared frame: the page before and after the payloads.

    `script` names the case browser's own script, `page` is what the scripts are given.
    """
    plotly = _plotly()
    source = asset("report.js") + asset("browser.js") + asset(script)
    names = ("frame.html.jinja", "macros.html.jinja", template)
    environment = Environment(
        loader=DictLoader({name: asset(name) for name in names}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ticked"] = ticked
    html = environment.get_template(template).render(
        policy=policy((plotly, source)),
        name=manifest.name,
        css=Markup(asset("report.css")),
        facts=facts_of(manifest),
        config_json=_pretty(manifest.config.model_dump(mode="json")),
        versions=manifest.versions,
        versions_json=_pretty(manifest.versions),
        prompts_json=_pretty(manifest.prompts),
        page_json=script_json(page),
        plotly=Markup(plotly),
        script=Markup(source),
        **values,
    )
    before, after = html.rsplit(_SPLIT, 1)
    return sanitize(before.lstrip())[0], sanitize(after)[0]


def write_report(
    store: RunStore,
    html: tuple[str, str],
    payloads: Sequence[str],
    summary: str,
    tables: Iterable[Table],
) -> Path:
    """Write page, summary and tables; returns the path of the page on this machine.

    `payloads` stand between the two halves of `html`, each in an element of its own.
    """
    before, after = html
    packed = (
        f'<script type="text/plain" id="user-{place}">{text}</script>\n'
        for place, text in enumerate(payloads)
    )
    _write(store, "index.html", "".join((before, *packed, after)).encode("utf-8"))
    _write(store, "summary.md", summary.encode("utf-8", "replace"))
    for table in tables:
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
