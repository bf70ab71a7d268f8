"""Snapshots on disk: named parts and an index with their hashes. Equal stores, equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memprobe.errors import SnapshotError

INDEX = "snapshot.json"
FORMAT = 1


def write_snapshot(
    directory: Path, system: str, embedder: str, count: int, parts: Mapping[str, bytes]
) -> None:
    """Write the parts under their names, then the index that vouches for them.

    `embedder` names the model whose vectors are inside ("" for none), `count` the
    items of the store.
    """
    index: dict[str, Any] = {
        "format": FORMAT,
        "system": system,
        "embedder": embedder,
        "count": count,
        "parts": {name: hashlib.sha256(raw).hexdigest() for name, raw in parts.items()},
    }
    for name, raw in parts.items():
        (directory / name).write_bytes(raw)
    text = json.dumps(index, indent=1, sort_keys=True) + "\n"
    (directory / INDEX).write_text(text, encoding="utf-8", newline="\n")


def read_snapshot(
    directory: Path, system: str, embedder: str, names: Sequence[str]
) -> tuple[int, dict[str, bytes]]:
    """The item count and the named parts of a snapshot.

    Raises `SnapshotError` naming the file that is missing, unreadable, of another
    system or embedder, or not the one that was saved.
    """
    path = directory / INDEX
    try:
        index = json.loads(path.read_bytes())
        found = (index["format"], index["system"], index["embedder"])
        hashes: dict[str, str] = dict(index["parts"])
        count = int(index["count"])
    except FileNotFoundError as error:
        raise SnapshotError(f"{path} is missing: no snapshot of {system}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path} is unreadable ({error})") from error
    if found != (FORMAT, system, embedder):
        raise SnapshotError(f"{path} is of {found}, {(FORMAT, system, embedder)} is needed")
    return count, {name: _part(directory / name, hashes.get(name)) for name in names}


def _part(path: Path, digest: str | None) -> bytes:
    if not path.is_file():
        raise SnapshotError(f"{path} is missing")
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != digest:
        raise SnapshotError(f"{path} does not match the hash in {INDEX}")
    return raw
