"""Score the paradigms suite: every metric, comparison, correlation and profile of a run.

Shares are in [0, 1]. Statistics are those of `memprobe.paradigms.bootstrap`: episodes are
resampled, 2,000 times, seed 42 as published, whatever the run's own seed; the epochs of
an episode stay together. Tables, each for both scorers:

- `probe_metrics`: the metrics of `memprobe.paradigms.tally`, for the whole and by group,
  `coverage`, and of the whole `delta_fc` and `rag_norm`, over the probes that full
  context and the system both have a verdict on. `n` items are behind a figure (`n_other`
  behind the second of its two rates), `n_errors` more had no readable answer, of
  `n_total` in all. A rate over nothing is NULL.
- `probe_comparisons`: first - second of every pair of (system, mode, k) over the probes
  that both have a verdict on. `p` is the published one, `p_corrected` is Holm's over its
  family: one metric over all pairs, per-probe accuracy over all pairs and probes. Pairs with
  full context, always `second`, are families of their own (`correction` tells).
- `probe_correlations`: kind `axes` over the memory systems, each in its own mode,
  `axes_all` with the references that are handed gold; `readers` between this layer and
  `base`.
- `probe_profiles`: a `memprobe.paradigms.profile.Profile` as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from memprobe import metrics
from memprobe.paradigms import bootstrap, correlations
from memprobe.paradigms.bootstrap import Difference, Estimate
from memprobe.paradigms.profile import Diagnosed, build_profile
from memprobe.paradigms.tally import BEHIND, METRICS, Tally
from memprobe.paradigms.taxonomy import Failure, Side
from memprobe.systems import SystemCard
from memprobe.types import Protocol
from storage.catalog import connect
from storage.runs import RunStore
from tasks.footprint import count_stores
from tasks.paradigms.verdicts import (
    FULL_CONTEXT,
    TABLES,
    Mode,
    Verdicts,
    headline,
    load_verdicts,
    own_modes,
)
from tasks.score import BASE, NOTHING, ScoreResult, score_unit

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION = 1
COMPARED = ("accuracy", "plasticity", "stability", "sp_balance")
HOLM_PAIRS = "holm"
HOLM_REFERENCE = "holm, against full context"
_DIGITS = 12

Rows = list[dict[str, Any]]


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Without the last bits, which depend on the processor's matrix product."""
    return {k: round(v, _DIGITS) if isinstance(v, float) else v for k, v in row.items()}


def _place(layer: str, scorer: str, mode: Mode) -> dict[str, Any]:
    system, access_mode, k = mode
    return {
        "layer": layer,
        "scorer": scorer,
        "system": system,
        "access_mode": access_mode,
        "k": k,
    }


def _figure(tally: Tally, metric: str, found: Estimate) -> dict[str, Any]:
    first, second = BEHIND[metric]
    errors = tally.n_errors(first) + (tally.n_errors(second) if second else 0)
    n_other = tally.n(second) if second else None
    return {
        "metric": metric,
        "value": found.value,
        "se": found.se,
        "lo": found.lo,
        "hi": found.hi,
        "n": tally.n(first),
        "n_other": n_other,
        "n_episodes": tally.n_episodes(metric),
        "n_errors": errors,
        "n_total": tally.n(first) + (n_other or 0) + errors,
    }


def _coverage(tally: Tally) -> dict[str, Any]:
    n, errors = tally.n("accuracy"), tally.n_errors("accuracy")
    value = metrics.coverage(n, n + errors)
    attempted = (tally.counted[:, 0] + tally.errors[:, 0]) > 0
    return _figure(tally, "accuracy", Estimate(value, None, None, None)) | {
        "metric": "coverage",
        "n_episodes": int(attempted.sum()),
    }


def _against_full(verdicts: Verdicts, mode: Mode, seed: int) -> Rows:
    """`delta_fc` and `rag_norm` over the probes in common; none for full context itself."""
    full = verdicts.full_context
    if full is None or mode[0] == FULL_CONTEXT:
        return []
    theirs, own = bootstrap.in_common(verdicts.sheets[full], verdicts.sheets[mode])
    _, attempted = verdicts.coverage(mode)
    found = bootstrap.against(theirs, own, seed=seed)
    return [
        {
            **_figure(own, "accuracy", one),
            "metric": metric,
            "n_other": theirs.n("accuracy"),
            "n_errors": attempted - own.n("accuracy"),
            "n_total": attempted,
        }
        for metric, one in found.items()
    ]


