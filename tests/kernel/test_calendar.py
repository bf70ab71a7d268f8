"""The simulated calendar: rising, drawn from the seed, never the wall clock."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memprobe.calendar import START, draw, episode_start, message_time

seeds = st.integers(min_value=0, max_value=2**32)
ids = st.text(min_size=1, max_size=12)


@given(seeds, ids)
def test_episodes_follow_each_other_by_days(seed: int, user: str) -> None:
    starts = [episode_start(seed, user, episode) for episode in range(1, 32)]
    assert starts[0] > START
    for earlier, later in pairwise(starts):
        assert timedelta(hours=10) <= later - earlier < timedelta(days=4)
    assert all(7 <= s.hour < 21 and s.utcoffset() == timedelta(0) for s in starts)


@given(seeds, ids, st.integers(min_value=1, max_value=60))
def test_messages_rise_within_an_episode_and_end_before_the_next(
    seed: int, user: str, turns: int
) -> None:
    """The order of writing: request, reply, reaction, reply, ..., the last reaction."""
    start = episode_start(seed, user, 1)
    order = [(t, role) for t in range(1, turns + 1) for role in ("user", "assistant")]
    times = [message_time(start, t, role) for t, role in [*order, (turns + 1, "user")]]
    assert times[0] == start
    assert all(a < z for a, z in pairwise(times))
    assert times[-1] < episode_start(seed, user, 2)


def test_the_calendar_is_fixed_by_its_seed() -> None:
    assert episode_start(7, "user_001", 3) == episode_start(7, "user_001", 3)
    assert len({episode_start(s, u, 3) for s in range(5) for u in ("a", "b")}) == 10


@given(st.lists(st.one_of(st.integers(), st.text()), max_size=4))
def test_draws_lie_in_the_half_open_unit_interval(parts: list[object]) -> None:
    assert 0.0 <= draw(*parts) < 1.0
    assert draw(*parts) == draw(*parts)


def test_draws_are_spread_evenly_and_keep_parts_apart() -> None:
    tenths = Counter(int(10 * draw("spread", i)) for i in range(2000))
    assert set(tenths) == set(range(10))
    assert all(140 < n < 260 for n in tenths.values())
    assert draw("ab", "c") != draw("a", "bc")
