"""Score: the metrics of a run from its artifacts, with intervals, as the `metrics` table.

DuckDB counts and sums, numpy does the rest. Sums run over whole numbers (scores
in units of 2**-40), which add up to the same whatever the order; so equal
artifacts make an equal table.

Metrics (recovery protocol, metrics A to E; shares are in [0, 1]):

- `A` share of episodes that ended satisfied, `C` turns an episode, `C_satisfied`
  turns of the satisfied ones, `D` preference score of a turn (1 to 5), `items`
  and `chars` the memory's size and the length of an item: per user, then the
  mean over users. They belong to a system, not to an access mode.
- `B` recovery, overall and by category; `B_floor` the same with every unscored
  item counted as 0, a lower bound to read beside it; `recovery_rate` is
  ok / (ok + memory_failure) over all targets; `coverage` scored / attempted.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memprobe import metrics
from memprobe.metrics import Floats
from storage.catalog import connect
from storage.runs import RunStore, Unit
from tasks.context import RunContext
from tasks.footprint import count_stores

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION = 1
BASE = "base"
NOTHING = "no scored samples"
_UNIT = 2.0**40
_DIGITS = 12
"""Stored digits; the last bits of a matrix product depend on the processor."""

INPUTS = (
    *("verdicts", "targets", "attributions", "episodes", "preference_scores", "turn_scores"),
    *("memory_items", "import_issues"),
)

Mode = tuple[str, int | None]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """What scoring a layer came to; `state` is `scored` or `no scored samples`."""

    layer: str
    state: str
    n_scored: int
    n_total: int
    rows: int

    @property
    def coverage(self) -> float | None:
        """Scored share of the attempted items; None when there were none."""
        return metrics.coverage(self.n_scored, self.n_total)


@dataclass(frozen=True, slots=True)
class ModeScores:
    """One system's recovery in one mode, by user and category.

    The arrays have shape (users, categories): sums of scores, scored items,
    attempted items.
    """

    system: str
    access_mode: str
    k: int | None
    users: tuple[str, ...]
    categories: tuple[str, ...]
    sums: Floats
    scored: Floats
    total: Floats

    def category_means(self) -> Floats:
        """Mean over scored items; NaN where a user has none."""
        return _ratio(self.sums, self.scored)

    def user_scores(self) -> Floats:
        """B of each user, shape (users,); NaN where nothing was scored."""
        return metrics.row_means(self.category_means())

    def by_user(self) -> dict[str, float | None]:
        """B by user id."""
        found = zip(self.users, self.user_scores().tolist(), strict=True)
        return {user: None if math.isnan(b) else b for user, b in found}


def _ratio(top: Floats, bottom: Floats) -> Floats:
    out: Floats = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


# A user whose unit broke off has no verdicts; its targets were attempted all the same.
_VERDICTS = """
WITH judged AS (FROM verdicts WHERE layer = ?),
absent AS (
    SELECT mode.*, people.user_id
    FROM (SELECT DISTINCT system, access_mode, k FROM judged) mode
    CROSS JOIN (SELECT DISTINCT user_id FROM targets) people
    EXCEPT
    SELECT DISTINCT system, access_mode, k, user_id FROM judged
)
SELECT system, access_mode, k, user_id, category,
       coalesce(sum(round(score * 1099511627776)::BIGINT) FILTER (status = 'scored'), 0)::BIGINT,
       count(*) FILTER (status = 'scored'),
       count(*)
