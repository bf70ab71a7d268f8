"""The hybrid score by hand: words and vectors, and who is a candidate."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from adapters.memory.factstore.records import Fact
from adapters.memory.factstore.retrieval import Found, hybrid, normalised
from adapters.memory.vectors import VectorIndex
from tests.adapters.support import WordEmbedder

NOW = datetime(2025, 1, 20, tzinfo=UTC)
ROWS = {
    "kafka works": (0.6, 0.8),
    "the weekly kafka report is long today": (0.8, 0.6),
    "nothing here": (1.0, 0.0),
}


def found(query: str, k: int, rows: dict[str, tuple[float, float]] = ROWS) -> list[Found]:
    """What is found with the vector (1, 0) for the query."""
    index = VectorIndex(WordEmbedder())
    facts = []
    for number, (text, row) in enumerate(rows.items(), 1):
        facts.append(
            Fact(
                id=f"f{number}",
                statement=text,
                confidence=0.9,
                category="state",
                created=NOW,
                last_update=NOW,
                history=(),
                authors=("a",),
                observation_ids=("o1",),
            )
        )
        index.put(f"f{number}", text, np.asarray(row, dtype=np.float32))
    return hybrid(query, np.asarray((1.0, 0.0), dtype=np.float32), facts, index, k)


def test_the_score_is_three_tenths_words_and_seven_tenths_cosine() -> None:
    # BM25 with k1 1.5 and b 0.75: lengths 2, 7, 2 with mean 11/3, one word once in two texts.
    # The inverse document frequency cancels: the best of three becomes 1, the wordless one 0.
    short = 1 / (1 + 1.5 * (0.25 + 0.75 * 2 / (11 / 3)))
    long = 1 / (1 + 1.5 * (0.25 + 0.75 * 7 / (11 / 3)))
    assert long / short == pytest.approx(0.564516, abs=1e-6)
    scores = {one.fact.id: one.score for one in found("kafka", 10)}
    assert scores == {
        "f2": pytest.approx(0.3 * 0.564516 + 0.7 * 0.8, abs=1e-5),
        "f1": pytest.approx(0.3 * 1.0 + 0.7 * 0.6, abs=1e-5),
        "f3": pytest.approx(0.3 * 0.0 + 0.7 * 1.0, abs=1e-5),
    }
    assert list(scores) == ["f2", "f1", "f3"]


def test_candidates_are_the_best_of_each_kind_and_words_count_among_them() -> None:
    # With k = 1: f3 by cosine and f1 by words. f2, the best of all three, is no candidate.
    (best,) = found("kafka", 1)
    assert (best.fact.id, best.words) == ("f1", 1.0)
    assert best.score == pytest.approx(0.72)


def test_without_a_shared_word_the_cosine_decides() -> None:
    assert [(one.fact.id, one.words) for one in found("zebra", 3)] == [
        ("f3", 0.0),
        ("f2", 0.0),
        ("f1", 0.0),
    ]


def test_equal_words_all_count_as_best() -> None:
    assert normalised(np.array([2.5])).tolist() == [1.0]
    assert normalised(np.array([2.5, 2.5])).tolist() == [1.0, 1.0]
    assert normalised(np.array([0.0, 0.0])).tolist() == [0.0, 0.0]
    assert normalised(np.array([1.0, 2.0, 3.0])).tolist() == [0.0, 0.5, 1.0]


def test_of_equal_scores_the_older_fact_comes_first() -> None:
    twins = {"one": (1.0, 0.0), "two": (1.0, 0.0), "three": (1.0, 0.0)}
    assert [one.fact.id for one in found("zebra", 2, twins)] == ["f1", "f2"]
