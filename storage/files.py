"""Where a run's files lie: a local directory, or any fsspec URL.

A write replaces a file as a whole. Locally that is a temporary file, fsync and
rename; an object store's PUT is atomic by itself.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Protocol

from memprobe.errors import StorageError


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
    """Files below an fsspec URL such as `s3://bucket/prefix` or `memory://prefix`."""

    def __init__(self, url: str) -> None:
        self.root = url.rstrip("/")

    def _open(self) -> tuple[Any, str]:
        """Made at each use: a run store is pickled to other processes, a file system is not."""
        import fsspec

        try:
            filesystem, root = fsspec.core.url_to_fs(self.root)
        except (ImportError, ValueError) as error:
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
        filesystem, root = self._open()
        filesystem.invalidate_cache()
        base = str(root).lstrip("/")
        paths = [str(p).lstrip("/") for p in filesystem.find(f"{root}/{prefix}")]
        return sorted(
            p.removeprefix(f"{base}/")
            for p in paths
            if p.endswith(suffix) and not p.rsplit("/", 1)[-1].startswith(".")
        )


def open_files(location: str | Path) -> LocalFiles | RemoteFiles:
    """The files of a run at a path or URL; `file://` is a local path."""
    text = str(location)
    if text.startswith("file://"):
        return LocalFiles(Path(text.removeprefix("file://")))
    if isinstance(location, str) and "://" in text:
        return RemoteFiles(text)
    return LocalFiles(Path(location).expanduser().absolute())