FROM judged
GROUP BY ALL
UNION ALL
SELECT a.system, a.access_mode, a.k, a.user_id, t.category, 0, 0, count(*)
FROM absent a JOIN targets t USING (user_id)
GROUP BY ALL
ORDER BY system, access_mode, k NULLS FIRST, user_id, category
"""


def mode_scores(connection: DuckDBPyConnection, layer: str = BASE) -> list[ModeScores]:
    """All (system, mode, k) of a layer, users and categories sorted."""
    rows = connection.execute(_VERDICTS, [layer]).fetchall()
    grouped: dict[tuple[str, str, int | None], list[tuple[Any, ...]]] = {}
    for row in rows:
        grouped.setdefault((row[0], row[1], row[2]), []).append(row[3:])
    out = []
    for (system, access_mode, k), cells in grouped.items():
        users = tuple(sorted({cell[0] for cell in cells}))
        categories = tuple(sorted({cell[1] for cell in cells}))
        user_at = {user: i for i, user in enumerate(users)}
        category_at = {category: i for i, category in enumerate(categories)}
        filled = np.zeros((3, len(users), len(categories)))
        for user, category, *numbers in cells:
            filled[:, user_at[user], category_at[category]] = numbers
        out.append(
            ModeScores(
                system,
                access_mode,
                k,
                users,
                categories,
                filled[0] / _UNIT,
                filled[1],
                filled[2],
            )
        )
    return out


_ROLLOUT = """
SELECT system, user_id, count(*) FILTER (status = 'scored'), count(*),
       count(*) FILTER (status = 'scored' AND end_reason = 'satisfied'),
       coalesce(sum(n_turns) FILTER (status = 'scored'), 0)::BIGINT,
       coalesce(sum(n_turns) FILTER (status = 'scored' AND end_reason = 'satisfied'), 0)::BIGINT,
       count(DISTINCT epoch)
FROM episodes GROUP BY ALL ORDER BY system, user_id
"""

# A turn of which every preference is "na" has no value and was not missed either.
# Of an imported turn there may be only the mean over its preferences.
_PREFERENCE = """
WITH turn AS (
    SELECT system, user_id, epoch, episode, turn,
           round(avg(score) FILTER (status = 'scored') * 1099511627776)::BIGINT AS score,
           bool_or(status = 'unscored') AS missed
    FROM preference_scores GROUP BY ALL
    UNION ALL
    SELECT system, user_id, epoch, episode, turn,
           round(score * 1099511627776)::BIGINT, status = 'unscored'
    FROM turn_scores ANTI JOIN preference_scores USING (system, user_id, epoch, episode, turn)
)
SELECT system, user_id, coalesce(sum(score), 0)::BIGINT, count(score),
       count(*) FILTER (score IS NOT NULL OR missed)
FROM turn GROUP BY ALL
"""

_FOOTPRINT = """
SELECT system, user_id, count(*), sum(chars)::BIGINT FROM memory_items GROUP BY ALL
"""

# A store of which an import lost something is unknown; it is no empty and no smaller store.
_LOST = """
SELECT DISTINCT system, user_id FROM import_issues
WHERE table_name = 'memory_items' AND severity = 'lost' AND user_id <> ''
"""

_ATTRIBUTION = """
SELECT system, access_mode, k, user_id, count(*) FILTER (label = 'ok'),
       count(*) FILTER (label = 'memory_failure'), count(*) FILTER (status = 'scored'), count(*)