def metric_rows(verdicts: Verdicts, layer: str) -> Rows:
    """The rows of `probe_metrics`; a system's draws are its own, as published."""
    rows: Rows = []
    for mode, seed in verdicts.draws.items():
        place = _place(layer, verdicts.scorer, mode)
        sheet = verdicts.sheets[mode]
        tallies = {group: sheet.tally(mask) for group, mask in verdicts.groups.items()}
        found = bootstrap.estimates(list(tallies.values()), seed=seed)
        for (group, tally), figures in zip(tallies.items(), found, strict=True):
            kind, name = group
            mine = [_figure(tally, metric, figures[metric]) for metric in METRICS]
            mine.append(_coverage(tally))
            if not kind:
                mine += _against_full(verdicts, mode, seed)
            rows += [
                _rounded({**place, "group_kind": kind, "group_name": name, **row})
                for row in mine
                # Of a group only what it can have: a decoy has no previous value.
                if not kind or row["n_total"]
            ]
    return rows


def pairs_of(modes: Sequence[Mode]) -> list[tuple[Mode, Mode]]:
    """Every pair once, in report order; full context is the second of its pairs."""
    out = []
    for first, second in combinations(modes, 2):
        turned = first[0] == FULL_CONTEXT != second[0]
        out.append((second, first) if turned else (first, second))
    return out


def _compared(found: Difference, p_corrected: float | None) -> dict[str, Any]:
    return {
        "n_episodes": found.n_episodes,
        "difference": found.difference,
        "lo": found.lo,
        "hi": found.hi,
        "p": found.p,
        "p_corrected": p_corrected,
        "shown": bootstrap.shown(found, p_corrected),
    }


def comparison_rows(verdicts: Verdicts, layer: str) -> Rows:
    """The rows of `probe_comparisons`."""
    pairs = pairs_of(verdicts.modes)
    groups = {g: mask for g, mask in verdicts.groups.items() if g[0] in ("", "probe")}
    tested: list[tuple[dict[str, Any], tuple[Any, ...], Difference]] = []
    for (kind, name), mask in groups.items():
        wanted = COMPARED if not kind else ("accuracy",)
        sheets = verdicts.sheets
        both = [bootstrap.in_common(sheets[a], sheets[b], mask) for a, b in pairs]
        for (a, b), found in zip(pairs, bootstrap.differences(both, wanted), strict=True):
            against = b[0] == FULL_CONTEXT != a[0]
            for metric in wanted:
                key = {
                    "layer": layer,
                    "scorer": verdicts.scorer,
                    **dict(zip(("first", "first_mode", "first_k"), a, strict=True)),
                    **dict(zip(("second", "second_mode", "second_k"), b, strict=True)),
                    "metric": metric,
                    "group_kind": kind,
                    "group_name": name,
                    "correction": HOLM_REFERENCE if against else HOLM_PAIRS,
                }
                tested.append((key, (metric, kind, against), found[metric]))
    rows: Rows = []
    for family in dict.fromkeys(family for _, family, _ in tested):
        mine = [(key, found) for key, of, found in tested if of == family]
        corrected = bootstrap.adjusted([found for _, found in mine])
        rows += [
            _rounded({**key, **_compared(found, p)})
            for (key, found), p in zip(mine, corrected, strict=True)
        ]
    return rows


def _axes(
    verdicts: Verdicts, cards: Mapping[str, SystemCard], references: bool
) -> list[correlations.Correlation]:
    chosen = own_modes(verdicts.modes, cards)
    values = {}
    for system, mode in chosen.items():
        card = cards.get(system)
        if not references and card is not None and card.sees_gold != "none":
            continue
        tally = verdicts.sheets[mode].tally()
        values[system] = {axis: tally.value(axis) for axis in correlations.AXES}
    return correlations.between_axes(values)


def accuracies(verdicts: Verdicts, cards: Mapping[str, SystemCard]) -> dict[str, float | None]:
    """Accuracy by mode, the mode as a text; rules that no reader reads are left out."""
    return {
        json.dumps(mode): verdicts.sheets[mode].tally().value("accuracy")
        for mode in verdicts.modes
        if mode[0] not in cards or cards[mode[0]].sees_gold != "values"
    }


