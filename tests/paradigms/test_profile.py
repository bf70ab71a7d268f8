"""The words of a profile follow from its figures, and there are none without enough of them."""

from __future__ import annotations

import json

from memprobe.paradigms.bootstrap import estimates
from memprobe.paradigms.metrics import Result, summarise
from memprobe.paradigms.profile import MIN_EPISODES, NO_DIFFERENCE, Profile, Tendency, build_profile
from memprobe.paradigms.scoring import Match
from memprobe.paradigms.tally import tally_of
from memprobe.paradigms.taxonomy import Failure, Side
from tests.paradigms.verdicts import PRESERVE, UPDATE, drawn, of_episode


def profile(rows: list[Result], **more: object) -> Profile:
    return build_profile("mem", "retrieve", 15, "strict", tally_of(rows), **more)  # type: ignore[arg-type]


def test_an_over_plastic_system() -> None:
    rows = drawn(1, 0.95, 0.25, episodes=40)
    found = profile(rows)
    assert found.tendency is Tendency.OVER_PLASTIC
    summary = summarise(rows)
    assert summary.plasticity.value is not None
    assert summary.stability.value is not None
    gap = summary.plasticity.value - summary.stability.value
    (said,) = [s for s in found.sentences if s.startswith("Over-plastic")]
    assert f"plasticity exceeds stability by {gap:.2f} (95 % {found.gap.lo:.2f} to" in said
    assert "n = 80 and 80" in said
    assert [p.figure.metric for p in found.weaknesses][:1] == ["stability"]
    assert "plasticity" in [p.figure.metric for p in found.strengths]


def test_an_over_stable_system() -> None:
    rows = drawn(2, 0.2, 0.95, episodes=40)
    found = profile(rows)
    assert found.tendency is Tendency.OVER_STABLE
    (said,) = [s for s in found.sentences if s.startswith("Over-stable")]
    assert found.gap.value is not None
    assert found.gap.value < 0
    assert f"stability exceeds plasticity by {-found.gap.value:.2f}" in said
    assert "exceeds plasticity by -" not in said
    assert "plasticity" in [p.figure.metric for p in found.weaknesses]
    assert "stability" in [p.figure.metric for p in found.strengths]


def test_a_balanced_system_and_one_of_which_that_cannot_be_said() -> None:
    found = profile(drawn(3, 0.9, 0.9, episodes=56))
    assert found.tendency is Tendency.BALANCED
    (said,) = [s for s in found.sentences if s.startswith("Balanced")]
    assert NO_DIFFERENCE in said
    few = profile(drawn(4, 0.5, 0.5, episodes=12))
    assert few.tendency is Tendency.UNDECIDED
    assert any(NO_DIFFERENCE in s and "too wide" in s for s in few.sentences)
    assert not any("Balanced" in s for s in few.sentences)


def test_nothing_is_said_of_what_was_not_measured() -> None:
    nothing = profile([])
    assert nothing.tendency is Tendency.UNMEASURED
    assert nothing.sentences == ()
    assert nothing.accuracy.value is None
    lost = profile(drawn(5, 0.9, 0.9, error=1.0))
    assert (lost.n, lost.n_errors, lost.sentences) == (0, 48, ())
    # Ten answers of three episodes are too few, however alike they are.
    rows: list[Result] = []
    for name in ("a", "b", "c"):
        rows += of_episode(name, UPDATE, lambda _: Match.CORRECT)
    few = profile(rows)
    assert few.n == 12
    assert few.n_episodes < MIN_EPISODES
    assert few.sentences == ()
    assert set(few.unsaid) >= {"accuracy", "sp_gap", "plasticity", "stability"}


def test_only_one_side_measured_has_no_tendency() -> None:
    rows = [r for r in drawn(6, 0.9, 0.9, episodes=40) if r.expected.value == "should_update"]
    found = profile(rows)
    assert found.tendency is Tendency.UNMEASURED
    assert "sp_gap" in found.unsaid
    assert "stability" in found.unsaid
    assert any(s.startswith("Accuracy ") for s in found.sentences)