FROM attributions WHERE layer = ? GROUP BY ALL
"""


class _System:
    """Columns of one system's statistics over its users, and the rows they become."""

    def __init__(self, layer: str, system: str, users: Sequence[str]) -> None:
        self.layer = layer
        self.system = system
        self.users = sorted(users)
        self.at = {user: i for i, user in enumerate(self.users)}
        self.rows: Rows = []
        self.tops: list[Floats] = []
        self.bottoms: list[Floats] = []
        self.measured: list[int] = []

    def _row(self, metric: str, mode: Mode | None, category: str | None, n: int, of: int) -> None:
        access_mode, k = mode if mode else (None, None)
        self.rows.append(
            {
                "layer": self.layer,
                "system": self.system,
                "access_mode": access_mode,
                "k": k,
                "metric": metric,
                "category": category,
                "value": None,
                "std": None,
                "lo": None,
                "hi": None,
                "n_users": 0,
                "n_scored": int(n),
                "n_total": int(of),
            }
        )

    def means(
        self,
        metric: str,
        values: Floats,
        counts: tuple[float, float],
        mode: Mode | None = None,
        category: str | None = None,
    ) -> None:
        """A statistic that is the mean over users of one value a user, NaN for none."""
        present = ~np.isnan(values)
        self._row(metric, mode, category, *map(int, counts))
        row = self.rows[-1]
        row["n_users"] = int(present.sum())
        row["value"], row["std"] = metrics.mean(values), metrics.sample_std(values)
        self._column(np.where(present, values, 0.0), present.astype(np.float64))

    def pooled(
        self, metric: str, top: Floats, bottom: Floats, counts: tuple[float, float], mode: Mode
    ) -> None:
        """A statistic that is a ratio of sums over all users."""
        self._row(metric, mode, None, *map(int, counts))
        row = self.rows[-1]
        row["n_users"] = int((bottom > 0).sum())
        row["value"] = float(top.sum() / bottom.sum()) if bottom.sum() else None
        self._column(top, bottom)

    def coverage(self, scored: Floats, total: Floats, mode: Mode) -> None:
        """Scored over attempted; a count has no interval."""
        self._row("coverage", mode, None, int(scored.sum()), int(total.sum()))
        self.rows[-1]["n_users"] = int((total.sum(axis=1) > 0).sum())
        self.rows[-1]["value"] = metrics.coverage(int(scored.sum()), int(total.sum()))

    def _column(self, top: Floats, bottom: Floats) -> None:
        self.tops.append(top)
        self.bottoms.append(bottom)
        self.measured.append(len(self.rows) - 1)

    def spread(self, values: Floats, users: Sequence[str]) -> Floats:
        """Values of some users as a column over all users of the system."""
        out = np.full((len(self.users), *values.shape[1:]), np.nan)
        out[[self.at[user] for user in users]] = values
        return out

    def finish(self, seed: int) -> Rows:
        """The rows with intervals; all statistics see the same resamples of users."""
        if self.measured:
            samples = metrics.bootstrap_ratios(
                np.column_stack(self.tops), np.column_stack(self.bottoms), seed=seed
            )
            for column, index in enumerate(self.measured):
                row = self.rows[index]
                found = metrics.interval(samples[:, column]) if row["n_users"] > 1 else None
                if found is not None:
                    row["lo"], row["hi"] = found.lo, found.hi
        for row in self.rows:
            for name in ("value", "std", "lo", "hi"):
                if row[name] is not None:
                    row[name] = round(row[name], _DIGITS)
        return self.rows


def _recovery(system: _System, scores: ModeScores) -> None:
    mode = (scores.access_mode, scores.k)
    by_category = system.spread(scores.category_means(), scores.users)
    counts = (float(scores.scored.sum()), float(scores.total.sum()))
    system.means("B", metrics.row_means(by_category), counts, mode)
    floor = metrics.row_means(_ratio(scores.sums, scores.total))
    system.means("B_floor", system.spread(floor, scores.users), counts, mode)
    for place, category in enumerate(scores.categories):
        system.means(
            "B",
            by_category[:, place],
            (float(scores.scored[:, place].sum()), float(scores.total[:, place].sum())),
            mode,
            category,
        )
    system.coverage(scores.scored, scores.total, mode)


