"""Gates: bounds on a run's figures, for continuous integration.

    recovery.[MODE.][SYSTEM.]METRIC OP BOUND

    recovery.dump_all.longctx_full.B>=0.99
    recovery.dump_all.B>=0.55              every system must meet it
    recovery.retrieve@5.rag.B>=0.3
    recovery.dump_all.rag.B[self_model]>=0.4
    recovery.coverage>=0.95                every system, mode and k

A run of the paradigms suite has `paradigms.[MODE.][SYSTEM.]METRIC`, or the metric first:

    paradigms.accuracy>=0.5                every system
    paradigms.plasticity.mem0>=0.6
    paradigms.retrieve@15.mem0.accuracy[interference]>=0.4

MODE is `dump_all`, `retrieve` (every k), `retrieve@K` or `chunked` (whole stores read
in parts, where the run has them; without MODE they are left out); OP is >=, >, <= or <.
Shares are in [0, 1]. A figure that is absent or could not be scored never meets
its bound, nor does one whose coverage is under the run's `coverage_threshold`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memprobe.errors import UsageError
from memprobe.paradigms.spec import Paradigm, ProbeType
from memprobe.types import SUITES, AccessMode, Category
from storage.runs import RunStore
from tasks import chunked
from tasks.paradigms.context import readings
from tasks.score import score_unit

ACCESS_METRICS = ("B", "recovery_rate", "coverage", "B_floor")
ROLLOUT_METRICS = ("A", "C", "C_satisfied", "D", "items", "chars")
PROBE_METRICS = (
    *("accuracy", "plasticity", "stability", "sp_balance"),
    *("historical", "source_fidelity", "temporal", "coverage"),
)
COVERED = ("A", "B", "C", "D", "recovery_rate", *(m for m in PROBE_METRICS if m != "coverage"))
PROBE_GROUPS = (*(p.value for p in Paradigm), *(t.value for t in ProbeType))
METRICS = ACCESS_METRICS + ROLLOUT_METRICS

_EXPRESSION = re.compile(r"\s*(?P<path>[^<>=]+?)\s*(?P<op>>=|<=|>|<)\s*(?P<bound>\S+)\s*\Z")
_METRIC = re.compile(r"(?P<name>\w+)(?:\[(?P<category>\w+)\])?\Z")
_MODE = re.compile(r"(?P<mode>dump_all|retrieve|chunked)(?:@(?P<k>[1-9]\d*))?\Z")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Gate:
    """A parsed expression; None stands for "every"."""

    text: str
    metric: str
    category: str | None
    access_mode: str | None
    k: int | None
    system: str | None
    op: str
    bound: float
    suite: str = "recovery"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One figure held against one bound. `value` is None when there is none: not met."""

    gate: str
    figure: str
    value: float | None
    op: str
    bound: float
    met: bool
    n_scored: int
    n_total: int

    def __str__(self) -> str:
        value = "no value" if self.value is None else f"{self.value:.4f}"
        verdict = "met" if self.met else "NOT MET"
        counted = f"{self.n_scored}/{self.n_total} scored"
        return f"{verdict}: {self.figure} = {value} {self.op} {self.bound:g} ({counted})"


def parse_gate(text: str) -> Gate:
    """Read one expression; raises `UsageError` telling the part that is wrong."""
    found = _EXPRESSION.match(text)
    if not found:
        raise UsageError(f"{text!r} is no gate; for example recovery.dump_all.rag.B>=0.55")
    try:
        bound = float(found["bound"])
    except ValueError:
        raise UsageError(f"{text!r}: {found['bound']!r} is no number") from None
    if bound != bound:
        raise UsageError(f"{text!r}: a bound must be a number")
    suite, *path = found["path"].split(".")
    if suite not in SUITES:
        raise UsageError(
            f"{text!r}: no suite {suite!r}; there is recovery, as in recovery.rag.B>=0.3, and "
            "paradigms, as in paradigms.accuracy>=0.5"
        )
    if not path:
        there = ", ".join(METRICS if suite == "recovery" else PROBE_METRICS)
        raise UsageError(f"{text!r}: a metric is missing; there are {there}")
    if suite == "paradigms":
        return _probe_gate(text, path, found["op"], bound)
    metric = _METRIC.match(path[-1])
    if not metric or metric["name"] not in METRICS:
        raise UsageError(f"{text!r}: no metric {path[-1]!r}; there are {', '.join(METRICS)}")
    category = metric["category"]
    if category is not None:
        names = [c.value for c in Category]
        if metric["name"] != "B":
            raise UsageError(f"{text!r}: only B is kept by category")
        if category not in names:
            raise UsageError(f"{text!r}: no category {category!r}; there are {', '.join(names)}")
    access_mode, k, rest = _access(text, path[:-1])
    if access_mode is not None and metric["name"] in ROLLOUT_METRICS:
        raise UsageError(f"{text!r}: {metric['name']} belongs to a system, not to an access mode")
    return Gate(
        text=text,
        metric=metric["name"],
        category=category,
        access_mode=access_mode,
        k=k,
        system=".".join(rest) or None,
        op=found["op"],
        bound=bound,
    )


