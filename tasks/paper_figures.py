"""The figures of the published recovery tables, by the formulas that reproduce them.

Per-user values come first, then statistics over users: means, the sample
standard deviation, lower order statistics in Table 14 and the ordinary median in
Appendix H. Any recovery run has them; what a run has no records of is a missing
cell with its reason, never a zero.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memprobe import metrics
from memprobe.types import AccessMode, AttributionLabel, Category
from storage.catalog import connect
from storage.runs import RunStore
from tasks.score import BASE, ModeScores, mode_scores

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CATEGORIES = tuple(category.value for category in Category)
LABELS = tuple(
    label.value
    for label in (
        AttributionLabel.OK,
        AttributionLabel.MEMORY_FAILURE,
        AttributionLabel.TASK_DESIGN_FAILURE,
        AttributionLabel.AGENT_ELICITATION_FAILURE,
        AttributionLabel.SIMULATOR_TOO_STRICT,
    )
)
"""The attribution labels that the published tables have a column for."""
QUANTILES = ("mean", "median", "p90", "max")
GAPS = ("mean", "median", "min", "max")

_TABLES = (
    *("verdicts", "targets", "attributions", "episodes", "preference_scores", "turn_scores"),
    *("memory_items", "import_issues"),
)
NO_VERDICTS = "no verdicts in this mode"
NO_RETRIEVAL = "the system has no retrieval of its own"
NO_ATTRIBUTION = "no attributions in this mode"
NO_EPISODES = "no scored episodes"
NO_PREFERENCES = "no scored preferences"
NO_STORES = "no store is known"
NO_ITEMS = "the stores hold nothing"
ONE_USER = "no spread of one user"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure: its value, or why there is none.

    `n` is what it is made of (users; targets for a count), `total` what was
    attempted of it.
    """

    value: float | None
    n: int
    total: int
    why: str = ""


Figures = dict[str, Any]
"""Nested as the published tables: table, row, column, down to a `Cell`."""

PerUser = Mapping[str, float]

