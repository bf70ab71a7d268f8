"""The simulated calendar of a user's episodes.

A user comes back every one to four days at some hour of the day; turns follow
within minutes. All of it is drawn from the seed, so a resumed run sees the same
times, and none of it is ever "now".
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

START = datetime(2025, 1, 6, tzinfo=UTC)


def draw(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\x1f".join(str(p) for p in parts).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def episode_start(seed: int, user_id: str, episode: int) -> datetime:
    """When an episode (from 1) begins; strictly later than the one before."""
    days = sum(1 + int(3 * draw("gap", seed, user_id, e)) for e in range(1, episode + 1))
    minute = 7 * 60 + int(14 * 60 * draw("hour", seed, user_id, episode))
    return START + timedelta(days=days, minutes=minute)


def message_time(start: datetime, turn: int, role: str) -> datetime:
    """When a message of a turn (from 1) is sent: two minutes a turn, the reply 20 s later."""
    seconds = 120 * (turn - 1) + (20 if role == "assistant" else 0)
    return start + timedelta(seconds=seconds)
