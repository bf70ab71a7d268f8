"""Metrics of one trajectory against tables that were computed by hand."""

import pytest

from memprobe.evolution.metrics import (
    action_accuracy,
    action_confusion,
    author_count,
    author_error,
    author_sets,
    candidates,
    claim_coverage,
    claim_scores,
    confidence_error,
    dominant,
    extrinsic,
    fact_accuracy,
    false_updates,
    gate_changes,
    miss_rate,
    parse_action,
    statewise_accuracy,
    update_recall,
)
from memprobe.evolution.records import (
    Answer,
    Attribution,
    ClaimVerdict,
    Confidence,
    FactCount,
    Figure,
    Operation,
    StateActions,
    Verdict,
    across,
    figure,
    pooled,
)
from memprobe.evolution.spec import Action
from memprobe.outcomes import Reason, Unscored

Y, P, N = Verdict.YES, Verdict.PARTIAL, Verdict.NO
LOST = Unscored(Reason.TIMEOUT)
CREATE, UPDATE, REINFORCE, CONFLICT, SUPERSEDE, NONE = Action


def claims(state: int, *outcomes: Verdict | Unscored) -> tuple[ClaimVerdict, ...]:
    return tuple(ClaimVerdict(state, f"claim {k}", o) for k, o in enumerate(outcomes))


def test_a_mix_of_verdicts() -> None:
    mixed = claims(2, Y, P, N)
    assert fact_accuracy(mixed, 2).value == 0.5
    assert miss_rate(mixed).value == pytest.approx(2 / 3)
    assert claim_coverage(mixed).value == pytest.approx(1 / 3)
    assert claim_scores(mixed) == Figure(1.5, 3, 3)


def test_the_headline_is_the_final_state_and_the_other_form_the_mean_of_states() -> None:
    verdicts = (*claims(0, N), *claims(1, Y, N), *claims(2, Y, Y, P, Y))
    assert fact_accuracy(verdicts, 2).value == 0.875
    assert statewise_accuracy(verdicts) == Figure(1.375, 3, 3)
    assert statewise_accuracy(verdicts).value == pytest.approx((0 + 0.5 + 0.875) / 3)


@pytest.mark.parametrize(
    ("yes", "partial", "miss", "accuracy"),
    [(42, 52, 0.58, 0.68), (12, 70, 0.88, 0.47), (12, 59, 0.88, 0.415)],
)
def test_the_published_miss_rates_and_accuracies_go_together(
    yes: int, partial: int, miss: float, accuracy: float
) -> None:
    verdicts = claims(0, *[Y] * yes, *[P] * partial, *[N] * (100 - yes - partial))
    assert miss_rate(verdicts).value == pytest.approx(miss)
    assert claim_scores(verdicts).value == pytest.approx(accuracy)


def test_an_unscored_claim_stays_out_and_is_counted() -> None:
    verdicts = claims(0, Y, LOST, N, LOST)
    for metric in (claim_scores, claim_coverage, miss_rate):
        found = metric(verdicts)
        assert (found.value, found.scored, found.unscored) == (0.5, 2, 2)
    nothing = claim_scores(claims(0, LOST))
    assert (nothing.value, nothing.attempted) == (None, 1)
    # A state without a single verdict does not count as a bad state.
    assert statewise_accuracy((*claims(0, LOST), *claims(1, Y))) == Figure(1.0, 1, 2)


def test_what_the_gate_changes() -> None:
    gated, ungated = claims(3, N, Y, P, LOST, N), claims(3, P, Y, N, Y)
    assert gate_changes(gated, ungated) == Figure(2.0, 3, 4)
    assert gate_changes((), ungated).value is None
    with pytest.raises(ValueError, match="judged twice"):
        gate_changes((*gated, *gated), ungated)


def test_candidates_lie_above_the_gate_strictly_or_are_the_nearest_ten() -> None:
    cosines = {"b": 0.8, "c": 0.95, "a": 0.95, "d": 0.81}
    assert candidates(cosines) == ["a", "c", "d"]
    assert candidates(cosines, gated=False) == ["a", "c", "d", "b"]
    many = {f"f{k:02d}": k / 100 for k in range(30)}
    assert candidates(many) == []
    assert candidates(many, gated=False) == [f"f{k}" for k in range(29, 19, -1)]


def do(action: Action, match: float = 1.0, *, old: bool = True, topic: bool = True) -> Operation:
    return Operation(action, match, pre_existing=old, relevant=topic)


def test_the_dominant_action_is_the_best_match_and_then_the_strongest() -> None:
    assert dominant([do(CREATE, 0.9), do(SUPERSEDE, 0.4)]) is CREATE
    assert dominant([]) is NONE
    order = [NONE, REINFORCE, CREATE, UPDATE, CONFLICT, SUPERSEDE]
    for k in range(1, len(order) + 1):
        assert dominant([do(a, 0.7) for a in order[:k]]) is order[k - 1]
    assert dominant([do(REINFORCE, 0.1 + 0.2), do(UPDATE, 0.3)]) is UPDATE


def step(state: int, expected: Action, *operations: Operation, lost: bool = False) -> StateActions:
    return StateActions(state, expected, LOST if lost else operations)


