"""How a run ended, as the command line and the flow report it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from flows.runtime import Runtime
from flows.units import partial_units
from memprobe.outcomes import Reason
from memprobe.types import AccessMode, SuiteName
from storage.catalog import catalog_path, query
from storage.manifest import RunStatus
from storage.runs import RunStore
from tasks import chunked

MEASURED: dict[SuiteName, tuple[str, ...]] = {
    "recovery": ("episodes", "verdicts", "attributions", "oracle_verdicts"),
    "paradigms": ("answers",),
}
"""Tables whose unscored items count against the error threshold."""
BESIDE: dict[SuiteName, tuple[str, ...]] = {
    "recovery": ("preference_scores", "judge_checks"),
    "paradigms": ("ingests",),
}
"""Tables whose unscored items are counted and shown only."""


STAGES = {
    "rollout": "episodes",
    "recover": "verdicts",
    "attribute": "attributions",
    "oracle": "oracle_verdicts",
    "preference": "preference_scores",
    "judge_check": "judge_checks",
    "recover_chunked": "verdicts",
    "attribute_chunked": "attributions",
}
"""The table behind a stage of the view `unscored_summary`."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """`status` is complete, incomplete or interrupted; `unscored` counts by "table/reason".

    `units_to_retry` are there with items that failed for a reason that may pass,
    e.g. an outage; the same run again tries them. `unscored_examples` has the
    commonest detail by the keys of `unscored`.
    """

    run: str
    location: str
    status: str
    new_calls: int
    ledger_hits: int
    units_done: int
    units_total: int
    unscored: dict[str, int]
    error_share: float
    report: str | None
    catalog: str | None
    summary: list[dict[str, Any]]
    failures: list[str] = field(default_factory=list)
    units_to_retry: int = 0
    unscored_examples: dict[str, str] = field(default_factory=dict)
    ui_url: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def unscored_counts(store: RunStore) -> tuple[dict[str, int], float]:
    """Unscored items by table and reason, and their share among what is measured.

    What a chosen model cannot judge at all (`not_judged`) is counted and is no error.
    Nor is a store that the whole reading overflows where the run reads it in parts,
    too: whether those could be scored is counted with their own rows.
    """
    config = store.manifest.config
    beside = chunked.wanted(config)
    measured = MEASURED[config.suite]
    counts: dict[str, int] = {}
    # A system that could not be measured must not be diluted by those that need no model.
    apart = config.suite != "recovery"
    tallies: dict[str, list[int]] = {}
    for table in (*measured, *BESIDE[config.suite]):
        scanned = store.scan(table)
        names = [
            n
            for n in ("system", "status", "reason", "layer", "access_mode")
            if n in scanned.schema.names
        ]
        for row in scanned.select(names).to_pylist():
            status, reason = row["status"], row["reason"]
            excused = reason == Reason.NOT_JUDGED.value or (
                beside
                and reason == Reason.STORE_OVERFLOW.value
                and row.get("layer") == chunked.BASE
                and row.get("access_mode") == AccessMode.DUMP_ALL.value
            )
            failed = status == "unscored" and not excused
            if table in measured and (not apart or row.get("layer") in (None, chunked.BASE)):
                tally = tallies.setdefault(str(row["system"]) if apart else "", [0, 0])
                tally[0] += failed
                tally[1] += 1
            if status == "unscored":
                key = f"{table}/{reason}"
                counts[key] = counts.get(key, 0) + 1
    shares = [bad / total for bad, total in tallies.values()]
    return dict(sorted(counts.items())), max(shares, default=0.0)


def unscored_examples(store: RunStore) -> dict[str, str]:
    """The commonest detail of unscored items by "table/reason"; keys without one are left out."""
    if store.manifest.config.suite == "recovery":
        found = query(
            store,
            "select stage, reason, arg_max(example, n) as example from unscored_summary "
            "where example is not null group by all order by stage desc",
        )
        return {f"{STAGES[stage]}/{reason}": example for stage, reason, example in found.rows}
    each = " union all ".join(
        f"select '{table}' as item, reason, detail from {table} where status = 'unscored'"
        for table in (*MEASURED["paradigms"], *BESIDE["paradigms"])
    )
    found = query(
        store,
        f"with gone as ({each}), counted as (select item, reason, detail, count(*) as n from gone "
        "where detail is not null group by all) "
        "select item, reason, arg_max(detail, (n, detail)) from counted group by all order by all",
    )
    return {f"{item}/{reason}": example for item, reason, example in found.rows}


def result_of(
    run: Runtime[Any],
    status: RunStatus,
    units: tuple[int, int],
    *,
    failures: list[str],
    report: str | None,
) -> RunResult:
    """The result of a run as it stands in its store."""
    store = run.context.store
    unscored, share = unscored_counts(store)
    calls, hits, *_ = run.usage()
    word = {RunStatus.COMPLETE: "complete", RunStatus.INTERRUPTED: "interrupted"}
    return RunResult(
        run=run.context.config.name,
        location=store.location,
        status=word.get(status, "incomplete"),
        new_calls=calls,
        ledger_hits=hits,
        units_done=units[0],
        units_total=units[1],
        unscored=unscored,
        error_share=share,
        report=report,
        catalog=str(catalog_path(store)),
        summary=summary_of(store),
        failures=failures,
        units_to_retry=partial_units(run),
        unscored_examples=unscored_examples(store) if unscored else {},
    )


def summary_of(store: RunStore) -> list[dict[str, Any]]:
    """The rows of the suite's summary view.

    Of recovery `recovery_summary`, where what was read in parts has the access mode
    `chunked`; of paradigms `probe_summary` by the scorer of the run's protocol.
    """
    config = store.manifest.config
    if config.suite == "paradigms":
        found = query(
            store,
            "select * exclude (n, n_memories), n as n_scored, n_memories as items_mean "
            f"from probe_summary where scorer = '{config.protocol.value}'",
        )
        return sorted(found.dicts(), key=_place)
    rows = query(store, "select * from recovery_summary").dicts()
    if chunked.wanted(config):
        layer = query(
            store,
            "select * exclude (layer) replace (layer as access_mode) "
            f"from recovery_summary_layers where layer = '{chunked.LAYER}'",
        )
        rows += layer.dicts()
    return sorted(rows, key=_place)


def _place(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["system"], row["access_mode"], row["k"] or 0
