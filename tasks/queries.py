"""The texts that a store is searched by: a run's own, MemProbe's, or those of a file.

The public records of the recovery paper hold the items that a search returned and not
what was searched for. The wording belongs to the published program; MemProbe has its
own. Whoever has the program can name its scorer here: it is parsed for two literals
and never executed.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memprobe.dataset import Pool
from memprobe.errors import UsageError
from memprobe.types import Category
from tasks.recover import query_for

OWN = "own"
DIMENSION, BOUNDARY = "{dimension}", "{boundary}"
_NAMES = frozenset(category.value for category in Category)


@dataclass(frozen=True, slots=True)
class Queries:
    """A question with the places `{dimension}` and `{boundary}`, and each category's boundary."""

    source: str
    question: str
    boundaries: Mapping[str, str]

    def text(self, category: str, dimension: str) -> str:
        """The query of a dimension; its underscores become spaces."""
        # In one pass: a boundary that holds the word "{dimension}" stays as it is.
        head, _, rest = self.question.partition(DIMENSION)
        middle, _, tail = rest.partition(BOUNDARY)
        return f"{head}{dimension.replace('_', ' ')}{middle}{self.boundaries[category]}{tail}"

    @property
    def digest(self) -> str:
        """Changes with every text that a query is made of."""
        facts = [self.question, sorted(self.boundaries.items())]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def own_queries(pool: Pool) -> Queries:
    """The queries of MemProbe's own runs."""
    question = query_for(BOUNDARY, DIMENSION)
    boundaries = {category.name.value: category.boundary for category in pool.categories}
    return Queries(OWN, question, boundaries)


def read_queries(path: Path) -> Queries:
    """Queries of a JSON file, or of the published scorer's source (`.py`).

    JSON: `{"question": "... {dimension} ... {boundary}", "boundaries": {category: text}}`.
    Raises `UsageError` for a file that does not say both.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = _of_source(text) if path.suffix == ".py" else json.loads(text)
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as queries: {error}") from error
    question = found.get("question") if isinstance(found, dict) else None
    boundaries = found.get("boundaries") if isinstance(found, dict) else None
    if not isinstance(question, str) or not _in_order(question):
        raise UsageError(f"{path}: no question with {DIMENSION} and, behind it, {BOUNDARY}")
    if not isinstance(boundaries, dict) or not _complete(boundaries):
        raise UsageError(f"{path}: no text for each of the categories {', '.join(sorted(_NAMES))}")
    kept = {name: boundaries[name] for name in sorted(_NAMES)}
    return Queries(path.name, question, kept)


def _in_order(question: str) -> bool:
    once = question.count(DIMENSION) == question.count(BOUNDARY) == 1
    return once and question.index(DIMENSION) < question.index(BOUNDARY)


def _complete(boundaries: Mapping[Any, Any]) -> bool:
    return boundaries.keys() >= _NAMES and all(isinstance(boundaries[n], str) for n in _NAMES)


def _of_source(text: str) -> dict[str, Any]:
    """The first literal table of all categories, and the f-string that asks for a dimension."""
    nodes = list(ast.walk(ast.parse(text)))
    tables = (_literal(node) for node in nodes if isinstance(node, ast.Dict))
    boundaries = next((t for t in tables if t is not None and _complete(t)), None)
    questions = [q for node in nodes if isinstance(node, ast.JoinedStr) for q in _question(node)]
    return {"question": next(iter(questions), None), "boundaries": boundaries}


def _literal(node: ast.Dict) -> dict[Any, Any] | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def _question(node: ast.JoinedStr) -> Iterator[str]:
    """The text of an f-string whose two values are a dimension in words and a plain name."""
    text = ""
    values: list[ast.expr] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            text += BOUNDARY if values else DIMENSION
            values.append(part.value)
        elif isinstance(part, ast.Constant):
            text += str(part.value)
    if len(values) == 2 and isinstance(values[1], ast.Name):
        called = ast.unparse(values[0])
        if "dimension" in called and "replace" in called:
            yield text
