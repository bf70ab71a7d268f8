"""What the gateway sends, and what its ledger key is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, JsonValue

from adapters.models.structured import strict_schema
from memprobe.chat import ChatRequest
from memprobe.text import sanitize
from memprobe.types import Message, Role

_SCHEMAS: dict[type[BaseModel], tuple[dict[str, Any], str]] = {}


@dataclass(frozen=True, slots=True)
class Question:
    """One completion to be had: what decides the answer, and its key."""

    key: str
    model: str
    role: Role
    messages: tuple[Message, ...]
    params: Mapping[str, Any]
    answer: type[BaseModel] | None = None
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    replicate: int = 0
    raw: Mapping[str, Any] | None = None
    sanitized: bool = False


@dataclass(frozen=True, slots=True)
class Salt:
    """What else is part of a key: the provider's own salt, and the system when it is kept apart."""

    provider: str = ""
    system: str = ""


def schema_of(kind: type[BaseModel]) -> tuple[dict[str, Any], str]:
    """The strict JSON schema of an answer type and its text, made once."""
    known = _SCHEMAS.get(kind)
    if known is None:
        schema = strict_schema(kind)
        known = _SCHEMAS[kind] = (schema, json.dumps(schema, sort_keys=True))
    return known


def from_request(request: ChatRequest, model: str, salt: Salt) -> Question:
    """The first question of a request; prompts are made safe to store."""
    changed = False
    messages: list[Message] = []
    for message in request.messages:
        content, replaced = sanitize(message.content)
        messages.append(Message(role=message.role, content=content) if replaced else message)
        changed = changed or replaced
    params: dict[str, Any] = {}
    if request.temperature is not None:
        params["temperature"] = request.temperature
    if request.max_tokens is not None:
        params["max_tokens"] = request.max_tokens
    question = Question(
        key="",
        model=model,
        role=request.role,
        messages=tuple(messages),
        params=params,
        answer=request.answer,
        variables=request.variables,
        replicate=request.replicate,
        sanitized=changed,
    )
    return keyed(question, salt)


def keyed(question: Question, salt: Salt) -> Question:
    """The question with the key of what it now asks."""
    embedded = question.model.startswith("embedded/")
    facts = {
        "model": question.model,
        "params": dict(question.params),
        "schema": schema_of(question.answer)[1] if question.answer else None,
        "replicate": question.replicate,
        "variables": dict(question.variables) if embedded else None,
        "role": question.role.value if embedded else None,
        "salt": salt.provider,
        "system": salt.system,
        "raw": dict(question.raw) if question.raw is not None else None,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass"))
    # Texts are hashed apart from the rest: a store's dump may be a megabyte.
    for message in question.messages:
        body = message.content.encode("utf-8")
        digest.update(f"\0{message.role}\0{len(body)}\0".encode())
        digest.update(body)
    return replace(question, key=digest.hexdigest())


def corrected(question: Question, text: str, problem: str, salt: Salt) -> Question:
    """The question again, with what was wrong with the first answer."""
    extra: list[Message] = []
    if text.strip():
        extra.append(Message(role="assistant", content=text))
    wanted = (
        f"Answer with exactly one JSON object that fits this JSON schema, and nothing else:\n"
        f"{schema_of(question.answer)[1]}"
        if question.answer
        else "Answer the message before this one."
    )
    said = f"That answer cannot be used: {problem}. {wanted}"
    extra.append(Message(role="user", content=sanitize(said)[0]))
    return keyed(replace(question, messages=(*question.messages, *extra)), salt)


def enlarged(question: Question, used: int | None, salt: Salt) -> Question:
    """The question again, with room for an answer that was cut off."""
    budget = question.params.get("max_tokens") or used or 2048
    params = {**question.params, "max_tokens": max(2 * int(budget), int(budget) + 2048)}
    return keyed(replace(question, params=params), salt)


def with_schema_text(question: Question) -> tuple[Message, ...]:
    """The messages with the schema spelt out, for a model that takes no response format."""
    if question.answer is None or not question.messages:
        return question.messages
    *before, last = question.messages
    text = (
        f"{last.content}\n\nAnswer with exactly one JSON object that fits this JSON schema, "
        f"and nothing else:\n{schema_of(question.answer)[1]}"
    )
    return (*before, Message(role=last.role, content=text))


def from_body(body: Mapping[str, Any], model: str, salt: Salt, replicate: int = 0) -> Question:
    """The question of a library's chat request; it is sent as it is, under our model's name.

    The ledger keeps plain messages as text and any other (tool calls, content
    parts) as JSON.
    """
    changed = False
    raw: list[dict[str, Any]] = []
    kept: list[Message] = []
    for given in body["messages"]:
        text, replaced = sanitize(json.dumps(given, ensure_ascii=False))
        changed = changed or replaced
        message = json.loads(text)
        plain = set(message) <= {"role", "content"} and isinstance(message.get("content"), str)
        raw.append(message)
        content = message["content"] if plain else text
        kept.append(Message(role=str(message["role"]), content=content))
    params = {name: body[name] for name in PASSED if body.get(name) is not None}
    if "max_completion_tokens" in body:
        params["max_tokens"] = body["max_completion_tokens"]
    question = Question(
        key="",
        model=model,
        role=Role.MEMORY,
        messages=tuple(kept),
        params=params,
        replicate=replicate,
        raw={"messages": raw},
        sanitized=changed,
    )
    return keyed(question, salt)


PASSED = (
    "temperature",
    "max_tokens",
    "top_p",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    # Beyond OpenAI's own: what vLLM, SGLang, llama.cpp and others take in the body.
    "min_p",
    "top_k",
    "repetition_penalty",
    "chat_template_kwargs",
)


def raw_messages(question: Question, plain: bool) -> tuple[Mapping[str, Any], ...]:
    """A library's messages; `plain` spells its schema out for a model that takes none."""
    messages: tuple[Mapping[str, Any], ...] = tuple((question.raw or {})["messages"])
    form = question.params.get("response_format") or {}
    if not plain or form.get("type") != "json_schema":
        return messages
    schema = json.dumps(form["json_schema"].get("schema", {}), ensure_ascii=False)
    said = f"Answer with exactly one JSON object that fits this JSON schema:\n{schema}"
    return (*messages, {"role": "user", "content": said})
