"""The tables of a paradigms report's figures; those of single verdicts are in `verdict_tables`."""

from __future__ import annotations

from collections.abc import Sequence

from memprobe.paradigms.profile import AXES
from tasks.paradigms.verdicts import Mode
from tasks.report import budget, ingestion, sections
from tasks.report.data import Row
from tasks.report.paradigms import verdict_tables
from tasks.report.paradigms.data import ProbeData, mode_of, name_of
from tasks.report.paradigms.names import (
    AXIS_NAMES,
    NO_DIFFERENCE,
    PARADIGM_NAMES,
    PROBE_NAMES,
    READ,
    SYSTEM,
    of_total,
    placed,
    span,
)
from tasks.report.tables import Column, Table

NO_METRICS = "no metrics are stored; memprobe score makes them"


def headline(data: ProbeData) -> Table:
    """Every system in every mode; systems without an answer at the end."""
    rows: list[Row] = []
    for row in data.summary:
        mode = mode_of(row)
        rows.append(
            {
                **placed(mode),
                "told": data.told(mode[0]),
                "accuracy": row["accuracy"],
                "interval": (row["accuracy_lo"], row["accuracy_hi"]),
                "partial": row["partial"],
                "plasticity": row["plasticity"],
                "stability": row["stability"],
                "balance": row["sp_balance"],
                "scored": f"{row['n']:,}/{row['n_total']:,}",
                "coverage": 100 * row["n"] / row["n_total"] if row["n_total"] else None,
                "errors": row["n_errors"],
                "memories": row["n_memories"],
            }
        )
    rows += [
        {"system": system, "told": data.told(system)}
        for system in data.systems
        if system not in data.own
    ]
    notes = [
        "Accuracy: probes answered right, of those scored, 0 to 1; a partial answer counts as "
        "wrong and is given beside it. Plasticity: accuracy where the memory should update; "
        "stability: where it should keep. SP-balance: their harmonic mean. 95 % intervals by "
        "bootstrap over episodes, 2,000 resamples.",
        "An error (no readable answer) is no score: it enters no mean. Memories: items of a "
        "store, mean over episodes. Told: a reference that is handed gold on purpose.",
    ]
    if data.refused:
        notes.append(f"Not ranked: {data.refused}.")
    return Table(
        "headline",
        f"Accuracy, plasticity and stability ({data.scorer} scorer)",
        (
            SYSTEM,
            READ,
            Column("told", "Told"),
            Column("accuracy", "Accuracy", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("partial", "Partial", "score"),
            Column("plasticity", "Plasticity", "score"),
            Column("stability", "Stability", "score"),
            Column("balance", "SP-balance", "score"),
            Column("scored", "Scored n/N"),
            Column("coverage", "Coverage", "percent"),
            Column("errors", "Errors", "int"),
            Column("memories", "Memories", "count"),
        ),
        rows,
        tuple(notes),
    )


def pair(row: Row, side: str) -> Mode:
    """One side of a comparison."""
    return row[side], row[f"{side}_mode"], row[f"{side}_k"]


def result(data: ProbeData, row: Row) -> str:
    """What a comparison shows; nothing of a mode that has too few verdicts to be ranked."""
    first, second = pair(row, "first"), pair(row, "second")
    threshold = data.config.coverage_threshold
    found = {mode_of(r): r for r in data.summary}
    for mode in (first, second):
        known = found.get(mode)
        if known is None or known["n"] < threshold * known["n_total"] or not known["n"]:
            return "not ranked"
    if not row["shown"]:
        return NO_DIFFERENCE
    return f"{name_of(first if row['difference'] > 0 else second)} higher"


def comparisons(data: ProbeData, id_: str, title: str, rows: Sequence[Row]) -> Table:
    """Pairs of modes over the probes that both have a verdict on."""
    return Table(
        id_,
        title,
        (
            Column("metric", "Metric"),
            Column("group", "Probes"),
            Column("first", "First"),
            Column("second", "Second"),
            Column("difference", "First - second", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("p", "p", "score"),
            Column("p_corrected", "p (Holm)", "score"),
            Column("n_episodes", "Episodes", "int"),
            Column("result", "Result"),
        ),
        [
            {
                **row,
                "metric": AXIS_NAMES.get(row["metric"], row["metric"]),
                "group": PROBE_NAMES.get(row["group_name"], row["group_name"]) or "all",
                "first": name_of(pair(row, "first")),
                "second": name_of(pair(row, "second")),
                "interval": span(row),
                "result": result(data, row),
            }
            for row in rows
        ],
        (
            "Over the probes that both have a verdict on; episodes are resampled together. A "
            "difference is shown when its interval leaves out zero and its p value, corrected by "
            "Holm over its family, is at most 0.05. Pairs with full context are families of their "
            "own, as they test the distance to a reference.",
        ),
        empty="no pair has a verdict on the same probes",
    )


def _comparisons(data: ProbeData) -> list[Table]:
    whole = [row for row in data.comparisons if not row["group_kind"]]
    return [
        comparisons(
            data,
            "comparisons",
            "Paired comparisons of accuracy",
            [row for row in whole if row["metric"] == "accuracy"],
        ),
        comparisons(
            data,
            "comparisons-balance",
            "Paired comparisons of plasticity, stability and SP-balance",
            [row for row in whole if row["metric"] != "accuracy"],
        ),
        comparisons(
            data,
            "comparisons-probes",
            "Paired comparisons by probe type",
            [row for row in data.comparisons if row["group_kind"] == "probe"],
        ),
    ]


def crossed(rows: Sequence[Row], key: str, modes: Sequence[Mode]) -> dict[Mode, dict[str, Row]]:
    """Rows by mode, in the headline's order, and by group."""
    found: dict[Mode, dict[str, Row]] = {mode: {} for mode in modes}
    for row in rows:
        found.setdefault(mode_of(row), {})[row[key]] = row
    return {mode: groups for mode, groups in found.items() if groups}


def _grid(
    data: ProbeData, id_: str, title: str, rows: Sequence[Row], key: str, names: dict[str, str]
) -> Table:
    columns: list[Column] = [SYSTEM, READ]
    for value, name in names.items():
        columns += [Column(value, name, "score"), Column(f"{value}_n", "n/N")]
    lines = []
    for mode, groups in crossed(rows, key, data.modes).items():
        line = placed(mode)
        for value, row in groups.items():
            line[value] = row["accuracy"]
            line[f"{value}_n"] = of_total(row)
        lines.append(line)
    return Table(id_, title, tuple(columns), lines, ("Accuracy, with scored n of attempted N.",))


def conditions(data: ProbeData) -> dict[str, str]:
    """The conditions of the run by paradigm, each with what it expects."""
    paradigms = list(PARADIGM_NAMES)
    facts = {row["condition"]: row for row in data.by_condition}

    def place(condition: str) -> tuple[int, bool, str]:
        row = facts[condition]
        return paradigms.index(row["paradigm"]), row["expected"] != "should_update", condition

    return {
        name: f"{name.replace('_', ' ')} "
        f"({'update' if facts[name]['expected'] == 'should_update' else 'keep'})"
        for name in sorted(facts, key=place)
    }


def split(data: ProbeData) -> Table:
    """Split against whole episodes."""
    rows = []
    for mode in data.modes:
        parts = {name: data.metric(mode, name) for name in ("split", "non_split", "split_delta")}
        if not parts["split_delta"]:
            continue
        delta = parts["split_delta"]
        updates = data.whole_updates.get(mode, {})
        rows.append(
            {
                **placed(mode),
                "split": parts["split"].get("value"),
                "split_n": parts["split"].get("n"),
                "non_split": parts["non_split"].get("value"),
                "non_split_n": parts["non_split"].get("n"),
                "delta": delta.get("value"),
                "interval": span(delta),
                "updates": updates.get("accuracy"),
                "updates_n": updates.get("n"),
            }
        )
    return Table(
        "split",
        "Updates that come in two parts",
        (
            SYSTEM,
            READ,
            Column("split", "Split", "score"),
            Column("split_n", "n", "int"),
            Column("non_split", "Not split", "score"),
            Column("non_split_n", "n", "int"),
            Column("delta", "Split - not split", "score"),
            Column("interval", "95 % interval", "interval"),
            Column("updates", "Not split, updates alone", "score"),
            Column("updates_n", "n", "int"),
        ),
        rows,
        (
            "In a split episode the trigger and the new value come in two sessions with others "
            "between them. All split episodes update; those that are not split also hold "
            "episodes to keep, so the two sides of the published difference differ in more than "
            "the split. The last columns have those of them that update.",
        ),
        empty=NO_METRICS,
    )


def _axes(
    data: ProbeData, id_: str, title: str, wanted: Sequence[str], note: str, empty: str
) -> Table:
    rows = []
    for mode in data.modes:
        found = {name: data.metric(mode, name) for name in wanted}
        if not any(found.values()):
            continue
        line = placed(mode)
        for name, row in found.items():
            line |= {name: row.get("value"), f"{name}_i": span(row), f"{name}_n": row.get("n")}
        rows.append(line)
    columns: list[Column] = [SYSTEM, READ]
    for name in wanted:
        columns += [
            Column(name, AXIS_NAMES[name], "score"),
            Column(f"{name}_i", "95 % interval", "interval"),
            Column(f"{name}_n", "n", "int"),
        ]
    return Table(id_, title, tuple(columns), rows, (note,), empty)


def axes(data: ProbeData) -> Table:
    """Historical, source and temporal accuracy."""
    return _axes(
        data,
        "axes",
        "Axes of the memory",
        ("historical", "source_fidelity", "temporal"),
        "Historical: previous values. Source fidelity: source probes and the status part of "
        "conflict probes. Temporal: when and why.",
        NO_METRICS,
    )


def against_full(data: ProbeData) -> Table:
    """The distance of each system to full context."""
    return _axes(
        data,
        "full-context",
        "The distance to full context",
        ("delta_fc", "rag_norm"),
        "Delta FC: accuracy of full context less that of the system. RAG norm: the system's "
        "accuracy as a share of full context's. Both over the probes that both have a verdict on.",
        "the run has no full context to hold others against, or no metrics are stored",
    )


def figures(data: ProbeData) -> Table:
    """Every stored figure of the whole, a row each."""
    rows = []
    for mode in data.modes:
        for name in AXIS_NAMES:
            row = data.metric(mode, name)
            if row:
                rows.append({**placed(mode), **figure(row)})
    return Table(
        "figures",
        "All figures",
        (SYSTEM, READ, *FIGURE),
        rows,
        ("n other: items behind the second of a figure's two rates.",),
        empty=NO_METRICS,
    )


FIGURE = (
    Column("metric", "Figure"),
    Column("value", "Value", "score"),
    Column("interval", "95 % interval", "interval"),
    Column("n", "n", "int"),
    Column("n_other", "n other", "int"),
    Column("n_errors", "Errors", "int"),
    Column("n_episodes", "Episodes", "int"),
)


def figure(row: Row) -> Row:
    """A row of `probe_metrics` as cells."""
    return {**row, "metric": AXIS_NAMES[row["metric"]], "interval": span(row)}


def _correlated(data: ProbeData, id_: str, title: str, kinds: dict[str, str], note: str) -> Table:
    return Table(
        id_,
        title,
        (
            Column("layer", "Layer"),
            Column("over", "Over"),
            Column("first", "First"),
            Column("second", "Second"),
            Column("spearman", "Spearman", "score"),
            Column("pearson", "Pearson", "score"),
            Column("n", "n", "int"),
        ),
        [
            {
                **row,
                "over": kinds[row["kind"]],
                "first": AXIS_NAMES.get(row["first"], row["first"]),
                "second": AXIS_NAMES.get(row["second"], row["second"]),
            }
            for row in data.correlations
            if row["kind"] in kinds
        ],
        (note,),
        empty="nothing to correlate: too few systems, or no metrics stored",
    )


def correlations(data: ProbeData) -> Table:
    """Correlations between axes."""
    return _correlated(
        data,
        "correlations",
        "Correlations between axes",
        {"axes": "memory systems", "axes_all": "all, references too"},
        "Each system in its own mode; n is systems. A dash: fewer than three, or no spread.",
    )


def readers(data: ProbeData) -> Table:
    """How far two readers put the systems in the same order."""
    return _correlated(
        data,
        "readers",
        "Do two readers put the systems in the same order?",
        {"readers": "accuracy of each system and mode"},
        "Another reader over the same stores (`memprobe reread`), against the run's own.",
    )


def profile_figures(data: ProbeData, mode: Mode) -> Table:
    """The figures of one mode, for its profile."""
    names = ("accuracy", "partial", *AXES, "non_split", "split_delta", "sp_balance", "sp_gap")
    rows = [figure(data.metric(mode, name)) for name in names if data.metric(mode, name)]
    return Table("profile", f"Figures of {name_of(mode)}", FIGURE, rows)


def all_tables(data: ProbeData) -> dict[str, Table]:
    """Every table by its id, in the order of the page."""
    made: list[Table] = [
        headline(data),
        *_comparisons(data),
        _grid(data, "types", "Accuracy by probe type", data.by_type, "probe_type", PROBE_NAMES),
        _grid(
            data,
            "paradigms",
            "Accuracy by paradigm",
            data.by_paradigm,
            "paradigm",
            PARADIGM_NAMES,
        ),
        _grid(
            data,
            "conditions",
            "Accuracy by condition",
            data.by_condition,
            "condition",
            conditions(data),
        ),
        split(data),
        axes(data),
        against_full(data),
        correlations(data),
        readers(data),
        verdict_tables.failures(data),
        verdict_tables.failure_cases(data),
        figures(data),
        verdict_tables.scorers(data),
        verdict_tables.changed(data),
        verdict_tables.unscored(data),
        verdict_tables.ingest_errors(data),
        ingestion.table(data),
        verdict_tables.read(data),
        budget.footprint(data),
        budget.windows(data),
        sections.latency(data),
        sections.calls(data),
    ]
    return {table.id: table for table in made}
