"""One reading of the many shapes in which memory libraries hand back their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from memprobe.errors import AdapterContractError
from memprobe.text import flatten_content
from memprobe.types import MemoryItem

ENVELOPES = ("results", "memories", "data")
CONTENTS = ("memory", "content", "text")

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


@dataclass(frozen=True, slots=True)
class Normalised:
    """Items in the library's order, and how many rows had no text at all."""

    items: list[MemoryItem] = field(default_factory=list)
    without_text: int = 0


def normalise(answer: object, *, origin: str) -> Normalised:
    """Items of a library's answer.

    Accepted: None (nothing found), a list of rows, or a mapping that holds one
    under `results`, `memories` or `data` (which may be None). A row is a string
    or a mapping with its text under `memory`, `content` or `text`. Raises
    `AdapterContractError` for anything else: an unknown shape is never "no
    results". `origin` names the call in that error.
    """
    items: list[MemoryItem] = []
    without_text = 0
    for number, row in enumerate(_rows(answer, origin), 1):
        item = _item(row, number, origin)
        if item is None:
            without_text += 1
        else:
            items.append(item)
    return Normalised(items, without_text)


def _rows(answer: object, origin: str) -> Sequence[object]:
    if isinstance(answer, Mapping):
        held = [key for key in ENVELOPES if key in answer]
        if not held:
            raise AdapterContractError(
                f"{origin}: a mapping with keys {sorted(map(str, answer))} holds none of "
                f"{', '.join(ENVELOPES)}"
            )
        answer = answer[held[0]]
    if answer is None:
        return []
    if isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)):
        return answer
    raise AdapterContractError(f"{origin}: cannot read results from a {type(answer).__name__}")


def _item(row: object, number: int, origin: str) -> MemoryItem | None:
    if isinstance(row, str):
        return MemoryItem(id=str(number), content=row)
    if not isinstance(row, Mapping):
        raise AdapterContractError(f"{origin}: result {number} is a {type(row).__name__}")
    held = [key for key in CONTENTS if key in row]
    if not held:
        raise AdapterContractError(
            f"{origin}: result {number} with keys {sorted(map(str, row))} has none of "
            f"{', '.join(CONTENTS)}"
        )
    try:
        text, _ = flatten_content(row[held[0]])
    except TypeError as error:
        raise AdapterContractError(f"{origin}: result {number}: {error}") from error
    if text is None:
        return None
    taken = {held[0], "id", "score"}
    return MemoryItem(
        id=str(row["id"]) if row.get("id") is not None else str(number),
        content=text,
        score=_score(row.get("score"), number, origin),
        fields={str(k): _json(v) for k, v in row.items() if k not in taken},
    )


def _score(value: object, number: int, origin: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AdapterContractError(
            f"{origin}: the score of result {number} is a {type(value).__name__}"
        )
    return float(value)


def _json(value: Any) -> JsonValue:
    if isinstance(value, datetime):
        return value.isoformat()
    try:
        return _JSON.validate_python(value)
    except ValidationError:
        return str(value)