def _access(text: str, path: Sequence[str]) -> tuple[str | None, int | None, Sequence[str]]:
    """The mode and k that a path begins with, and what is left of it."""
    mode = _MODE.match(path[0]) if path else None
    if mode is None:
        return None, None, path
    if mode["k"] and mode["mode"] != AccessMode.RETRIEVE:
        raise UsageError(f"{text!r}: {mode['mode']} has no k")
    return mode["mode"], int(mode["k"]) if mode["k"] else None, path[1:]


def _probe_gate(text: str, path: Sequence[str], op: str, bound: float) -> Gate:
    access_mode, k, rest = _access(text, path)
    if access_mode == chunked.LAYER:
        raise UsageError(f"{text!r}: the paradigms suite reads no store in parts")
    there = ", ".join(PROBE_METRICS)
    if not rest:
        raise UsageError(f"{text!r}: a metric is missing; there are {there}")
    # The metric stands last, as everywhere, or first: a system's name may have dots.
    metric, system = _METRIC.match(rest[-1]), rest[:-1]
    if not metric or metric["name"] not in PROBE_METRICS:
        metric, system = _METRIC.match(rest[0]), rest[1:]
    if not metric or metric["name"] not in PROBE_METRICS:
        raise UsageError(f"{text!r}: no metric {rest[-1]!r}; there are {there}")
    group = metric["category"]
    if group is not None and group not in PROBE_GROUPS:
        names = ", ".join(PROBE_GROUPS)
        raise UsageError(f"{text!r}: no paradigm or probe {group!r}; there are {names}")
    return Gate(
        text=text,
        metric=metric["name"],
        category=group,
        access_mode=access_mode,
        k=k,
        system=".".join(system) or None,
        op=op,
        bound=bound,
        suite="paradigms",
    )


Key = tuple[str, str | None, int | None]


def _expected(store: RunStore, rows: Sequence[dict[str, Any]], gate: Gate) -> list[Key]:
    """The (system, mode, k) a gate speaks of: all the run was to measure, and what it has."""
    manifest = store.manifest
    config = manifest.config
    planned: list[Key] = []
    measured = [row["system"] for row in rows]
    if gate.access_mode == chunked.LAYER:
        names = manifest.system_names if chunked.wanted(config) else ()
        return [(system, chunked.LAYER, None) for system in names]
    for system in manifest.system_names:
        if gate.suite == "paradigms":
            planned += _readings(store, system, measured)
            continue
        if gate.metric in ROLLOUT_METRICS:
            planned.append((system, None, None))
            continue
        card = manifest.systems.get(system)
        for mode in config.access:
            if mode is AccessMode.DUMP_ALL:
                planned.append((system, mode.value, None))
            elif card is None or card.retrieve:
                planned += [(system, mode.value, k) for k in config.k]
    stored = [(row["system"], row["access_mode"], row["k"]) for row in rows]
    return list(dict.fromkeys(planned + stored))


def _readings(store: RunStore, system: str, measured: Sequence[str | None]) -> list[Key]:
    """How a run was to read a system; one without card and figures has none to be found."""
    card = store.manifest.systems.get(system)
    if card is None:
        return [] if system in measured else [(system, None, None)]
    ways = readings(store.manifest.config, card)
    return [(system, way.mode.value, way.k) for way in ways]


