"""Every metric against a table of three episodes that was computed by hand."""

from __future__ import annotations

import pytest

from memprobe.paradigms.metrics import (
    Rate,
    Result,
    by_paradigm,
    by_paradigm_and_probe,
    by_probe,
    delta_fc,
    in_common,
    rag_norm,
    results_of,
    summarise,
)
from memprobe.paradigms.scoring import Match, Score
from memprobe.paradigms.spec import Paradigm, ProbeType
from tests.paradigms.support import episode

C, P, I = Match.CORRECT, Match.PARTIAL, Match.INCORRECT  # noqa: E741
E, S = Match.EXECUTION_ERROR, Match.SKIP


def results(verdicts: tuple[tuple[Match, ...], ...], *, status: bool | None = True) -> list[Result]:
    """An interference update, a misinformation preserve, a split reconsolidation update."""
    episodes = (
        episode("authoritative_update", name="a"),  # current, previous, change, temporal
        episode("third_party_noise", name="b"),  # current, conflict, source, change
        episode("direct", split=True, name="c"),  # current, previous, change, temporal
    )
    found = []
    for one, row in zip(episodes, verdicts, strict=True):
        scores = [
            Score(
                m,
                "by hand",
                {"status": status}
                if p.probe_type is ProbeType.CONFLICT and status is not None
                else {},
            )
            for m, p in zip(row, one.probes, strict=True)
        ]
        found += results_of(one, scores)
    return found


OWN = results(((C, I, C, P), (C, P, I, C), (I, C, I, E)))
FULL = results(((C, C, C, C), (C, C, P, C), (C, C, I, C)))


def test_the_table_of_three_episodes() -> None:
    s = summarise(OWN)
    # a: 2 of 4, b: 2 of 4, c: 1 of 3 (one call failed).
    assert s.accuracy == Rate(5, 11)
    assert s.partial == Rate(2, 11)
    assert s.plasticity == Rate(3, 7)
    assert s.stability == Rate(2, 4)
    assert s.under_update == Rate(4, 7)
    assert s.over_update == Rate(2, 4)
    # 2 * 3/7 * 1/2 / (3/7 + 1/2) = 6/13
    assert s.sp_balance.value == pytest.approx(6 / 13)
    assert s.sp_balance.n == (7, 4)
    assert s.historical == Rate(1, 2)
    # One source probe, wrong; one conflict probe, whose status part is right.
    assert s.source_fidelity == Rate(1, 2)
    assert s.temporal == Rate(0, 1)
    assert s.split == Rate(1, 3)
    assert s.non_split == Rate(4, 8)
    assert s.split_delta.value == pytest.approx(-1 / 6)
    assert s.split_delta.n == (3, 8)
    assert (s.execution_errors, s.skipped) == (1, 0)


def test_groups() -> None:
    paradigms = by_paradigm(OWN)
    assert {p: s.accuracy for p, s in paradigms.items()} == {
        Paradigm.INTERFERENCE: Rate(2, 4),
        Paradigm.MISINFORMATION: Rate(2, 4),
        Paradigm.RECONSOLIDATION: Rate(1, 3),
    }
    assert by_probe(OWN) == {
        ProbeType.CURRENT: Rate(2, 3),
        ProbeType.PREVIOUS: Rate(1, 2),
        ProbeType.CHANGE: Rate(2, 3),
        ProbeType.TEMPORAL: Rate(0, 1),
        ProbeType.CONFLICT: Rate(0, 1),
        ProbeType.SOURCE: Rate(0, 1),
    }
    cells = by_paradigm_and_probe(OWN)
    assert cells[Paradigm.INTERFERENCE, ProbeType.CURRENT] == Rate(1, 1)
    assert (Paradigm.RECONSOLIDATION, ProbeType.TEMPORAL) not in cells
    assert sum((rate for rate in cells.values()), Rate(0, 0)) == Rate(5, 11)


def test_against_full_context() -> None:
    assert summarise(FULL).accuracy == Rate(10, 12)
    delta = delta_fc(FULL, OWN)
    assert delta.value == pytest.approx(10 / 12 - 5 / 11)
    assert delta.n == (12, 11)
    norm = rag_norm(FULL, OWN)
    assert norm.value == pytest.approx((5 / 11) / (10 / 12))
    assert norm.n == (11, 12)
    both = in_common(FULL, OWN)
    same = delta_fc(both["first"], both["second"])
    assert same.value == pytest.approx(9 / 11 - 5 / 11)
    assert same.n == (11, 11)


def test_nothing_is_no_zero() -> None:
    empty = summarise([])
    assert empty.accuracy.value is None
    assert empty.sp_balance.value is None
    assert empty.split_delta.value is None
    assert rag_norm([], OWN).value is None
    none_right = results(((I,) * 4,) * 3)
    assert rag_norm(none_right, OWN).value is None
    assert summarise(none_right).sp_balance.value == 0.0
    only_updates = [r for r in OWN if r.episode != "b"]
    assert summarise(only_updates).stability.value is None
    assert summarise(only_updates).over_update.value is None


def test_skips_and_rows_without_parts_are_left_out() -> None:
    s = summarise(results(((S, C, C, C), (C, C, C, C), (C, C, C, C)), status=None))
    assert s.accuracy == Rate(11, 11)
    assert s.skipped == 1
    assert s.source_fidelity == Rate(1, 1)


def test_a_score_for_each_probe() -> None:
    with pytest.raises(ValueError, match="shorter"):
        results_of(episode(), [Score(C, "")])
