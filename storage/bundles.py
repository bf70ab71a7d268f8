"""A bundle's container: a zip or a folder with a list of its files and their hashes.

    bundle.json          format, versions, every other file with its size and sha256
    manifest.json        the run's, without keys and machine paths
    rows.jsonl           a hash of each verdict, attribution and figure, so that one can be named
    artifacts/, units/   the run's tables and markers

Whatever is read here may have been made by anyone. Names that climb, links, files
that are not listed, and sizes beyond what was stated are refused before a byte of
them is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from memprobe.errors import MissingPrerequisite, StorageError, UsageError
from storage.files import LocalFiles
from storage.schemas import SCHEMA_VERSION

FORMAT = "memprobe-bundle"
VERSION = 1
LIST, ROWS = "bundle.json", "rows.jsonl"
DERIVED = ("memprobe.duckdb", "report/")
"""What reading commands make of an unpacked bundle; nothing is taken from it."""
_EPOCH = (1980, 1, 1, 0, 0, 0)

MAX_FILES = 500_000
MAX_FILE = 2 << 30
MAX_TOTAL = 32 << 30
MAX_LIST = 256 << 20
MAX_RATIO = 200
"""A bundle stores its files as they are; only one packed again by others can be compressed."""
_CHUNK = 1 << 20


def safe_name(name: str) -> bool:
    """Whether a name is a plain relative path of this container."""
    parts = name.split("/")
    return (
        0 < len(name) <= 1000
        and not any(c in name for c in "\\\0:")
        and all(part not in ("", ".", "..") for part in parts)
        and (name in (LIST, ROWS, "manifest.json") or parts[0] in ("artifacts", "units"))
        and (len(parts) > 1 or name in (LIST, ROWS, "manifest.json"))
    )


def write_folder(target: Path, files: Iterator[tuple[str, bytes]]) -> None:
    """Write into a new or empty folder; raises `UsageError` for one that holds anything."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty; choose another --out")
    out = LocalFiles(target)
    for name, data in files:
        out.write(name, data)