_ROLLOUT = """
SELECT system, user_id, count(*) FILTER (status = 'scored'), count(*),
       count(*) FILTER (status = 'scored' AND end_reason = 'satisfied'),
       coalesce(sum(n_turns) FILTER (status = 'scored'), 0)::BIGINT,
       count(DISTINCT epoch)
FROM episodes GROUP BY ALL ORDER BY ALL
"""
_PREFERENCE = """
WITH turn AS (
    SELECT system, user_id, epoch, episode, turn,
           avg(score) FILTER (status = 'scored') AS score
    FROM preference_scores GROUP BY ALL
    UNION ALL
    SELECT system, user_id, epoch, episode, turn, score
    FROM turn_scores ANTI JOIN preference_scores USING (system, user_id, epoch, episode, turn)
)
SELECT system, user_id, avg(score) FROM turn WHERE score IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
_STORES = """
SELECT system, user_id, count(*), sum(chars)::BIGINT FROM memory_items GROUP BY ALL ORDER BY ALL
"""
# A store of which an import lost something is not a smaller store.
_LOST = """
SELECT DISTINCT system, user_id FROM import_issues
WHERE table_name = 'memory_items' AND severity = 'lost'
"""
_BLAME = """
SELECT system, access_mode, k, category, label, count(*) FROM attributions
WHERE layer = ? GROUP BY ALL ORDER BY ALL
"""


def _mean(values: PerUser, total: int, why: str) -> Cell:
    return Cell(metrics.mean([*values.values()]), len(values), total, "" if values else why)


def _std(values: PerUser, total: int, why: str) -> Cell:
    std = metrics.sample_std([*values.values()])
    reason = "" if std is not None else (ONE_USER if values else why)
    return Cell(std, len(values), total, reason)


def _statistic(values: PerUser, name: str, total: int, why: str, *, lower: bool) -> Cell:
    """A statistic over users; `lower` takes quantiles as order statistics."""
    numbers = sorted(values.values())
    if not numbers:
        return Cell(None, 0, total, why)
    found: float | None
    match name:
        case "mean":
            found = metrics.mean(numbers)
        case "median" if not lower:
            found = statistics.median(numbers)
        case "median":
            found = metrics.quantile_disc(numbers, 0.5)
        case "p90":
            found = metrics.quantile_disc(numbers, 0.9)
        case _:
            found = numbers[0] if name == "min" else numbers[-1]
    return Cell(found, len(numbers), total)


class RunValues:
    """The per-user values of one run, and what they are counted out of."""

    def __init__(self, store: RunStore, connection: DuckDBPyConnection, layer: str) -> None:
        manifest = store.manifest
        self.cards = manifest.systems
        self.scores: dict[tuple[str, str, int | None], ModeScores] = {
            (s.system, s.access_mode, s.k): s for s in mode_scores(connection, layer)
        }
        self.a: dict[str, dict[str, float]] = defaultdict(dict)
        self.c: dict[str, dict[str, float]] = defaultdict(dict)
        self.d: dict[str, dict[str, float]] = defaultdict(dict)
        self.items: dict[str, dict[str, float]] = defaultdict(dict)
        self.chars: dict[str, dict[str, float]] = defaultdict(dict)
        self.users: dict[str, set[str]] = defaultdict(set)
        for scores in self.scores.values():
            self.users[scores.system] |= set(scores.users)
        epochs: dict[tuple[str, str], int] = {}
        for system, user, n, _, satisfied, turns, stores in connection.execute(_ROLLOUT).fetchall():
            self.users[system].add(user)
            epochs[system, user] = stores
            if n:
                self.a[system][user] = satisfied / n
                self.c[system][user] = turns / n
        for system, user, d in connection.execute(_PREFERENCE).fetchall():
            self.d[system][user] = d
        held = {(s, u): (n, chars) for s, u, n, chars in connection.execute(_STORES).fetchall()}
        lost = set(connection.execute(_LOST).fetchall())
        for (system, user), n_stores in epochs.items():
            if (system, user) in lost or (system, "") in lost:
                continue
            n, chars = held.get((system, user), (0, 0))
            self.items[system][user] = n / n_stores
            if n:
                self.chars[system][user] = chars / n
        self.blame: dict[tuple[str, str, int | None], dict[tuple[str, str], int]] = {}
        for system, mode, k, category, label, n in connection.execute(_BLAME, [layer]).fetchall():
            self.blame.setdefault((system, mode, k), {})[category, label] = n
        known = self.users.keys() | {key[0] for key in self.blame}
        self.systems = [s for s in manifest.system_names if s in known]
        self.systems += sorted(known - set(self.systems))

    def modes(self, system: str) -> list[tuple[str, str, int | None]]:
        """A system's rows: name, access mode, k. One k is called `retrieve`, several `retrieve@k`.

        A whole-store row is there even without verdicts, so that what is missing shows.
        """
        keys = self.scores.keys() | self.blame.keys()
        ks = sorted(k for s, mode, k in keys if s == system and mode == "retrieve" and k)
        out: list[tuple[str, str, int | None]] = [("dump_all", "dump_all", None)]
        if len(ks) == 1:
            return [*out, ("retrieve", "retrieve", ks[0])]
        return [*out, *((f"retrieve@{k}", "retrieve", k) for k in ks)]

    def b(self, system: str, mode: str, k: int | None) -> dict[str, float]:
        """B of each user that has one."""
        scores = self.scores.get((system, mode, k))
        found = scores.by_user() if scores else {}
        return {user: b for user, b in found.items() if b is not None}

    def category(self, system: str, mode: str, k: int | None, category: str) -> dict[str, float]:
        """A category's mean score of each user that has one."""
        scores = self.scores.get((system, mode, k))
        if scores is None or category not in scores.categories:
            return {}
        means = scores.category_means()[:, scores.categories.index(category)].tolist()
        found = zip(scores.users, means, strict=True)
        return {user: mean for user, mean in found if not math.isnan(mean)}

    def missing(self, system: str, mode: str) -> str:
        """Why a system has no verdicts in a mode."""
        card = self.cards.get(system)
        if mode == AccessMode.RETRIEVE.value and card is not None and not card.retrieve:
            return NO_RETRIEVAL
        return NO_VERDICTS


def _table2(run: RunValues) -> Figures:
    out: Figures = {}
    for system in run.systems:
        total = len(run.users[system])
        percent = {user: 100 * a for user, a in run.a[system].items()}
        row: dict[str, Cell] = {"A_pct": _mean(percent, total, NO_EPISODES)}
        columns: list[tuple[str, PerUser, str]] = [
            ("D", run.d[system], NO_PREFERENCES),
            ("C", run.c[system], NO_EPISODES),
        ]
        modes = run.modes(system)
        if len(modes) == 1:
            modes.append(("retrieve", "retrieve", None))
        for name, mode, k in modes:
            short = name.replace("dump_all", "dump")
            columns.append((f"B_{short}", run.b(system, mode, k), run.missing(system, mode)))
        for name, values, why in columns:
            row[f"{name}_mean"] = _mean(values, total, why)
            row[f"{name}_std"] = _std(values, total, why)
        row["items_mean"] = _mean(run.items[system], total, NO_STORES)
        empty = NO_ITEMS if run.items[system] else NO_STORES
        row["chars_mean"] = _mean(run.chars[system], total, empty)
        out[system] = row
    return out


