"""Divergence, kappa, signed ranks and Pearson's r against hand tables."""

import math
from itertools import product

import pytest

from memprobe.evolution.divergence import (
    FIGURES,
    Pair,
    averaged,
    by_category,
    by_level,
    divergence,
    diverges,
    intervals,
    kappa,
    over_epochs,
    passes,
    signed_rank,
)


def pair(
    name: str,
    intrinsic: float | None,
    extrinsic: float | None,
    *,
    epoch: int = 0,
    category: str = "C1",
    level: str = "L1",
) -> Pair:
    return Pair(name, category, level, epoch, intrinsic, extrinsic)


def test_the_bound_itself_does_not_diverge() -> None:
    assert not diverges(0.65 - 0.5)
    assert not diverges(0.5 - 0.65)
    assert not diverges(0.15)
    assert diverges(0.1501)
    assert diverges(-1 / 6)
    found = divergence([pair("a", 0.65, 0.5), pair("b", 0.4, 0.25), pair("c", 0.5, 0.75)])
    assert found.rate == pytest.approx(1 / 3)


def test_half_passes() -> None:
    assert passes(0.5)
    assert passes(1 / 6 + 1 / 3)
    assert passes(0.7 - 0.2)
    assert not passes(0.4999)


def test_four_pairs_by_hand() -> None:
    found = divergence(
        [
            pair("a", 1.0, 0.5),
            pair("b", 0.5, 0.5),
            pair("c", 0.0, 0.0),
            pair("d", 0.5, 1.0),
            pair("e", None, 1.0),
            pair("f", 0.5, None),
        ]
    )
    assert (found.n, found.left_out, found.trajectories) == (4, 2, 4)
    assert (found.intrinsic, found.extrinsic) == (0.5, 0.5)
    assert (found.mad, found.rate, found.signed, found.flips) == (0.25, 0.5, 0.0, 0.0)
    assert found.kappa == 1.0
    # d_I = (.5, 0, -.5, 0), d_E = (0, 0, -.5, .5): .25 / sqrt(.5 * .5)
    assert found.r == pytest.approx(0.5)
    # d = (.5, 0, 0, -.5): two ranks of 1.5, one on each side.
    assert (found.test.n, found.test.plus, found.test.minus) == (2, 1.5, 1.5)
    assert found.test.p == 1.0


def test_signs_and_flips_by_hand() -> None:
    found = divergence([pair("a", 0.75, 0.25), pair("b", 0.25, 0.5), pair("c", 1.0, 1.0)])
    assert found.mad == pytest.approx(0.25)
    assert found.signed == pytest.approx(0.25 / 3)
    assert found.flips == pytest.approx(2 / 3)


def test_nothing_to_compare_is_no_figure() -> None:
    found = divergence([pair("a", None, 1.0)])
    assert (found.n, found.left_out) == (0, 1)
    assert [getattr(found, name) for name in FIGURES] == [None] * len(FIGURES)
    assert found.test.p is None


def test_kappa_on_a_hand_table() -> None:
    # 9 both, 3 first only, 2 second only, 6 none: (.75 - .51) / (1 - .51)
    sides = [(True, True)] * 9 + [(True, False)] * 3 + [(False, True)] * 2 + [(False, False)] * 6
    first, second = [a for a, _ in sides], [b for _, b in sides]
    assert kappa(first, second) == pytest.approx(0.24 / 0.49)
    assert kappa(second, first) == pytest.approx(0.24 / 0.49)
    assert kappa([True, False], [False, True]) == -1.0
    assert kappa([True, False, True, False], [True, True, False, False]) == 0.0
    assert kappa([True, True], [True, True]) is None
    assert kappa([True, True], [True, False]) == 0.0
    assert kappa([], []) is None
    with pytest.raises(ValueError, match="same items"):
        kappa([True], [])


def test_signed_ranks_with_a_zero_and_a_tie_by_hand() -> None:
    found = signed_rank([0.5, -0.25, 0.25, 0.75, 0.0, 1.0])
    assert (found.n, found.plus, found.minus, found.statistic) == (5, 13.5, 1.5, 1.5)
    # Of 32 signings {} and each of the two 1.5 alone lie at or below 1.5.
    assert found.p == 6 / 32
    assert found.exact


def test_equal_differences_are_ties_whatever_their_rounding() -> None:
    found = signed_rank([0.65 - 0.5, 0.5 - 0.65, 0.15, 0.3 - 0.3])
    assert (found.n, found.plus, found.minus) == (3, 4.0, 2.0)


@pytest.mark.parametrize(
    ("n", "critical", "ways"),
    # Critical values of Wilcoxon's table at 5 %, two-sided, with the signings below them.
    [(6, 0, 1), (8, 3, 5), (9, 5, 10), (10, 8, 25)],
)
def test_the_table_of_critical_values(n: int, critical: int, ways: int) -> None:
    negative, left = set(), critical
    for rank in range(n, 0, -1):
        if rank <= left:
            negative.add(rank)
            left -= rank
    found = signed_rank([-k if k in negative else k for k in range(1, n + 1)])
    assert found.statistic == critical
    assert found.p == 2 * ways / 2**n
    assert found.p <= 0.05


