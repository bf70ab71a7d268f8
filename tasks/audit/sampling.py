"""Which judgements a human audit looks at: strata, their shares, a seeded draw.

A candidate is a scored verdict of the layer on a label that a reader gave. Verdicts
that stand for what was never measured (a published overflow scored 0) are left out.

- `equal`: every stratum gets the same number; what a small one cannot fill goes to
  the others. Rare labels are seen, so figures of single labels are worth something;
  figures over the sheet are then not those of the run, and are also given weighted.
- `proportional`: every stratum in proportion to its size (largest remainder, at least
  one of each where the sample allows).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from memprobe.errors import UsageError
from memprobe.metrics import SCALE
from memprobe.types import AttributionLabel
from storage.catalog import connect
from storage.runs import RunStore

By = Literal["attribution", "category", "system", "score"]
Allocation = Literal["equal", "proportional"]

_CANDIDATES = """
SELECT v.system, v.user_id, v.epoch, v.access_mode, v.k, v.category, v.dimension, v.label,
       v.score, a.label AS attribution, a.episode, v.reason
FROM verdicts v
LEFT JOIN attributions a
  ON a.status = 'scored' AND a.layer = v.layer AND a.system = v.system
 AND a.user_id = v.user_id AND a.epoch = v.epoch AND a.access_mode = v.access_mode
 AND a.k IS NOT DISTINCT FROM v.k AND a.category = v.category AND a.dimension = v.dimension
SEMI JOIN targets t
  ON t.user_id = v.user_id AND t.category = v.category AND t.dimension = v.dimension
WHERE v.layer = ? AND v.status = 'scored' AND v.label IS NOT NULL
ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A judgement that can be looked at; `attribution` is None where there is none."""

    system: str
    user_id: str
    epoch: int
    access_mode: str
    k: int | None
    category: str
    dimension: str
    label: str
    score: float
    attribution: str | None
    episode: int | None


@dataclass(frozen=True, slots=True)
class Stratum:
    """How many of a stratum's candidates were drawn."""

    name: str
    population: int
    sampled: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The sample: candidates with their stratum, in the order of the sheet."""

    items: tuple[tuple[Candidate, str], ...]
    strata: tuple[Stratum, ...]
    left_out: int


def candidates(store: RunStore, layer: str) -> tuple[list[Candidate], int]:
    """All judgements of a layer that can be audited, and how many cannot."""
    with connect(store, ("verdicts", "attributions", "targets")) as connection:
        rows = connection.execute(_CANDIDATES, [layer]).fetchall()
        if not rows:
            found = connection.execute("SELECT DISTINCT layer FROM verdicts ORDER BY 1").fetchall()
            names = ", ".join(row[0] for row in found) or "none"
            raise UsageError(f"layer {layer!r} has no scored verdicts; layers there are: {names}")
    # A reason beside a score is what a published procedure scored without measuring it.
    fit = [Candidate(*row[:-1]) for row in rows if row[-1] is None and row[8] in SCALE]
    return fit, len(rows) - len(fit)


def stratum_of(candidate: Candidate, by: By) -> str | None:
    """A candidate's stratum; None for one that has no such value."""
    match by:
        case "attribution":
            measured = candidate.attribution != AttributionLabel.HARNESS_FAILURE.value
            return candidate.attribution if measured else None
        case "category":
            return candidate.category
        case "system":
            return candidate.system
    return f"{candidate.score:g}"


def allocate(sizes: Mapping[str, int], sample: int, how: Allocation) -> dict[str, int]:
    """How many to draw of each stratum; no more than it has, `sample` in all if there are."""
    total = sum(sizes.values())
    if sample >= total:
        return dict(sizes)
    if how == "equal":
        return _equal(sizes, sample)
    exact = {name: sample * size / total for name, size in sizes.items()}
    least = 1 if sample >= len(sizes) else 0
    given = {name: max(least, int(share)) for name, share in exact.items()}
    # With at least one of each the sum may be off either way; the nearest to their share move.
    while sum(given.values()) != sample:
        up = sum(given.values()) < sample
        movable = [n for n in given if (given[n] < sizes[n] if up else given[n] > least)]
        sign = 1 if up else -1
        moved = max(sorted(movable), key=lambda n: sign * (exact[n] - given[n]))
        given[moved] += sign
    return given


