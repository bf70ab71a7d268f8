"""The engine without a language model: sentences, rules and an embedder. Same inputs, same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from adapters.memory.factstore.consolidate import appended
from adapters.memory.factstore.cues import drafts
from adapters.memory.factstore.engine import Decision
from adapters.memory.factstore.records import Action, Draft, Fact, Observation
from adapters.memory.factstore.relations import Relation, relation
from adapters.memory.factstore.texts import parts_of
from memprobe.evolution.wording import sentences
from memprobe.ports import Embedder
from memprobe.types import DocumentEvent, Event

LONGEST = 6
"""Sentences of a fact; one that is full takes no more, and a new one is made."""
DISPUTE = timedelta(days=30)
"""Two authors who contradict each other within this time disagree; later, things have changed."""
CHANGING = frozenset({"change", "decision"})
"""Categories of statements that say of themselves that they replace what was said before."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A candidate's strongest relation to the observation, and what each of its sentences has."""

    fact: Fact
    relation: Relation
    cosine: float
    parts: tuple[tuple[str, Relation], ...]

    @property
    def kept(self) -> list[str]:
        """The sentences that the observation does not contradict."""
        return [text for text, found in self.parts if found is not Relation.CONTRADICTS]


class EmbeddedEngine:
    """Each kept sentence is a statement; cosines, shared words and values decide."""

    def __init__(self, embedder: Embedder, *, conflict: bool) -> None:
        self._embedder = embedder
        self._conflict = conflict

    async def extract(self, event: Event) -> list[Draft]:
        """The kept sentences of each speaker, in order."""
        document = isinstance(event, DocumentEvent)
        return [d for part in parts_of(event) for d in drafts(part, document=document)]

    async def decide(self, observation: Observation, candidates: Sequence[Fact]) -> Decision:
        """Reinforce what says the same, else supersede or mark what is contradicted, else add."""
        seen = await self._compared(observation, candidates)
        same = _best(seen, Relation.SAME)
        against = [one for one in seen if one.relation is Relation.CONTRADICTS]
        firm = observation.draft.category in CHANGING
        if same is not None:
            # What settles a dispute takes a side in it.
            beaten = tuple(
                one.fact.id
                for one in seen
                if firm and (one in against or one.fact.id in same.fact.conflicts_with)
            )
            if beaten and same.fact.id not in beaten:
                return Decision(Action.SUPERSEDE, beaten, agrees=same.fact.id)
            return Decision(Action.REINFORCE, (same.fact.id,))
        if against:
            return self._contradiction(observation, against, firm=firm)
        adds = _best(seen, Relation.ADDS)
        if adds is not None and len(adds.parts) < LONGEST:
            return Decision(Action.UPDATE, (adds.fact.id,))
        return Decision(Action.CREATE)

    def _contradiction(
        self, observation: Observation, against: Sequence[_Seen], *, firm: bool
    ) -> Decision:
        nearest = max(against, key=lambda one: one.cosine)
        own = observation.author in nearest.fact.authors
        soon = observation.time - nearest.fact.last_update <= DISPUTE
        if self._conflict and soon and not own and not firm:
            return Decision(Action.CONFLICT, (nearest.fact.id,))
        # What else the facts said holds on in the one that takes their place.
        kept = [text for one in against for text in one.kept]
        statement = " ".join(dict.fromkeys([*kept, observation.what])) if kept else ""
        return Decision(
            Action.SUPERSEDE, tuple(one.fact.id for one in against), statement=statement
        )

    async def _compared(self, observation: Observation, facts: Sequence[Fact]) -> list[_Seen]:
        split = [sentences(fact.statement) or [fact.statement] for fact in facts]
        texts = [observation.what, *(text for parts in split for text in parts)]
        rows = np.asarray(await self._embedder.encode(texts), dtype=np.float64)
        cosines = iter((rows[1:] @ rows[0]).tolist())
        changes = observation.draft.category == "change"
        found = []
        for fact, parts in zip(facts, split, strict=True):
            near = [(text, next(cosines)) for text in parts]
            each = [relation(text, observation.what, c, changes=changes) for text, c in near]
            strongest = max(each)
            cosine = max(c for (_, c), r in zip(near, each, strict=True) if r is strongest)
            found.append(_Seen(fact, strongest, cosine, tuple(zip(parts, each, strict=True))))
        return found

    async def synthesise(self, fact: Fact, observation: Observation) -> str:
        """Both behind one another: no detail can be lost."""
        return appended(fact.statement, observation.what)

    async def close(self) -> None:
        """Nothing to release; the embedder belongs to the run."""


def _best(seen: Sequence[_Seen], wanted: Relation) -> _Seen | None:
    """The candidate with that relation whose cosine is highest; the first where two are equal."""
    return max(
        (one for one in seen if one.relation is wanted), key=lambda one: one.cosine, default=None
    )
