"""A run's artifacts: Parquet parts committed a unit at a time, and the manifest.

A unit is one stage's work for one system and user. Its parts are written first
and its marker (`units/<slug>.json`: fingerprint, parts, row counts, hashes)
last; without the marker the unit is not done, whatever parts there are.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from memprobe.errors import StorageError, UsageError
from memprobe.ids import slug
from memprobe.text import sanitize
from storage.files import LocalFiles, open_files
from storage.lock import run_lock
from storage.manifest import Manifest, read_manifest
from storage.schemas import UNPARTITIONED, USER_ONLY, schema_of, to_table

MANIFEST = "manifest.json"
ARTIFACTS = "artifacts"
UNITS = "units"
_UNIT_KEY = b"memprobe.unit"
_ROW_GROUP = 65536
_AT_ONCE = 16
"""Objects that are read at the same time from an object store."""
_T = TypeVar("_T")
_MARKER = {"unit", "fingerprint", "parts"}


def _part_name(raw: str) -> str:
    """A slug without a double underscore, which separates the parts of a unit's slug."""
    safe = slug(raw)
    return slug(raw + "\0") if "__" in safe or safe.endswith("_") else safe


@dataclass(frozen=True, slots=True)
class Unit:
    """One stage's work for one system and user; "" where a stage has none of them.

    `variant` keeps what is stored beside the first result: an epoch, a layer.
    """

    stage: str
    system: str = ""
    user: str = ""
    variant: str = ""

    @property
    def slug(self) -> str:
        """A name safe as a file and a cache key, e.g. `recover__longctx_full__user_003`."""
        names = [self.stage, self.system, self.user] + ([self.variant] if self.variant else [])
        return "__".join(_part_name(name) if name else "-" for name in names)


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as found in a run: row counts by table, and whether all of it is there."""

    unit: Unit
    rows: dict[str, int]
    fingerprint: str
    complete: bool


def part_path(table: str, unit: Unit) -> str:
    """Where a unit's part of a table lies, relative to the run.

    Latencies come from several stages, so those parts carry the stage's name.
    """
    schema_of(table)
    folder = f"{ARTIFACTS}/{table}"
    if table not in UNPARTITIONED:
        if table not in USER_ONLY and unit.system:
            folder += f"/system={_part_name(unit.system)}"
        if unit.user:
            folder += f"/user={_part_name(unit.user)}"
    name = "part"
    if table == "operations" and unit.stage != "rollout":
        name += f"-{_part_name(unit.stage)}"
    if unit.variant:
        name += f"-{_part_name(unit.variant)}"
    return f"{folder}/{name}.parquet"


class RunStore:
    """One run's directory or object-store prefix. Small and picklable: it holds a location."""

    def __init__(self, location: str | Path) -> None:
        self._files = open_files(location)
        self.location = self._files.root
        self._manifest: Manifest | None = None

    @classmethod
    def create(cls, location: str | Path, manifest: Manifest) -> RunStore:
        """Begin a run; raises `UsageError` when there is one already."""
        store = cls(location)
        if store._files.size(MANIFEST) is not None:
            raise UsageError(f"{store.location} holds a run already; open it, or use another name")
        store._files.write(MANIFEST, manifest.to_bytes())
        return store

    @classmethod
    def open(cls, location: str | Path) -> RunStore:
        """Open a run; raises `UsageError` when there is none, `StorageError` when unreadable."""
        store = cls(location)
        if store._files.size(MANIFEST) is None:
            raise UsageError(f"no run at {store.location} ({MANIFEST} is missing)")
        _ = store.manifest
        return store

    @classmethod
    def exists(cls, location: str | Path) -> bool:
        """Whether there is a run at a location."""
        return cls(location)._files.size(MANIFEST) is not None

    @classmethod
    def list(cls, home: str | Path) -> builtins.list[RunStore]:
        """The runs directly below a folder, by location; an unreadable manifest shows on access."""
        files = open_files(home)
        if isinstance(files, LocalFiles):
            found = sorted(p.parent for p in files.path.glob(f"*/{MANIFEST}"))
            return [cls(path) for path in found]
        # Folder by folder: a listing of everything would name each part of every run.
        runs = (cls(f"{files.root}/{name}") for name in files.folders())
        return [run for run in runs if run._files.size(MANIFEST) is not None]

    def __reduce__(self) -> tuple[type[RunStore], tuple[str]]:
        return (RunStore, (self.location,))

    @property
    def files(self) -> Any:
        """The run's files, for the catalog and the report."""
        return self._files

    @property
    def path(self) -> Path | None:
        """The run's directory; None when it is not local."""
        return self._files.path if isinstance(self._files, LocalFiles) else None

    @property
    def name(self) -> str:
        """The run's name as the user gave it."""
        return self.manifest.name

    @property
    def manifest(self) -> Manifest:
        """The manifest as last read or written by this object."""
        if self._manifest is None:
            self._manifest = self.reload_manifest()
        return self._manifest

    def reload_manifest(self) -> Manifest:
        """The manifest as it is stored now."""
        where = f"{self.location}/{MANIFEST}"
        try:
            self._manifest = read_manifest(self._files.read(MANIFEST), where)
        except FileNotFoundError:
            raise StorageError(f"{where} is missing") from None
        return self._manifest

    def update_manifest(self, **changes: Any) -> Manifest:
        """Replace fields of the stored manifest atomically."""
        self._manifest = self.reload_manifest().changed(**changes)
        self._files.write(MANIFEST, self._manifest.to_bytes())
        return self._manifest

    def lock(self) -> AbstractContextManager[None]:
        """Hold the run for writing; raises `UsageError` when a living process has it."""
        return run_lock(self._files)

    def part_lock(self, system: str) -> AbstractContextManager[None]:
        """Hold one system's part of the run, whoever holds the run; raises like `lock`."""
        return run_lock(self._files, self.part_file(system, "lock"))

    @staticmethod
    def part_file(system: str, kind: str) -> str:
        """Where a part's lock or its account (`json`) lies, relative to the run."""
        return f"parts/{_part_name(system)}.{kind}"

    def work_dir(self, unit: Unit) -> Path:
        """A local folder for a unit's checkpoints, made when missing.

        For a run in an object store it lies under `MEMPROBE_WORK_DIR` or the
        system's temporary folder: losing it costs time, not calls.
        """
        folder = self._work_root() / unit.slug
        folder.mkdir(parents=True, exist_ok=True)
        note = folder / "unit.json"
        if not note.exists():
            LocalFiles(folder).write("unit.json", json.dumps(asdict(unit)).encode())
        return folder

    def _work_root(self) -> Path:
        if self.path is not None:
            return self.path / "work"
        base = os.environ.get("MEMPROBE_WORK_DIR") or Path(tempfile.gettempdir()) / "memprobe-work"
        return Path(base) / slug(self.location)

    def scratch(self) -> Path:
        """The local folder of what can be made again from the artifacts and the ledger."""
        folder = self._work_root()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def commit(
        self, unit: Unit, fingerprint: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> None:
        """Store a unit's rows; it is complete when this returns and not before.

        An earlier result of the same unit is replaced. Raises `StorageError`
        when a row breaks its schema (nothing is written then) or the part
        belongs to another unit.
        """
        encoded: dict[str, tuple[str, bytes, int]] = {}
        for table, rows in tables.items():
            arrow = to_table(table, rows)
            self._check_owner(table, unit, arrow)
            path = part_path(table, unit)
            encoded[table] = (path, _encode(arrow, unit), arrow.num_rows)
        marker = f"{UNITS}/{unit.slug}.json"
        before = self._read_marker(marker)
        self._files.remove(marker)
        parts = []
        for table, (path, data, count) in sorted(encoded.items()):
            self._check_unclaimed(path, unit)
            self._files.write(path, data)
            parts.append(
                {
                    "table": table,
                    "path": path,
                    "rows": count,
                    "bytes": len(data),
                    "sha256": hashlib.sha256(data).hexdigest(),
                }
            )
        written = {part["path"] for part in parts}
        for part in (before or {}).get("parts", ()):
            if part["path"] not in written:
                self._files.remove(part["path"])
        record = {"unit": asdict(unit), "fingerprint": fingerprint, "parts": parts}
        self._files.write(marker, json.dumps(record, sort_keys=True, indent=1).encode())

    def _check_owner(self, table: str, unit: Unit, arrow: pa.Table) -> None:
        if table in UNPARTITIONED:
            return
        for column, mine in (("system", unit.system), ("user_id", unit.user)):
            if column not in arrow.column_names or not mine:
                continue
            if column == "system" and table in USER_ONLY:
                continue
            others = sorted(set(arrow.column(column).to_pylist()) - {sanitize(mine)[0]})
            if others:
                raise StorageError(
                    f"table {table}, column {column}: rows of {others[0]!r} in unit {unit.slug}"
                )

    def _check_unclaimed(self, path: str, unit: Unit) -> None:
        if self._files.size(path) is None:
            return
        try:
            owner = (self._part(path).schema.metadata or {}).get(_UNIT_KEY, b"").decode()
        except StorageError:
            # A part that nobody can read any more is nobody's.
            return
        if owner != unit.slug:
            raise StorageError(
                f"{path} belongs to unit {owner}; unit {unit.slug} needs a variant of its own"
            )

    def _read_marker(self, path: str) -> dict[str, Any] | None:
        try:
            marker = json.loads(self._files.read(path))
        except FileNotFoundError:
            return None
        except ValueError:
            # A marker is replaced as a whole, so this was damaged from outside: not complete.
            return None
        return marker if isinstance(marker, dict) and marker.keys() >= _MARKER else None

    def is_complete(self, unit: Unit, fingerprint: str) -> bool:
        """Whether the unit's result is there, whole, and made from the same inputs."""
        marker = self._read_marker(f"{UNITS}/{unit.slug}.json")
        return marker is not None and marker["fingerprint"] == fingerprint and self._intact(marker)

    def _present(self, marker: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> bool:
        size = self._files.size if sizes is None else sizes.get
        return all(size(part["path"]) == part["bytes"] for part in marker["parts"])

    def _intact(self, marker: Mapping[str, Any]) -> bool:
        """Whether the parts are there with the content that was committed.

        An object store keeps its own checksums; there the sizes are enough.
        """
        return self._present(marker) and (self.path is None or not self._changed(marker))

    def verify(self, unit: Unit) -> builtins.list[str]:
        """Paths of the unit's parts whose content is not what was committed."""
        marker = self._read_marker(f"{UNITS}/{unit.slug}.json")
        if marker is None:
            raise StorageError(f"unit {unit.slug} is not complete")
        return self._changed(marker)

    def _changed(self, marker: Mapping[str, Any]) -> builtins.list[str]:
        bad = []
        for part in marker["parts"]:
            try:
                data = self._files.read(part["path"])
            except FileNotFoundError:
                data = b""
            if hashlib.sha256(data).hexdigest() != part["sha256"]:
                bad.append(part["path"])
        return bad

    def reset(self, unit: Unit) -> None:
        """Forget a unit: its marker first, then its parts and its checkpoints."""
        marker = f"{UNITS}/{unit.slug}.json"
        before = self._read_marker(marker)
        self._files.remove(marker)
        for part in (before or {}).get("parts", ()):
            self._files.remove(part["path"])
        shutil.rmtree(self._work_root() / unit.slug, ignore_errors=True)

    def units(self) -> builtins.list[UnitState]:
        """All units that are done or under way, by slug."""
        states: dict[str, UnitState] = {}
        for note in sorted(self._work_root().glob("*/unit.json")):
            unit = Unit(**json.loads(note.read_bytes()))
            states[unit.slug] = UnitState(unit, {}, "", False)
        paths = self._files.find(UNITS, ".json")
        # One listing in place of a question for every part.
        sizes: dict[str, int] | None = None
        if self.path is None:
            listed = self._files.listing(ARTIFACTS, ".parquet")
            sizes = {path: size for path, (size, _) in listed.items()}
        for marker in self._each(self._read_marker, paths):
            if marker is None:
                continue
            unit = Unit(**marker["unit"])
            rows = {part["table"]: part["rows"] for part in marker["parts"]}
            there = self._present(marker, sizes)
            states[unit.slug] = UnitState(unit, rows, marker["fingerprint"], there)
        return [states[key] for key in sorted(states)]

    def parts(
        self,
        table: str,
        *,
        system: str | None = None,
        user: str | None = None,
        variant: str | None = None,
    ) -> builtins.list[str]:
        """Paths of a table's parts, sorted; `variant` "" means those without one."""
        schema_of(table)
        folder = f"{ARTIFACTS}/{table}"
        if system is not None and table not in USER_ONLY | UNPARTITIONED:
            folder += f"/system={_part_name(system)}"
            if user is not None:
                folder += f"/user={_part_name(user)}"
        paths = self._files.find(folder, ".parquet")
        if user is not None and table not in UNPARTITIONED:
            paths = [p for p in paths if f"/user={_part_name(user)}/" in p]
        if variant is not None:
            tail = f"-{_part_name(variant)}.parquet" if variant else "part.parquet"
            paths = [p for p in paths if p.endswith(tail)]
        return paths

    def _each(self, job: Callable[[str], _T], paths: Sequence[str]) -> Iterator[_T]:
        """A job for each path, in order; several at a time where each waits for a network."""
        if self.path is not None or len(paths) < 2:
            yield from map(job, paths)
            return
        with ThreadPoolExecutor(min(_AT_ONCE, len(paths)), "run-store") as pool:
            yield from pool.map(job, paths)

    def _part(self, path: str) -> pa.Table:
        try:
            # Without Arrow's pools: parts are small, and a pool that is still starting a
            # thread when a short command ends takes the process down with it.
            with pq.ParquetFile(io.BytesIO(self._files.read(path)), pre_buffer=False) as file:
                return file.read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{self.location}/{path} cannot be read: {error}") from error

    def read(
        self,
        table: str,
        *,
        system: str | None = None,
        user: str | None = None,
        variant: str | None = None,
    ) -> builtins.list[dict[str, Any]]:
        """Rows of a table as dicts in stored order; nothing stored gives no rows."""
        rows: builtins.list[dict[str, Any]] = []
        paths = self.parts(table, system=system, user=user, variant=variant)
        for part in self._each(self._part, paths):
            rows += part.to_pylist()
        return rows

    def scan(self, table: str) -> pa.Table:
        """A whole table as Arrow, of its schema; empty when nothing is stored."""
        schema = schema_of(table)
        stored = self._each(self._part, self.parts(table))
        parts = [part.replace_schema_metadata(None) for part in stored]
        try:
            return pa.concat_tables([schema.empty_table(), *parts])
        except pa.ArrowException as error:
            raise StorageError(f"{self.location}, table {table}: {error}") from error


def _encode(arrow: pa.Table, unit: Unit) -> bytes:
    """Parquet bytes that depend on rows, schema and unit only."""
    buffer = io.BytesIO()
    pq.write_table(
        arrow.replace_schema_metadata({_UNIT_KEY: unit.slug.encode()}),
        buffer,
        compression="zstd",
        row_group_size=_ROW_GROUP,
        data_page_version="1.0",
        version="2.6",
    )
    return buffer.getvalue()
