"""The report of a run: a self-contained page, a Markdown summary, and every table."""

from tasks.report.build import build_report, summary, summary_markdown
from tasks.report.calls import export_calls
from tasks.report.data import load

__all__ = ["build_report", "export_calls", "load", "summary", "summary_markdown"]
