"""The engine with a language model: three questions through the door."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from adapters.memory.asking import ask, response_format
from adapters.memory.calls import Completion, DoorClient
from adapters.memory.factstore.consolidate import appended
from adapters.memory.factstore.cues import missing
from adapters.memory.factstore.engine import Decision
from adapters.memory.factstore.records import Action, Draft, Fact, Observation
from adapters.memory.factstore.texts import parts_of
from adapters.models.structured import InvalidAnswer, parse, strict_schema
from memprobe.types import DocumentEvent, Event, SessionEvent
from prompts.answers import FactstoreDecision, FactstoreExtraction, FactstoreSynthesis

AnswerT = TypeVar("AnswerT", bound=BaseModel)
T = TypeVar("T")

CATEGORIES = (
    "decision",
    "change",
    "commitment",
    "action_item",
    "plan",
    "state",
    "requirement",
    "risk",
    "event",
    "preference",
    "opinion",
    "other",
)
EXTRACT, DECIDE, SYNTHESISE = "factstore_extract", "factstore_decide", "factstore_synthesise"
FORMS: dict[str, dict[str, Any]] = {
    EXTRACT: response_format("observations", strict_schema(FactstoreExtraction), strict=True),
    DECIDE: response_format("decision", strict_schema(FactstoreDecision), strict=True),
    SYNTHESISE: response_format("synthesis", strict_schema(FactstoreSynthesis), strict=True),
}


class ModelEngine:
    """Asks at one temperature; an answer that cannot be used is asked for once more.

    `checked`: a merged statement that lost a name or a number of the fact counts as
    unusable, and when the second is no better the two are put behind one another.
    """

    def __init__(
        self, client: DoorClient, temperature: float, *, conflict: bool, checked: bool
    ) -> None:
        self._client = client
        self._temperature = temperature
        self._conflict = conflict
        self._checked = checked

    async def extract(self, event: Event) -> list[Draft]:
        """One call an event; raises `CallFailed`."""
        parts = parts_of(event)
        text = event.text if isinstance(event, SessionEvent) else parts[0].text
        speakers = list(dict.fromkeys(part.speaker for part in parts))
        variables = {
            "categories": CATEGORIES,
            "speakers": speakers,
            "date": event.event_time.date().isoformat(),
            "text": text,
        }

        def read(answer: FactstoreExtraction) -> list[Draft]:
            return [
                Draft(
                    what=one.what.strip(),
                    speaker=_speaker(one.speaker, speakers, isinstance(event, DocumentEvent)),
                    category=one.category.strip(),
                    who=one.who.strip(),
                    when=one.when.strip(),
                    why=one.why.strip(),
                    where=one.where.strip(),
                    label=one.confidence,
                    entities=tuple(e.strip() for e in one.entities if e.strip()),
                )
                for one in answer.observations
            ]

        return await self._ask(EXTRACT, variables, FactstoreExtraction, read)

    async def decide(self, observation: Observation, candidates: Sequence[Fact]) -> Decision:
        """One call, none where there is no candidate; raises `CallFailed`."""
        if not candidates:
            return Decision(Action.CREATE)
        variables = {
            "conflict": self._conflict,
            "what": observation.what,
            "author": observation.author,
            "date": observation.time.date().isoformat(),
            "confidence": observation.draft.label,
            "facts": [
                {
                    "statement": fact.statement,
                    "authors": fact.authors,
                    "date": fact.last_update.date().isoformat(),
                    "confidence": fact.confidence,
                    "in_conflict": bool(fact.conflicts_with),
                }
                for fact in candidates
            ],
        }

        def read(answer: FactstoreDecision) -> Decision:
            return self._decision(answer, candidates)

        return await self._ask(DECIDE, variables, FactstoreDecision, read)

    def _decision(self, answer: FactstoreDecision, candidates: Sequence[Fact]) -> Decision:
        action = Action(answer.action)
        if action in (Action.CREATE, Action.NONE):
            return Decision(action)
        if action is Action.CONFLICT and not self._conflict:
            raise InvalidAnswer("there is no action conflict")
        numbers = list(dict.fromkeys(answer.facts))
        agrees = answer.agrees_with if action is Action.SUPERSEDE else 0
        for number in (*numbers, *([agrees] if agrees else [])):
            if not 1 <= number <= len(candidates):
                raise InvalidAnswer(f"there is no fact {number}")
        numbers = [number for number in numbers if number != agrees]
        if not numbers or (action is not Action.SUPERSEDE and len(numbers) > 1):
            wanted = "at least one other fact" if action is Action.SUPERSEDE else "exactly one fact"
            raise InvalidAnswer(f"{action.value} needs {wanted}, and facts is {list(answer.facts)}")
        ids = tuple(candidates[number - 1].id for number in numbers)
        return Decision(action, ids, candidates[agrees - 1].id if agrees else None)

    async def synthesise(self, fact: Fact, observation: Observation) -> str:
        """One call, a second when a detail is lost; raises `CallFailed`."""
        variables = {"statement": fact.statement, "what": observation.what}
        asked = 0

        def read(answer: FactstoreSynthesis) -> str:
            nonlocal asked
            asked += 1
            statement = answer.statement.strip()
            lost = missing(fact.statement, statement) if self._checked else []
            if not lost:
                return statement
            if asked == 1:
                raise InvalidAnswer(f"the statement lost {', '.join(lost)}")
            return appended(fact.statement, observation.what)

        return await self._ask(SYNTHESISE, variables, FactstoreSynthesis, read)

    async def close(self) -> None:
        """Close the connection to the model."""
        await self._client.close()

    async def _ask(
        self,
        prompt: str,
        variables: Mapping[str, Any],
        kind: type[AnswerT],
        read: Callable[[AnswerT], T],
    ) -> T:
        def parsed(reply: Completion) -> T:
            if reply.finish_reason == "length":
                raise InvalidAnswer("the answer was cut off")
            value = parse(reply.text, kind).value
            if not isinstance(value, kind):
                raise TypeError(f"the answer is {type(value).__name__}, not {kind.__name__}")
            return read(value)

        return await ask(
            self._client, prompt, variables, FORMS[prompt], parsed, temperature=self._temperature
        )


def _speaker(said: str, speakers: Sequence[str], document: bool) -> str:
    """Who says it; a document has one author, whoever is quoted in it."""
    if document or len(speakers) == 1:
        return speakers[0]
    # A session's text names its roles as a reader would write them.
    name = said.strip().casefold().replace(" ", "_")
    if name not in speakers:
        raise InvalidAnswer(f"the speaker {said!r} is none of {', '.join(speakers)}")
    return name
