"""Names of figures, probes and failures in a paradigms report, and the first cells of a row."""

from __future__ import annotations

from memprobe.paradigms.spec import Paradigm, ProbeType
from memprobe.paradigms.taxonomy import Failure, Side
from tasks.paradigms.verdicts import Mode
from tasks.report.data import Row
from tasks.report.paradigms.data import read_name
from tasks.report.tables import Column

SYSTEM, READ = Column("system", "System"), Column("read", "Read")
AXIS_NAMES = {
    "accuracy": "Accuracy",
    "plasticity": "Plasticity",
    "stability": "Stability",
    "sp_balance": "SP-balance",
    "sp_gap": "Plasticity - stability",
    "under_update": "Under-update",
    "over_update": "Over-update",
    "historical": "Historical",
    "source_fidelity": "Source fidelity",
    "temporal": "Temporal",
    "partial": "Partial",
    "split": "Split",
    "non_split": "Not split",
    "split_delta": "Split - not split",
    "delta_fc": "Delta FC",
    "rag_norm": "RAG norm",
}
PROBE_NAMES = {
    ProbeType.CURRENT.value: "Current",
    ProbeType.PREVIOUS.value: "Previous",
    ProbeType.CHANGE.value: "Change",
    ProbeType.TEMPORAL.value: "Temporal",
    ProbeType.CONFLICT.value: "Conflict",
    ProbeType.SOURCE.value: "Source",
}
PARADIGM_NAMES = {paradigm.value: paradigm.value.capitalize() for paradigm in Paradigm}
FAILURE_NAMES = {failure.value: failure.value.replace("_", " ") for failure in Failure}
SIDES = tuple(side.value for side in Side)
NO_DIFFERENCE = "no difference shown"


def placed(mode: Mode) -> Row:
    """A mode as the first cells of a row."""
    return {"system": mode[0], "read": read_name(mode)}


def of_total(row: Row) -> str:
    """`n/N` of a row's scored items and of those with errors."""
    return f"{row['n']:,}/{row['n'] + row['n_errors']:,}"


def span(row: Row) -> tuple[float | None, float | None]:
    return row.get("lo"), row.get("hi")
