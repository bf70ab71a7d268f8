"""The run lock: one writer a run. A lock whose owner died is taken over.

The lock file names the owner's host, process id and process start time; the
start time tells a process from a later one that was given the same id.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memprobe.errors import StorageError, UsageError
from storage.files import LocalFiles, RemoteFiles

LOCK = "lock"


def process_start(pid: int) -> str | None:
    """When a process began, as the system tells it; None when it is not alive."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command's name stands in brackets and may hold spaces and brackets itself.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    if os.name == "nt":
        return "unknown"
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None


def _mine() -> bytes:
    pid = os.getpid()
    owner = {"host": socket.gethostname(), "pid": pid, "started": process_start(pid)}
    return json.dumps(owner, sort_keys=True).encode()


def _owner(raw: bytes) -> dict[str, Any] | None:
    try:
        owner = json.loads(raw)
    except ValueError:
        return None
    return owner if isinstance(owner, dict) else None


def _alive(owner: dict[str, Any] | None) -> bool:
    if owner is None:
        return False
    if owner.get("host") != socket.gethostname():
        return True
    pid = owner.get("pid")
    return isinstance(pid, int) and process_start(pid) == owner.get("started")


def _refuse(where: str, owner: dict[str, Any] | None) -> UsageError:
    who = owner or {}
    return UsageError(
        f"{where} is being written by process {who.get('pid')} on {who.get('host')}; "
        "wait for it, stop it, or use another --run name. If that machine is gone, "
        f"delete {where}/{LOCK}"
    )


def _take_local(folder: Path, where: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK
    mine = folder / f".{LOCK}.{os.getpid()}.tmp"
    mine.write_bytes(_mine())
    try:
        for _ in range(8):
            try:
                # A link appears with its content and fails when the name is taken.
                os.link(mine, lock)
                return
            except FileExistsError:
                pass
            try:
                raw = lock.read_bytes()
            except FileNotFoundError:
                continue
            owner = _owner(raw)
            if _alive(owner):
                raise _refuse(where, owner)
            _bury(lock, raw)
    finally:
        mine.unlink(missing_ok=True)
    raise StorageError(f"{where}: the lock could not be taken; somebody else keeps taking it")


def _bury(lock: Path, dead: bytes) -> None:
    """Move a dead owner's lock away, unless somebody has replaced it meanwhile."""
    grave = lock.with_name(f".{LOCK}.dead.{os.getpid()}")
    try:
        lock.replace(grave)
    except FileNotFoundError:
        return
    if grave.read_bytes() != dead:
        with contextlib.suppress(FileExistsError):
            os.link(grave, lock)
    grave.unlink(missing_ok=True)


def _take_remote(files: RemoteFiles, where: str) -> None:
    """Best effort: most object stores cannot create a name only if it is free."""
    try:
        owner = _owner(files.read(LOCK))
    except FileNotFoundError:
        owner = None
    if _alive(owner):
        raise _refuse(where, owner)
    files.write(LOCK, _mine())


@contextlib.contextmanager
def run_lock(files: LocalFiles | RemoteFiles) -> Iterator[None]:
    """Hold a run's lock; raises `UsageError` naming the owner when it is taken."""
    where = files.root
    if isinstance(files, LocalFiles):
        _take_local(files.path, where)
    else:
        _take_remote(files, where)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            if files.read(LOCK) == _mine():
                files.remove(LOCK)


def lock_owner(files: LocalFiles | RemoteFiles) -> tuple[dict[str, Any], bool] | None:
    """Who holds a run's lock (host, pid, started) and whether that process lives.

    None when nobody does. An owner on another machine counts as alive.
    """
    try:
        owner = _owner(files.read(LOCK))
    except FileNotFoundError:
        return None
    return owner or {}, _alive(owner)
