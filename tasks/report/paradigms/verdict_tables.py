"""Tables of single verdicts: why answers failed, what the scorers differ on, what is missing."""

from __future__ import annotations

from tasks.paradigms.verdicts import Mode
from tasks.report.data import Row
from tasks.report.paradigms.data import ProbeData, address, mode_of, read_name
from tasks.report.paradigms.names import FAILURE_NAMES, PROBE_NAMES, READ, SIDES, SYSTEM, placed
from tasks.report.tables import Column, Table

EXAMPLES = 3
"""Cases of each failure and side that the page links; the files have them all."""


def failures(data: ProbeData) -> Table:
    """Failures by system and side."""
    rows: dict[tuple[Mode, str], Row] = {}
    totals: dict[Mode, int] = {}
    for row in data.failures:
        mode = mode_of(row)
        line = rows.setdefault(
            (mode, row["failure"]),
            {
                **placed(mode),
                "failure": FAILURE_NAMES.get(row["failure"], row["failure"]),
                **dict.fromkeys(SIDES, 0),
                "n": 0,
            },
        )
        if row["side"] in SIDES:
            line[row["side"]] += row["n"]
        line["n"] += row["n"]
        totals[mode] = totals.get(mode, 0) + row["n"]
    for (mode, _), line in rows.items():
        line["share"] = 100 * line["n"] / totals[mode]
    places = {mode: place for place, mode in enumerate(data.modes)}
    ordered = sorted(rows.items(), key=lambda it: (places.get(it[0][0], 999), -it[1]["n"]))
    return Table(
        "failures",
        "Why probes failed",
        (
            SYSTEM,
            READ,
            Column("failure", "Failure"),
            *(Column(side, side.capitalize(), "int") for side in SIDES),
            Column("n", "Answers", "int"),
            Column("share", "Of its wrong answers", "percent"),
        ),
        [line for _, line in ordered],
        (
            "Storage: a part of the evidence is in no stored item. Retrieval: stored, and not in "
            "what the reader saw. Readout: seen, and answered wrong. By rules over whole words: "
            "what is said in other words is taken for absent. References that are handed values "
            "are not diagnosed.",
        ),
        empty="no wrong answer was diagnosed",
    )


def failure_cases(data: ProbeData) -> Table:
    """Every diagnosed answer, with its place in the browser."""
    return Table(
        "failure-cases",
        "Cases by failure",
        (
            Column("case", "Case"),
            SYSTEM,
            READ,
            Column("failure", "Failure"),
            Column("side", "Side"),
            Column("evidence", "Evidence"),
        ),
        [
            {
                **row,
                **placed(mode_of(row)),
                "case": f"{row['user_id']}, {PROBE_NAMES.get(row['probe_type'], '')}"
                + (f", epoch {row['epoch']}" if row["epoch"] != 1 else ""),
                "failure": FAILURE_NAMES.get(row["failure"], row["failure"]),
                "address": address(row),
            }
            for row in data.failed
        ],
        empty="no wrong answer was diagnosed",
    )


def shown_cases(cases: Table) -> Table:
    """The first cases of each failure and side, for the page."""
    counts: dict[tuple[str, str], int] = {}
    rows = []
    for row in cases.rows:
        key = (row["failure"], row["side"])
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= EXAMPLES:
            rows.append(row)
    note = f"The first {EXAMPLES} of each failure and side; {len(cases.rows):,} are in the files."
    return Table(cases.id, cases.title, cases.columns, rows, (note,), cases.empty)


def scorers(data: ProbeData) -> Table:
    """Every layer under both scorers."""
    return Table(
        "scorers",
        "The same answers under both scorers, by layer",
        (
            Column("layer", "Layer"),
            SYSTEM,
            READ,
            Column("scorer", "Scorer"),
            Column("accuracy", "Accuracy", "score"),
            Column("partial", "Partial", "score"),
            Column("plasticity", "Plasticity", "score"),
            Column("stability", "Stability", "score"),
            Column("sp_balance", "SP-balance", "score"),
            Column("scored", "Scored n/N"),
        ),
        [
            {**row, "read": read_name(mode_of(row)), "scored": f"{row['n']:,}/{row['n_total']:,}"}
            for row in data.layers
        ],
        (
            "A layer is a reading of the same stores by another reader, or the published verdicts "
            "of an imported report; base is the run's own.",
        ),
    )


CHANGED = 300
"""Verdicts that the page lists; the files have them all."""


def changed(data: ProbeData) -> Table:
    """Verdicts that the scorers do not agree on, both reasons beside each other."""
    return Table(
        "changed-verdicts",
        "Verdicts that differ between the scorers",
        (
            Column("case", "Case"),
            SYSTEM,
            READ,
            Column("question", "Question"),
            Column("gold_answer", "Gold"),
            Column("answer_json", "Answer"),
            Column("strict_match", "Strict"),
            Column("strict_why", "Why"),
            Column("paper_match", "Paper"),
            Column("paper_why", "Why"),
        ),
        [
            {
                **row,
                **placed(mode_of(row)),
                "case": f"{row['user_id']}, {PROBE_NAMES.get(row['probe_type'], '')}",
                "address": address(row),
            }
            for row in data.changed
        ],
        empty="both scorers give every answer the same verdict",
    )


def shown_changed(table: Table) -> Table:
    """As many of the changed verdicts as the page lists."""
    if len(table.rows) <= CHANGED:
        return table
    note = f"The first {CHANGED} of {len(table.rows):,}; the files have them all."
    return Table(table.id, table.title, table.columns, table.rows[:CHANGED], (note,), table.empty)


def unscored(data: ProbeData) -> Table:
    """Probes without a verdict, by reason."""
    return Table(
        "unscored",
        "Not measured, by reason",
        (
            Column("layer", "Layer"),
            SYSTEM,
            READ,
            Column("reason", "Reason"),
            Column("n", "Probes", "int"),
            Column("total", "Of", "int"),
            Column("share", "Share", "percent"),
            Column("counts", "Counts as an error"),
        ),
        [
            {
                **row,
                "read": read_name(mode_of(row)),
                "share": 100 * row["n"] / row["total"],
                "counts": "yes" if row["failed"] else "no, it has no gold",
            }
            for row in data.unscored
        ],
        ("`no answer`: the run has no verdict on it yet. None of these is a score.",),
        empty="every probe that was attempted was measured",
    )


def ingest_errors(data: ProbeData) -> Table:
    """Sessions that could not be written, by reason."""
    return Table(
        "ingest-errors",
        "Sessions that could not be written",
        (
            SYSTEM,
            Column("reason", "Reason"),
            Column("n", "Sessions", "int"),
            Column("total", "Of", "int"),
            Column("episodes", "Episodes", "int"),
            Column("example", "Commonest detail"),
        ),
        data.ingest_errors,
        (
            "Under protocol strict no probe of an episode with such a session is scored: its "
            "store is not what was to be measured.",
        ),
        empty="every session was written",
    )


def read(data: ProbeData) -> Table:
    """What the reader is given for a probe."""
    return Table(
        "read",
        "What the reader is given for a probe",
        (
            SYSTEM,
            READ,
            Column("items", "Items", "count"),
            Column("tokens", "Prompt tokens", "count"),
            Column("scored", "Answered n/N"),
        ),
        [
            {**row, "read": read_name(mode_of(row)), "scored": f"{row['n']:,}/{row['n_total']:,}"}
            for row in data.read
        ],
        ("Means over probes; a reference that is handed values asks no reader.",),
    )
