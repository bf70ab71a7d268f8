"""Fit the embedded judge's constants on published judgements, and say how good they are.

`python -m benchmarks.calibrate_judge RELEASE --write` reads the judgements of the public
recovery release (arXiv 2606.24595, CC BY 4.0; RELEASE is its folder, or set
MEMPROBE_RELEASE) and updates `data/embedded/judge.json`.

Only labels other than `unknown` are fitted (that one scores 0 by rule). Users are
split into folds, never rows: a fold's users are judged by constants fitted on the
others. Three forms are tried, each with one more piece of evidence; which of them is
used for a fold is chosen by a split within the other users, so that the choice is held
out too. A form: weights by a cumulative logit model (McCullagh 1980) with the cosine's
weight as the unit and no negative ones, then cuts that give the published shares of
the five scores, so that a system's mean is met and not only its items. No form knows
category or dimension.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from adapters.models.embedded.polarity import MARGIN
from adapters.models.embedded.rubric import Evidence, axes
from adapters.models.embedded.similarity import SimilarityJudge
from adapters.models.embedded.thresholds import thresholds
from adapters.models.minilm import NAME, MiniLM
from memprobe.agreement import RECOVERED, agreement
from memprobe.metrics import SCALE, Floats
from storage.bundled import data_dir
from storage.ledger import Ledger

FOLDS = 5
SEED = 20260101
L2 = 1e-3
FORMS: dict[str, tuple[str, ...]] = {
    "cosine": ("cosine",),
    "cosine, share": ("cosine", "share"),
    "cosine, share, opposition": ("cosine", "share", "opposition"),
}
PUBLISHED_CUTS = (0.1819, 0.2785, 0.3731, 0.6692)
"""The cuts of the first calibration, for comparison; on `cosine` alone."""
CHOICE = 0.002
"""A form with more evidence must raise the inner kappa by this much to be chosen."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One published verdict on a label."""

    user: str
    system: str
    mode: str
    category: str
    dimension: str
    label: str
    short: str
    explanation: str
    place: int
    reason: str = ""


def judgements(release: Path) -> list[Judgement]:
    """All verdicts of the release on the five-point scale, sorted; others are left out."""
    root = release if (release / "output").is_dir() else release / "memprobe_release"
    found = []
    for path in sorted(root.glob("output/*/recon_judge/*.json")):
        run = path.parents[1].name
        mode = "retrieve" if run.endswith("_retrieve") else "dump_all"
        for row in json.loads(path.read_text(encoding="utf-8"))["details"]:
            if row["score"] in SCALE and row["predicted"]:
                found.append(
                    Judgement(
                        path.stem,
                        run.removesuffix("_retrieve"),
                        mode,
                        row["category"],
                        row["dimension"],
                        row["predicted"],
                        row["ground_truth"],
                        row["explanation"],
                        SCALE.index(row["score"]),
                        row["judge_reason"] or "",
                    )
                )
    if not found:
        raise SystemExit(f"no judgements below {root}/output/*/recon_judge: is it the release?")
    return found


def is_unknown(label: str) -> bool:
    """As the recovery stage has it: such a label is scored 0 and no judge is asked."""
    return label.strip().strip(".\"'").casefold() == "unknown"


async def measure(rows: Sequence[Judgement], ledger_url: str) -> list[Evidence]:
    """The judge's own evidence on each row."""
    ledger = Ledger.open(ledger_url)
    embedder = MiniLM(ledger)
    judge = SimilarityJudge(embedder, thresholds())
    try:
        found = []
        for start in range(0, len(rows), 256):
            part = rows[start : start + 256]
            found += await asyncio.gather(
                *(judge.evidence(r.label, r.short, r.explanation, r.dimension) for r in part)
            )
            print(f"measured {min(start + 256, len(rows))}/{len(rows)}", file=sys.stderr)
        return found
    finally:
        await embedder.close()
        ledger.close()


@dataclass(frozen=True, slots=True)
class Fit:
    """Weights in units of the cosine's, and cuts."""

    weights: tuple[float, ...]
    cuts: tuple[float, ...]

    def places(self, x: Floats) -> Any:
        """The places of rows, x of shape (rows, pieces of evidence)."""
        return np.searchsorted(self.cuts, x @ np.array(self.weights), side="right")