def write_zip(target: Path, files: Iterator[tuple[str, bytes]]) -> str:
    """Write a zip whose bytes depend on names and contents alone; returns its sha256."""
    if target.exists():
        raise UsageError(f"{target} is there already; choose another --out")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        # Stored, not deflated: Parquet is compressed, and deflate differs between zlibs.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, data in files:
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.create_system = 3
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(entry, data)
        digest = hashlib.sha256()
        with temporary.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        temporary.replace(target)
    except OSError as error:
        raise StorageError(f"{target} could not be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return digest.hexdigest()


def listing(facts: Mapping[str, Any], files: Mapping[str, tuple[int, str]]) -> bytes:
    """The content of `bundle.json`."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "schema_version": SCHEMA_VERSION,
        **facts,
        "files": {
            name: {"bytes": size, "sha256": digest}
            for name, (size, digest) in sorted(files.items())
        },
    }
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8")


@dataclass(slots=True)
class Opened:
    """A bundle in a local folder: its list, the listed files that are whole, and the rest.

    `problems` name every file that is missing, not listed, or not what was stated;
    those are not among `good`.
    """

    folder: Path
    facts: dict[str, Any]
    good: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def _facts(raw: bytes, where: Path) -> dict[str, Any]:
    try:
        facts = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {LIST} cannot be read: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise UsageError(f"{where} is no bundle of MemProbe")
    for name, ours in (("version", VERSION), ("schema_version", SCHEMA_VERSION)):
        found = facts.get(name)
        if type(found) is not int or found > ours:
            versions = facts.get("versions")
            made = versions.get("memprobe") if isinstance(versions, dict) else None
            raise MissingPrerequisite(
                f"{where} has {name} {found!r:.40}, written by a newer MemProbe ({made!r:.40}); "
                f"this one reads up to {ours}. Install that version to verify it; nothing was read"
            )
        if found < 1:
            raise UsageError(f"{where} has {name} {found}, which there never was")
    listed = facts.get("files")
    if not isinstance(listed, dict) or len(listed) > MAX_FILES:
        raise UsageError(f"{where}: {LIST} has no usable list of files")
    for name, said in listed.items():
        size = said.get("bytes") if isinstance(said, dict) else None
        if not safe_name(name) or name == LIST or type(size) is not int or size < 0:
            raise UsageError(f"{where}: {LIST} lists {name!r:.120}, which cannot be in a bundle")
    return facts


@contextmanager
def open_bundle(path: Path) -> Iterator[Opened]:
    """A bundle's files with names, sizes and hashes checked; a zip is unpacked for the time.

    Raises `UsageError` for what is no bundle or is built to do harm, and
    `MissingPrerequisite` for one of a newer version.
    """
    if path.is_dir():
        yield _check_folder(path)
    elif path.is_file():
        with TemporaryDirectory(prefix="memprobe-bundle-") as folder:
            yield _unpack(path, Path(folder))
    else:
        raise UsageError(f"no bundle at {path}")


def _check_folder(folder: Path) -> Opened:
    place = folder / LIST
    if not place.is_file() or place.is_symlink():
        raise UsageError(f"{folder} is no bundle: {LIST} is missing")
    if place.stat().st_size > MAX_LIST:
        raise UsageError(f"{place} is larger than any list of files")
    opened = Opened(folder, _facts(place.read_bytes(), folder))
    there: set[str] = set()
    for above, folders, names in os.walk(folder):
        for name in [*names, *(f for f in folders if Path(above, f).is_symlink())]:
            real = Path(above, name)
            relative = os.fsencode(real.relative_to(folder)).decode("utf-8", "backslashreplace")
            relative = relative.replace(os.sep, "/")
            if real.is_symlink() or not real.is_file():
                opened.problems.append(f"{relative}: no regular file")
            else:
                there.add(relative)
    listed = opened.facts["files"]
    opened.problems += [
        f"{name}: not in the list"
        for name in sorted(there - {*listed, LIST})
        if not name.startswith(DERIVED)
    ]
    for name, said in listed.items():
        if name not in there:
            opened.problems.append(f"{name}: missing")
            continue
        with (folder / name).open("rb") as file:
            _compare(opened, name, said, file, None)
    return opened


def _compare(
    opened: Opened, name: str, said: Mapping[str, Any], source: IO[bytes], target: Path | None
) -> None:
    """Hash a file, writing it to `target` when given.

    One that is not as stated is unpacked all the same: what is in it is to be named.
    """
    digest, size = hashlib.sha256(), 0
    out = None
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("wb")
    try:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            digest.update(chunk)
            if out is not None:
                out.write(chunk)
    finally:
        if out is not None:
            out.close()
    if size != said["bytes"]:
        opened.problems.append(f"{name}: not the stated size")
    elif digest.hexdigest() != said.get("sha256"):
        opened.problems.append(f"{name}: not the stated content")
    else:
        opened.good.add(name)


def _entries(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The archive's files by name; raises `UsageError` for one that was built to do harm."""
    found: dict[str, zipfile.ZipInfo] = {}
    folded: set[str] = set()
    total = 0
    infos = archive.infolist()
    if len(infos) > MAX_FILES:
        raise UsageError(f"{path} has {len(infos):,} entries, more than any bundle")
    for info in infos:
        # zipfile cuts a name at its first NUL; the name as stored is what counts.
        name = info.orig_filename
        shown = f"{name!r:.120}"
        if name.endswith("/") and safe_name(f"{name}x"):
            continue
        kind = stat.S_IFMT(info.external_attr >> 16)
        if not safe_name(name) or kind not in (0, stat.S_IFREG):
            raise UsageError(f"{path} holds {shown}, which cannot be in a bundle; nothing was read")
        if name.casefold() in folded:
            raise UsageError(f"{path} holds {shown} twice; nothing was read")
        if info.flag_bits & 0x1:
            raise UsageError(f"{path}: {shown} is encrypted")
        total += info.file_size
        packed = max(info.compress_size, 1)
        if (
            info.file_size > MAX_FILE
            or total > MAX_TOTAL
            or (info.file_size > _CHUNK and info.file_size / packed > MAX_RATIO)
        ):
            raise UsageError(f"{path}: {shown} would unpack to too much; nothing was read")
        folded.add(name.casefold())
        found[name] = info
    return found


def _unpack(path: Path, folder: Path) -> Opened:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _entries(archive, path)
            if LIST not in entries:
                raise UsageError(f"{path} is no bundle: {LIST} is missing")
            with archive.open(entries[LIST]) as file:
                raw = file.read(MAX_LIST + 1)
            if len(raw) > MAX_LIST:
                raise UsageError(f"{path}: {LIST} is larger than any list of files")
            opened = Opened(folder, _facts(raw, path))
            listed = opened.facts["files"]
            opened.problems += [
                f"{name}: not in the list" for name in sorted(entries.keys() - {*listed, LIST})
            ]
            for name, said in listed.items():
                if name not in entries:
                    opened.problems.append(f"{name}: missing")
                else:
                    _extract(archive, entries[name], opened, name, said)
            return opened
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise UsageError(f"{path} is no zip file that can be read: {error}") from None


def _extract(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    opened: Opened,
    name: str,
    said: Mapping[str, Any],
) -> None:
    try:
        with archive.open(entry) as file:
            _compare(opened, name, said, file, opened.folder / name)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
        opened.problems.append(f"{name}: cannot be unpacked ({error})")