def correlation_rows(
    verdicts: Verdicts, base: Verdicts | None, layer: str, cards: Mapping[str, SystemCard]
) -> Rows:
    """The rows of `probe_correlations`; `base` are the verdicts that a layer is held against."""
    found = [("axes", one) for one in _axes(verdicts, cards, references=False)]
    found += [("axes_all", one) for one in _axes(verdicts, cards, references=True)]
    if base is not None:
        readers = {BASE: accuracies(base, cards), layer: accuracies(verdicts, cards)}
        found += [("readers", one) for one in correlations.between_readers(readers)]
    return [
        _rounded(
            {
                "layer": layer,
                "scorer": verdicts.scorer,
                "kind": kind,
                "first": one.first,
                "second": one.second,
                "n": one.n,
                "pearson": one.pearson,
                "spearman": one.spearman,
            }
        )
        for kind, one in found
    ]


_FAILURES = """
SELECT system, access_mode, k, user_id, failure, side
FROM probe_failures WHERE layer = ? AND scorer = ? ORDER BY ALL
"""


def profile_rows(verdicts: Verdicts, failures: Iterable[tuple[Any, ...]], layer: str) -> Rows:
    """The rows of `probe_profiles`; `failures` as (system, mode, k, episode, failure, side)."""
    diagnosed: dict[Mode, list[Diagnosed]] = {}
    sheets = verdicts.sheets
    at: dict[str, int] = {}
    if sheets:
        at = {name: i for i, name in enumerate(next(iter(sheets.values())).episodes)}
    for system, access_mode, k, episode, failure, side in failures:
        known = None if side is None else Side(side)
        diagnosed.setdefault((system, access_mode, k), []).append(
            (at[episode], Failure(failure), known)
        )
    rows: Rows = []
    for mode, seed in verdicts.draws.items():
        found = build_profile(
            *mode, verdicts.scorer, sheets[mode].tally(), diagnosed.get(mode, []), seed=seed
        )
        place = _place(layer, verdicts.scorer, mode)
        rows.append({**place, "profile_json": found.model_dump_json()})
    return rows


def _tables(connection: DuckDBPyConnection, store: RunStore, layer: str) -> dict[str, Rows]:
    manifest = store.manifest
    tables: dict[str, Rows] = {
        name: []
        for name in ("probe_metrics", "probe_comparisons", "probe_correlations", "probe_profiles")
    }
    for protocol in Protocol:
        verdicts = load_verdicts(connection, layer, protocol.value, manifest.system_names)
        if not verdicts.modes:
            continue
        base = None
        if layer != BASE:
            base = load_verdicts(connection, BASE, protocol.value, manifest.system_names)
        failures = connection.execute(_FAILURES, [layer, protocol.value]).fetchall()
        tables["probe_metrics"] += metric_rows(verdicts, layer)
        tables["probe_comparisons"] += comparison_rows(verdicts, layer)
        tables["probe_correlations"] += correlation_rows(verdicts, base, layer, manifest.systems)
        tables["probe_profiles"] += profile_rows(verdicts, failures, layer)
    return tables


def score_paradigms(store: RunStore, layer: str = BASE) -> ScoreResult:
    """Compute and commit all figures of a layer of probe verdicts, for both scorers.

    Always computed anew: it costs seconds and its inputs are whatever is stored. With
    the base layer come the sizes of the stores. Counts in the result are of the
    scorer of the run's protocol; without a scored verdict its state is `no scored
    samples`. Systems below the coverage threshold keep their figures; `compare.ranking`
    refuses to rank them.
    """
    with connect(store, TABLES) as connection:
        tables = _tables(connection, store, layer)
    facts = json.dumps({"version": VERSION, "layer": layer, "seed": bootstrap.SEED})
    mark = hashlib.sha256(facts.encode()).hexdigest()
    store.commit(score_unit(layer), mark, tables)
    if layer == BASE:
        count_stores(store)
    covered = [
        row
        for row in tables["probe_metrics"]
        if (row["metric"], row["group_kind"], row["scorer"])
        == ("coverage", "", headline(store).value)
    ]
    n_scored = sum(row["n"] for row in covered)
    n_total = sum(row["n_total"] for row in covered)
    n_rows = sum(len(rows) for rows in tables.values())
    return ScoreResult(layer, "scored" if n_scored else NOTHING, n_scored, n_total, n_rows)
