"""Judge, oracle, disclosure and subclass by similarity to the target."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from adapters.models.embedded.polarity import MARGIN, opposition, positions
from adapters.models.embedded.rubric import Evidence, axes, rubric, share
from adapters.models.embedded.thresholds import Thresholds
from adapters.models.minilm import MiniLM
from prompts.answers import (
    JUDGE_SCALE,
    DisclosureAnswer,
    JudgeAnswer,
    OracleAnswer,
    SubclassAnswer,
)

_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+")


def sentences(text: str) -> list[str]:
    """The sentences of a text, split at end marks followed by space."""
    return [s.strip() for s in _SENTENCE.split(text.strip()) if s.strip()]


async def nearest(
    embedder: MiniLM, texts: Sequence[str], targets: Sequence[str]
) -> tuple[float, int]:
    """Highest cosine of any text with any target, and the index of that text."""
    a = await embedder.matrix(texts)
    b = await embedder.matrix(targets)
    best = np.einsum("id,jd->ij", a, b).max(axis=1)
    index = int(best.argmax())
    return float(best[index]), index


class SimilarityJudge:
    """Verdicts from evidence and calibrated constants; see the data files for their provenance."""

    def __init__(self, embedder: MiniLM, cuts: Thresholds) -> None:
        self._embedder = embedder
        self._cuts = cuts

    async def evidence(
        self, label: str, short: str, explanation: str, dimension: str = ""
    ) -> Evidence:
        """What speaks for and against a label; opposition only with its dimension named."""
        cosine, _ = await nearest(self._embedder, [label], [short, explanation])
        axis = axes().find(dimension)
        against = 0.0
        if axis is not None:
            against = opposition(*await positions(self._embedder, [label, short], axis))
        return Evidence(cosine, share(label, short, explanation), against)

    async def judge(
        self, label: str, short: str, explanation: str, dimension: str = ""
    ) -> JudgeAnswer:
        """Score of a recovered label on the five-point scale."""
        found = await self.evidence(label, short, explanation, dimension)
        reason = f"cosine {found.cosine:.2f} with the target, {found.share:.0%} of its words shared"
        if found.opposition >= MARGIN:
            reason += f", opposite ends of the axis by {found.opposition:.2f}"
        return JudgeAnswer(score=JUDGE_SCALE[rubric().step(found)], reason=reason)

    async def oracle(self, task: str, short: str, explanation: str) -> OracleAnswer:
        """Whether the task is near enough to its target to bring it up."""
        cosine, _ = await nearest(self._embedder, [task], [short, explanation])
        return OracleAnswer(
            can_invite=cosine >= self._cuts.oracle,
            reason=f"cosine {cosine:.2f} of the request with the target",
        )

    async def disclosure(
        self, user_texts: Sequence[str], short: str, explanation: str
    ) -> DisclosureAnswer:
        """Whether any of the user's messages, whole or by sentence, shows the target."""
        texts = [t for text in user_texts if text for t in dict.fromkeys([text, *sentences(text)])]
        if not texts:
            return DisclosureAnswer(disclosed=False)
        cosine, index = await nearest(self._embedder, texts, [short, explanation])
        shown = cosine >= self._cuts.disclosure
        return DisclosureAnswer(disclosed=shown, evidence=texts[index] if shown else "")

    async def subclass(
        self, replies: Sequence[str], short: str, explanation: str
    ) -> SubclassAnswer:
        """Whether the assistant asked, and asked near the target."""
        questions = [s for reply in replies for s in sentences(reply) if s.endswith("?")]
        if not questions:
            return SubclassAnswer(
                cause="agent_elicitation_failure", reason="the replies hold no question"
            )
        cosine, index = await nearest(self._embedder, questions, [short, explanation])
        asked = f"{questions[index]!r} has cosine {cosine:.2f} with the target"
        if cosine >= self._cuts.invitation:
            return SubclassAnswer(cause="simulator_too_strict", reason=asked)
        return SubclassAnswer(cause="unclassified", reason=asked)
