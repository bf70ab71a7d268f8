"""Structured answers through the door, for our own memory systems that ask for JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import prompts
from adapters.memory.calls import Completion, DoorClient
from adapters.models.structured import InvalidAnswer
from memprobe.errors import CallFailed
from memprobe.outcomes import Reason
from memprobe.text import sanitize

T = TypeVar("T")


def response_format(name: str, schema: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """A JSON schema as OpenAI's `response_format` wants it."""
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "strict": strict, "schema": dict(schema)},
    }


async def ask(
    client: DoorClient,
    prompt: str,
    variables: Mapping[str, Any],
    form: Mapping[str, Any],
    read: Callable[[Completion], T],
    *,
    temperature: float,
    again: bool = True,
) -> T:
    """What `read` makes of the answer to a prompt.

    `read` raises `InvalidAnswer` for one it cannot use; with `again` the model is
    then told why and asked once more. Raises `CallFailed`.
    """
    rendered = prompts.load(prompt).render(**variables)
    messages = [{"role": m.role, "content": sanitize(m.content)[0]} for m in rendered]
    while True:
        reply = await client.complete(messages, temperature=temperature, response_format=form)
        if reply.finish_reason == "content_filter":
            raise CallFailed(
                Reason.REFUSAL, f"{prompt}: stopped by a content filter", reply.call_id
            )
        try:
            return read(reply)
        except InvalidAnswer as error:
            if not again:
                cut = reply.finish_reason == "length"
                reason = Reason.TRUNCATED if cut else Reason.INVALID_OUTPUT
                detail = sanitize(f"{prompt}: {error}")[0]
                raise CallFailed(reason, detail, reply.call_id) from error
            messages = [*messages, *_correction(reply.text, str(error), form)]
            again = False


def _correction(text: str, problem: str, form: Mapping[str, Any]) -> list[dict[str, str]]:
    schema = json.dumps(form["json_schema"]["schema"], sort_keys=True)
    said = (
        f"That answer cannot be used: {problem}. Answer with exactly one JSON object that fits "
        f"this JSON schema, and nothing else:\n{schema}"
    )
    turns = [("assistant", text)] if text.strip() else []
    turns.append(("user", said))
    return [{"role": role, "content": sanitize(content)[0]} for role, content in turns]
