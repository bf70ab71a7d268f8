"""How hot a segment is, and how well pages fit it: MemoryOS's arithmetic, pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime

VISITS, INTERACTIONS, RECENCY = 1.0, 1.0, 1.0
"""The weights of a segment's heat."""

FADING_HOURS = 24.0
"""Hours after which the recency of an unvisited segment has fallen to 1/e."""

KEYWORDS = 1.0
"""The weight of shared keywords beside the cosine of the summaries."""


def recency(last_visit: datetime, now: datetime) -> float:
    """`exp(-hours / 24)` since the last visit; 1 for one that lies ahead."""
    hours = (now - last_visit).total_seconds() / 3600.0
    return math.exp(-max(hours, 0.0) / FADING_HOURS)


def heat(visits: int, interactions: int, recent: float) -> float:
    """The sum of visits by readers, pages that came in, and recency."""
    return VISITS * visits + INTERACTIONS * interactions + RECENCY * recent


def fit(cosine: float, keywords: Collection[str], others: Collection[str]) -> float:
    """How well a summary fits a segment: cosine plus the keywords' Jaccard index."""
    return cosine + KEYWORDS * jaccard(keywords, others)


def jaccard(keywords: Collection[str], others: Collection[str]) -> float:
    """Shared by all keywords; 0 where neither side has any."""
    one, other = set(keywords), set(others)
    union = one | other
    return len(one & other) / len(union) if union else 0.0
