"""The form: one HTML file that shows an item at a time and saves its answers as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

from markupsafe import Markup

from memprobe.text import sanitize
from tasks.audit.words import ANSWERS, CAUSES, OK_SCORE, SCORES

ANSWER_FORMAT = "memprobe-audit-answers"


def _asset(name: str) -> str:
    found = resources.files("tasks.audit").joinpath("templates", name)
    return found.read_text(encoding="utf-8")


def form_page(sheet: str, ids: Sequence[str], texts: Sequence[dict[str, str]]) -> str:
    """The page. It holds the items as data; nothing in them can be markup or script."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    from tasks.report.page import policy, script_json

    script = _asset("form.js")
    data: dict[str, Any] = {
        "format": ANSWER_FORMAT,
        "version": 1,
        "sheet": sheet,
        "answers": ANSWERS,
        "ok": OK_SCORE,
        "scores": [asdict(choice) for choice in SCORES],
        "causes": [asdict(choice) for choice in CAUSES],
        "items": [{"id": item_id, **text} for item_id, text in zip(ids, texts, strict=True)],
    }
    environment = Environment(
        loader=DictLoader({"form": _asset("form.html.jinja")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("form").render(
        policy=policy((script,)),
        sheet=sheet,
        n=len(ids),
        scores=SCORES,
        causes=CAUSES,
        css=Markup(_asset("form.css")),
        data=script_json(data),
        script=Markup(script),
    )
    return sanitize(page)[0]
