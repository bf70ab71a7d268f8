"""The report of a run of any suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.runs import RunStore
from tasks.report import build
from tasks.report.packing import PAYLOAD_CAP
from tasks.report.paradigms import build_paradigms_report, paradigms_summary


def build_report(
    store: RunStore, *, cap: int = PAYLOAD_CAP, windows_of: Sequence[str] = ()
) -> Path:
    """Write `report/index.html`, `report/summary.md` and `report/tables/*` of a run.

    `cap` bounds the bytes of the case browser's data; past it the page has the
    first users' cases and says so. `windows_of` names readers (a model, a number of
    tokens, or NAME=TOKENS) whose windows the stores are held against. Returns the
    path of `index.html`; for a run in an object store that is a local copy of what
    was written there.
    """
    if store.manifest.config.suite == "paradigms":
        return build_paradigms_report(store, cap=cap, windows_of=windows_of)
    return build.build_recovery_report(store, cap=cap, windows_of=windows_of)


def summary(store: RunStore) -> str:
    """The report in short, as Markdown."""
    if store.manifest.config.suite == "paradigms":
        return paradigms_summary(store)
    return build.recovery_summary(store)
