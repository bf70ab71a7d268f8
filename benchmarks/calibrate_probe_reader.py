"""Fits the two models of the extractive probe reader on the tuning half of a suite.

python -m benchmarks.calibrate_probe_reader [--write] [--ledger sqlite:///PATH]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adapters.models.embedded.probe_constants import ProbeConstants
from adapters.models.embedded.probe_features import NAMES, Reading, read_mentions
from adapters.models.embedded.probe_question import read_question
from adapters.models.embedded.probe_spans import key_of
from adapters.models.embedded.probe_text import in_order, near_entries, read_turns
from adapters.models.embedded.probe_timeline import (
    REPLACING,
    chance,
    read_timeline,
    replacing_rows,
)
from benchmarks.probe_views import chosen, entries
from memprobe.paradigms.spec import Episode, ProbeType, SessionType

VALUE = (ProbeType.CURRENT, ProbeType.PREVIOUS)


@dataclass(frozen=True)
class Sample:
    episode: Episode
    view: str
    reading: Reading
    types: list[SessionType]
    probe_type: ProbeType


async def collect(embedder, episodes, views=("full", "oracle")):
    out = []
    for ep in episodes:
        for probe in ep.probes:
            q = read_question(probe.question, probe.probe_type in VALUE)
            for view in views:
                texts = in_order(entries(ep, probe.question, view))
                kept = near_entries(texts, q.subject)
                reading = await read_mentions(embedder, read_turns(kept), q)
                types = [ep.sessions[i].session_type for i in chosen(ep, probe.question, view)]
                out.append(Sample(ep, view, reading, types, probe.probe_type))
    return out


def labels_hold(s):
    old, new = key_of(s.episode.spec.initial_value), key_of(s.episode.spec.new_value)
    y, w = [], []
    for m in s.reading.mentions:
        t = s.types[m.turn.entry]
        user = m.turn.role in ("user", "fact")
        if m.key == old:
            if t in (SessionType.ENCODING, SessionType.DECOY) and user:
                y.append(1.0)
                w.append(1.0)
            else:
                y.append(0.0)
                w.append(0.0)
        elif (
            m.key == new
            and t in (SessionType.PERTURBATION, SessionType.P2)
            and s.episode.spec.updates
        ):
            y.append(1.0 if user else 0.0)
            w.append(0.5 if user else 0.0)
        else:
            y.append(0.0)
            w.append(1.0)
    return np.array(y), np.array(w)


def fit(x, y, w, l2, signs):
    """Weighted ridge logistic regression on standardised columns, each weight of its sign.

    `signs`: 1 not negative, -1 not positive, 0 free, None left out.
    """
    from scipy.optimize import minimize

    mean = np.average(x, axis=0, weights=w + 1e-12)
    sd = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=w + 1e-12))
    sd[sd < 1e-6] = np.inf
    z = (x - mean) / sd
    pos, neg = (w * y).sum(), (w * (1 - y)).sum()
    w = w * np.where(y > 0, 0.5 / pos, 0.5 / neg)
    bounds = [{1: (0, None), -1: (None, 0), 0: (None, None), None: (0, 0)}[k] for k in signs]

    def loss(beta):
        t = z @ beta[:-1] + beta[-1]
        p = 1 / (1 + np.exp(-np.clip(t, -30, 30)))
        value = (w * (np.logaddexp(0, t) - y * t)).sum() + l2 * (beta[:-1] ** 2).sum() / 2
        r = w * (p - y)
        return value, np.r_[z.T @ r + l2 * beta[:-1], r.sum()]

    got = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B",
                   bounds=[*bounds, (None, None)], options={"maxiter": 500})
    weights = got.x[:-1] / sd
    return weights, float(got.x[-1] - (weights * mean).sum())


HOLD_SIGNS = {
    "role_user": 1, "role_assistant": -1, "role_tool": -1, "role_fact": None,
    "sim_turn": 1, "sim_entry": 1, "lex_sentence": 1, "lex_turn": 1, "lex_entry": 1,
    "first": 1, "first_turn": 1, "third_entry": -1, "owner_near": -1,
    "cue_third": -1, "cue_they": -1, "cue_owner": -1, "cue_hearsay": -1, "cue_hypothetical": -1,
    "cue_negated": -1, "cue_stale": -1, "cue_wrong": -1, "cue_settled": 1, "cue_change": 0,
    "cue_now": 1, "cue_stay": 1, "cue_habit": 1, "cue_question": -1,
    "turn_third": -1, "turn_they": -1, "turn_settled": 1, "turn_change": 0, "turn_now": 1,
    "turn_stale": -1, "turn_stay": 1, "turn_hearsay": -1, "turn_wrong": -1,
    "refused_after": -1, "into": 1, "out_of": -1, "after_old": -1, "type_sim": 1,
    "asked_form": 1, "other_form": -1, "kind_word": -1,
    "entries": 1, "own_share": 1, "user_share": 1,
}
REPLACE_SIGNS = HOLD_SIGNS | {
    "cue_change": 1, "turn_change": 1, "cue_stay": None, "turn_stay": -1, "entries": None, "cue_habit": None,
    "same_form": 1, "value_sim": 1, "shares_word": 1, "old_in_entry": 0, "old_out": 1, "old_stays": -1,
    "old_later": -1, "like_old": 1, "new_in_entry": 1,
    "kind_word": -1, "asked_form": 1, "other_form": -1,
}


def train(samples, l2a=0.003, l2b=0.01, **cuts):
    xs, ys, ws = [], [], []
    for s in samples:
        y, w = labels_hold(s)
        xs.append(s.reading.rows)
        ys.append(y)
        ws.append(w)
    wa, ba = fit(np.concatenate(xs), np.concatenate(ys), np.concatenate(ws), l2a,
        [HOLD_SIGNS.get(n) for n in NAMES])
    xs, ys, ws = [], [], []
    for s in samples:
        old, new = key_of(s.episode.spec.initial_value), key_of(s.episode.spec.new_value)
        if not any(m.key == old for m in s.reading.mentions):
            continue
        held = chance(s.reading.rows, wa, ba)
        idx, rows = replacing_rows(s.reading, held, old)
        rivals = {key_of(v) for v in s.episode.spec.distractor_values}
        y, w = [], []
        for i in idx:
            m = s.reading.mentions[i]
            t = s.types[m.turn.entry]
            pert = t in (SessionType.PERTURBATION, SessionType.P2)
            if m.key == new and s.episode.spec.updates and pert:
                user = m.turn.role == "user"
                y.append(float(user))
                w.append(1.0 if user else 0.0)
            elif m.key == new:
                y.append(0.0)
                w.append(12.0 if pert else 4.0)
            else:
                y.append(0.0)
                w.append(1.0)
        xs.append(rows)
        ys.append(np.array(y))
        ws.append(np.array(w))
    wb, bb = fit(np.concatenate(xs), np.concatenate(ys), np.concatenate(ws), l2b,
        [REPLACE_SIGNS.get(n) for n in (*NAMES, *REPLACING)])
    return ProbeConstants(
        version=1,
        holds_by_name=dict(zip(NAMES, map(float, wa), strict=True)),
        holds_bias=ba,
        replaces_by_name=dict(zip((*NAMES, *REPLACING), map(float, wb), strict=True)),
        replaces_bias=bb,
        early=cuts.get("early", 0.5),
        least=cuts.get("least", 0.05),
        change=cuts.get("change", 0.9),
        provenance={},
    )


def measure(samples, constants):
    got = {}
    for s in samples:
        t = read_timeline(s.reading, constants)
        spec = s.episode.spec
        old, new = key_of(spec.initial_value), key_of(spec.new_value)
        right = t.old == old and (t.new == new if spec.updates else t.new is None)
        b = got.setdefault((s.view, "U" if spec.updates else "P"), [0, 0, 0, 0])
        b[0] += 1
        b[1] += t.old == old
        b[2] += t.changed == spec.updates
        b[3] += right
    return {k: (v[0], *(round(x / v[0], 2) for x in v[1:])) for k, v in sorted(got.items())}
