"""Agreement of judges: every two layers of verdicts on the same labels, item by item.

Two layers are compared when their labels are the same wherever both have an item
and some item was judged by another model; so a second judge is compared with the
first, and a second reading is not. A label "unknown" scores 0 by rule and is nobody's
verdict: it stays out of the scope `judged`, which is the one to read, and is in `all`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from memprobe.agreement import agreement
from memprobe.metrics import Interval
from storage.catalog import connect
from storage.runs import RunStore, Unit

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION = 1
JUDGED = "judged"
ALL = "all"
Rows = list[dict[str, Any]]

_PAIRS = """
SELECT a.layer, b.layer
FROM verdicts a JOIN verdicts b
    ON a.system = b.system AND a.user_id = b.user_id AND a.epoch = b.epoch
    AND a.access_mode = b.access_mode AND a.k IS NOT DISTINCT FROM b.k
    AND a.category = b.category AND a.dimension = b.dimension
WHERE a.layer < b.layer
GROUP BY ALL
HAVING bool_and(a.label IS NOT DISTINCT FROM b.label)
    AND bool_or(a.judge_model IS DISTINCT FROM b.judge_model)
ORDER BY ALL
"""

_ITEMS = """
SELECT a.system, a.access_mode, a.k, a.user_id, a.score, b.score,
       regexp_matches(trim(a.label, ' ."''' || chr(9) || chr(10)), '^unknown$', 'i')
FROM verdicts a JOIN verdicts b
    ON a.system = b.system AND a.user_id = b.user_id AND a.epoch = b.epoch
    AND a.access_mode = b.access_mode AND a.k IS NOT DISTINCT FROM b.k
    AND a.category = b.category AND a.dimension = b.dimension
WHERE a.layer = ? AND b.layer = ? AND a.status = 'scored' AND b.status = 'scored'
    AND a.label IS NOT NULL
ORDER BY a.system, a.access_mode, a.k NULLS FIRST, a.user_id, a.epoch, a.category, a.dimension
"""


def agreement_unit() -> Unit:
    """The unit of a run's table of agreement."""
    return Unit("judge_agreement")


def _bounds(name: str, interval: Interval | None) -> dict[str, float | None]:
    return {
        f"{name}_lo": None if interval is None else interval.lo,
        f"{name}_hi": None if interval is None else interval.hi,
    }


def _figures(items: Iterable[tuple[Any, ...]], seed: int) -> dict[str, Any] | None:
    rows = list(items)
    try:
        found = agreement(
            [r[3] for r in rows], [r[4] for r in rows], [r[5] for r in rows], seed=seed
        )
    except ValueError:
        # A judge of another scale: there is no agreement figure for it.
        return None
    return {
        "n_items": found.n_items,
        "n_users": found.n_clusters,
        "kappa": found.kappa,
        **_bounds("kappa", found.kappa_interval),
        "mean_error": found.mean_error,
        **_bounds("mean_error", found.mean_error_interval),
        "shift": found.shift,
        "exact": found.exact,
        "threshold": found.threshold,
        **_bounds("threshold", found.threshold_interval),
        "first_passed": found.first_passed,
        "second_passed": found.second_passed,
        "confusion_json": json.dumps(found.confusion),
    }


def agreement_rows(connection: DuckDBPyConnection, seed: int) -> Rows:
    """The rows of `judge_agreement`: each pair over everything, then by system and mode."""
    rows: Rows = []
    for first, second in connection.execute(_PAIRS).fetchall():
        items = connection.execute(_ITEMS, [first, second]).fetchall()
        modes = list(dict.fromkeys(item[:3] for item in items))
        for scope in (JUDGED, ALL):
            kept = [item for item in items if scope == ALL or not item[6]]
            for mode in (None, *modes):
                found = _figures((i for i in kept if mode is None or i[:3] == mode), seed)
                if found is None or not found["n_items"]:
                    continue
                system, access_mode, k = mode or (None, None, None)
                rows.append(
                    {
                        "first": first,
                        "second": second,
                        "scope": scope,
                        "system": system,
                        "access_mode": access_mode,
                        "k": k,
                        **found,
                    }
                )
    return rows


def score_agreement(store: RunStore) -> Rows:
    """Compute and commit the agreement of all judges of a run; no pair makes no row."""
    seed = store.manifest.config.seed
    with connect(store, ("verdicts",)) as connection:
        rows = agreement_rows(connection, seed)
    facts = json.dumps({"version": VERSION, "seed": seed})
    mark = hashlib.sha256(facts.encode()).hexdigest()
    store.commit(agreement_unit(), mark, {"judge_agreement": rows})
    return rows
