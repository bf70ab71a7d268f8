"""Fits the extractive probe reader on the tuning half of suite56 and on written dialogues.

    python -m benchmarks.calibrate_probe_reader [--write] [--ledger sqlite:///PATH]

Two ridge logistic regressions over the features of mentions, each weight held to the sign
that its cue has in ordinary English (a word of hearsay never speaks for a value). The
suite's tuning half is 28 of 56 episodes, whole groups by the hash of their id; the
dialogues are `data/embedded/probe_dialogues.json`. The cut from which a value counts as
replaced is the one with the highest balanced accuracy of "changed" when each group is
left out of the fit in turn. Prints JSON; `--write` updates `data/embedded/probe_reader.json`.
The held-out half is never read here: see `benchmarks/bench_probe_reader.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adapters.models.embedded.probe_constants import ProbeConstants
from adapters.models.embedded.probe_features import NAMES, Key, Reading, read_mentions
from adapters.models.embedded.probe_question import read_question
from adapters.models.embedded.probe_spans import key_of
from adapters.models.embedded.probe_text import FACT, USER, in_order, near_entries, read_turns
from adapters.models.embedded.probe_timeline import (
    REPLACING,
    chance,
    read_timeline,
    replacing_rows,
)
from adapters.models.minilm import NAME, MiniLM
from benchmarks.probe_views import chosen, entries, tuning
from memprobe.metrics import Floats
from memprobe.paradigms.spec import Episode, ProbeType, SessionType
from memprobe.paradigms.suite import Suite, load_suite
from storage.bundled import data_dir
from storage.ledger import Ledger

STATES, STAYS, BRINGS, BESIDE = "states", "stays", "brings", "beside"
PARTS = {
    SessionType.ENCODING: STATES, SessionType.DECOY: STAYS,
    SessionType.PERTURBATION: BRINGS, SessionType.P2: BRINGS,
}  # fmt: skip
DIALOGUES = "dialogues"
SCRIPT = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
RIDGE = {"holds": 0.003, "replaces": 0.01}
EARLY, LEAST = 2.0, 0.05
CUTS = tuple(round(c, 2) for c in np.arange(0.4, 0.96, 0.05))
SIGNS: dict[str, int] = {
    "role_user": 1, "role_assistant": -1, "role_tool": -1,
    "sim_turn": 1, "sim_entry": 1, "lex_sentence": 1, "lex_turn": 1, "lex_entry": 1,
    "first": 1, "first_turn": 1, "third_entry": -1, "owner_near": -1, "named_subject": -1,
    "switch_to": 1,
    "cue_third": -1, "cue_they": -1, "cue_owner": -1, "cue_hearsay": -1, "cue_hypothetical": -1,
    "cue_negated": -1, "cue_stale": -1, "cue_wrong": -1, "cue_settled": 1, "cue_change": 0,
    "cue_now": 1, "cue_stay": 1, "cue_habit": 1, "cue_question": -1,
    "turn_third": -1, "turn_they": -1, "turn_settled": 1, "turn_change": 0, "turn_now": 1,
    "turn_stale": -1, "turn_stay": 1, "turn_hearsay": -1, "turn_wrong": -1,
    "refused_after": -1, "into": 1, "out_of": -1, "after_old": -1, "type_sim": 1,
    "asked_form": 1, "other_form": -1, "kind_word": -1,
    "entries": 1, "own_share": 1, "user_share": 1,
}  # fmt: skip
"""1: never negative, -1: never positive, 0: free. A feature that is not here is left out."""
REPLACE_SIGNS: dict[str, int] = {
    **{k: v for k, v in SIGNS.items() if k not in ("cue_stay", "cue_habit", "entries")},
    "cue_change": 1, "turn_change": 1, "turn_stay": -1, "same_form": 1, "value_sim": 1,
    "shares_word": 1, "old_in_entry": 0, "old_out": 1, "old_stays": -1, "old_later": -1,
    "like_old": 1, "new_in_entry": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A reading with what is true of it: the part each entry plays, and the values."""

    group: str
    view: str
    reading: Reading
    parts: Sequence[str]
    old: Key
    new: Key
    rivals: frozenset[Key]
    changed: bool


async def _read(
    embedder: MiniLM, question: str, asks: bool, shown: list[dict[str, str]]
) -> Reading:
    asked = read_question(question, asks)
    texts = near_entries(in_order(shown), asked.subject)
    return await read_mentions(embedder, read_turns(texts), asked)


