"""A run in the public layout of the recovery release, and beside it what that cannot hold.

An imported run is written as it was: `storage.importers.rebuild` gives the files
back, and where nothing was changed since they are the same bytes. A run of our own
is put into the layout by `storage.exporters.layout`. In both cases a folder
`memprobe/` takes the rest: `export.json` lists every file with its hash and what has
no place in the layout, `rest.jsonl` holds it, one row a line.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memprobe.errors import StorageError, UsageError
from storage.exporters import layout
from storage.files import LocalFiles
from storage.importers.rebuild import rebuild
from storage.runs import RunStore
from storage.schemas import ORDER, SCHEMAS, UNIQUE

SIDE = "memprobe"
LIST, REST = f"{SIDE}/export.json", f"{SIDE}/rest.jsonl"
VERSION = 1

_TEMPLATED = frozenset(
    {"users", "targets", "tasks", "oracle_verdicts", "episodes", "turns", "turn_scores"}
    | {"preference_scores", "memory_items", "retrievals", "extras", "import_issues"}
)
"""Tables that an import fills wholly; the others hold what was done since, too."""
_LAYERED = frozenset({"slot_fills", "verdicts", "attributions"})


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. `same` files are the bytes that were imported, None for own runs.

    `missing` are files that were too large to be kept when they were imported, `other`
    those whose bytes differ (another layout of the same JSON, or a value that was
    changed since). `rest` counts rows by table that the layout does not hold.
    """

    run: str
    folder: str
    files: int
    same: int | None
    other: tuple[str, ...]
    missing: tuple[str, ...]
    renamed: dict[str, str]
    rest: dict[str, int]


def safe_path(path: str) -> str:
    """A relative path as it may be written; raises `StorageError` for one that climbs."""
    parts = path.split("/")
    odd = not path or "\\" in path or "\0" in path or ":" in parts[0]
    if odd or any(part in ("", ".", "..") for part in parts):
        raise StorageError(f"{path!r:.120} is no path that may be written below a folder")
    return path


class _Folder:
    """The files that are written, each below the folder and once."""

    def __init__(self, folder: Path) -> None:
        self._files = LocalFiles(folder)
        self.hashes: dict[str, str] = {}

    def write(self, path: str, data: bytes) -> None:
        if safe_path(path) in self.hashes:
            raise StorageError(f"{path} would be written twice")
        target = self._files.path / path
        # Not synced to disk one by one: thousands of files that can be written again.
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.write_bytes(data)
        except OSError as error:
            raise StorageError(f"{target} could not be written: {error}") from error
        self.hashes[path] = hashlib.sha256(data).hexdigest()


def export_release(run: RunStore, folder: Path) -> Exported:
    """Write a run below a new or empty folder; raises `UsageError` for one that holds anything."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty; an export needs a folder of its own")
    out = _Folder(folder)
    same: int | None = None
    other: list[str] = []
    missing: list[str] = []
    renamed: dict[str, str] = {}
    k: int | None = None
    if run.manifest.origin is not None:
        same = 0
        for file in rebuild(run):
            if file.data is None:
                missing.append(file.path)
                continue
            out.write(file.path, file.data)
            same += file.same
            if not file.same:
                other.append(file.path)
        rows = _since(run)
    else:
        made = layout.Release(run)
        for path, data in made.files():
            out.write(path, data)
        renamed, k = made.renamed, made.k
        rows = made.rest()
    files = len(out.hashes)
    rest = _write_rest(out, rows)
    found = Exported(
        run.name, str(folder), files, same, tuple(other), tuple(missing), renamed, rest
    )
    out.write(LIST, _listing(run, out.hashes, found, k))
    return found


def _since(run: RunStore) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of an imported run that did not come from the release."""
    for table in SCHEMAS:
        if table in _TEMPLATED:
            for row in _added(run, table):
                yield table, row
            continue
        for row in run.read(table):
            if table not in _LAYERED or row["layer"] != "base":
                yield table, row


def _added(run: RunStore, table: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a table that are in none of the import's parts, which have no variant."""
    if len(run.parts(table)) == len(run.parts(table, variant="")):
        return
    came = Counter(json.dumps(row) for row in run.read(table, variant=""))
    for row in run.read(table):
        text = json.dumps(row)
        came[text] -= 1
        if came[text] < 0:
            yield row


def _write_rest(out: _Folder, rows: Iterator[tuple[str, Mapping[str, Any]]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    lines = []
    for table, row in rows:
        counts[table] = counts.get(table, 0) + 1
        present = {name: value for name, value in row.items() if value is not None}
        lines.append(json.dumps({"table": table, "row": present}, ensure_ascii=False))
    if lines:
        out.write(REST, ("\n".join(lines) + "\n").encode("utf-8"))
    return dict(sorted(counts.items()))


def _listing(run: RunStore, hashes: Mapping[str, str], found: Exported, k: int | None) -> bytes:
    manifest = run.manifest
    facts = {
        "format": "memprobe-export",
        "version": VERSION,
        "layout": "recovery-release",
        "run": run.name,
        "dataset_name": manifest.dataset_name,
        "dataset_digest": manifest.dataset_digest,
        "protocol": manifest.protocol.value,
        "versions": manifest.versions,
        "origin": None if manifest.origin is None else manifest.origin.source,
        "systems": layout.run_names(run),
        "k": k,
        "renamed": found.renamed,
        "not_the_imported_bytes": found.other,
        "not_kept_by_the_import": found.missing,
        "rows_in_rest_jsonl": found.rest,
        "keys": {table: UNIQUE.get(table, ORDER[table]) for table in found.rest},
        "files": dict(sorted(hashes.items())),
    }
    return (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode("utf-8")
