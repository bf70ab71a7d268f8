"""Scores, rankings, comparisons and gates of the paradigms suite from stored verdicts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from memprobe.errors import UsageError
from memprobe.paradigms import bootstrap
from memprobe.paradigms.profile import Profile
from memprobe.paradigms.tally import METRICS, tally_of
from memprobe.types import Protocol
from storage.runs import RunStore
from tasks.compare import NO_DIFFERENCE, Side
from tasks.gate import check_gates, parse_gate
from tasks.paradigms.compare import OWN as OWN_READING
from tasks.paradigms.compare import compare, ranking
from tasks.paradigms.score import HOLM_PAIRS, HOLM_REFERENCE, score_paradigms
from tasks.score import NOTHING
from tests.paradigms.test_metrics import FULL, OWN, C, E, I, results
from tests.paradigms.verdicts import drawn
from tests.storage.probe_rows import commit_answers, commit_probes, failure_row
from tests.storage.rows import Row, new_run


def started(path: Path, name: str = "t1", **config: object) -> RunStore:
    systems = config.pop("systems", ("full_context", "mem"))
    return new_run(path, name, suite="paradigms", systems=systems, **config)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return started(tmp_path / "run")


def stored(run: RunStore, metric: str, **where: object) -> Row:
    wanted = {"system": "mem", "scorer": "strict", "group_kind": "", **where}
    rows = [
        r
        for r in run.read("probe_metrics")
        if r["metric"] == metric and all(r[k] == v for k, v in wanted.items())
    ]
    assert len(rows) == 1, rows
    return rows[0]


def three(run: RunStore) -> None:
    """The table of three episodes of `tests/paradigms/test_bootstrap.py`, and full context's."""
    commit_probes(run, OWN)
    commit_answers(run, "mem", OWN, paper=FULL)
    commit_answers(run, "full_context", FULL)


def test_every_metric_of_three_episodes(run: RunStore) -> None:
    """By hand, as counted in `test_the_table_of_three_episodes`.

    mem:  a 1 0 1 p (update), b 1 p 0 1 (preserve), c 0 1 0 error (split update)
    full: a 1 1 1 1,          b 1 1 p 1,            c 1 1 0 1
    """
    three(run)
    result = score_paradigms(run)
    assert (result.state, result.n_scored, result.n_total) == ("scored", 23, 24)
    by_hand: dict[str, tuple[float, int, int | None, int, int]] = {
        # value, n, n_other, errors, total
        "accuracy": (5 / 11, 11, None, 1, 12),
        "partial": (2 / 11, 11, None, 1, 12),
        "plasticity": (3 / 7, 7, None, 1, 8),
        "stability": (1 / 2, 4, None, 0, 4),
        "under_update": (4 / 7, 7, None, 1, 8),
        "over_update": (1 / 2, 4, None, 0, 4),
        "sp_balance": (6 / 13, 7, 4, 1, 12),
        "sp_gap": (3 / 7 - 1 / 2, 7, 4, 1, 12),
        "historical": (1 / 2, 2, None, 0, 2),
        "source_fidelity": (1 / 2, 2, None, 0, 2),
        "temporal": (0.0, 1, None, 1, 2),
        "split": (1 / 3, 3, None, 1, 4),
        "non_split": (1 / 2, 8, None, 0, 8),
        "split_delta": (-1 / 6, 3, 8, 1, 12),
        "coverage": (11 / 12, 11, None, 1, 12),
        # In common: full context has 9 of the 11 that mem was scored on.
        "delta_fc": (9 / 11 - 5 / 11, 11, 11, 1, 12),
        "rag_norm": (5 / 9, 11, 11, 1, 12),
    }
    assert {*METRICS, "coverage", "delta_fc", "rag_norm"} == set(by_hand)
    for metric, (value, n, n_other, errors, total) in by_hand.items():
        row = stored(run, metric)
        assert row["value"] == pytest.approx(value), metric
        counted = (row["n"], row["n_other"], row["n_errors"], row["n_total"])
        assert counted == (n, n_other, errors, total), metric
    assert stored(run, "accuracy", scorer="paper")["value"] == pytest.approx(10 / 12)
    full = {r["metric"] for r in run.read("probe_metrics") if r["system"] == "full_context"}
    assert "delta_fc" not in full


