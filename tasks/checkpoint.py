"""Checkpoints of a rollout: the store's snapshot and the episodes so far, committed together.

A checkpoint is a folder with the snapshot and the state; a small pointer file,
replaced last, names the folder and the hashes of what is in it. A pointer whose
folder is missing or does not match is an error: it must never turn into an
empty store that is then measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memprobe.errors import SnapshotError
from memprobe.ports import MemorySystem

POINTER = "checkpoint.json"


def digest_tree(folder: Path) -> str:
    """sha256 over the relative names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file as a whole; after a crash it is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed point: episodes done, the rows they made, and where the store lies."""

    episode: int
    state: Mapping[str, Any]
    store: Path


class Checkpoints:
    """The checkpoints of one rollout unit in its working folder."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._folder = folder
        self._fingerprint = fingerprint

    def load(self) -> Checkpoint | None:
        """The last commit; None before the first or when it belongs to other settings.

        Raises `SnapshotError` when the pointer names a store that is missing or changed.
        """
        pointer_path = self._folder / POINTER
        if not pointer_path.exists():
            return None
        try:
            pointer = json.loads(pointer_path.read_bytes())
            if pointer["fingerprint"] != self._fingerprint:
                return None
            folder = self._folder / pointer["folder"]
            episode, hashes = int(pointer["episode"]), (pointer["store"], pointer["state"])
            store, state = folder / "store", folder / "state.json"
            if not store.is_dir() or not state.is_file():
                raise SnapshotError(self._broken(folder, "is missing"))
            raw = state.read_bytes()
            found = digest_tree(store), hashlib.sha256(raw).hexdigest()
        except (KeyError, ValueError, TypeError) as error:
            raise SnapshotError(self._broken(pointer_path, f"is unreadable ({error})")) from error
        if found != hashes:
            raise SnapshotError(self._broken(folder, "does not match its checkpoint"))
        return Checkpoint(episode, json.loads(raw), store)

    def _broken(self, path: Path, what: str) -> str:
        return (
            f"{path} {what}. The stored answers are safe in the ledger; delete {self._folder} "
            "to roll this user out again from them"
        )

    async def commit(self, system: MemorySystem, episode: int, state: Mapping[str, Any]) -> None:
        """Save the store and the state, then move the pointer; the older folder goes last."""
        name = f"episode-{episode:04d}"
        folder = self._folder / name
        if folder.exists():
            shutil.rmtree(folder)
        store = folder / "store"
        store.mkdir(parents=True)
        await system.save(store)
        raw = json.dumps(state, ensure_ascii=False, sort_keys=True).encode()
        # Waiting for the disk here would hold up every other user's dialogue.
        await asyncio.to_thread(self._point_to, folder, episode, raw)

    def _point_to(self, folder: Path, episode: int, raw: bytes) -> None:
        write_atomic(folder / "state.json", raw)
        pointer = {
            "fingerprint": self._fingerprint,
            "episode": episode,
            "folder": folder.name,
            "store": digest_tree(folder / "store"),
            "state": hashlib.sha256(raw).hexdigest(),
        }
        write_atomic(self._folder / POINTER, json.dumps(pointer, sort_keys=True).encode())
        for other in self._folder.glob("episode-*"):
            if other.name != folder.name:
                shutil.rmtree(other, ignore_errors=True)
