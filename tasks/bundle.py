"""Packing a run so that others can check its figures."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from adapters.models.redaction import redact
from memprobe.errors import StorageError
from memprobe.settings import redact as without_passwords
from storage import bundles
from storage.catalog import connect
from storage.manifest import package_versions, read_manifest
from storage.runs import ARTIFACTS, MANIFEST, UNITS, RunStore
from storage.schemas import SCHEMAS, UNIQUE
from tasks.evidence import EVIDENCE

# A folder of some machine: what leads to the last name is taken out. Not in a URL's path.
_PATHS = re.compile(
    r"(?<![\w.:/~])(?:(?:file|sqlite):/{0,3})?(?:~|[A-Za-z]:)?(?:[/\\](?:[^\s/\\:'\"<>|,;()]+)){2,}"
)
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bundle:
    """What was written; `sha256` is the file's, "" for a folder."""

    run: str
    path: str
    files: int
    size: int
    sha256: str
    notes: tuple[str, ...]


def scrub(text: str) -> str:
    """A text of ours without keys, passwords and folders of a machine."""
    found = without_passwords(redact(text))
    return _PATHS.sub(lambda m: "[path]/" + re.split(r"[/\\]", m[0])[-1], found)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(key): _scrubbed(one) for key, one in value.items()}
    return [_scrubbed(one) for one in value] if isinstance(value, list) else value


def row_hash(row: _Row) -> str:
    """A short hash of a row's values; the same on every machine."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row_key(table: str, row: _Row) -> list[Any]:
    """What a row is about."""
    return [row[name] for name in UNIQUE[table]]


def write_bundle(store: RunStore, target: Path) -> Bundle:
    """Pack a run into a zip (a name that ends in `.zip`) or a folder.

    Metrics that are missing or stale are computed first, from what is stored. Raises
    `UsageError` when the target is there, or a living process works on the run.
    """
    notes: list[str] = []
    with store.lock():
        notes += _score(store)
        collected = _Collected(store)
        names, size = 0, 0

        def counted() -> Iterator[tuple[str, bytes]]:
            nonlocal names, size
            for name, data in collected.files():
                names += 1
                size += len(data)
                yield name, data

        digest = ""
        if target.suffix.lower() == ".zip":
            digest = bundles.write_zip(target, counted())
        else:
            bundles.write_folder(target, counted())
    if store.manifest.status.value != "complete":
        notes.append(f"the run is {store.manifest.status.value}; this is what is stored so far")
    if collected.cleaned:
        notes.append(f"keys or folders of a machine were taken out of {collected.cleaned} files")
    return Bundle(store.name, str(target), names, size, digest, tuple(notes))


def _score(store: RunStore) -> list[str]:
    manifest = store.manifest
    evidence = EVIDENCE[manifest.config.suite]
    stored: dict[str, list[dict[str, Any]]] = {}
    for row in store.read(evidence.figures):
        stored.setdefault(row["layer"], []).append(row)

    def same(made: list[dict[str, Any]], there: list[dict[str, Any]]) -> bool:
        return {evidence.key(r): r for r in made} == {evidence.key(r): r for r in there}

    with connect(store, evidence.inputs) as connection:
        stale = [
            layer
            for layer in evidence.layers(connection)
            if not same(evidence.make(connection, layer, manifest), stored.get(layer, []))
        ]
    for layer in stale:
        evidence.score(store, layer)
    return [f"the metrics of layer {layer} were computed" for layer in stale]


class _Collected:
    """The files of a bundle, one at a time, and the list of them at the end."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.named = EVIDENCE[store.manifest.config.suite].named
        self.cleaned = 0

    def files(self) -> Iterator[tuple[str, bytes]]:
        sizes: dict[str, tuple[int, str]] = {}

        def listed(name: str, data: bytes) -> tuple[str, bytes]:
            if not bundles.safe_name(name):
                raise StorageError(f"{name!r:.120} cannot be in a bundle")
            sizes[name] = (len(data), hashlib.sha256(data).hexdigest())
            return name, data

        files = self.store.files
        manifest = self._manifest()
        yield listed(MANIFEST, manifest)
        changed: dict[str, bytes] = {}
        rows = io.StringIO()
        for name in files.find(ARTIFACTS, ".parquet"):
            table = name.split("/")[1]
            if table not in SCHEMAS:
                continue
            data = files.read(name)
            found = self._part(table, data, name, rows)
            if found is not data:
                self.cleaned += 1
                changed[name] = found
            yield listed(name, found)
        for name in files.find(UNITS, ".json"):
            yield listed(name, _marker(files.read(name), changed))
        yield listed(bundles.ROWS, rows.getvalue().encode("utf-8"))
        facts = {
            "run": scrub(self.store.name),
            "status": self.store.manifest.status.value,
            "dataset_digest": self.store.manifest.dataset_digest,
            "seed": self.store.manifest.config.seed,
            # Figures were computed by this installation, whatever played the run.
            "versions": package_versions(),
        }
        yield bundles.LIST, bundles.listing(facts, sizes)

    def _manifest(self) -> bytes:
        raw = self.store.files.read(MANIFEST)
        value = json.loads(raw)
        clean = _scrubbed(value)
        if clean == value:
            return bytes(raw)
        self.cleaned += 1
        made = (json.dumps(clean, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
        read_manifest(made, "the bundle's manifest")
        return made

    def _part(self, table: str, data: bytes, name: str, rows: io.StringIO) -> bytes:
        """A part, its rows noted; the very same bytes when there was nothing to take out."""
        ours = [column for column in _OUR_TEXTS if column in SCHEMAS[table].names]
        if table not in self.named and not ours:
            return data
        try:
            with pq.ParquetFile(io.BytesIO(data), pre_buffer=False) as file:
                part = file.read(use_threads=False) if table in self.named else None
                texts = file.read(columns=ours, use_threads=False)
                if any(_dirty(texts.column(column)) for column in ours):
                    part = part if part is not None else file.read(use_threads=False)
                    part = _cleaned(part, ours)
                    data = _encoded(part)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{name} cannot be read: {error}") from error
        if table in self.named and part is not None:
            for row in part.to_pylist():
                line = {"table": table, "key": row_key(table, row), "hash": row_hash(row)}
                rows.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n")
        return data


_OUR_TEXTS = ("detail",)
"""Columns with texts of ours, errors among them; what users and models said is left alone."""


def _dirty(column: Any) -> bool:
    return any(text is not None and scrub(text) != text for text in column.unique().to_pylist())


def _cleaned(part: pa.Table, columns: list[str]) -> pa.Table:
    for column in columns:
        place = part.column_names.index(column)
        texts = [None if t is None else scrub(t) for t in part.column(column).to_pylist()]
        part = part.set_column(place, part.schema.field(column), pa.array(texts, pa.string()))
    return part


def _encoded(part: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(part, buffer, compression="zstd", data_page_version="1.0", version="2.6")
    return buffer.getvalue()


def _marker(raw: bytes, changed: Mapping[str, bytes]) -> bytes:
    """A unit's marker, with the hashes of parts that something was taken out of."""
    marker = json.loads(raw)
    touched = [part for part in marker.get("parts", ()) if part["path"] in changed]
    for part in touched:
        data = changed[part["path"]]
        part.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return json.dumps(marker, sort_keys=True, indent=1).encode() if touched else raw
