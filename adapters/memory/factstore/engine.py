"""What a fact store asks of its engine: statements out of a text, decisions, merged statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from adapters.memory.factstore.records import Action, Draft, Fact, Observation
from memprobe.types import Event


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with an observation.

    `facts` are the ids concerned: one for update, reinforce and conflict, one or
    more for supersede, none for create and none. `agrees` is, for a supersede, an
    active fact that says already what the observation says. `statement` is, for a
    supersede, what the new fact says where it is more than the observation.
    """

    action: Action
    facts: tuple[str, ...] = ()
    agrees: str | None = None
    statement: str = ""


class Engine(Protocol):
    """The thinking part of a store: a language model, or rules and an embedder."""

    async def extract(self, event: Event) -> list[Draft]:
        """The statements of an event worth keeping, in its order; raises `CallFailed`."""

    async def decide(self, observation: Observation, candidates: Sequence[Fact]) -> Decision:
        """What becomes of an observation, given the nearest active facts, nearest first."""

    async def synthesise(self, fact: Fact, observation: Observation) -> str:
        """The fact's statement with the observation's details added."""

    async def close(self) -> None:
        """Release connections; safe to call twice."""
