"""The judge's fit: nothing of a user in its own constants, and figures as worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.models.embedded.rubric import Evidence, Rubric, axes, rubric, share
from benchmarks.calibrate_judge import (
    FOLDS,
    Fit,
    Judgement,
    Sample,
    b_by_system,
    figures,
    fit,
    folds,
    is_unknown,
    judgements,
    polarity,
    write,
)


def row(user: str, place: int, **changes: Any) -> Judgement:
    fields: dict[str, Any] = {
        "user": user,
        "system": "a",
        "mode": "dump_all",
        "category": "self_model",
        "dimension": "patience_self_view",
        "label": "patient",
        "short": "Patient",
        "explanation": "Waits.",
        "place": place,
    }
    return Judgement(**(fields | changes))


def sample(users: int = 10, each: int = 30, seed: int = 3) -> Sample:
    """Scores that follow cosine and share, with noise."""
    random = np.random.default_rng(seed)
    rows, evidence = [], []
    for user in range(users):
        for _ in range(each):
            cosine, words = random.uniform(0, 1), random.uniform(0, 1)
            level = cosine + 0.6 * words + random.normal(0, 0.15)
            rows.append(row(f"u{user}", int(np.clip(level * 3, 0, 4))))
            evidence.append(Evidence(cosine, words, float(random.uniform(0, 0.3))))
    return Sample(rows, evidence)


def test_users_are_split_and_never_rows() -> None:
    split = folds([f"u{i % 10}" for i in range(200)], 1)
    assert len(split) == 10
    assert sorted(split.values()) == sorted([*range(FOLDS)] * 2)
    assert folds([f"u{i}" for i in range(10)], 2) != split


def test_a_users_scores_do_not_reach_its_own_constants() -> None:
    before = sample()
    places, _ = before.nested()
    after = sample()
    mine = after.users == "u4"
    after.y[mine] = 4 - after.y[mine]
    assert (after.nested()[0][mine] == places[mine]).all()
    everything = np.ones(len(after.y), dtype=bool)
    form = "cosine, share, opposition"
    one, other = (s.held_out(form, everything, 5)[mine] for s in (before, after))
    assert (one == other).all()


def test_weights_are_found_and_none_is_negative() -> None:
    made = sample()
    found = fit(made.x("cosine, share, opposition"), made.y)
    assert found.weights[0] == 1.0
    assert found.weights[1] == pytest.approx(0.6, abs=0.15)
    against = Sample(
        made.rows,
        [Evidence(float(c), -float(s), 0.0) for c, s in made.x("cosine, share")],
    )
    assert fit(against.x("cosine, share"), made.y).weights[1] == 0.0


def test_the_cuts_give_the_scores_their_shares() -> None:
    made = sample()
    found = fit(made.x("cosine"), made.y)
    given = np.bincount(found.places(made.x("cosine")), minlength=5)
    assert given == pytest.approx(np.bincount(made.y, minlength=5), abs=1)


def test_more_evidence_is_chosen_only_where_it_helps() -> None:
    made = sample()
    everything = np.ones(len(made.y), dtype=bool)
    assert made.choose(everything, 5)[0] == "cosine, share"
    noise = Sample(made.rows, [Evidence(float(c), 0.5, 0.0) for c, _ in made.x("cosine, share")])
    noise._columns["share"] = np.random.default_rng(1).uniform(0, 1, len(made.y))
    noise.y = Fit((1.0,), (0.2, 0.4, 0.6, 0.8)).places(noise.x("cosine"))
    assert noise.choose(everything, 5)[0] == "cosine"


def test_figures_of_a_few_rows() -> None:
    rows = [
        row(user, place, category=category, system=system)
        for system in ("a", "b")
        for user in ("u1", "u2")
        for category, place in (("self_model", 4 if system == "a" else 2), ("skill_memory", 2))
    ]
    rows.append(row("u1", 0, label="unknown", category="skill_memory"))
    asked = [i for i, r in enumerate(rows) if not is_unknown(r.label)]
    found = figures(rows, asked, np.array([3 if rows[i].place == 4 else 2 for i in asked]))
    assert (found["n"], found["users"], found["pairs"]) == (8, 2, 1)
    assert found["mean_error"] == round(0.5 / 8, 3)
    assert (found["threshold_accuracy"], found["base_rate"]) == (1.0, 0.75)
    # System a: 0.125 too low for either user; b is met.
    assert found["b_error"] == round(0.125 / 2, 3)
    assert found["order_kept"] == 1


def test_an_unknown_label_counts_in_b_as_zero() -> None:
    rows = [row("u1", 4), row("u1", 0, label="unknown"), row("u2", 2), row("u2", 2)]
    assert b_by_system(rows, {0: 1.0, 2: 0.5, 3: 0.5}) == {"a/dump_all": {"u1": 0.5, "u2": 0.5}}
    assert b_by_system(rows, {0: 1.0}) == {}


def test_contradictions_and_right_labels_are_counted_apart() -> None:
    rows = [
        row("u", 0, reason="It says the opposite."),
        row("u", 0, reason="This CONTRADICTS the truth."),
        row("u", 0, reason="About something else."),
        row("u", 3),
        row("u", 4),
        row("u", 0, reason="opposite", dimension="health_crisis_event"),
    ]
    evidence = [Evidence(0.5, 0.0, o) for o in (0.2, 0.01, 0.3, 0.0, 0.15, 0.4)]
    found = polarity(rows, evidence)
    assert found["contradicting"] == {"flagged": 1, "n": 2}
    assert found["right"] == {"flagged": 1, "n": 2}


def test_the_releases_layout_is_read(tmp_path: Path) -> None:
    details = [
        {
            "category": "self_model",
            "dimension": "d",
            "explanation": "e",
            "ground_truth": "t",
            "predicted": label,
            "score": score,
            "judge_reason": None,
        }
        for label, score in (("l", 0.75), ("", 0.0), ("off", 0.3))
    ]
    folder = tmp_path / "output" / "x_retrieve" / "recon_judge"
    folder.mkdir(parents=True)
    (folder / "user_001.json").write_text(json.dumps({"details": details}), encoding="utf-8")
    (found,) = judgements(tmp_path)
    assert (found.system, found.mode, found.user, found.place) == ("x", "retrieve", "user_001", 3)
    with pytest.raises(SystemExit, match="is it the release"):
        judgements(folder)


def test_only_changed_constants_raise_the_version(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    found = {
        "share": 0.1,
        "opposition": 0.0,
        "cuts": [0.1, 0.2, 0.3, 0.4],
        "provenance": {"date": "2026-01-01"},
        "held_out": {},
        "polarity": {},
    }
    versions = []
    for change in ({}, {"provenance": {"date": "2026-01-02"}}, {"share": 0.2}):
        write(found | change, path)
        versions.append(Rubric.model_validate_json(path.read_text()).version)
    assert versions == [1, 1, 2]


def test_the_bundled_constants_never_punish_better_evidence() -> None:
    steps = [
        rubric().step(Evidence(cosine, words, 0.0))
        for cosine in np.linspace(-1, 1, 21)
        for words in (0.0, 0.5, 1.0)
    ]
    by_share = np.array(steps).reshape(21, 3)
    assert (np.diff(by_share, axis=0) >= 0).all()
    assert (np.diff(by_share, axis=1) >= 0).all()
    assert rubric().step(Evidence(1.0, 1.0, 0.0)) == 4
    assert rubric().step(Evidence(0.0, 0.0, 0.0)) == 0
    assert rubric().polarity["ends"] == axes().version


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("Patiently waits for buses", 2 / 3),
        ("the and of", 0.0),
        ("", 0.0),
        ("waiting patient", 1.0),
    ],
)
def test_the_share_of_words(label: str, found: float) -> None:
    assert share(label, "A patient man", "He waits, plans and keeps calm") == pytest.approx(found)


def test_cuts_must_rise() -> None:
    with pytest.raises(ValueError, match="must rise"):
        Rubric(
            version=1,
            share=0,
            opposition=0,
            cuts=(0.1, 0.3, 0.2, 0.4),
            provenance={},
            held_out={},
            polarity={},
        )
