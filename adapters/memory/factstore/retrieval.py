"""Hybrid retrieval: words and vectors, weighted as published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adapters.memory.factstore.records import Fact
from adapters.memory.rag import bm25_scores
from adapters.memory.vectors import VectorIndex, Vectors

WORDS, MEANING = 0.3, 0.7
"""Weights of BM25 and of the cosine."""

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Found:
    """A fact with its score, and the two parts of it: BM25 as normalised, 0 to 1, and the cosine.

    `score` lies between -0.7 and 1.
    """

    fact: Fact
    score: float
    words: float
    cosine: float


def normalised(scores: Scores) -> Scores:
    """Scores spread over 0 to 1. Where all are equal each is 1, and 0 where no word is shared."""
    low, high = float(scores.min()), float(scores.max())
    if high > low:
        return (scores - low) / (high - low)
    return np.where(scores > 0, 1.0, 0.0)


def hybrid(
    query: str, target: Vectors, facts: Sequence[Fact], index: VectorIndex, k: int
) -> list[Found]:
    """The best `k` facts for a query, best first; of equal scores the older fact comes first.

    Candidates are the `k` best by cosine with those of the `k` best by BM25 that
    share a word. BM25 is min-max normalised among the candidates.
    """
    if not facts:
        return []
    rows = np.stack([index.row(fact.id) for fact in facts]).astype(np.float64)
    cosines = rows @ target.astype(np.float64)
    words = bm25_scores(query, [fact.statement for fact in facts])
    near = np.argsort(-cosines, kind="stable")[:k]
    worded = [i for i in np.argsort(-words, kind="stable")[:k] if words[i] > 0]
    union = sorted({*near.tolist(), *worded})
    spread = normalised(words[union])
    found = [
        Found(facts[i], WORDS * float(w) + MEANING * float(cosines[i]), float(w), float(cosines[i]))
        for i, w in zip(union, spread, strict=True)
    ]
    return sorted(found, key=lambda one: -one.score)[:k]
