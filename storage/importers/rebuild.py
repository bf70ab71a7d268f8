"""The inverse of an import: the release's files, made of the tables and `extras`.

A file is written as its template says; where a table's value was changed since,
the changed value is what is written. `sha256` of the original tells whether the
bytes are the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memprobe.errors import StorageError, UsageError
from storage.importers.source import objects
from storage.importers.templates import KEYS, Row, Rows, encode, fill
from storage.runs import RunStore

USER_TABLES = ("users", "targets", "tasks", "oracle_verdicts")
STORE_TABLES = tuple(table for table in KEYS if table not in USER_TABLES)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A file of the public layout; `data` is None for one that was kept by its hash alone."""

    path: str
    data: bytes | None
    sha256: str

    @property
    def same(self) -> bool:
        """Whether these are the bytes that were imported."""
        return self.data is not None and hashlib.sha256(self.data).hexdigest() == self.sha256


def _rows(run: RunStore, user: str, system: str | None, shared: Rows | None = None) -> Rows:
    rows = Rows(shared)
    for table in USER_TABLES if system is None else STORE_TABLES:
        for row in run.read(table, user=user, system=system, variant=""):
            rows.add(table, row)
    return rows


def _special(rows: Rows, documents: dict[Any, Any], mode: str | None, parts: dict[int, Any]) -> Any:
    def resolve(named: list[Any]) -> Any:
        match named:
            case ["item", seq, has_id]:
                row = rows.get("memory_items", (seq,))
                if row is None:
                    raise StorageError(f"memory item {seq} is not there")
                head = {"id": row["item_id"]} if has_id else {}
                return {**head, "content": row["content"], **json.loads(row["fields_json"])}
            case ["profile"]:
                user = rows.get("users", ())
                return json.loads(user["profile_json"]) if user else {}
            case ["detail", category, dimension, blame]:
                detail = documents.get((mode, category, dimension))
                if detail is None:
                    raise StorageError(f"the record of {category}/{dimension} is not there")
                return {**detail, "attribution": fill(blame, rows, resolve)}
            case ["part", place]:
                return parts[place]
        raise StorageError(f"a template refers to {named!r:.80}, which this version does not know")

    return resolve


def _file(row: Row, document: Any) -> Rebuilt:
    return Rebuilt(row["path"], encode(document, row["style"]), row["sha256"])


def _kept(row: Row) -> Rebuilt | None:
    """A file that was kept as it is; None when the row is a template."""
    held: Any = json.loads(row["template_json"]) if row["kind"] in ("raw", "whole") else None
    match row["kind"]:
        case "raw":
            return Rebuilt(row["path"], base64.b64decode(held), row["sha256"])
        case "whole":
            return _file(row, held)
        case "hash":
            return Rebuilt(row["path"], None, row["sha256"])
    return None


def _filled(
    extras: list[Row], rows: Rows, parts: dict[int, Any] | None = None
) -> Iterator[Rebuilt]:
    documents: dict[Any, Any] = {}
    # Attributions repeat the verdicts' records, so those come first.
    for row in sorted(extras, key=lambda r: r["kind"] == "attributions"):
        kept = _kept(row)
        if kept is not None:
            yield kept
            continue
        mode = row["access_mode"]
        special = _special(rows, documents, mode, parts or {})
        document = fill(json.loads(row["template_json"]), rows, special)
        if row["kind"] == "verdicts":
            listed = document.get("details") if isinstance(document, dict) else None
            for detail in reversed(objects(listed)):
                at = (mode, detail.get("category"), detail.get("dimension"))
                if all(isinstance(part, str) for part in at):
                    documents[at] = detail
        yield _file(row, document)


def rebuild(run: RunStore) -> Iterator[Rebuilt]:
    """All files of an imported run, one user at a time; raises `UsageError` for another run."""
    origin = run.manifest.origin
    if origin is None:
        raise UsageError(f"run {run.name!r} was not imported; it has no files to write again")
    users = [row["user_id"] for row in run.read("users")]
    parts: dict[int, Any] = {}
    for user in users:
        shared = _rows(run, user, None)
        own = [row for row in run.read("extras", user=user) if row["system"] is None]
        for row in own:
            if row["kind"] == "bank_user":
                special = _special(shared, {}, None, {})
                parts[row["place"]] = fill(json.loads(row["template_json"]), shared, special)
        yield from _filled([row for row in own if row["kind"] != "bank_user"], shared)
        for system in origin.runs:
            extras = run.read("extras", user=user, system=system)
            if extras:
                yield from _filled(extras, _rows(run, user, system, shared))
    general = [r for r in run.read("extras", variant="") if r["user_id"] is None]
    yield from _filled(general, Rows(), parts)