async def suite_samples(embedder: MiniLM, episodes: Sequence[Episode]) -> list[Sample]:
    """Each probe of each episode, read in full and by the sessions that state or challenge."""
    found = []
    for episode in episodes:
        spec = episode.spec
        for probe in episode.probes:
            asks = probe.probe_type in (ProbeType.CURRENT, ProbeType.PREVIOUS)
            for view in ("full", "oracle"):
                shown = entries(episode, probe.question, view)
                found.append(
                    Sample(
                        spec.group_id,
                        view,
                        await _read(embedder, probe.question, asks, shown),
                        [
                            PARTS.get(episode.sessions[i].session_type, BESIDE)
                            for i in chosen(episode, probe.question, view)
                        ],
                        key_of(spec.initial_value),
                        key_of(spec.new_value),
                        frozenset(map(key_of, spec.distractor_values)),
                        spec.updates,
                    )
                )
    return found


async def dialogue_samples(embedder: MiniLM, dialogues: Sequence[dict[str, Any]]) -> list[Sample]:
    """The written dialogues, each read once."""
    return [
        Sample(
            DIALOGUES,
            DIALOGUES,
            await _read(
                embedder,
                d["question"],
                True,
                [{"header": "", "text": s["text"]} for s in d["sessions"]],
            ),
            [s["part"] for s in d["sessions"]],
            key_of(d["old"]),
            key_of(d["new"]),
            frozenset(),
            d["changed"],
        )
        for d in dialogues
    ]


def holding(sample: Sample) -> tuple[Floats, Floats]:
    """For each mention whether it states the value that holds, and how much it counts."""
    labels, weights = [], []
    for m in sample.reading.mentions:
        part, user = sample.parts[m.turn.entry], m.turn.role in (USER, FACT)
        if m.key == sample.old:
            states = part in (STATES, STAYS) and user
            labels.append(float(states))
            weights.append(float(states))
        elif m.key == sample.new and part == BRINGS and sample.changed:
            labels.append(float(user))
            weights.append(0.5 * user)
        else:
            labels.append(0.0)
            weights.append(1.0)
    return np.array(labels), np.array(weights)


def replacing(sample: Sample, chosen_mentions: Sequence[int]) -> tuple[Floats, Floats]:
    """The same of the mentions that could replace the old value."""
    labels, weights = [], []
    for i in chosen_mentions:
        m = sample.reading.mentions[i]
        brings = sample.parts[m.turn.entry] == BRINGS
        if m.key == sample.new:
            labels.append(float(sample.changed and brings))
            weights.append(1.0 if sample.changed and brings else 12.0 if brings else 4.0)
        else:
            labels.append(0.0)
            weights.append(3.0 if m.key in sample.rivals else 1.0)
    return np.array(labels), np.array(weights)


def regress(
    x: Floats, y: Floats, w: Floats, ridge: float, signs: Sequence[int | None]
) -> tuple[Floats, float]:
    """Ridge logistic regression on standardised columns, both classes of equal weight."""
    from scipy.optimize import minimize

    mean = np.average(x, axis=0, weights=w + 1e-12)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=w + 1e-12))
    scale[scale < 1e-6] = np.inf
    z = (x - mean) / scale
    w = w * np.where(y > 0, 0.5 / (w * y).sum(), 0.5 / (w * (1 - y)).sum())
    kinds = {1: (0, None), -1: (None, 0), 0: (None, None), None: (0, 0)}

    def loss(beta: Floats) -> tuple[float, Floats]:
        latent = z @ beta[:-1] + beta[-1]
        miss = w * (1 / (1 + np.exp(-np.clip(latent, -30, 30))) - y)
        value = (w * (np.logaddexp(0, latent) - y * latent)).sum()
        value += ridge * (beta[:-1] ** 2).sum() / 2
        return float(value), np.append(z.T @ miss + ridge * beta[:-1], miss.sum())

    bounds = [*(kinds[s] for s in signs), (None, None)]
    start = np.zeros(x.shape[1] + 1)
    got = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    weights = got.x[:-1] / scale
    return weights, float(got.x[-1] - (weights * mean).sum())


def _stack(parts: Sequence[tuple[Floats, tuple[Floats, Floats]]]) -> tuple[Floats, Floats, Floats]:
    return (
        np.concatenate([rows for rows, _ in parts]),
        np.concatenate([labels for _, (labels, _) in parts]),
        np.concatenate([weights for _, (_, weights) in parts]),
    )


