"""The two questions A-MEM asks its model: what is a note about, and what does it change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue

from adapters.memory.amem.note import DEFAULT_CONTEXT, Note
from adapters.memory.asking import ask, response_format
from adapters.memory.calls import Completion, DoorClient
from adapters.models.structured import InvalidAnswer, parse, strict_schema
from prompts.answers import AmemAnalysis, AmemEvolution

AnswerT = TypeVar("AnswerT", bound=BaseModel)


def _analysis_schema() -> dict[str, Any]:
    schema = strict_schema(AmemAnalysis)
    # As published: nothing is required, and other keys do no harm.
    return {key: schema[key] for key in ("type", "properties")}


ANALYSIS_FORMAT = response_format("note_analysis", _analysis_schema(), strict=False)
EVOLUTION_FORMAT = response_format("note_evolution", strict_schema(AmemEvolution), strict=True)


def cleaned(words: Sequence[str]) -> tuple[str, ...]:
    """The words that show something, trimmed."""
    return tuple(word.strip() for word in words if word.strip())


class Analyst:
    """Asks at one temperature.

    `published`: an answer is read as plain JSON or not at all, and whatever is in
    it is taken. Otherwise it is read tolerantly, must say something, and is asked
    for once more when it cannot be used.
    """

    def __init__(self, client: DoorClient, temperature: float, *, published: bool) -> None:
        self._client = client
        self._temperature = temperature
        self._published = published

    async def analyse(self, content: str) -> AmemAnalysis:
        """Keywords, context and tags of a note; raises `CallFailed`."""
        variables = {"content": content}
        return await self._ask("amem_analysis", variables, ANALYSIS_FORMAT, AmemAnalysis)

    async def decide(
        self, note: Note, neighbours: Sequence[Mapping[str, JsonValue]]
    ) -> AmemEvolution:
        """What a new note changes, given its neighbours nearest first; raises `CallFailed`."""
        variables = {
            "content": note.content,
            "context": note.context,
            "keywords": list(note.keywords),
            "neighbours": list(neighbours),
        }
        return await self._ask("amem_evolution", variables, EVOLUTION_FORMAT, AmemEvolution)

    async def _ask(
        self,
        prompt: str,
        variables: Mapping[str, Any],
        form: Mapping[str, Any],
        kind: type[AnswerT],
    ) -> AnswerT:
        return await ask(
            self._client,
            prompt,
            variables,
            form,
            lambda reply: self._read(reply, kind),
            temperature=self._temperature,
            again=not self._published,
        )

    def _read(self, reply: Completion, kind: type[AnswerT]) -> AnswerT:
        if self._published:
            try:
                json.loads(reply.text)
            except (ValueError, RecursionError) as error:
                raise InvalidAnswer(f"no plain JSON ({error})") from None
        elif reply.finish_reason == "length":
            raise InvalidAnswer("the answer was cut off")
        value = parse(reply.text, kind).value
        if not self._published and isinstance(value, AmemAnalysis):
            _check(value)
        if not isinstance(value, kind):
            raise TypeError(f"the answer is {type(value).__name__}, not {kind.__name__}")
        return value


def _check(analysis: AmemAnalysis) -> None:
    context = analysis.context.strip()
    if not cleaned(analysis.keywords) and context in ("", DEFAULT_CONTEXT):
        raise InvalidAnswer("it holds neither keywords nor a context of its own")
