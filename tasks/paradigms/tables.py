"""The figures of the published paradigms tables from a run's stored verdicts.

Everything is in percent with its n. Of an imported run the published verdicts
stand in front; of a run of one's own those of the paper scorer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memprobe.errors import UsageError
from memprobe.paradigms import metrics
from memprobe.paradigms.metrics import Figure, Rate, Result
from memprobe.paradigms.scoring.results import Match
from memprobe.paradigms.spec import Expected, Paradigm, ProbeType
from memprobe.types import Protocol
from storage.catalog import connect
from storage.runs import RunStore
from tasks.paper_figures import Cell, Figures, PaperFigures
from tasks.paper_tables import PaperTable, Printed, table_of
from tasks.paradigms.verdicts import FULL_CONTEXT, Mode, Verdicts, stored_verdicts

BASE, PUBLISHED = "base", "published"
NONE, ERRORS = "no such probe", "no readable answer"
NO_REFERENCE = "the run has no full_context"
ALL = "all"

_HEADS = {
    "overall": ("Accuracy and balance", ("accuracy", "plasticity", "stability", "sp_balance",
                                         "under_update", "over_update", "delta_fc", "rag_norm")),
    "plasticity": ("Plasticity: probes that should see an update", (ALL, *Paradigm)),
    "stability": ("Stability: probes that should see the old value", (ALL, *Paradigm)),
    "fidelity": ("Fidelity", ("historical", "source_fidelity", "temporal", "partial")),
    "probe": ("Accuracy by probe", tuple(ProbeType)),
    "paradigm": ("Accuracy by paradigm", tuple(Paradigm)),
    "split": ("Split updates", ("split", "non_split", "split_delta")),
}  # fmt: skip
_NAMES = {
    "sp_balance": "SP balance",
    "delta_fc": "Delta FC",
    "rag_norm": "RAG norm",
    "split_delta": "Split - non-split",
    "non_split": "Non-split",
    "current_value": "Current",
    "previous_value": "Previous",
    "conflict_value": "Conflict",
}


def front(store: RunStore) -> tuple[str, str]:
    """Layer and scorer of the figures that stand in front.

    Raises `UsageError` for a run without probes' verdicts.
    """
    if store.manifest.config.suite != "paradigms":
        raise UsageError(
            f"run {store.name!r} is of the {store.manifest.config.suite} suite; "
            f"memprobe tables {store.name} --paper {store.manifest.config.suite}"
        )
    layers = layers_of(store)
    if not layers:
        raise UsageError(f"run {store.name!r} has no verdicts yet")
    return (PUBLISHED if PUBLISHED in layers else BASE), Protocol.PAPER.value


def layers_of(store: RunStore) -> list[str]:
    """The layers that a run has verdicts in, by name."""
    with connect(store, ("probe_verdicts",)) as connection:
        found = connection.execute("SELECT DISTINCT layer FROM probe_verdicts ORDER BY 1")
        return [row[0] for row in found.fetchall()]


def _cell(rate: Rate, attempted: int) -> Cell:
    if rate.value is None:
        return Cell(None, 0, attempted, ERRORS if attempted else NONE)
    return Cell(100 * rate.value, rate.n, attempted)


def _asks(probe: ProbeType) -> Callable[[Result], bool]:
    return lambda result: result.probe_type is probe


def _of(paradigm: Paradigm, expected: Expected | None = None) -> Callable[[Result], bool]:
    return lambda result: (
        result.paradigm is paradigm and (expected is None or result.expected is expected)
    )


class _Row:
    """One mode's figures."""

    def __init__(self, results: Sequence[Result], full: Sequence[Result] | None) -> None:
        self.results = [r for r in results if r.score.match is not Match.SKIP]
        self.full = full
        self.summary = metrics.summarise(self.results)

    def _over(self, keep: Callable[[Result], bool]) -> Cell:
        mine = [r for r in self.results if keep(r)]
        return _cell(metrics.accuracy(mine), len(mine))

    def _figure(self, figure: Figure, *behind: Cell) -> Cell:
        n, total = sum(cell.n for cell in behind), sum(cell.total for cell in behind)
        if figure.value is None:
            why = next((cell.why for cell in behind if cell.why), NONE)
            return Cell(None, n, total, why)
        return Cell(100 * figure.value, n, total)

    def cells(self) -> dict[str, dict[str, Cell]]:
        """All cells, by table and column."""
        one = self.summary
        plain = self._over(lambda _: True)
        plastic = self._over(lambda r: r.expected is Expected.UPDATE)
        stable = self._over(lambda r: r.expected is Expected.PRESERVE)
        split, whole = self._over(lambda r: r.split), self._over(lambda r: not r.split)
        of_source = sum(
            r.probe_type in (ProbeType.SOURCE, ProbeType.CONFLICT) for r in self.results
        )
        return {
            "overall": {
                "accuracy": plain,
                "plasticity": plastic,
                "stability": stable,
                "sp_balance": self._figure(one.sp_balance, plastic, stable),
                "under_update": _cell(one.under_update, plastic.total),
                "over_update": _cell(one.over_update, stable.total),
                **self._against(plain),
            },
            "plasticity": {ALL: plastic, **self._by_paradigm(Expected.UPDATE)},
            "stability": {ALL: stable, **self._by_paradigm(Expected.PRESERVE)},
            "fidelity": {
                "historical": self._over(_asks(ProbeType.PREVIOUS)),
                "source_fidelity": _cell(one.source_fidelity, of_source),
                "temporal": self._over(_asks(ProbeType.TEMPORAL)),
                "partial": _cell(one.partial, plain.total),
            },
            "probe": {p.value: self._over(_asks(p)) for p in ProbeType},
            "paradigm": {p.value: self._over(_of(p)) for p in Paradigm},
            "split": {
                "split": split,
                "non_split": whole,
                "split_delta": self._figure(one.split_delta, split, whole),
            },
        }

    def _by_paradigm(self, expected: Expected) -> dict[str, Cell]:
        return {p.value: self._over(_of(p, expected)) for p in Paradigm}

    def _against(self, plain: Cell) -> dict[str, Cell]:
        """Against full context, each over its own verdicts, as published."""
        if self.full is None:
            missing = Cell(None, 0, 0, NO_REFERENCE)
            return {"delta_fc": missing, "rag_norm": missing}
        return {
            "delta_fc": self._figure(metrics.delta_fc(self.full, self.results), plain),
            "rag_norm": self._figure(metrics.rag_norm(self.full, self.results), plain),
        }