def _unknown(gate: Gate, keys: Sequence[Key], named: Sequence[str]) -> UsageError | None:
    systems = sorted({key[0] for key in keys} | set(named))
    if gate.system is not None and gate.system not in systems:
        return UsageError(
            f"{gate.text!r}: no system {gate.system!r} in this run; there are {', '.join(systems)}"
        )
    modes = sorted({_mode(key) for key in keys if key[1] is not None})
    wanted = gate.access_mode
    if wanted is not None and not any(
        key[1] == wanted and (gate.k is None or key[2] == gate.k) for key in keys
    ):
        name = wanted if gate.k is None else f"{wanted}@{gate.k}"
        return UsageError(
            f"{gate.text!r}: no access mode {name} in this run; there are {', '.join(modes)}"
        )
    return None


def _mode(key: Key) -> str:
    return f"{key[1]}" if key[2] is None else f"{key[1]}@{key[2]}"


def _figure(gate: Gate, key: Key) -> str:
    metric = f"{gate.metric}[{gate.category}]" if gate.category else gate.metric
    return ".".join(p for p in (gate.suite, _mode(key) if key[1] else "", key[0], metric) if p)


def check_gates(store: RunStore, expressions: Sequence[str]) -> list[GateResult]:
    """Hold a run's stored metrics against bounds, one result a figure.

    Raises `UsageError` for an expression that is wrong or of another suite, names what
    the run does not have, or when the run was not scored yet.
    """
    gates = [parse_gate(text) for text in expressions]
    suite = store.manifest.config.suite
    for gate in gates:
        if gate.suite != suite:
            raise UsageError(f"{gate.text!r}: {store.name} is a run of the suite {suite}")
    table = _probe_table(store) if suite == "paradigms" else _table(store)
    if not table:
        raise UsageError(f"{store.name} has no metrics yet: run `memprobe score {store.name}`")
    threshold = store.manifest.config.coverage_threshold
    results: list[GateResult] = []
    for gate in gates:
        rows = [
            row
            for row in table
            if row["metric"] == gate.metric
            and row["category"] == gate.category
            and (row["access_mode"] == chunked.LAYER) == (gate.access_mode == chunked.LAYER)
        ]
        keys = _expected(store, rows, gate)
        unknown = _unknown(gate, keys, store.manifest.system_names)
        if unknown is not None:
            raise unknown
        by_key = {(row["system"], row["access_mode"], row["k"]): row for row in rows}
        chosen = [
            key
            for key in keys
            if (gate.system is None or key[0] == gate.system)
            and (gate.access_mode is None or key[1] == gate.access_mode)
            and (gate.k is None or key[2] == gate.k)
        ]
        # A system that was named but has no such figure fails its gate instead of passing unseen.
        for key in chosen or [(gate.system or "", gate.access_mode, gate.k)]:
            results.append(_judge(gate, key, by_key.get(key), threshold))
    return results


def _table(store: RunStore) -> list[dict[str, Any]]:
    table = store.read("metrics", variant=score_unit().variant)
    in_parts = store.read("metrics", variant=score_unit(chunked.LAYER).variant)
    return table + [{**row, "access_mode": chunked.LAYER} for row in in_parts]


def _probe_table(store: RunStore) -> list[dict[str, Any]]:
    """The figures under the scorer of the run's protocol, in the columns of `metrics`."""
    scorer = store.manifest.config.protocol.value
    return [
        {
            **row,
            "category": row["group_name"] or None,
            "n_scored": row["n"] + (row["n_other"] or 0),
        }
        for row in store.read("probe_metrics", variant=score_unit().variant)
        if row["scorer"] == scorer and row["group_kind"] in ("", "paradigm", "probe")
    ]


def _judge(gate: Gate, key: Key, row: dict[str, Any] | None, threshold: float) -> GateResult:
    value = row["value"] if row else None
    # A mean over the survivors says nothing of what could not be measured. Other figures
    # count something else there: `C_satisfied` the satisfied episodes, `chars` the filled stores.
    n_scored, n_total = (row["n_scored"], row["n_total"]) if row else (0, 0)
    covered = gate.metric not in COVERED or n_scored >= threshold * n_total
    return GateResult(
        gate=gate.text,
        figure=_figure(gate, key),
        value=value,
        op=gate.op,
        bound=gate.bound,
        met=value is not None and covered and _COMPARE[gate.op](value, gate.bound),
        n_scored=n_scored,
        n_total=n_total,
    )