def test_action_accuracy_strict_and_lenient() -> None:
    states = [
        step(0, CREATE, do(CREATE)),
        step(1, CONFLICT, do(SUPERSEDE)),
        step(2, SUPERSEDE, do(CONFLICT)),
        step(3, REINFORCE),
        step(4, UPDATE, lost=True),
    ]
    assert action_accuracy(states) == Figure(1.0, 4, 5)
    assert action_accuracy(states, lenient=True) == Figure(2.0, 4, 5)
    assert action_confusion(states) == {
        (CREATE, CREATE): 1,
        (CONFLICT, SUPERSEDE): 1,
        (SUPERSEDE, CONFLICT): 1,
        (REINFORCE, NONE): 1,
    }
    # Supersede passes for conflict only: never for an update.
    assert action_accuracy([step(1, UPDATE, do(SUPERSEDE))], lenient=True).value == 0.0


def test_a_skip_is_none_and_a_stranger_is_an_error() -> None:
    assert parse_action(" Skip ") is NONE
    assert parse_action("none") is NONE
    assert parse_action("SUPERSEDE") is SUPERSEDE
    with pytest.raises(ValueError, match="no action 'merge'; there are create, update"):
        parse_action("merge")


def test_update_recall_counts_changes_of_facts_that_were_there() -> None:
    states = [
        step(0, UPDATE, do(UPDATE)),  # the first arrival is no transition
        step(1, UPDATE, do(CREATE, old=False), do(UPDATE, 0.1)),  # detected
        step(2, SUPERSEDE, do(CREATE, old=False)),  # the new fact beside the old one
        step(3, CONFLICT, do(CONFLICT)),  # detected by the flag
        step(4, UPDATE, do(UPDATE, old=False)),  # of a fact that this document made
        step(5, SUPERSEDE, do(SUPERSEDE, topic=False)),  # of another topic
        step(6, UPDATE, do(REINFORCE)),
        step(7, UPDATE, lost=True),
        step(8, REINFORCE, do(UPDATE)),  # not asked here
    ]
    assert update_recall(states) == Figure(2.0, 6, 7)


def test_false_updates_are_changes_where_nothing_is_new() -> None:
    states = [
        step(1, REINFORCE, do(REINFORCE)),
        step(2, REINFORCE, do(REINFORCE), do(UPDATE, 0.2)),  # one
        step(3, REINFORCE, do(SUPERSEDE)),  # two
        step(4, REINFORCE, do(CREATE, old=False)),
        step(5, REINFORCE, do(UPDATE, topic=False)),
        step(6, REINFORCE),
        step(7, REINFORCE, lost=True),
        step(8, UPDATE, do(UPDATE)),
    ]
    assert false_updates(states) == Figure(2.0, 6, 7)


def test_a_rate_over_nothing_is_no_rate() -> None:
    states = [step(0, CREATE, do(CREATE))]
    for found in (
        update_recall(states),
        false_updates(states),
        action_accuracy([]),
        claim_scores([]),
        statewise_accuracy([]),
        confidence_error([]),
        author_error([]),
        extrinsic([]),
    ):
        assert found.value is None
        assert found.attempted == 0


def test_confidence_error_takes_a_missing_fact_for_zero_and_leaves_failures_out() -> None:
    states = [
        Confidence(0, 0.9, 0.9),
        Confidence(1, 0.7, 0.9),
        Confidence(2, 0.5, None),
        Confidence(3, 1.0, LOST),
    ]
    found = confidence_error(states)
    assert found.value == pytest.approx((0 + 0.2 + 0.5) / 3)
    assert (found.scored, found.attempted) == (3, 4)


def test_two_authors_are_two_and_one_author_twice_is_one() -> None:
    assert author_count(["Ada Bole", "Cy Dorn"]) == 2
    assert author_count(["Ada Bole", "ada  bole"]) == 1
    ada, cy = frozenset({"Ada Bole"}), frozenset({"Cy Dorn"})
    groups = [
        Attribution(ada | cy, frozenset({"ada bole", "Cy Dorn"})),
        Attribution(ada, ada | cy),
        Attribution(ada | cy, frozenset()),
        Attribution(ada, cy),
        Attribution(ada, LOST),
    ]
    assert author_error(groups) == Figure(3.0, 4, 5)
    assert author_sets(groups) == Figure(1.0, 4, 5)


def test_the_answers_mean() -> None:
    answers = [Answer(0, Y), Answer(1, P), Answer(2, LOST)]
    assert extrinsic(answers) == Figure(1.5, 2, 3)


def test_fact_counts_are_held_against_the_groups() -> None:
    assert (FactCount(7, 3).surplus, FactCount(7, 3).gap) == (4, 4)
    assert (FactCount(1, 3).surplus, FactCount(1, 3).gap) == (-2, 2)
    lost = FactCount(LOST, 3)
    assert lost.count is lost.surplus is lost.gap is None


def test_means_of_means_and_pooled_means() -> None:
    parts = [figure([1.0]), figure([0.0, 0.0, 0.0]), figure([None]), figure([])]
    assert across(parts) == Figure(1.0, 2, 3)
    assert pooled(parts) == Figure(1.0, 4, 5)
    with pytest.raises(ValueError, match="2 scored of 1"):
        Figure(0.0, 2, 1)