def _equal(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    given: dict[str, int] = {}
    left = sample
    # The smallest first: what it cannot fill is shared by those that follow.
    ordered = sorted(sizes, key=lambda name: (sizes[name], name))
    for place, name in enumerate(ordered):
        given[name] = min(sizes[name], left // (len(ordered) - place))
        left -= given[name]
    return given


def draw(store: RunStore, layer: str, sample: int, by: By, how: Allocation, seed: int) -> Drawn:
    """The judgements of a sheet, shuffled; equal arguments and run give an equal sheet."""
    if sample < 1:
        raise UsageError("--sample is at least 1")
    found, left_out = candidates(store, layer)
    strata: dict[str, list[Candidate]] = {}
    for candidate in found:
        name = stratum_of(candidate, by)
        if name is None:
            left_out += 1
        else:
            strata.setdefault(name, []).append(candidate)
    if not strata:
        raise UsageError(
            f"layer {layer!r} has no {by} to stratify by; choose another --stratify, or "
            "--layer base"
        )
    shares = allocate({name: len(strata[name]) for name in sorted(strata)}, sample, how)
    items: list[tuple[Candidate, str]] = []
    for name, n in shares.items():
        chosen = random.Random(f"{seed}/{by}/{name}").sample(strata[name], n)
        items += [(candidate, name) for candidate in chosen]
    random.Random(f"{seed}/order").shuffle(items)
    counts = tuple(Stratum(name, len(strata[name]), n) for name, n in shares.items())
    return Drawn(tuple(items), counts, left_out)


def evidence(store: RunStore, drawn: Drawn) -> list[dict[str, str]]:
    """What a rater reads of each item: truth, task, dialogue, recovered text."""
    truths = {
        (row["user_id"], row["category"], row["dimension"]): row for row in store.read("targets")
    }
    asked = {
        (row["user_id"], row["category"], row["dimension"]): row["task"]
        for row in reversed(store.read("tasks"))
    }
    places = [place for place, _ in sorted(enumerate(drawn.items), key=lambda e: _whose(e[1][0]))]
    out: list[dict[str, str]] = [{} for _ in drawn.items]
    whose: Any = None
    talks = _Talks([], [])
    for place in places:
        item = drawn.items[place][0]
        if _whose(item) != whose:
            # One store at a time: the dialogues of a large run do not fit into memory.
            whose = _whose(item)
            at = {"system": item.system, "user": item.user_id}
            talks = _Talks(store.read("episodes", **at), store.read("turns", **at))
        key = (item.user_id, item.category, item.dimension)
        task, said = talks.of(item)
        out[place] = {
            "dimension": item.dimension,
            "category": item.category,
            "true_in_short": truths[key]["short"],
            "true_in_full": truths[key]["explanation"],
            "task": task or asked.get(key, ""),
            "transcript": said,
            "recovered": item.label,
        }
    return out


def _whose(item: Candidate) -> tuple[str, str]:
    return item.system, item.user_id


class _Talks:
    """The dialogues of one user with one system."""

    def __init__(self, episodes: list[dict[str, Any]], turns: list[dict[str, Any]]) -> None:
        self.episodes = {(row["epoch"], row["episode"]): row for row in episodes}
        self.turns: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for row in sorted(turns, key=lambda row: row["turn"]):
            self.turns.setdefault((row["epoch"], row["episode"]), []).append(row)

    def of(self, item: Candidate) -> tuple[str, str]:
        """Task and transcript of the episode that the target was meant to come up in."""
        at = (item.epoch, item.episode or 0)
        if at not in self.episodes:
            meant = [
                key
                for key, row in self.episodes.items()
                if key[0] == item.epoch
                and (row["category"], row["dimension"]) == (item.category, item.dimension)
            ]
            at = min(meant, default=at)
        if at not in self.episodes:
            return "", "(no conversation was held about this)"
        lines = []
        for row in self.turns.get(at, []):
            lines.append(f"Assistant: {row['assistant_text']}")
            if row["user_text"]:
                lines.append(f"User: {row['user_text']}")
        return self.episodes[at]["task"], "\n\n".join(lines) or "(nothing was said)"
