"""The report of the paradigms suite."""

from tasks.report.paradigms.build import build_paradigms_report, paradigms_summary

__all__ = ["build_paradigms_report", "paradigms_summary"]