def mode_names(modes: Sequence[Mode]) -> dict[Mode, str]:
    """A row's name for each mode: the system, and how it was read where it was in several ways."""
    systems = [mode[0] for mode in modes]
    return {
        mode: mode[0]
        if systems.count(mode[0]) == 1
        else f"{mode[0]}/{mode[1]}" + ("" if mode[2] is None else f"@{mode[2]}")
        for mode in modes
    }


def paradigm_figures(store: RunStore, layer: str, scorer: str) -> PaperFigures:
    """The tables of one layer and scorer; `users` are the episodes."""
    return figures_of(store.name, layer, stored_verdicts(store, layer, scorer))


def figures_of(run: str, layer: str, verdicts: Verdicts) -> PaperFigures:
    """The tables of verdicts that are at hand."""
    names = mode_names(verdicts.modes)
    tables: Figures = {name: {} for name in _HEADS}
    for mode, results in verdicts.results.items():
        row = _Row(results, _reference(verdicts, mode))
        for table, cells in row.cells().items():
            tables[table][names[mode]] = cells
    episodes = tuple(dict.fromkeys(slot[0] for slot in verdicts.slots))
    systems = tuple(dict.fromkeys(mode[0] for mode in verdicts.modes))
    return PaperFigures(run, layer, episodes, systems, tables)


def _reference(verdicts: Verdicts, mode: Mode) -> Sequence[Result] | None:
    """Full context as the same report has it (`mem0@gpt54`), else that of the run."""
    report = mode[0].partition("@")[2]
    own = f"{FULL_CONTEXT}@{report}"
    found = next((m for m in verdicts.modes if report and m[0] == own), verdicts.full_context)
    return None if found is None else verdicts.results[found]


def layout(figures: PaperFigures, title: str) -> list[PaperTable]:
    """The tables in the order of the paper; `title` tells whose verdicts they count."""
    made: list[PaperTable] = []
    for name, (head, columns) in _HEADS.items():
        rows: list[tuple[str, list[Any]]] = [
            (label, [Printed((cells[str(column)],), 1) for column in columns])
            for label, cells in figures.tables[name].items()
        ]
        heads = [_head(str(column)) for column in columns]
        made.append(table_of(name, f"{head}, % ({title})", heads, rows))
    return made


def _head(column: str) -> str:
    return _NAMES.get(column, column.replace("_", " ").capitalize())


def title_of(layer: str, scorer: str) -> str:
    """Whose verdicts a layer and scorer are, in words."""
    return "published verdicts" if layer == PUBLISHED else f"{scorer} scorer"


__all__ = ["BASE", "FULL_CONTEXT", "PUBLISHED", "figures_of", "front", "layers_of", "layout",
           "mode_names", "paradigm_figures", "title_of"]  # fmt: skip