def test_groups(run: RunStore) -> None:
    three(run)
    score_paradigms(run)

    def accuracy(kind: str) -> dict[str, tuple[float | None, int]]:
        return {
            r["group_name"]: (r["value"], r["n"])
            for r in run.read("probe_metrics")
            if (r["metric"], r["group_kind"], r["system"], r["scorer"])
            == ("accuracy", kind, "mem", "strict")
        }

    assert accuracy("paradigm") == {
        "interference": (0.5, 4),
        "misinformation": (0.5, 4),
        "reconsolidation": (pytest.approx(1 / 3), 3),
    }
    assert accuracy("probe")["current_value"] == (pytest.approx(2 / 3), 3)
    assert accuracy("condition")["direct"] == (pytest.approx(1 / 3), 3)
    assert accuracy("domain") == {"personal": (pytest.approx(5 / 11), 11)}
    cells = accuracy("paradigm_probe")
    assert cells["interference/current_value"] == (1.0, 1)
    # Attempted and lost: no rate, and not 0.
    assert cells["reconsolidation/temporal"] == (None, 0)
    lost = stored(
        run, "accuracy", group_kind="paradigm_probe", group_name="reconsolidation/temporal"
    )
    assert (lost["n_errors"], lost["n_total"], lost["lo"]) == (1, 1, None)
    names = {
        r["metric"]
        for r in run.read("probe_metrics")
        if r["group_name"] == "misinformation" and r["system"] == "mem"
    }
    assert "historical" not in names
    assert "stability" in names


def test_intervals_are_the_kernels_with_a_seed_of_each_system(run: RunStore) -> None:
    rows = {"full_context": drawn(1, 0.9, 0.9), "mem": drawn(2, 0.5, 0.7)}
    commit_probes(run, rows["mem"])
    for system, found in rows.items():
        commit_answers(run, system, found)
    score_paradigms(run)
    expected = bootstrap.overall({name: tally_of(found) for name, found in rows.items()})
    for system in rows:
        for metric in METRICS:
            row = stored(run, metric, system=system)
            one = expected[system][metric]
            assert (row["value"], row["se"], row["lo"], row["hi"]) == pytest.approx(
                (one.value, one.se, one.lo, one.hi)
            ), metric


def test_an_episode_that_broke_off_counts_as_attempted(run: RunStore) -> None:
    commit_probes(run, OWN)
    commit_answers(run, "mem", [r for r in OWN if r.episode != "b"])
    score_paradigms(run)
    coverage = stored(run, "coverage")
    assert (coverage["n"], coverage["n_errors"], coverage["n_total"]) == (7, 5, 12)
    stability = stored(run, "stability")
    assert (stability["value"], stability["n_errors"]) == (None, 4)
    (own, _) = ranking(run)
    assert own.places == ()
    assert own.message == (
        "no ranking of own reading below 95% coverage: "
        "mem 7/12 scored = 58.3% (4 no answer, 1 timeout)"
    )


def test_epochs_are_pooled_within_their_episode(run: RunStore) -> None:
    once = drawn(3, 0.6, 0.4)
    again = [
        dataclasses.replace(r, epoch=2) for r in drawn(4, 0.6, 0.4)
    ]  # fmt: skip
    commit_probes(run, once)
    commit_answers(run, "mem", once + again)
    score_paradigms(run)
    row = stored(run, "accuracy")
    right = sum(r.right for r in once + again)
    assert (row["value"], row["n"], row["n_episodes"]) == (pytest.approx(right / 96), 96, 12)
    expected = bootstrap.overall({"mem": tally_of(once + again)})["mem"]["accuracy"]
    assert row["lo"] == pytest.approx(expected.lo)


def test_nothing_scored(run: RunStore) -> None:
    assert score_paradigms(run).state == NOTHING
    assert ranking(run) == []
    commit_probes(run, OWN)
    commit_answers(run, "mem", results(((E,) * 4,) * 3))
    result = score_paradigms(run)
    assert (result.state, result.n_scored, result.n_total) == (NOTHING, 0, 12)
    assert stored(run, "accuracy")["value"] is None


