"""Verdicts that another scorer turns: which, how often, and why, by the scorer's own reason."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memprobe.paradigms.metrics import Result
from memprobe.paradigms.spec import ProbeType
from memprobe.types import Protocol
from storage.runs import RunStore
from tasks.paradigms.tables import BASE, PUBLISHED, layers_of, mode_names, title_of
from tasks.paradigms.verdicts import Mode, stored_verdicts
from tasks.report.tables import defuse, tex

_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
SHOWN = 60
"""Characters of an example."""


@dataclass(frozen=True, slots=True)
class Change:
    """One verdict that is another one under the second scorer; `reason` is the second's."""

    row: str
    episode: str
    epoch: int
    probe_type: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two scorers over the same answers: `compared` verdicts, of which `changes` differ."""

    first: str
    second: str
    compared: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Changes of one kind: the probe, the turn, the reason without its values, and how many."""

    probe_type: str
    before: str
    after: str
    reason: str
    n: int
    example: str


def comparisons(store: RunStore) -> list[Comparison]:
    """What the paper scorer makes of published verdicts, and what strict makes of the paper's."""
    paper, strict = Protocol.PAPER.value, Protocol.STRICT.value
    pairs = [((BASE, paper), (BASE, strict))]
    if PUBLISHED in layers_of(store):
        pairs.insert(0, ((PUBLISHED, paper), (BASE, paper)))
    return [compare(store, first, second) for first, second in pairs]


def compare(store: RunStore, first: tuple[str, str], second: tuple[str, str]) -> Comparison:
    """The verdicts of two layers and scorers, answer by answer."""
    before, after = stored_verdicts(store, *first), stored_verdicts(store, *second)
    names = mode_names(before.modes)
    changes: list[Change] = []
    compared = 0
    for mode in before.modes:
        if mode not in after.results:
            continue
        later = {result.slot: result for result in after.results[mode]}
        for result in before.results[mode]:
            other = later.get(result.slot)
            if other is None:
                continue
            compared += 1
            if other.score.match is not result.score.match:
                changes.append(_change(names, mode, result, other))
    return Comparison(title_of(*first), title_of(*second), compared, tuple(changes))


def _change(names: dict[Mode, str], mode: Mode, before: Result, after: Result) -> Change:
    return Change(
        names[mode],
        before.episode,
        before.epoch,
        before.probe_type.value,
        before.score.match.value,
        after.score.match.value,
        after.score.reason,
    )


def groups(comparison: Comparison) -> list[Group]:
    """The changes by probe, turn and reason, the values in a reason left out."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    examples: dict[tuple[str, str, str, str], Change] = {}
    for change in comparison.changes:
        reason = _VALUE.sub("…", change.reason)
        key = (change.probe_type, change.before, change.after, reason)
        counted[key] += 1
        examples.setdefault(key, change)
    order = {probe.value: place for place, probe in enumerate(ProbeType)}
    made = []
    for key in sorted(counted, key=lambda k: (order[k[0]], -counted[k], k)):
        one = examples[key]
        example = f"{one.row}, {one.episode}: {one.reason}"
        made.append(Group(*key, counted[key], example))
    return made


def to_text(found: Sequence[Comparison]) -> str:
    """A table for each comparison: how often, from what to what, and the reason."""
    out: list[str] = []
    for one in found:
        out.append(_head(one))
        rows = [
            [g.probe_type, f"{g.before} -> {g.after}", str(g.n), " ".join(g.reason.split()),
             " ".join(g.example.split())[:SHOWN]]
            for g in groups(one)
        ]  # fmt: skip
        if rows:
            head = ["Probe", "Verdict", "n", "Reason", "For example"]
            widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
            for row in [head, *rows]:
                cells = (
                    cell.rjust(width) if i == 2 else cell.ljust(width)
                    for i, (cell, width) in enumerate(zip(row, widths, strict=True))
                )
                out.append("  ".join(cells).rstrip())
        out.append("")
    return "\n".join(out)


def _head(one: Comparison) -> str:
    return (
        f"Verdicts changed from {one.first} to {one.second}: {len(one.changes)} of {one.compared}"
    )


def to_csv(found: Sequence[Comparison]) -> str:
    """One line a changed verdict, under a head of its own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["first", "second", "row", "episode", "epoch", "probe_type", "before", "after", "reason"]
    writer.writerow(head)
    for one in found:
        for c in one.changes:
            cells = [c.row, c.episode, c.epoch, c.probe_type, c.before, c.after, c.reason]
            shown = [defuse(cell) if isinstance(cell, str) else cell for cell in cells]
            writer.writerow([one.first, one.second, *shown])
    return out.getvalue()


def to_latex(found: Sequence[Comparison]) -> str:
    """One booktabs `tabular` a comparison."""
    out: list[str] = []
    for one in found:
        out += [f"% {' '.join(_head(one).split())}", r"\begin{tabular}{llrl}", r"\toprule"]
        out += [r"Probe & Verdict & n & Reason \\", r"\midrule"]
        for g in groups(one):
            verdict = f"{tex(g.before)} $\\to$ {tex(g.after)}"
            reason = tex(" ".join(g.reason.split()))
            out.append(f"{tex(g.probe_type)} & {verdict} & {g.n} & {reason} " + r"\\")
        out += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(out)
