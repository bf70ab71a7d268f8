"""Many small parts packed into few files, so that tables of thousands of users open at once.

The parts stay the truth. A pack (`<run>/packed/<table>-<digest>.parquet`) holds the rows
of some parts and names them in its metadata with their sizes and times; it counts only
while all of them are still the same. Packs may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memprobe.errors import StorageError
from storage.runs import ARTIFACTS, RunStore
from storage.schemas import SCHEMAS, schema_of

PACKED = "packed"
PACK = 128
"""Parts in a pack, at least: below that many the parts themselves are read."""
_PARTS = b"memprobe.parts"
_GROUP_BYTES = 64 << 20

Listing = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that hold a table's rows, each row once: packs, and parts that are in none."""

    packs: list[Path]
    loose: list[Path]


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_dir():
            yield from _files(Path(entry.path))
        elif entry.name.endswith(".parquet") and not entry.name.startswith("."):
            yield entry


def _listing(folder: Path) -> Listing:
    found: Listing = {}
    skip = len(str(folder)) + 1
    for entry in _files(folder):
        known = entry.stat()
        found[entry.path[skip:]] = [known.st_size, known.st_mtime_ns]
    return found


def _packed_parts(pack: Path) -> Listing:
    try:
        stored = (pq.read_schema(pack).metadata or {}).get(_PARTS, b"{}")
    except (OSError, pa.ArrowException):
        return {}
    parts: Listing = json.loads(stored)
    return parts


def sources(run: RunStore, table: str) -> Sources | None:
    """Where a local run's table is read from; None when nothing of it is packed."""
    if run.path is None:
        return None
    packs = sorted((run.path / PACKED).glob(f"{table}-*.parquet"))
    if not packs:
        return None
    folder = run.path / ARTIFACTS / table
    left = _listing(folder)
    used = []
    for pack in packs:
        parts = _packed_parts(pack)
        # A part that two processes packed at the same time must not be counted twice.
        if parts and all(left.get(path) == facts for path, facts in parts.items()):
            used.append(pack)
            for path in parts:
                del left[path]
    return Sources(used, [folder / path for path in left])


def pack(run: RunStore, at_least: int = PACK) -> int:
    """Pack what lies loose, for each table with enough of it; gives the parts packed now.

    Packs that no longer count are deleted. Does nothing for a run that is not local
    or cannot be written.
    """
    if run.path is None:
        return 0
    return sum(_pack_table(run, run.path, table, at_least) for table in SCHEMAS)


def _pack_table(run: RunStore, home: Path, table: str, at_least: int) -> int:
    folder = home / ARTIFACTS / table
    found = sources(run, table)
    listed = _listing(folder)
    names = [str(p.relative_to(folder)) for p in found.loose] if found else list(listed)
    if found is not None:
        for stale in set((home / PACKED).glob(f"{table}-*.parquet")) - set(found.packs):
            stale.unlink(missing_ok=True)
    if len(names) < at_least:
        return 0
    parts = {name: listed[name] for name in names if name in listed}
    marked = json.dumps(parts, sort_keys=True).encode("utf-8", "surrogateescape")
    target = home / PACKED / f"{table}-{hashlib.sha256(marked).hexdigest()[:16]}.parquet"
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        target.parent.mkdir(exist_ok=True)
        _write([folder / name for name in parts], table, marked, temporary)
        temporary.replace(target)
    except PermissionError:
        return 0
    except FileNotFoundError:
        # A part was replaced meanwhile; it is packed the next time.
        return 0
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{folder} could not be packed: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return len(parts)


def _part(path: Path) -> pa.Table:
    # The reader alone: `read_table` looks for folders and data sets first, for each file.
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False).replace_schema_metadata(None)


def _write(paths: list[Path], table: str, marked: bytes, target: Path) -> None:
    schema = schema_of(table).with_metadata({_PARTS: marked})
    held: list[pa.Table] = []
    size = 0
    with (
        pq.ParquetWriter(target, schema, compression="zstd", compression_level=1) as writer,
        ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool,
    ):
        for start in range(0, len(paths), PACK):
            for part in pool.map(_part, paths[start : start + PACK]):
                held.append(part)
                size += part.nbytes
            if size >= _GROUP_BYTES or start + PACK >= len(paths):
                whole = pa.concat_tables(held).replace_schema_metadata(schema.metadata)
                writer.write_table(whole)
                held, size = [], 0