def _weights(x: Floats, y: Any) -> tuple[float, ...]:
    """Cumulative logit by penalised likelihood; weights are bounded at 0 from below."""
    from scipy.optimize import minimize

    if x.shape[1] == 1:
        return (1.0,)
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / spread
    n, d = z.shape
    below = np.array([(y <= k).mean() for k in range(4)])
    start = np.log(below / (1 - below))
    first = np.concatenate([np.zeros(d), start[:1], np.log(np.diff(start))])
    rows = np.arange(n)

    def loss(p: Floats) -> float:
        ends = p[d] + np.concatenate([[0.0], np.cumsum(np.exp(p[d + 1 :]))])
        c = 1 / (1 + np.exp((z @ p[:d])[:, None] - ends[None, :]))
        c = np.hstack([np.zeros((n, 1)), c, np.ones((n, 1))])
        likelihood = np.maximum(c[rows, y + 1] - c[rows, y], 1e-12)
        return float(-np.log(likelihood).mean() + L2 * (p[:d] ** 2).sum())

    bounds = [(0.0, None)] * d + [(None, None)] * 4
    best = minimize(loss, first, method="L-BFGS-B", bounds=bounds)
    w = best.x[:d] / spread
    return tuple(float(v) for v in w / w[0])


def fit(x: Floats, y: Any) -> Fit:
    """Weights, then cuts at the published shares of the scores."""
    weights = _weights(x, y)
    shares = [float((y < k).mean()) for k in range(1, 5)]
    return Fit(weights, tuple(float(c) for c in np.quantile(x @ np.array(weights), shares)))


def folds(users: Iterable[str], seed: int) -> dict[str, int]:
    """A fold for each user, drawn once."""
    names = sorted(set(users))
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[i]: int(place) % FOLDS for place, i in enumerate(order)}


class Sample:
    """The rows that are fitted, with their evidence."""

    def __init__(self, rows: Sequence[Judgement], evidence: Sequence[Evidence]) -> None:
        self.rows = rows
        self.users = np.array([r.user for r in rows])
        self.y = np.array([r.place for r in rows])
        self._columns = {
            "cosine": np.array([e.cosine for e in evidence]),
            "share": np.array([e.share for e in evidence]),
            # Turned, so that more of each piece speaks for the label.
            "opposition": np.array([-e.opposition for e in evidence]),
        }

    def x(self, form: str) -> Floats:
        return np.column_stack([self._columns[name] for name in FORMS[form]])

    def held_out(self, form: str, inside: Any, seed: int) -> Any:
        """Places of the rows `inside`, each fold's by a fit on the other folds."""
        x = self.x(form)
        fold = folds(self.users[inside], seed)
        at = np.array([fold.get(u, -1) for u in self.users])
        out = np.zeros(len(self.y), dtype=np.int64)
        for number in range(FOLDS):
            train, test = inside & (at >= 0) & (at != number), inside & (at == number)
            out[test] = fit(x[train], self.y[train]).places(x[test])
        return out

    def choose(self, inside: Any, seed: int) -> tuple[str, dict[str, float]]:
        """The form with the best kappa on a split within `inside`; of equals the smaller."""
        scale = np.array(SCALE)
        kappas = {}
        for form in FORMS:
            out = self.held_out(form, inside, seed)
            found = agreement(
                list(self.users[inside]),
                scale[self.y[inside]].tolist(),
                scale[out[inside]].tolist(),
                resamples=1,
            )
            kappas[form] = found.kappa or 0.0
        best = next(iter(FORMS))
        for form in FORMS:
            if kappas[form] >= kappas[best] + CHOICE:
                best = form
        return best, kappas

    def nested(self) -> tuple[Any, list[str]]:
        """Places with form and constants both chosen without the row's user."""
        everything = np.ones(len(self.y), dtype=bool)
        fold = folds(self.users, SEED)
        at = np.array([fold[u] for u in self.users])
        out = np.zeros(len(self.y), dtype=np.int64)
        chosen = []
        for number in range(FOLDS):
            train, test = everything & (at != number), at == number
            form, _ = self.choose(train, SEED + 1 + number)
            chosen.append(form)
            x = self.x(form)
            out[test] = fit(x[train], self.y[train]).places(x[test])
        return out, chosen


