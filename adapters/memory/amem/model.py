"""The two questions A-MEM asks its model: what is a note about, and what does it change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue

import prompts
from adapters.memory.amem.note import DEFAULT_CONTEXT, Note
from adapters.memory.calls import Completion, DoorClient
from adapters.models.structured import InvalidAnswer, parse, strict_schema
from memprobe.errors import CallFailed
from memprobe.outcomes import Reason
from memprobe.text import sanitize
from prompts.answers import AmemAnalysis, AmemEvolution

AnswerT = TypeVar("AnswerT", bound=BaseModel)


def _analysis_schema() -> dict[str, Any]:
    schema = strict_schema(AmemAnalysis)
    # As published: nothing is required, and other keys do no harm.
    return {key: schema[key] for key in ("type", "properties")}


def response_format(name: str, schema: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """A JSON schema as OpenAI's `response_format` wants it."""
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "strict": strict, "schema": dict(schema)},
    }


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
        rendered = prompts.load(prompt).render(**variables)
        messages = [{"role": m.role, "content": sanitize(m.content)[0]} for m in rendered]
        asked_again = self._published
        while True:
            reply = await self._client.complete(
                messages, temperature=self._temperature, response_format=form
            )
            if reply.finish_reason == "content_filter":
                raise CallFailed(
                    Reason.REFUSAL, f"{prompt}: stopped by a content filter", reply.call_id
                )
            try:
                return self._read(reply, kind)
            except InvalidAnswer as error:
                if asked_again:
                    cut = reply.finish_reason == "length"
                    reason = Reason.TRUNCATED if cut else Reason.INVALID_OUTPUT
                    detail = sanitize(f"{prompt}: {error}")[0]
                    raise CallFailed(reason, detail, reply.call_id) from error
                messages = [*messages, *_correction(reply.text, str(error), form)]
                asked_again = True

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


def _correction(text: str, problem: str, form: Mapping[str, Any]) -> list[dict[str, str]]:
    schema = json.dumps(form["json_schema"]["schema"], sort_keys=True)
    said = (
        f"That answer cannot be used: {problem}. Answer with exactly one JSON object that fits "
        f"this JSON schema, and nothing else:\n{schema}"
    )
    turns = [("assistant", text)] if text.strip() else []
    turns.append(("user", said))
    return [{"role": role, "content": sanitize(content)[0]} for role, content in turns]
