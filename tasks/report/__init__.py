"""The report of a run: a self-contained page, a Markdown summary, and every table."""

from tasks.report.build import summary_markdown
from tasks.report.calls import export_calls
from tasks.report.data import load
from tasks.report.page import FOLDER, local_page
from tasks.report.suites import build_report, summary

__all__ = [
    "FOLDER",
    "build_report",
    "export_calls",
    "load",
    "local_page",
    "summary",
    "summary_markdown",
]