def b_by_system(
    rows: Sequence[Judgement], scores: Mapping[int, float]
) -> dict[str, dict[str, Any]]:
    """Each user's B by system and mode; rows that are not in `scores` count as 0.

    Systems that were asked about less than half of their labels say nothing of a judge
    (nothing stored, or a store that was never read) and are left out.
    """
    cells: dict[str, dict[str, dict[str, list[float]]]] = {}
    asked: dict[str, list[bool]] = {}
    for i, r in enumerate(rows):
        name = f"{r.system}/{r.mode}"
        asked.setdefault(name, []).append(i in scores)
        user = cells.setdefault(name, {}).setdefault(r.user, {})
        user.setdefault(r.category, []).append(scores.get(i, 0.0))
    return {
        name: {
            user: float(np.mean([np.mean(v) for v in by_category.values()]))
            for user, by_category in sorted(users.items())
        }
        for name, users in sorted(cells.items())
        if np.mean(asked[name]) >= 0.5
    }


def _mean_b(by_user: Mapping[str, float], users: Sequence[str]) -> float:
    return float(np.mean([by_user[u] for u in users]))


def figures(rows: Sequence[Judgement], asked: Sequence[int], places: Any) -> dict[str, Any]:
    """What the judge comes to on held-out rows; `places` belongs to the rows `asked`."""
    truth = [SCALE[rows[i].place] for i in asked]
    given = [SCALE[int(p)] for p in places]
    users = [rows[i].user for i in asked]
    found = agreement(users, truth, given, seed=SEED)
    within = []
    for category in sorted({rows[i].category for i in asked}):
        kept = [n for n, i in enumerate(asked) if rows[i].category == category]
        part = agreement(
            [users[n] for n in kept],
            [truth[n] for n in kept],
            [given[n] for n in kept],
            resamples=1,
        )
        within.append(part.kappa or 0.0)
    real = b_by_system(rows, dict(zip(asked, truth, strict=True)))
    ours = b_by_system(rows, dict(zip(asked, given, strict=True)))
    people = sorted({u for by_user in real.values() for u in by_user})

    def error(drawn: Sequence[str]) -> float:
        return float(
            np.mean([abs(_mean_b(real[s], drawn) - _mean_b(ours[s], drawn)) for s in real])
        )

    random = np.random.default_rng(SEED)
    errors = [
        error([people[i] for i in random.integers(0, len(people), len(people))])
        for _ in range(1000)
    ]
    pairs = list(combinations(sorted(real), 2))
    kept_order = sum(
        (_mean_b(real[a], people) > _mean_b(real[b], people))
        == (_mean_b(ours[a], people) > _mean_b(ours[b], people))
        for a, b in pairs
    )
    assert found.kappa is not None
    assert found.kappa_interval is not None
    assert found.mean_error is not None
    assert found.threshold is not None
    assert found.first_passed is not None
    return {
        "n": found.n_items,
        "users": found.n_clusters,
        "kappa": round(found.kappa, 3),
        "kappa_interval": [round(found.kappa_interval.lo, 3), round(found.kappa_interval.hi, 3)],
        "kappa_within_category": round(float(np.mean(within)), 3),
        "mean_error": round(found.mean_error, 3),
        "threshold_accuracy": round(found.threshold, 3),
        "base_rate": round(max(found.first_passed, 1 - found.first_passed), 3),
        "b_error": round(error(people), 3),
        "b_error_interval": [round(float(q), 3) for q in np.quantile(errors, [0.025, 0.975])],
        "order_kept": kept_order,
        "pairs": len(pairs),
        "systems": sorted(real),
    }


def difference(sample: Sample, first: Any, second: Any) -> dict[str, Any]:
    """Kappa of the first less that of the second, with an interval over users, paired."""
    from memprobe.agreement import kappas
    from memprobe.metrics import bootstrap_means, interval

    people = sorted(set(sample.users))
    tables = []
    for out in (first, second):
        owner = np.searchsorted(people, sample.users)
        counts = np.bincount((owner * 5 + sample.y) * 5 + out, minlength=len(people) * 25)
        means = bootstrap_means(counts.reshape(-1, 25).astype(float), seed=SEED)
        whole = counts.reshape(-1, 5, 5).sum(axis=0, keepdims=True).astype(float)
        tables.append((kappas(whole)[0], kappas(means.reshape(-1, 5, 5))))
    found = interval(tables[0][1] - tables[1][1])
    assert found is not None
    return {
        "kappa": round(float(tables[0][0] - tables[1][0]), 3),
        "interval": [round(found.lo, 3), round(found.hi, 3)],
    }


