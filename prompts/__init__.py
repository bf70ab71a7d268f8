"""Prompt templates: one file each, with a version and the type of the answer.

A file starts with a header between `---` lines (`version`, `answer`, optional
`temperature`) and goes on with sections `=== system ===` and `=== user ===`,
each one message. Templates are strict: an undefined name is an error. What is
filled in is data; it is never expanded again.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel

from memprobe.chat import ChatRequest
from memprobe.errors import PromptError
from memprobe.types import Asker, Message, Role
from prompts import answers

_SECTION = re.compile(r"^=== (system|user|assistant) ===$", re.MULTILINE)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "sort_keys": False}
    environment.filters["json"] = _json
    return environment


@cache
def _compiled(body: str) -> Template:
    return _environment().from_string(body)


def _json(value: Any, indent: int | None = None) -> str:
    # The standard library indents in Python, which was a third of the time a prompt takes.
    if indent is None:
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = _indented(value, indent, "\n")
    # "<\/" is the same JSON and closes no tag that a template has opened.
    return text.replace("</", "<\\/")


def _indented(value: Any, indent: int, margin: str) -> str:
    """What `json.dumps` gives with an indent and without escapes; a test holds the two together."""
    deeper = margin + " " * indent
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, list | tuple) and value:
        inner = [_indented(item, indent, deeper) for item in value]
        return f"[{deeper}{f',{deeper}'.join(inner)}{margin}]"
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        inner = [
            f"{encode_basestring(key)}: {_indented(item, indent, deeper)}"
            for key, item in value.items()
        ]
        return f"{{{deeper}{f',{deeper}'.join(inner)}{margin}}}"
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", margin)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A loaded template. `identity` is what the manifest and the ledger record."""

    name: str
    version: int
    answer: type[BaseModel] | None
    temperature: float | None
    sections: tuple[tuple[str, str], ...]
    digest: str

    @property
    def identity(self) -> str:
        return f"{self.name}@{self.version}:{self.digest[:12]}"

    def render(self, **variables: Any) -> tuple[Message, ...]:
        """The messages; raises `PromptError` naming an undefined variable."""
        try:
            return tuple(
                Message(role=role, content=_compiled(body).render(**variables))
                for role, body in self.sections
            )
        except TemplateError as error:
            raise PromptError(f"prompt {self.name!r}: {error}") from error

    def request(
        self,
        role: Role,
        asker: Asker,
        variables: dict[str, Any],
        *,
        replicate: int = 0,
        max_tokens: int | None = None,
    ) -> ChatRequest:
        """The request that asks this prompt with these variables."""
        return ChatRequest(
            role=role,
            messages=self.render(**variables),
            asker=asker,
            prompt=self.identity,
            answer=self.answer,
            variables=variables,
            replicate=replicate,
            temperature=self.temperature,
            max_tokens=max_tokens,
        )


def _parse(name: str, text: str) -> Prompt:
    try:
        _, header, body = text.split("---\n", 2)
    except ValueError:
        raise PromptError(f"prompt {name!r}: no header between '---' lines") from None
    try:
        pairs = (line.split(":", 1) for line in header.strip().splitlines())
        fields = {key.strip(): value.strip() for key, value in pairs}
        version, heat = int(fields["version"]), fields.get("temperature")
        temperature = float(heat) if heat is not None else None
    except (ValueError, KeyError) as error:
        raise PromptError(
            f"prompt {name!r}: the header needs lines 'key: value', 'version' a whole number and "
            f"'temperature', where given, a number ({error})"
        ) from None
    answer_name = fields.get("answer", "")
    answer = getattr(answers, answer_name, None) if answer_name else None
    if answer_name and answer is None:
        raise PromptError(f"prompt {name!r}: no answer type {answer_name!r} in prompts.answers")
    parts = _SECTION.split(body)
    if len(parts) < 3:
        raise PromptError(f"prompt {name!r}: no '=== user ===' section")
    sections = tuple(
        (role, content.strip()) for role, content in zip(parts[1::2], parts[2::2], strict=True)
    )
    return Prompt(
        name=name,
        version=version,
        answer=answer,
        temperature=temperature,
        sections=sections,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


@cache
def load(name: str) -> Prompt:
    """The prompt of that name; raises `PromptError` when there is none or it is broken."""
    file = resources.files("prompts") / f"{name}.md"
    if not file.is_file():
        raise PromptError(f"no prompt {name!r}; there are: {', '.join(names())}")
    return _parse(name, file.read_text(encoding="utf-8"))


def load_file(path: Path) -> Prompt:
    """A prompt from a user's own file, in the same format."""
    return _parse(path.stem, path.read_text(encoding="utf-8"))


def variables(prompt: Prompt) -> frozenset[str]:
    """The names that a prompt fills in; raises `PromptError` for broken template syntax."""
    try:
        used = [
            meta.find_undeclared_variables(_environment().parse(body))
            for _, body in prompt.sections
        ]
    except TemplateError as error:
        raise PromptError(f"prompt {prompt.name!r}: {error}") from error
    return frozenset().union(*used)


def names() -> list[str]:
    """All bundled prompts."""
    files = resources.files("prompts").iterdir()
    return sorted(f.name.removesuffix(".md") for f in files if f.name.endswith(".md"))