def test_the_exact_p_counts_all_signings() -> None:
    sizes = [0.1, 0.2, 0.2, 0.4, 0.4, 0.4, 0.9]
    ranks = [1, 2.5, 2.5, 5, 5, 5, 7]
    for signs in product([1, -1], repeat=7):
        found = signed_rank([s * x for s, x in zip(signs, sizes, strict=True)])
        sums = [
            sum(r for r, s in zip(ranks, other, strict=True) if s > 0)
            for other in product([1, -1], repeat=7)
        ]
        below = sum(total <= found.statistic for total in sums)
        assert found.p == min(1.0, 2 * below / 128)


def test_many_differences_take_the_normal_approximation() -> None:
    found = signed_rank([k / 100 for k in range(1, 52)])
    assert (found.n, found.statistic, found.exact) == (51, 0.0, False)
    z = (51 * 52 / 4) / math.sqrt(51 * 52 * 103 / 24)
    assert found.p == pytest.approx(math.erfc(z / math.sqrt(2)))
    # 52 of one size, 34 above zero: the tie correction makes it the sign test, z = 16 / sqrt(52).
    tied = signed_rank([0.25] * 34 + [-0.25] * 18)
    assert tied.statistic == 18 * 26.5
    assert tied.p == pytest.approx(math.erfc(16 / math.sqrt(52) / math.sqrt(2)))


def test_groups() -> None:
    pairs = [
        pair("a", 1.0, 0.0),
        pair("b", 0.5, 0.5, level="L2"),
        pair("c", 0.0, 0.5, category="C2", level="L2"),
    ]
    found = by_category(pairs)
    assert (found["C1"].mad, found["C2"].mad) == (0.5, 0.5)
    assert (found["C1"].signed, found["C2"].signed) == (0.5, -0.5)
    levels = by_level(pairs)
    assert list(levels) == ["L1", "L2"]
    assert (levels["L1"].rate, levels["L2"].rate) == (1.0, 0.5)


def test_the_spread_over_epochs_is_the_sample_s() -> None:
    pairs = [
        pair("a", 1.0, 0.5, epoch=1),
        pair("b", 1.0, 1.0, epoch=1),
        pair("a", 1.0, 0.0, epoch=2),
        pair("b", 1.0, 1.0, epoch=2),
    ]
    found = over_epochs(pairs)
    # MAD is .25 and .5: their mean, and sqrt(2 * .125 ** 2).
    assert found["mad"].mean == 0.375
    assert found["mad"].std == pytest.approx(0.125 * math.sqrt(2))
    assert found["mad"].epochs == 2
    assert (found["r"].mean, found["r"].std, found["r"].epochs) == (None, None, 0)
    assert over_epochs(pairs[:2])["mad"].std is None


def test_one_pair_a_trajectory() -> None:
    pairs = [
        pair("b", 0.5, 0.25, category="C2"),
        pair("a", 1.0, 0.5, epoch=1),
        pair("a", 0.5, 0.0, epoch=2),
        pair("a", None, 1.0, epoch=3),
    ]
    assert averaged(pairs) == [pair("a", 0.75, 0.25), pair("b", 0.5, 0.25, category="C2")]


SCORES = [
    (1.0, 0.5), (0.75, 0.5), (0.25, 0.5), (0.5, 0.0), (0.0, 0.25), (1.0, 1.0), (0.6, 0.2),
    (0.9, 0.4), (0.3, 0.3), (0.8, 0.9),
]  # fmt: skip


def test_repeating_the_trajectories_makes_no_evidence() -> None:
    once = [pair(f"t{k}", i, e) for k, (i, e) in enumerate(SCORES)]
    often = [pair(f"t{k}", i, e, epoch=n) for n in range(11) for k, (i, e) in enumerate(SCORES)]
    few, many = intervals(once), intervals(often)
    for name in FIGURES:
        a, b = few[name], many[name]
        assert a is not None
        assert b is not None
        assert (b.lo, b.hi) == pytest.approx((a.lo, a.hi))
        value = getattr(divergence(once), name)
        assert a.lo < value < a.hi
    # The test over all pairs is fooled, and the one over trajectories is not.
    naive, honest = divergence(often).test, divergence(averaged(often)).test
    assert naive.p is not None
    assert honest.p is not None
    assert naive.p < 0.001 < 0.05 < honest.p


def test_intervals_of_a_sure_thing_have_no_width() -> None:
    pairs = [pair(f"t{k}", 0.75, 0.5, epoch=n) for k in range(5) for n in range(3)]
    found = intervals(pairs)
    for name, value in (("mad", 0.25), ("signed", 0.25), ("rate", 1.0), ("flips", 0.0)):
        one = found[name]
        assert one is not None
        assert (one.lo, one.hi) == (value, value)
    assert found["kappa"] is None
    assert found["r"] is None
    assert intervals(pairs[:3]) == dict.fromkeys(FIGURES)