def fit(samples: Sequence[Sample], change: float = 0.5) -> ProbeConstants:
    """Both models from samples, the second on top of the first."""
    first = _stack([(s.reading.rows, holding(s)) for s in samples])
    holds, holds_bias = regress(*first, RIDGE["holds"], [SIGNS.get(n) for n in NAMES])
    parts = []
    for s in samples:
        if any(m.key == s.old for m in s.reading.mentions):
            held = chance(s.reading.rows, list(holds), holds_bias)
            could, rows = replacing_rows(s.reading, held, s.old)
            parts.append((rows, replacing(s, could)))
    names = (*NAMES, *REPLACING)
    signs = [REPLACE_SIGNS.get(n) for n in names]
    replaces, replaces_bias = regress(*_stack(parts), RIDGE["replaces"], signs)
    return ProbeConstants(
        version=1,
        holds_by_name={n: round(float(v), 4) for n, v in zip(NAMES, holds, strict=True)},
        holds_bias=round(holds_bias, 4),
        replaces_by_name={n: round(float(v), 4) for n, v in zip(names, replaces, strict=True)},
        replaces_bias=round(replaces_bias, 4),
        early=EARLY,
        least=LEAST,
        change=change,
        provenance={},
    )


def verdicts(samples: Sequence[Sample], constants: ProbeConstants) -> list[tuple[bool, bool, bool]]:
    """Of each sample: whether it changed, whether that is said, whether all values are right."""
    out = []
    for s in samples:
        line = read_timeline(s.reading, constants)
        right = line.old == s.old and line.new == (s.new if s.changed else None)
        out.append((s.changed, line.changed, right))
    return out


def summary(found: Sequence[tuple[bool, bool, bool]]) -> dict[str, Any]:
    """Sensitivity and specificity of "changed", and the shares with all values right."""
    up, keep = ([f for f in found if f[0] is k] for k in (True, False))
    seen = sum(f[1] for f in up) / len(up)
    kept = sum(not f[1] for f in keep) / len(keep)
    return {
        "balanced_accuracy": round((seen + kept) / 2, 3),
        "change_seen": round(seen, 3),
        "no_change_kept": round(kept, 3),
        "values_right_changed": round(sum(f[2] for f in up) / len(up), 3),
        "values_right_kept": round(sum(f[2] for f in keep) / len(keep), 3),
        "n": len(found),
    }


def left_out(samples: Sequence[Sample]) -> dict[float, dict[str, Any]]:
    """For each cut, the figures of the suite's groups, each read by a fit without it."""
    found: dict[float, list[tuple[bool, bool, bool]]] = {cut: [] for cut in CUTS}
    for group in sorted({s.group for s in samples} - {DIALOGUES}):
        fitted = fit([s for s in samples if s.group != group])
        mine = [s for s in samples if s.group == group]
        for cut in CUTS:
            found[cut] += verdicts(mine, fitted.model_copy(update={"change": cut}))
    return {cut: summary(rows) for cut, rows in found.items()}


async def calibrate(suite: Suite, dialogues: dict[str, Any], ledger_url: str) -> ProbeConstants:
    """The fitted constants with their provenance."""
    ledger = Ledger.open(ledger_url)
    embedder = MiniLM(ledger)
    episodes = [e for e in suite.episodes if tuning(e)]
    try:
        samples = await suite_samples(embedder, episodes)
        samples += await dialogue_samples(embedder, dialogues["dialogues"])
    finally:
        await embedder.close()
        ledger.close()
    by_cut = left_out(samples)
    cut = max(CUTS, key=lambda c: (by_cut[c]["balanced_accuracy"], c))
    text = json.dumps(dialogues["dialogues"], sort_keys=True).encode()
    provenance = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "tuning_episodes": [e.id for e in episodes],
        "dialogues": len(dialogues["dialogues"]),
        "dialogues_digest": hashlib.sha256(text).hexdigest()[:16],
        "embedder": NAME,
        "rule": "ridge logistic regressions with fixed signs; cut of the highest balanced "
        "accuracy of 'changed' with each group left out in turn",
        "left_out": by_cut[cut],
        "script": SCRIPT,
    }
    return fit(samples, cut).model_copy(update={"provenance": provenance})


def write(fitted: ProbeConstants) -> Path:
    """Put the constants into the data file."""
    path = data_dir() / "embedded" / "probe_reader.json"
    kept = fitted.model_dump(mode="json")
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        same = all(before.get(k) == kept[k] for k in kept if k not in ("provenance", "version"))
        # The version is part of every embedded answer's key: old answers must not be replayed.
        kept["version"] = before["version"] + (0 if same else 1)
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="update the data file")
    parser.add_argument("--ledger", help="keep the vectors in this ledger and use them again")
    given = parser.parse_args()
    suite = load_suite(data_dir() / "paradigms" / "suite56")
    path = data_dir() / "embedded" / "probe_dialogues.json"
    dialogues = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        url = given.ledger or f"sqlite:///{folder}/ledger.db"
        fitted = asyncio.run(calibrate(suite, dialogues, url))
    print(fitted.model_dump_json(indent=1))
    if given.write:
        print(f"wrote {write(fitted)}")


if __name__ == "__main__":
    main()