def _table3(run: RunValues) -> Figures:
    return {
        f"{system}/{name}": {
            category: [
                make(
                    run.category(system, mode, k, category),
                    len(run.users[system]),
                    run.missing(system, mode),
                )
                for make in (_mean, _std)
            ]
            for category in CATEGORIES
        }
        for system in run.systems
        for name, mode, k in run.modes(system)
    }


def _counts(counted: Mapping[tuple[str, str], int], category: str | None) -> dict[str, Cell]:
    mine = {key: n for key, n in counted.items() if category in (None, key[0])}
    total = sum(mine.values())
    why = "" if total else NO_ATTRIBUTION
    by_label: dict[str, int] = defaultdict(int)
    for (_, label), n in mine.items():
        by_label[label] += n
    cells = {label: Cell(by_label[label] if total else None, total, total, why) for label in LABELS}
    others = total - sum(by_label[label] for label in LABELS)
    if others:
        cells["other"] = Cell(others, total, total)
    return cells


def _table4(run: RunValues) -> Figures:
    out: Figures = {}
    for system in run.systems:
        for name, mode, k in run.modes(system):
            cells = _counts(run.blame.get((system, mode, k), {}), None)
            ok, failed = cells[LABELS[0]], cells[LABELS[1]]
            given = int((ok.value or 0) + (failed.value or 0))
            rate = 100 * (ok.value or 0) / given if given else None
            why = "" if given else (ok.why or "neither recovered nor lost by the memory")
            out[f"{system}/{name}"] = {
                **cells,
                "recovery_rate_pct": Cell(rate, given, ok.total, why),
            }
    return out


def _table13(run: RunValues) -> Figures:
    return {
        system: {
            category: _counts(run.blame.get((system, "dump_all", None), {}), category)
            for category in CATEGORIES
        }
        for system in run.systems
    }


def _table14(run: RunValues) -> Figures:
    out: Figures = {}
    for system in run.systems:
        total = len(run.users[system])
        if not run.chars[system] and run.items[system]:
            # A baseline that keeps nothing has no row in the published table.
            continue
        out[system] = {
            kind: [_statistic(values, q, total, NO_STORES, lower=True) for q in QUANTILES]
            for kind, values in (("items", run.items[system]), ("chars", run.chars[system]))
        }
    return out


def _gap(run: RunValues) -> Figures:
    out: Figures = {}
    for system in run.systems:
        modes = run.modes(system)
        whole = run.b(system, "dump_all", None)
        for name, mode, k in modes[1:]:
            part = run.b(system, mode, k)
            gaps = {user: whole[user] - part[user] for user in sorted(whole.keys() & part.keys())}
            label = system if len(modes) == 2 else f"{system}/{name}"
            out[label] = {
                q: _statistic(gaps, q, len(run.users[system]), NO_VERDICTS, lower=False)
                for q in GAPS
            }
    return out


@dataclass(frozen=True, slots=True)
class PaperFigures:
    """All tables of one run and layer, the users behind them, and the systems in their order."""

    run: str
    layer: str
    users: tuple[str, ...]
    systems: tuple[str, ...]
    tables: Figures


def paper_figures(store: RunStore, layer: str = BASE) -> PaperFigures:
    """Compute the tables from a run's artifacts; takes well under a second for 50 users."""
    with connect(store, _TABLES) as connection:
        run = RunValues(store, connection, layer)
    return PaperFigures(
        run=store.name,
        layer=layer,
        users=tuple(sorted({user for users in run.users.values() for user in users})),
        systems=tuple(run.systems),
        tables={
            "table2": _table2(run),
            "table3": _table3(run),
            "table4": _table4(run),
            "table13": _table13(run),
            "table14": _table14(run),
            "gap": _gap(run),
        },
    )


Path = tuple[Any, ...]


def leaves(figures: Mapping[str, Any] | Sequence[Any], path: Path = ()) -> dict[Path, Any]:
    """Nested figures by their whole path, e.g. `("table3", "amem/retrieve", "self_model", 0)`."""
    out: dict[Path, Any] = {}
    pairs: Any = figures.items() if isinstance(figures, Mapping) else enumerate(figures)
    for key, value in pairs:
        if isinstance(value, (Mapping, list, tuple)):
            out |= leaves(value, (*path, key))
        else:
            out[(*path, key)] = value
    return out