def test_comparisons_and_their_families(tmp_path: Path) -> None:
    run = started(tmp_path / "run", systems=("full_context", "a", "b"))
    rows = {
        "full_context": drawn(1, 0.95, 0.95, episodes=40),
        "a": drawn(2, 0.9, 0.9, episodes=40),
        "b": drawn(3, 0.2, 0.2, episodes=40, error=0.05),
    }
    commit_probes(run, rows["a"])
    for system, found in rows.items():
        commit_answers(run, system, found)
    score_paradigms(run)
    table = [r for r in run.read("probe_comparisons") if r["scorer"] == "strict"]
    pairs = {(r["first"], r["second"], r["correction"]) for r in table}
    assert pairs == {
        ("a", "full_context", HOLM_REFERENCE),
        ("b", "full_context", HOLM_REFERENCE),
        ("a", "b", HOLM_PAIRS),
    }
    whole = [r for r in table if not r["group_kind"]]
    assert {r["metric"] for r in whole} == {"accuracy", "plasticity", "stability", "sp_balance"}
    assert {r["group_name"] for r in table if r["group_kind"] == "probe"} == {
        r.probe_type.value for r in rows["a"]
    }
    reference = {
        r["first"]: r
        for r in whole
        if (r["metric"], r["correction"]) == ("accuracy", HOLM_REFERENCE)
    }
    p = [reference[s]["p"] for s in ("a", "b")]
    corrected = [reference[s]["p_corrected"] for s in ("a", "b")]
    floor = 2.0**-39
    assert corrected == pytest.approx(
        [max(p[0], 2 * max(p[1], floor)), 2 * max(p[1], floor)]
    )  # fmt: skip
    assert reference["b"]["shown"]
    assert reference["b"]["difference"] < 0
    # Only the probes that both have a verdict on.
    scored = {r.slot for r in rows["b"] if r.score.match.scored}
    shares = [
        sum(r.right for r in rows[s] if r.slot in scored) / len(scored)
        for s in ("b", "full_context")
    ]
    assert reference["b"]["difference"] == pytest.approx(shares[0] - shares[1])
    assert not reference["a"]["shown"]


def test_correlations_leave_references_that_are_told_out(tmp_path: Path) -> None:
    names = ("m1", "m2", "m3", "told")
    run = started(tmp_path / "run", systems=names)
    commit_probes(run, drawn(1, 0.5, 0.5))
    chances = {"m1": (0.9, 0.2), "m2": (0.6, 0.5), "m3": (0.2, 0.9), "told": (1.0, 1.0)}
    for seed, (system, chance) in enumerate(chances.items()):
        commit_answers(run, system, drawn(seed, *chance))
    from memprobe.ports import Capabilities
    from memprobe.systems import SystemCard

    able = Capabilities(full_dump=True, top_k=True, event_time=True)
    cards = {
        name: SystemCard(
            name=name,
            title=name,
            summary="made",
            licence="MIT",
            capabilities=able,
            sees_gold="values" if name == "told" else "none",
        )
        for name in names
    }
    run.update_manifest(systems=cards)
    score_paradigms(run)
    found = {
        (r["kind"], r["first"], r["second"]): r
        for r in run.read("probe_correlations")
        if r["scorer"] == "strict"
    }
    assert len(found) == 30
    one = found["axes", "plasticity", "stability"]
    assert one["n"] == 3
    assert one["spearman"] == pytest.approx(-1.0)
    assert found["axes_all", "plasticity", "stability"]["n"] == 4


def test_a_layer_is_scored_beside_the_base_and_held_against_it(run: RunStore) -> None:
    rows = {s: drawn(i, 0.9 - 0.3 * i, 0.5) for i, s in enumerate(("full_context", "mem", "x"))}
    commit_probes(run, rows["mem"])
    for system, found in rows.items():
        commit_answers(run, system, found)
        commit_answers(run, system, found, variant="other", layer="other")
    score_paradigms(run)
    before = run.files.read(run.parts("probe_metrics", variant="")[0])
    score_paradigms(run, "other")
    assert run.files.read(run.parts("probe_metrics", variant="")[0]) == before
    (readers,) = [
        r
        for r in run.read("probe_correlations", variant="other")
        if (r["kind"], r["scorer"]) == ("readers", "strict")
    ]
    assert (readers["first"], readers["second"], readers["n"]) == ("base", "other", 3)
    assert readers["spearman"] == pytest.approx(1.0)