def _by_system(rows: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    out: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        out.setdefault(row[0], []).append(row[1:])
    return out


def _columns(rows: list[tuple[Any, ...]], width: int) -> tuple[list[str], Floats]:
    """Rows (user, numbers...) as users and an array of shape (users, width)."""
    numbers = np.array([row[1:] for row in rows], dtype=np.float64).reshape(len(rows), width)
    return [row[0] for row in rows], numbers


def _rollout(
    system: _System,
    episodes: list[tuple[Any, ...]],
    turns: list[tuple[Any, ...]],
    stores: list[tuple[Any, ...]],
    lost: frozenset[str],
) -> None:
    users, numbers = _columns(episodes, 6)
    scored, total, satisfied, all_turns, satisfied_turns, epochs = numbers.T
    counts = (float(scored.sum()), float(total.sum()))
    for metric, top, bottom in (
        ("A", satisfied, scored),
        ("C", all_turns, scored),
        ("C_satisfied", satisfied_turns, satisfied),
    ):
        n = (float(bottom.sum()), counts[1])
        system.means(metric, system.spread(_ratio(top, bottom), users), n)
    judged, numbers = _columns(turns, 3)
    values = _ratio(numbers[:, 0] / _UNIT, numbers[:, 1])
    n = (float(numbers[:, 1].sum()), float(numbers[:, 2].sum()))
    system.means("D", system.spread(values, judged), n)
    owners, numbers = _columns(stores, 2)
    items = np.zeros(len(system.users))
    items[[system.at[user] for user in owners]] = numbers[:, 0]
    items[[system.at[user] for user in system.users if user in lost]] = np.nan
    # A store that holds nothing has no items, but no length of an item either.
    n_stores = float(len(users))
    per_epoch = system.spread(epochs, users)
    n_known = n_stores - len(lost & set(users))
    system.means("items", items / per_epoch, (n_known, n_stores))
    lengths = system.spread(_ratio(numbers[:, 1], numbers[:, 0]), owners)
    lengths[[system.at[user] for user in owners if user in lost]] = np.nan
    system.means("chars", lengths, (float(len(set(owners) - lost)), n_stores))


def _blame(system: _System, rows: dict[Mode, list[tuple[Any, ...]]], modes: Sequence[Mode]) -> None:
    for mode in modes:
        users, numbers = _columns(rows.get(mode, []), 4)
        padded = np.nan_to_num(system.spread(numbers, users))
        ok, failed, scored, total = padded.T
        system.pooled(
            "recovery_rate", ok, ok + failed, (float(scored.sum()), float(total.sum())), mode
        )


def metric_rows(connection: DuckDBPyConnection, layer: str, seed: int) -> Rows:
    """The rows of the `metrics` table for a layer; what belongs to a rollout only in `base`."""
    scores = mode_scores(connection, layer)
    base = layer == BASE
    episodes = _by_system(connection.execute(_ROLLOUT).fetchall()) if base else {}
    turns = _by_system(connection.execute(_PREFERENCE).fetchall()) if base else {}
    stores = _by_system(connection.execute(_FOOTPRINT).fetchall()) if base else {}
    lost = _by_system(connection.execute(_LOST).fetchall()) if base else {}
    blamed = _by_system(connection.execute(_ATTRIBUTION, [layer]).fetchall())
    rows: Rows = []
    for name in sorted({s.system for s in scores} | episodes.keys()):
        mine = [s for s in scores if s.system == name]
        people = {user for s in mine for user in s.users}
        people |= {row[0] for table in (episodes, turns, stores) for row in table.get(name, [])}
        by_mode: dict[Mode, list[tuple[Any, ...]]] = {}
        for access_mode, k, *rest in blamed.get(name, []):
            if rest[0] in people:
                by_mode.setdefault((access_mode, k), []).append(tuple(rest))
        system = _System(layer, name, sorted(people))
        if name in episodes:
            gone = frozenset(row[0] for row in lost.get(name, []))
            _rollout(system, episodes[name], turns.get(name, []), stores.get(name, []), gone)
        for one in mine:
            _recovery(system, one)
        if by_mode:
            _blame(system, by_mode, [(s.access_mode, s.k) for s in mine])
        rows += system.finish(seed)
    return rows


def score_unit(layer: str = BASE) -> Unit:
    """The unit of a layer's metrics."""
    return Unit("score", variant="" if layer == BASE else layer)


def score_run(target: RunContext | RunStore, layer: str = BASE) -> ScoreResult:
    """Compute and commit the metrics of a layer of verdicts.

    Always computed anew: it costs seconds and its inputs are whatever is stored. With
    the base layer come the sizes of the stores, of which only new ones are counted.
    Without a scored verdict the state is `no scored samples` and no figure is
    made up in its place.
    """
    store = target.store if isinstance(target, RunContext) else target
    seed = store.manifest.config.seed
    with connect(store, INPUTS) as connection:
        rows = metric_rows(connection, layer, seed)
    facts = json.dumps({"version": VERSION, "layer": layer, "seed": seed})
    mark = hashlib.sha256(facts.encode()).hexdigest()
    store.commit(score_unit(layer), mark, {"metrics": rows})
    if layer == BASE:
        count_stores(store)
    covered = [row for row in rows if row["metric"] == "coverage"]
    n_scored = sum(row["n_scored"] for row in covered)
    n_total = sum(row["n_total"] for row in covered)
    state = "scored" if n_scored else NOTHING
    return ScoreResult(layer, state, n_scored, n_total, len(rows))