def test_an_interval_that_spans_one_half_is_no_strength() -> None:
    found = profile(drawn(7, 0.5, 0.5, episodes=40))
    said = {p.figure.metric for p in (*found.strengths, *found.weaknesses)}
    assert "plasticity" not in said
    (line,) = [s for s in found.sentences if s.startswith("Plasticity (taking")]
    assert NO_DIFFERENCE in line
    assert "n = 80" in line


def test_a_weakness_beside_ones_own_accuracy() -> None:
    """Right in 95 %, but of the previous value in half the cases."""
    rows: list[Result] = []
    for i in range(40):
        wrong = i % 4 == 0

        def match_of(probe: object, wrong: bool = wrong) -> Match:
            lost = wrong and str(probe) == "previous_value"
            return Match.INCORRECT if lost else Match.CORRECT

        rows += of_episode(f"e{i:02d}", PRESERVE if i % 2 else UPDATE, match_of)
    found = profile(rows)
    (point,) = [p for p in found.weaknesses if p.figure.metric == "historical"]
    assert point.figure.value == 0.5
    assert point.sentence.startswith("Weaker in the previous value: 0.50 (95 % ")
    assert point.sentence.endswith("n = 20), below its accuracy of 0.94.")


def test_split_episodes() -> None:
    rows: list[Result] = []
    for i in range(24):
        split = i % 2 == 0
        match = Match.INCORRECT if split else Match.CORRECT
        rows += of_episode(f"e{i:02d}", UPDATE, lambda _, m=match: m, split=split)
    found = profile(rows)
    (said,) = [s for s in found.sentences if "two parts than" in s]
    assert said.startswith("It gets less right when an update comes in two parts than in whole ")
    assert "-1.00" in said
    even = profile(drawn(8, 0.8, 0.8, episodes=56))
    assert any(s.startswith("Split against whole") and NO_DIFFERENCE in s for s in even.sentences)


def test_dominant_failures_are_shown_to_lead() -> None:
    rows = drawn(9, 0.2, 0.9, episodes=40)
    missed = [(i, Failure.MISSED_UPDATE, Side.STORAGE) for i in range(0, 40, 2)]
    other = [(i, Failure.EXTRACTION, Side.READOUT) for i in range(0, 6, 2)]
    found = profile(rows, diagnosed=missed + other)
    assert found.dominant is Failure.MISSED_UPDATE
    assert (found.failures[0].n, found.failures[0].share) == (20, 20 / 23)
    assert found.failures[0].sides == {Side.STORAGE: 20}
    assert found.sentences[-1] == (
        "Dominant failure: 20 of 23 wrong answers (87%) are missed_update: 20 in storage."
    )
    level = missed[:10] + [(i, Failure.EXTRACTION, Side.READOUT) for i in range(1, 19, 2)]
    same = profile(rows, diagnosed=level)
    assert same.dominant is None
    assert f"{NO_DIFFERENCE} from extraction (9 of 19)" in same.sentences[-1]
    few = profile(rows, diagnosed=missed[:4])
    assert few.dominant is None
    assert "failure" not in few.sentences[-1].lower()
    assert few.failures[0].n == 4


def test_a_profile_is_frozen_json_with_the_figures_of_the_bootstrap() -> None:
    rows = drawn(10, 0.8, 0.5, episodes=30)
    found = profile(rows, seed=11)
    again = Profile.model_validate_json(found.model_dump_json())
    assert again == found
    assert json.loads(found.model_dump_json())["tendency"] == found.tendency.value
    (expected,) = estimates([tally_of(rows)], seed=11)
    assert (found.accuracy.lo, found.accuracy.hi) == (
        expected["accuracy"].lo,
        expected["accuracy"].hi,
    )