def test_profiles_hold_the_failures(run: RunStore) -> None:
    rows = drawn(1, 0.1, 0.9, episodes=40)
    commit_probes(run, rows)
    missed = [
        failure_row("mem", r.episode, r.probe_type.value, "missed_update", "storage")
        for r in rows
        if not r.right
    ]
    commit_answers(run, "mem", rows, failures=missed)
    score_paradigms(run)
    (row,) = [r for r in run.read("probe_profiles") if r["scorer"] == "strict"]
    found = Profile.model_validate_json(row["profile_json"])
    assert found.tendency == "over_stable"
    assert found.dominant == "missed_update"
    assert found.failures[0].n == len(missed)
    accuracy = stored(run, "accuracy")
    assert (found.accuracy.lo, found.accuracy.hi) == pytest.approx(
        (accuracy["lo"], accuracy["hi"])
    )  # fmt: skip
    assert json.loads(row["profile_json"])["k"] is None


def test_equal_verdicts_make_equal_tables(run: RunStore, tmp_path: Path) -> None:
    rows = drawn(1, 0.6, 0.4)
    other = started(tmp_path / "other", "another name")
    for one, order in ((run, rows), (other, list(reversed(rows)))):
        commit_probes(one, rows)
        commit_answers(one, "mem", order)
        commit_answers(one, "full_context", rows)
        score_paradigms(one)
    for table in ("probe_metrics", "probe_comparisons", "probe_correlations", "probe_profiles"):
        (path,) = run.parts(table)
        assert run.files.read(path) == other.files.read(path), table


def test_ranking_marks_neighbours_without_a_shown_difference(tmp_path: Path) -> None:
    run = started(tmp_path / "run", systems=("a", "b", "c"))
    rows = {"a": (1, 0.9), "b": (2, 0.88), "c": (3, 0.2)}
    commit_probes(run, drawn(1, 0.5, 0.5, episodes=40))
    for system, (seed, level) in rows.items():
        k = 5 if system == "b" else None
        mode = "retrieve" if system == "b" else "dump_all"
        found = drawn(seed, level, level, episodes=40)
        commit_answers(run, system, found, access_mode=mode, k=k)
    score_paradigms(run)
    own, dump, retrieve = ranking(run)
    assert own.access_mode == OWN_READING
    assert [p.system for p in own.places][-1] == "c"
    assert [p.tied for p in own.places] == [True, False, False]
    assert [p.system for p in dump.places] == ["a", "c"]
    assert [p.system for p in retrieve.places] == ["b"]
    row = stored(run, "accuracy", system="a")
    place = next(p for p in own.places if p.system == "a")
    assert (place.b, place.n_users) == (pytest.approx(row["value"]), 40)
    assert place.interval is not None
    assert (place.interval.lo, place.interval.hi) == pytest.approx((row["lo"], row["hi"]))


