"""Retrieval over turns: BM25 and vectors, fused by reciprocal rank."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from adapters.memory.notes import NoteLog
from memprobe.ports import Capabilities
from memprobe.systems import SystemCard

FUSION = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""

_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Case-folded word characters of any script."""
    return _WORD.findall(text.casefold())


def ranks(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rank of each score from 1, best first; of equal scores the earlier one comes first."""
    order = np.argsort(-scores, kind="stable")
    out = np.empty(len(scores), dtype=np.float64)
    out[order] = np.arange(1, len(scores) + 1)
    return out


def bm25_scores(query: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """BM25 (Lucene's variant, k1 1.5, b 0.75) of each text; 0 where no word is shared."""
    index, known = _index(tuple(texts))
    wanted = [word for word in tokenize(query) if word in known]
    if not wanted:
        return np.zeros(len(texts))
    return np.asarray(index.get_scores(wanted), dtype=np.float64)


@lru_cache(maxsize=8)
def _index(texts: tuple[str, ...]) -> tuple[Any, frozenset[str]]:
    """The index of some texts and its words; a recovery asks one store dozens of questions."""
    import bm25s

    # It logs every index at DEBUG through a handler of its own.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    corpus = [tokenize(text) for text in texts]
    known = frozenset(word for tokens in corpus for word in tokens)
    index = bm25s.BM25()
    if known:
        index.index(corpus, show_progress=False)
    return index, known


class Rag(NoteLog):
    """Every message is kept; the assistant reads the best ones for the user's latest message.

    Score of a note: 1 / (60 + its rank by cosine), plus 1 / (60 + its rank by
    BM25) where it shares a word with the query.
    """

    name = "rag"
    capabilities = Capabilities(needs_embedder=True, documents=True)
    card = SystemCard(
        name=name,
        title="Retrieval (BM25 + vectors)",
        summary="Keeps every message; reads the top k by BM25 and vectors, rank-fused.",
        licence="Apache-2.0",
        capabilities=capabilities,
        score_scale="reciprocal rank fusion, up to 2/61; comparable within one query only",
    )

    async def rank(self, query: str, positions: Sequence[int]) -> npt.NDArray[np.float64]:
        """The fused score."""
        by_vector = await self.cosine(query, positions)
        by_word = bm25_scores(query, [self.text(position) for position in positions])
        fused = 1 / (FUSION + ranks(by_vector))
        return fused + np.where(by_word > 0, 1 / (FUSION + ranks(by_word)), 0.0)
