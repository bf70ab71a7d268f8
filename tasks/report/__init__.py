"""The report of a run: a self-contained page, a Markdown summary, and every table."""

from tasks.report.build import FOLDER, build_report, local_page, summary, summary_markdown
from tasks.report.calls import export_calls
from tasks.report.data import load

__all__ = [
    "FOLDER",
    "build_report",
    "export_calls",
    "load",
    "local_page",
    "summary",
    "summary_markdown",
]