def calibrate(release: Path, ledger_url: str) -> dict[str, Any]:
    """Constants and figures, as the data file holds them."""
    rows = judgements(release)
    asked = [i for i, r in enumerate(rows) if not is_unknown(r.label)]
    kept = [rows[i] for i in asked]
    evidence = asyncio.run(measure(kept, ledger_url))
    sample = Sample(kept, evidence)
    everything = np.ones(len(kept), dtype=bool)
    before = Fit((1.0,), PUBLISHED_CUTS).places(sample.x("cosine"))
    nested, by_fold = sample.nested()
    form, inner = sample.choose(everything, SEED)
    by_form = {name: sample.held_out(name, everything, SEED) for name in FORMS}
    final = fit(sample.x(form), sample.y)
    weights = dict(zip(FORMS[form], final.weights, strict=True))
    users = sorted(set(sample.users))
    return {
        "share": round(weights.get("share", 0.0), 4),
        "opposition": round(weights.get("opposition", 0.0), 4),
        "cuts": [round(c, 4) for c in final.cuts],
        "provenance": {
            "source": "judgements of the public recovery release, arXiv 2606.24595 "
            "(Ma et al. 2026), repository sora1998/MemProbe",
            "licence": "the judgements are CC BY 4.0; only constants fitted on them are here",
            "judge": "the release's language model judge (gpt-5.4-mini)",
            "users": f"{users[0]} to {users[-1]}, {len(users)}",
            "n": len(kept),
            "digest": digest(rows),
            "embedder": NAME,
            "script": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16],
            "date": datetime.now(UTC).date().isoformat(),
            "form": form,
            "forms": {name: round(kappa, 3) for name, kappa in inner.items()},
        },
        "polarity": polarity(kept, evidence),
        "held_out": {
            **figures(rows, asked, nested),
            "forms_chosen": by_fold,
            "gain": difference(sample, nested, before),
            "cosine_cuts": {
                name: value
                for name, value in figures(rows, asked, before).items()
                if name not in ("n", "users", "systems", "base_rate", "pairs")
            },
            "by_form": {
                name: figures(rows, asked, out)["kappa_within_category"]
                for name, out in by_form.items()
            },
        },
    }


_CONTRADICTS = re.compile(r"opposit|contradict|revers", re.IGNORECASE)


def polarity(rows: Sequence[Judgement], evidence: Sequence[Evidence]) -> dict[str, Any]:
    """How often the embedded reading of directions says `opposite`, where it should and not.

    The judge was not asked for directions, so its reason at a score of 0 stands in for
    the truth: of labels that it calls opposite or contradicting, and of labels that it
    found right in substance (0.75 or more). Nothing is fitted here.
    """
    shown: dict[str, list[bool]] = {"contradicting": [], "right": []}
    for row, found in zip(rows, evidence, strict=True):
        if axes().find(row.dimension) is None:
            continue
        opposite = found.opposition >= MARGIN
        if row.place == 0 and _CONTRADICTS.search(row.reason):
            shown["contradicting"].append(opposite)
        elif SCALE[row.place] >= RECOVERED:
            shown["right"].append(opposite)
    return {name: {"flagged": sum(flags), "n": len(flags)} for name, flags in shown.items()} | {
        "margin": MARGIN,
        "ends": axes().version,
    }


def digest(rows: Sequence[Judgement]) -> str:
    """What was fitted on, whatever the order of the files."""
    lines = sorted(
        "\x1f".join(map(str, (r.user, r.system, r.mode, r.dimension, r.label, r.place)))
        for r in rows
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write(found: dict[str, Any], path: Path | None = None) -> Path:
    """Update the data file; changed constants raise its version."""
    path = path or data_dir() / "embedded" / "judge.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"version": 0}
    if any(stored.get(name) != found[name] for name in ("share", "opposition", "cuts")):
        # The version is part of every embedded answer's key: old answers must not be replayed.
        stored["version"] += 1
    body = {"version": stored["version"], **found}
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("release", nargs="?", help="folder of the release (MEMPROBE_RELEASE)")
    parser.add_argument("--write", action="store_true", help="update the data file")
    parser.add_argument("--ledger", help="keep the vectors in this ledger and use them again")
    given = parser.parse_args()
    release = given.release or os.environ.get("MEMPROBE_RELEASE")
    if not release:
        parser.error("name the release's folder, or set MEMPROBE_RELEASE")
    with tempfile.TemporaryDirectory() as folder:
        url = given.ledger or f"sqlite:///{folder}/ledger.db"
        found = calibrate(Path(release), url)
    print(json.dumps(found, indent=1))
    if given.write:
        print(f"wrote {write(found)}")


if __name__ == "__main__":
    main()
