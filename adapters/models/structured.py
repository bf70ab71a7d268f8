"""Reading a structured answer out of what a model wrote. Pure functions; nothing is guessed.

What is tolerated: a byte order mark, code fences, prose around the object,
Python literals, trailing commas. What is refused: NaN and Infinity, a key given
twice with different values, several different answers, anything off the
declared type. A tolerated answer is flagged as repaired.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from memprobe.text import sanitize

_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_CLOSES = {"{": "}", "[": "]"}
MAX_DETAIL = 400


class InvalidAnswer(ValueError):
    """The text holds no usable answer of the declared type."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A validated answer, whether the text had to be repaired to read it, and whether
    lone surrogates were replaced in it (JSON can spell them with escapes)."""

    value: BaseModel
    repaired: bool
    sanitized: bool = False


def parse(text: str, kind: type[BaseModel]) -> Parsed:
    """The one answer of type `kind` in a text; raises `InvalidAnswer` with the reason."""
    stripped = text.lstrip("\ufeff").strip()
    if not stripped:
        raise InvalidAnswer("the answer is empty")
    try:
        whole = _loads(stripped)
    except (ValueError, RecursionError):
        pass
    else:
        whole, cleaned = _clean(whole)
        return Parsed(_validate(whole, kind), stripped != text.strip(), cleaned)
    found: list[BaseModel] = []
    problem: InvalidAnswer | None = None
    sanitized = False
    for raw in _objects(stripped):
        candidate, cleaned = _clean(raw)
        sanitized = sanitized or cleaned
        try:
            value = _validate(candidate, kind)
        except InvalidAnswer as error:
            problem = problem or error
            continue
        if value not in found:
            found.append(value)
    if len(found) > 1:
        raise InvalidAnswer(f"the answer holds {len(found)} different {kind.__name__} objects")
    if not found:
        raise problem or InvalidAnswer("there is no JSON object in the answer")
    return Parsed(found[0], True, sanitized)


def _clean(value: Any) -> tuple[Any, bool]:
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, dict):
        items = [(*_clean(k), *_clean(v)) for k, v in value.items()]
        changed = any(a or b for _, a, _, b in items)
        return ({k: v for k, _, v, _ in items}, True) if changed else (value, False)
    if isinstance(value, list | tuple):
        parts = [_clean(item) for item in value]
        changed = any(c for _, c in parts)
        return ([item for item, _ in parts], True) if changed else (value, False)
    return value, False


def _validate(value: Any, kind: type[BaseModel]) -> BaseModel:
    if not isinstance(value, dict):
        raise InvalidAnswer(f"a JSON object is wanted, not {type(value).__name__}")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        parts = [
            f"{'.'.join(str(p) for p in e['loc']) or 'answer'}: {e['msg']}"
            for e in error.errors(include_url=False, include_context=False)
        ]
        raise InvalidAnswer("; ".join(parts)[:MAX_DETAIL]) from None


def _objects(text: str) -> Iterator[Any]:
    """Every top-level value that reads as an object or a list, fenced blocks first."""
    fenced = [match.group(1) for match in _FENCE.finditer(text)]
    seen = False
    for block in fenced:
        for span in _spans(block):
            seen = True
            yield from _read(span)
    if not seen:
        for span in _spans(text):
            yield from _read(span)


def _read(span: str) -> Iterator[Any]:
    for reader in (_loads, _loads_lenient):
        try:
            yield reader(span)
            return
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue


def _spans(text: str) -> Iterator[str]:
    """The balanced bracketed spans at the top level of a text.

    Stops at a bracket that never closes: an inner object of a cut-off answer
    is not the answer.
    """
    position = 0
    while match := _OPENING.search(text, position):
        end = _balanced(text, match.start())
        if end is None:
            return
        yield text[match.start() : end]
        position = end


def _balanced(text: str, start: int) -> int | None:
    expected: list[str] = []
    quote = ""
    index = start
    while index < len(text):
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in _CLOSES:
            expected.append(_CLOSES[char])
        elif char in "}]":
            if char != expected.pop():
                return None
            if not expected:
                return index + 1
        index += 1
    return None


def _loads(text: str) -> Any:
    """Strict JSON: no NaN, no infinity (spelt or overflowed), no contradicting keys."""
    value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
    _finite(value)
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result and result[key] != value:
            raise ValueError(f"{key!r} is given twice")
        result[key] = value
    return result


def _finite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    if isinstance(value, dict):
        for item in value.values():
            _finite(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _finite(item)


def _loads_lenient(text: str) -> Any:
    """JSON with Python literals and trailing commas, or a Python literal."""
    try:
        return _loads(_normalise(text))
    except ValueError:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                names = [k.value for k in node.keys if isinstance(k, ast.Constant)]
                if len(names) != len(set(names)):
                    raise ValueError("a key is given twice") from None
        value = ast.literal_eval(tree)
        _finite(value)
        return value


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\bTrue\b|\bFalse\b|\bNone\b|,(?=\s*[}\]])', re.DOTALL)
_LITERALS = {"True": "true", "False": "false", "None": "null", ",": ""}


def _normalise(text: str) -> str:
    """Python's literals as JSON's, and no trailing commas; strings are left alone."""
    return _TOKEN.sub(lambda m: _LITERALS.get(m.group(), m.group()), text)


def strict_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """A JSON schema in the subset that strict providers take: closed objects, all keys required."""
    schema: dict[str, Any] = _strict(kind.model_json_schema())
    return schema


_UNSUPPORTED = {"default", "title", "minLength", "maxLength", "description"}


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            result[key] = {name: _strict(item) for name, item in value.items()}
        elif key not in _UNSUPPORTED:
            result[key] = _strict(value)
    if "properties" in result:
        result["required"] = list(result["properties"])
        result["additionalProperties"] = False
    return result
