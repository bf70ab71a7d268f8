"""Fills a slot extractively: the remembered sentence that speaks most to a dimension.

The reader knows what any reader of the prompt may know: the dimension's name,
its public axis question with example answers, and the category. It never sees
the target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.models.embedded.similarity import sentences
from adapters.models.embedded.thresholds import Thresholds
from adapters.models.minilm import MiniLM
from memprobe.dataset import Dimension, Pool
from memprobe.metrics import Floats
from memprobe.types import Category
from prompts.answers import SlotFillAnswer

LABEL_WORDS = 15
_SPEAKER = re.compile(r"^(?:\[Task \d+\]|User:|Agent:|Assistant:)\s*")
_NOT_THE_USER = re.compile(r"^(?:Agent:|Assistant:|\[Task \d+\])")
_QUOTED = re.compile(r"^(?:part [\d, ]+: )*entry \d+: ")
_PAST = re.compile(r"\b(?:19|20)\d\d\b|\bago\b", re.IGNORECASE)
_ABOUT_HELP = re.compile(r"\b(?:you|your|answers?|explain|list|steps?|tell me)\b", re.IGNORECASE)
_ABOUT_ME = re.compile(r"\b(?:I|I'm|I've|me|my)\b")


@dataclass(frozen=True, slots=True)
class _Candidate:
    memory: int
    text: str


def statements(memories: Sequence[str]) -> list[tuple[int, str]]:
    """What the memories hold of the user's own statements, by index of the memory.

    Lines of the assistant and the opening requests are no evidence about the
    user (requests are leak-controlled); memories without a speaker are facts.
    """
    found = [
        (i, _SPEAKER.sub("", memory).strip())
        for i, memory in enumerate(memories)
        if not _NOT_THE_USER.match(memory)
    ]
    return [(i, text) for i, text in found if any(char.isalnum() for char in text)]


def _nothing_said(n_items: int) -> str:
    if n_items == 0:
        return "the memory is empty"
    if n_items == 1:
        return "the only item is not a statement of the user"
    return f"none of the {n_items} items is a statement of the user"


def cue(category: Category, text: str) -> float:
    """How much the form of a statement fits the category, 0 or 1."""
    if category is Category.EPISODIC:
        return float(bool(_PAST.search(text)))
    if category is Category.PREFERENCE:
        return float(bool(_ABOUT_HELP.search(text)))
    if category is Category.SELF_MODEL:
        return float(bool(_ABOUT_ME.search(text)) and not _PAST.search(text))
    return float(not _PAST.search(text))


class ExtractiveReader:
    """Label = the best statement's best sentence, cut to 15 words."""

    CUE_WEIGHT = 0.12

    def __init__(self, embedder: MiniLM, pool: Pool, cuts: Thresholds) -> None:
        self._embedder = embedder
        self._pool = pool
        self._cuts = cuts

    def queries(self, dimension: str) -> list[str]:
        """What a dimension is known by: its name, its axis question, its examples."""
        found = self._pool.find(dimension)
        name = dimension.replace("_", " ")
        if found is None:
            return [name]
        entry: Dimension = found[1]
        return [name, entry.axis, f"{name}: {', '.join(entry.examples)}"]

    async def fill(
        self, memories: Sequence[str], category: Category, dimension: str
    ) -> SlotFillAnswer:
        """The label for one dimension; "unknown" when nothing comes near it."""
        candidates = [
            _Candidate(i, text)
            for i, statement in statements(memories)
            for text in dict.fromkeys([statement, *sentences(statement)])
        ]
        if not candidates:
            return SlotFillAnswer(label="unknown", reason=_nothing_said(len(memories)))
        near, score = await self._scores([c.text for c in candidates], category, dimension)
        best = int(score.argmax())
        if float(near[best].max()) < self._cuts.reader:
            return SlotFillAnswer(label="unknown", reason="no statement comes near the dimension")
        chosen = candidates[best]
        label = " ".join(chosen.text.split()[:LABEL_WORDS])
        return SlotFillAnswer(label=label, reason=f"entry {chosen.memory + 1}: {chosen.text[:200]}")

    async def _scores(
        self, texts: Sequence[str], category: Category, dimension: str
    ) -> tuple[Floats, Floats]:
        """How near each text is to each query, and what it comes to with the form's cue."""
        near = np.einsum(
            "id,jd->ij",
            await self._embedder.matrix(list(texts)),
            await self._embedder.matrix(self.queries(dimension)),
        )
        fit = np.array([cue(category, t) for t in texts])
        return near, near.mean(axis=1) + self.CUE_WEIGHT * fit

    async def merge(
        self, candidates: Sequence[Mapping[str, Any]], category: Category, dimension: str
    ) -> SlotFillAnswer:
        """One of the labels that the parts of a memory gave; of equals the earliest part's.

        The statements behind the labels are weighed as `fill` weighs those of one
        memory, so that reading in parts finds what reading at once does.
        """
        said = [_QUOTED.sub("", c["evidence"]) or c["label"] for c in candidates]
        _, score = await self._scores(said, category, dimension)
        best = candidates[int(score.argmax())]
        return SlotFillAnswer(
            label=best["label"], reason=f"part {best['part']}: {best['evidence']}"
        )
