"""The human audit: a blind sheet of a run's judgements, and what its raters say of them."""

from tasks.audit.reading import AuditResult, read_answers
from tasks.audit.sheet import Sheet, write_sheet

__all__ = ["AuditResult", "Sheet", "read_answers", "write_sheet"]
