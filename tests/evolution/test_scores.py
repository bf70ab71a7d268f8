"""All metrics of a trajectory together, over groups and over epochs."""

import math

import pytest

from memprobe.evolution.divergence import pairs_of
from memprobe.evolution.records import (
    Answer,
    Attribution,
    ClaimVerdict,
    Confidence,
    FactCount,
    Figure,
    Operation,
    StateActions,
    TrajectoryRun,
    Verdict,
)
from memprobe.evolution.scores import (
    METRICS,
    by_category,
    by_domain,
    by_level,
    over_epochs,
    score,
    summarise,
)
from memprobe.evolution.spec import Action
from memprobe.outcomes import Reason, Unscored

Y, P, N = Verdict.YES, Verdict.PARTIAL, Verdict.NO
ADA = frozenset({"Ada Bole"})


def run(
    name: str = "c6_a",
    *,
    level: str = "L1",
    epoch: int = 0,
    final: tuple[Verdict, ...] = (Y, P, N),
    actions: tuple[StateActions, ...] = (),
) -> TrajectoryRun:
    return TrajectoryRun(
        trajectory=name,
        category=name[:2].upper(),
        level=level,
        domain="security",
        epoch=epoch,
        final_state=1,
        gated=(
            ClaimVerdict(0, "x", Y),
            *(ClaimVerdict(1, f"c{k}", v) for k, v in enumerate(final)),
        ),
        ungated=tuple(ClaimVerdict(1, f"c{k}", Y) for k in range(len(final))),
        retracted=(ClaimVerdict(1, "gone", N), ClaimVerdict(1, "stays", Y)),
        actions=actions,
        facts=FactCount(5, 2),
        confidences=(Confidence(0, 0.9, 0.7),),
        attributions=(Attribution(ADA, ADA),),
        answers=(Answer(0, Y), Answer(1, N)),
    )


def act(state: int, expected: Action, actual: Action) -> StateActions:
    return StateActions(state, expected, (Operation(actual, 1.0, pre_existing=True),))


def test_every_metric_of_a_trajectory() -> None:
    steps = (
        act(0, Action.CREATE, Action.CREATE),
        act(1, Action.CONFLICT, Action.SUPERSEDE),
        act(2, Action.REINFORCE, Action.UPDATE),
    )
    found = score(run(actions=steps))
    assert tuple(found.figures) == METRICS
    values = {name: f.value for name, f in found.figures.items()}
    assert values == {
        "fact_accuracy": 0.5,
        "fact_accuracy_ungated": 1.0,
        "statewise_accuracy": 0.75,
        "claim_coverage": pytest.approx(1 / 3),
        "miss_rate": pytest.approx(2 / 3),
        "gate_changes": pytest.approx(2 / 3),
        "extrinsic": 0.5,
        "action_accuracy": pytest.approx(1 / 3),
        "action_accuracy_lenient": pytest.approx(2 / 3),
        "update_recall": 1.0,
        "false_updates": 1.0,
        "fact_count": 5.0,
        "fact_gap": 3.0,
        "confidence_error": pytest.approx(0.2),
        "author_error": 0.0,
        "author_sets": 1.0,
        "retracted_kept": 0.5,
    }
    (pair,) = pairs_of([found])
    assert (pair.intrinsic, pair.extrinsic, pair.category) == (0.5, 0.5, "C6")


def test_a_trajectory_without_records_has_no_figure_and_no_zero() -> None:
    found = score(TrajectoryRun("c1_a", "C1", "L1", "security", 0, 3))
    assert {f.value for f in found.figures.values()} == {None}
    assert {f.attempted for f in found.figures.values()} == {0}
    assert (found.intrinsic, found.extrinsic) == (None, None)


def test_shares_of_states_are_pooled_and_scores_are_a_mean_of_trajectories() -> None:
    right = act(0, Action.CREATE, Action.CREATE)
    wrong = act(1, Action.UPDATE, Action.CREATE)
    scores = [
        score(run("c1_a", final=(Y,), actions=(right,))),
        score(run("c2_a", level="L2", final=(N, N, N), actions=(right, wrong, wrong))),
    ]
    found = summarise(scores)
    assert found["fact_accuracy"] == Figure(1.0, 2, 2)
    assert found["action_accuracy"] == Figure(2.0, 4, 4)
    assert found["false_updates"].value is None
    assert found["fact_count"].value == 5.0
    assert [f["fact_accuracy"].value for f in by_category(scores).values()] == [1.0, 0.0]
    assert list(by_level(scores)) == ["L1", "L2"]
    assert by_domain(scores)["security"]["action_accuracy"] == Figure(2.0, 4, 4)


def test_a_failed_trajectory_is_counted_and_not_averaged() -> None:
    lost = TrajectoryRun(
        "c1_b", "C1", "L1", "security", 0, 0,
        gated=(ClaimVerdict(0, "x", Unscored(Reason.PROVIDER_ERROR)),),
        facts=FactCount(Unscored(Reason.ADAPTER_ERROR), 2),
    )  # fmt: skip
    found = summarise([score(run("c1_a", final=(Y, Y))), score(lost)])
    assert found["fact_accuracy"] == Figure(1.0, 1, 2)
    assert found["fact_count"] == Figure(5.0, 1, 2)
    assert found["extrinsic"] == Figure(0.5, 1, 1)


def test_epochs_have_a_mean_and_a_sample_deviation() -> None:
    scores = [
        score(run("c1_a", epoch=1, final=(Y,))),
        score(run("c1_b", epoch=1, final=(N,))),
        score(run("c1_a", epoch=2, final=(Y,))),
        score(run("c1_b", epoch=2, final=(Y,))),
    ]
    found = over_epochs(scores)["fact_accuracy"]
    assert (found.mean, found.epochs) == (0.75, 2)
    assert found.std == pytest.approx(0.25 * math.sqrt(2))
    assert over_epochs(scores[:2])["fact_accuracy"].std is None
    assert over_epochs(scores)["update_recall"].mean is None
