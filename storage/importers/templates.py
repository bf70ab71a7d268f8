"""Files as templates over the tables: what has a column is a reference, the rest stays.

A template is the file's own JSON in which every value that a table holds
unchanged is `{"$": [table, column, *key]}`. So a file can be written again from
its template and the tables, keys in their order, nulls apart from what is
absent, and whatever has no column is kept where it was. An object of the file
that itself has a key `$` is wrapped as `{"$": ["literal", object]}`.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping
from typing import Any

from memprobe.errors import StorageError

KEYS: dict[str, tuple[str, ...]] = {
    "users": (),
    "targets": ("category", "dimension"),
    "tasks": ("task_index",),
    "oracle_verdicts": ("category", "dimension"),
    "episodes": ("episode",),
    "turns": ("episode", "turn"),
    "turn_scores": ("episode", "turn"),
    "preference_scores": ("episode", "turn", "idx"),
    "memory_items": ("seq",),
    "retrievals": ("category", "dimension", "rank"),
    "slot_fills": ("access_mode", "category", "dimension"),
    "verdicts": ("access_mode", "category", "dimension"),
    "attributions": ("access_mode", "category", "dimension"),
}
"""A row's key within one user's records with one system."""

Row = dict[str, Any]
Key = tuple[Any, ...]


class Rows:
    """The rows of one user (with one system), each under its key."""

    def __init__(self, below: Rows | None = None) -> None:
        self.tables: dict[str, dict[Key, Row]] = {}
        self._below = below

    def add(self, table: str, row: Row) -> bool:
        """Take a row; False when there is one of that key already."""
        key = tuple(row[name] for name in KEYS[table])
        rows = self.tables.setdefault(table, {})
        if key in rows:
            return False
        rows[key] = row
        return True

    def get(self, table: str, key: Key) -> Row | None:
        """The row of a key, here or in what the user shares between systems."""
        found = self.tables.get(table, {}).get(key)
        if found is None and self._below is not None:
            return self._below.get(table, key)
        return found

    def list(self, table: str) -> builtins.list[Row]:
        """All rows of a table, here alone."""
        return [*self.tables.get(table, {}).values()]

    def shared(self, table: str) -> builtins.list[Row]:
        """All rows of a table that the user shares between systems."""
        return self.list(table) if self._below is None else self._below.list(table)


def storable(text: str) -> bool:
    """Whether a table holds the text as it is: half a surrogate pair is no text for it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class Template:
    """Makes the references of one document."""

    def __init__(self, rows: Rows, dollar: bool) -> None:
        self._rows = rows
        self._dollar = dollar

    def ref(self, value: Any, table: str, column: str, *key: Any) -> Any:
        """A reference where the stored value is the very same, else the value itself."""
        if value is None or isinstance(value, (dict, list)):
            return self.literal(value)
        row = self._rows.get(table, key)
        if row is None:
            return value
        stored = row.get(column)
        if type(stored) is not type(value) or stored != value:
            return value
        # A key is looked up as the table holds it, so a changed one would never be found.
        if not all(storable(text) for text in (value, *key) if isinstance(text, str)):
            return value
        if isinstance(value, float) and str(stored) != str(value):
            return value
        return {"$": [table, column, *key]}

    def literal(self, value: Any) -> Any:
        """A value as it is; objects that could be taken for references are wrapped."""
        if not self._dollar:
            return value
        if isinstance(value, dict):
            inner = {key: self.literal(v) for key, v in value.items()}
            return {"$": ["literal", inner]} if "$" in value else inner
        if isinstance(value, list):
            return [self.literal(v) for v in value]
        return value

    def object(
        self,
        value: Mapping[str, Any],
        columns: Mapping[str, tuple[Any, ...]],
        parts: Mapping[str, Any] | None = None,
    ) -> Any:
        """An object with references for some keys and finished parts for others."""
        inner: dict[str, Any] = {}
        for key, one in value.items():
            if parts and key in parts:
                inner[key] = parts[key]
            elif key in columns:
                inner[key] = self.ref(one, *columns[key])
            else:
                inner[key] = self.literal(one)
        return {"$": ["literal", inner]} if "$" in value else inner


def dumps(template: Any) -> str:
    """A template as it is stored: ASCII, so that odd strings keep their exact escapes."""
    return json.dumps(template, ensure_ascii=True, separators=(",", ":"))


Special = Callable[[list[Any]], Any]


def fill(template: Any, rows: Rows, special: Special) -> Any:
    """The document of a template; `special` resolves references that name no table."""
    if isinstance(template, dict):
        named = template.get("$")
        if isinstance(named, list) and len(template) == 1 and named:
            if named[0] == "literal":
                return {key: fill(v, rows, special) for key, v in named[1].items()}
            if named[0] in KEYS:
                return _stored(named, rows)
            return special(named)
        return {key: fill(v, rows, special) for key, v in template.items()}
    if isinstance(template, list):
        return [fill(v, rows, special) for v in template]
    return template


def _stored(named: list[Any], rows: Rows) -> Any:
    table, column, *key = named
    row = rows.get(table, tuple(key))
    if row is None or row.get(column) is None:
        raise StorageError(f"the template refers to {table}.{column} of {key}, which is not there")
    return row[column]


def encode(document: Any, style: str) -> bytes:
    """A document in a layout that `source.Document.style` describes."""
    digits = style.removesuffix("n")
    text = json.dumps(document, ensure_ascii=False, indent=int(digits) if digits else None)
    if style.endswith("n"):
        text += "\n"
    return text.encode("utf-8", "surrogatepass")
