"""Where a run's files lie: a local directory, an S3 bucket, or any other fsspec URL.

A write replaces a file as a whole. Locally that is a temporary file, fsync and
rename; an object store's PUT is atomic by itself.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Protocol

from memprobe.errors import MissingPrerequisite, StorageError
from storage.s3 import S3Files


class Files(Protocol):
    """Relative, `/`-separated paths below one root."""

    root: str

    def read(self, path: str) -> bytes:
        """The bytes of a file; raises `FileNotFoundError`."""

    def write(self, path: str, data: bytes) -> None:
        """Replace a file atomically, making its folders."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when there is none."""

    def remove(self, path: str) -> None:
        """Delete a file; fine when there is none."""

    def find(self, prefix: str, suffix: str) -> list[str]:
        """All files below a folder whose name ends so, sorted; hidden ones left out."""

    def listing(self, prefix: str, suffix: str) -> dict[str, tuple[int, str]]:
        """The same files with their bytes and a tag that changes with the content."""

    def folders(self) -> list[str]:
        """Names of the folders right below the root, sorted."""


class LocalFiles:
    """Files below a local directory."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self.root = str(root)

    def read(self, path: str) -> bytes:
        return (self.path / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StorageError(f"{target} could not be written: {error}") from error
        _sync_folder(target.parent)

    def size(self, path: str) -> int | None:
        try:
            return (self.path / path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, path: str) -> None:
        (self.path / path).unlink(missing_ok=True)

    def find(self, prefix: str, suffix: str) -> list[str]:
        found = []
        for folder, _, names in os.walk(self.path / prefix):
            relative = Path(folder).relative_to(self.path).as_posix()
            found += [
                f"{relative}/{name}"
                for name in names
                if name.endswith(suffix) and not name.startswith(".")
            ]
        return sorted(found)

    def listing(self, prefix: str, suffix: str) -> dict[str, tuple[int, str]]:
        known = {path: (self.path / path).stat() for path in self.find(prefix, suffix)}
        return {path: (stat.st_size, str(stat.st_mtime_ns)) for path, stat in known.items()}

    def folders(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return sorted(entry.name for entry in self.path.iterdir() if entry.is_dir())


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RemoteFiles:
    """Files below an fsspec URL such as `gs://bucket/prefix` or `memory://prefix`."""

    def __init__(self, url: str) -> None:
        self.root = url.rstrip("/")

    def _open(self) -> tuple[Any, str]:
        """Made at each use: a run store is pickled to other processes, a file system is not."""
        import fsspec

        try:
            filesystem, root = fsspec.core.url_to_fs(self.root)
        except ImportError as error:
            # fsspec's own words: which package the protocol needs.
            raise MissingPrerequisite(f"{self.root}: {error}") from error
        except ValueError as error:
            raise StorageError(f"{self.root}: {error}") from error
        return filesystem, str(root).rstrip("/")

    def read(self, path: str) -> bytes:
        filesystem, root = self._open()
        return bytes(filesystem.cat_file(f"{root}/{path}"))

    def write(self, path: str, data: bytes) -> None:
        filesystem, root = self._open()
        try:
            filesystem.pipe_file(f"{root}/{path}", data)
        except OSError as error:
            raise StorageError(f"{self.root}/{path} could not be written: {error}") from error

    def size(self, path: str) -> int | None:
        filesystem, root = self._open()
        try:
            return int(filesystem.size(f"{root}/{path}"))
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        filesystem, root = self._open()
        if filesystem.exists(f"{root}/{path}"):
            filesystem.rm_file(f"{root}/{path}")
        filesystem.invalidate_cache()

    def find(self, prefix: str, suffix: str) -> list[str]:
        return sorted(self.listing(prefix, suffix))

    def listing(self, prefix: str, suffix: str) -> dict[str, tuple[int, str]]:
        filesystem, root = self._open()
        filesystem.invalidate_cache()
        base = str(root).lstrip("/")
        found: dict[str, tuple[int, str]] = {}
        for name, facts in filesystem.find(f"{root}/{prefix}", detail=True).items():
            path = str(name).lstrip("/").removeprefix(f"{base}/")
            if path.endswith(suffix) and not path.rsplit("/", 1)[-1].startswith("."):
                tags = (facts.get(key) for key in ("etag", "ETag", "mtime", "updated", "created"))
                found[path] = int(facts["size"]), str(next((tag for tag in tags if tag), ""))
        return found

    def folders(self) -> list[str]:
        filesystem, root = self._open()
        filesystem.invalidate_cache()
        try:
            below = filesystem.ls(root or "/", detail=True)
        except FileNotFoundError:
            return []
        names = (str(facts["name"]) for facts in below if facts["type"] == "directory")
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in names)


AnyFiles = LocalFiles | RemoteFiles | S3Files


def open_files(location: str | Path) -> AnyFiles:
    """The files of a run at a path or URL; `file://` is a local path."""
    text = str(location)
    if text.startswith("file://"):
        return LocalFiles(Path(text.removeprefix("file://")))
    if isinstance(location, str) and text.startswith("s3://"):
        return S3Files(text)
    if isinstance(location, str) and "://" in text:
        return RemoteFiles(text)
    return LocalFiles(Path(location).expanduser().absolute())
