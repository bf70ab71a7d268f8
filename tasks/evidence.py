"""What a run's figures are made of, by suite: for packing a run and for checking it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memprobe.types import Protocol, SuiteName
from storage.manifest import Manifest
from storage.runs import RunStore
from storage.schemas import UNIQUE
from tasks import score
from tasks.paradigms import score as probe_score
from tasks.paradigms.verdicts import TABLES, load_verdicts

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Tables whose rows have a hash each, those that figures are made of, and the making.

    `verdicts` has a row for each judged item in a layer; `values` are the columns of a figure
    that are compared.
    """

    named: tuple[str, ...]
    verdicts: str
    inputs: tuple[str, ...]
    figures: str
    values: tuple[str, ...]
    make: Callable[[Any, str, Manifest], list[Row]]
    score: Callable[[RunStore, str], object]

    def key(self, row: Row) -> tuple[Any, ...]:
        """A figure's name."""
        return tuple(row[name] for name in UNIQUE[self.figures])

    def layers(self, connection: Any) -> list[str]:
        """The layers of verdicts, `base` first."""
        rows = connection.execute(f"SELECT DISTINCT layer FROM {self.verdicts}").fetchall()
        return sorted((row[0] for row in rows), key=lambda layer: (layer != score.BASE, layer))


def _recovery(connection: Any, layer: str, manifest: Manifest) -> list[Row]:
    return score.metric_rows(connection, layer, manifest.config.seed)


def _paradigms(connection: Any, layer: str, manifest: Manifest) -> list[Row]:
    rows: list[Row] = []
    for scorer in Protocol:
        verdicts = load_verdicts(connection, layer, scorer.value, manifest.system_names)
        if verdicts.modes:
            rows += probe_score.metric_rows(verdicts, layer)
    return rows


EVIDENCE: dict[SuiteName, Evidence] = {
    "recovery": Evidence(
        named=("verdicts", "attributions", "metrics"),
        verdicts="verdicts",
        inputs=score.INPUTS,
        figures="metrics",
        values=("value", "std", "lo", "hi", "n_users", "n_scored", "n_total"),
        make=_recovery,
        score=score.score_run,
    ),
    "paradigms": Evidence(
        named=("answers", "probe_verdicts", "probe_metrics"),
        verdicts="probe_verdicts",
        inputs=TABLES,
        figures="probe_metrics",
        values=(*("value", "se", "lo", "hi", "n", "n_other", "n_episodes", "n_errors", "n_total"),),
        make=_paradigms,
        score=probe_score.score_paradigms,
    ),
}