def test_compare_pairs_episodes(run: RunStore, tmp_path: Path) -> None:
    other = started(tmp_path / "other", "t2")
    for one, chance in ((run, 0.95), (other, 0.2)):
        rows = drawn(1, chance, 0.7, episodes=30)
        commit_probes(one, rows)
        commit_answers(one, "mem", rows)
        commit_answers(one, "full_context", drawn(2, 0.9, 0.9, episodes=30))
    found = compare(Side(run), Side(other))
    assert (found.first, found.second, found.missing, found.scorer) == ("t1", "t2", (), "strict")
    full, mem = found.rows
    assert (full.system, full.difference, full.finding) == ("full_context", 0.0, NO_DIFFERENCE)
    assert (full.kappa, full.n_items) == (1.0, 120)
    assert (mem.n_users, mem.finding, mem.metric) == (30, "first is higher", "accuracy")
    assert mem.p_value is not None
    assert mem.p_holm is not None
    assert mem.p_holm >= mem.p_value
    metrics = {r.metric: r for r in found.by_metric if r.system == "mem"}
    assert metrics["plasticity"].finding == "first is higher"
    back = compare(Side(other), Side(run))
    assert back.rows[1].finding == "second is higher"
    with pytest.raises(UsageError, match="layers there are: base"):
        compare(Side(run), Side(run, "nothing"))
    other.update_manifest(dataset_digest="1" * 64)
    with pytest.raises(UsageError, match="episodes cannot be paired"):
        compare(Side(run), Side(other))


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    run = started(tmp_path_factory.mktemp("gated") / "run")
    commit_probes(run, OWN)
    whole = results(((C, C, C, C), (C, C, C, C), (C, C, I, C)))
    none = results(((I, I, I, I), (C, C, C, C), (I, I, I, I)))
    commit_answers(run, "full_context", whole)
    commit_answers(run, "mem", none)
    score_paradigms(run)
    return run


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("paradigms.accuracy>=0.3", [True, True]),
        ("paradigms.accuracy>=0.5", [True, False]),
        ("paradigms.accuracy.mem>=0.3", [True]),
        ("paradigms.mem.accuracy>=0.3", [True]),
        ("paradigms.dump_all.mem.plasticity<=0", [True]),
        ("paradigms.stability.mem>=1", [True]),
        ("paradigms.sp_balance.mem>0", [False]),
        ("paradigms.historical.full_context>=1", [True]),
        ("paradigms.source_fidelity.full_context>=1", [True]),
        ("paradigms.temporal.mem>0", [False]),
        ("paradigms.coverage>=1", [True, True]),
        ("paradigms.accuracy[misinformation].mem>=1", [True]),
        ("paradigms.mem.accuracy[current_value]>=0.5", [False]),
    ],
)
def test_gates(gated: RunStore, text: str, met: list[bool]) -> None:
    found = check_gates(gated, [text])
    assert [r.met for r in found] == met, found
    assert all(r.figure.startswith("paradigms.dump_all.") for r in found)


def test_a_group_that_does_not_occur_has_no_figure(gated: RunStore) -> None:
    (found,) = check_gates(gated, ["paradigms.mem.accuracy[consolidation]>=0"])
    assert (found.value, found.met) == (None, False)


def test_gates_fail_on_what_was_lost(tmp_path: Path) -> None:
    run = started(tmp_path / "run", systems=("mem", "lost"))
    commit_probes(run, OWN)
    commit_answers(run, "mem", OWN)
    score_paradigms(run)
    found = check_gates(run, ["paradigms.accuracy>=0.1"])
    # 11 of 12 scored is under the threshold; `lost` has no figure at all.
    assert [(r.figure, r.met) for r in found] == [
        ("paradigms.lost.accuracy", False),
        ("paradigms.dump_all.mem.accuracy", False),
    ]
    assert found[1].value == pytest.approx(5 / 11)


def test_gates_hold_the_scorer_of_the_runs_protocol(tmp_path: Path) -> None:
    run = started(tmp_path / "run", systems=("mem",), protocol=Protocol.PAPER)
    commit_probes(run, OWN)
    commit_answers(run, "mem", OWN, paper=FULL)
    score_paradigms(run)
    (found,) = check_gates(run, ["paradigms.accuracy>=0.8"])
    assert found.value == pytest.approx(10 / 12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paradigms.B>=1", "there are accuracy, plasticity"),
        ("paradigms>=1", "a metric is missing"),
        ("paradigms.dump_all>=1", "a metric is missing"),
        ("paradigms.accuracy[mood]>=1", "no paradigm or probe 'mood'; there are interference"),
        ("paradigms.dump_all@5.accuracy>=1", "dump_all has no k"),
        ("paradigms.chunked.accuracy>=1", "reads no store in parts"),
        ("memory.accuracy>=1", "there is recovery, as in"),
    ],
)
def test_wrong_gates_say_what_there_is(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gate(text)
    assert message in str(caught.value)


def test_gates_of_another_suite_are_refused(gated: RunStore) -> None:
    with pytest.raises(UsageError, match="t1 is a run of the suite paradigms"):
        check_gates(gated, ["recovery.B>=0.5"])
    with pytest.raises(UsageError, match="no system 'x' in this run; there are full_context, mem"):
        check_gates(gated, ["paradigms.accuracy.x>=0.5"])
