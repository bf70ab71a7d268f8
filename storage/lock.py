"""The run lock: one writer a run. A lock whose owner died is taken over.

The lock file names the owner's host, process id and process start time; the
start time tells a process from a later one that was given the same id. In S3 the
lock is taken by a conditional write; other object stores are locked at best
effort, as they cannot create a name only while it is free.
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
from storage.files import AnyFiles, LocalFiles
from storage.s3 import ConditionUnknown, S3Files

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


def _refuse(where: str, owner: dict[str, Any] | None, name: str) -> UsageError:
    who = owner or {}
    return UsageError(
        f"{where} is being written by process {who.get('pid')} on {who.get('host')}; "
        "wait for it, stop it, or use another --run name. If that machine is gone, "
        f"delete {where}/{name}"
    )


def _take_local(folder: Path, where: str, name: str) -> None:
    lock = folder / name
    lock.parent.mkdir(parents=True, exist_ok=True)
    mine = lock.with_name(f".{lock.name}.{os.getpid()}.tmp")
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
                raise _refuse(where, owner, name)
            _bury(lock, raw)
    finally:
        mine.unlink(missing_ok=True)
    raise StorageError(f"{where}: the lock could not be taken; somebody else keeps taking it")


def _bury(lock: Path, dead: bytes) -> None:
    """Move a dead owner's lock away, unless somebody has replaced it meanwhile."""
    grave = lock.with_name(f".{lock.name}.dead.{os.getpid()}")
    try:
        lock.replace(grave)
    except FileNotFoundError:
        return
    if grave.read_bytes() != dead:
        with contextlib.suppress(FileExistsError):
            os.link(grave, lock)
    grave.unlink(missing_ok=True)


def _take_s3(files: S3Files, where: str, name: str) -> None:
    for _ in range(8):
        if files.create(name, _mine()):
            return
        try:
            raw, tag = files.read_tagged(name)
        except FileNotFoundError:
            continue
        owner = _owner(raw)
        if _alive(owner):
            raise _refuse(where, owner, name)
        # Of several that find a dead owner the first one changes the tag.
        if files.replace(name, _mine(), tag):
            return
    raise StorageError(f"{where}: the lock could not be taken; somebody else keeps taking it")


def _take_remote(files: AnyFiles, where: str, name: str) -> None:
    """Best effort: two that look at the same moment both find the name free."""
    if isinstance(files, S3Files):
        with contextlib.suppress(ConditionUnknown):
            _take_s3(files, where, name)
            return
    try:
        owner = _owner(files.read(name))
    except FileNotFoundError:
        owner = None
    if _alive(owner):
        raise _refuse(where, owner, name)
    files.write(name, _mine())


@contextlib.contextmanager
def run_lock(files: AnyFiles, name: str = LOCK) -> Iterator[None]:
    """Hold a lock of a run; raises `UsageError` naming the owner when it is taken.

    `name` is the lock's file in the run: the whole run's, or that of a part of it.
    """
    where = files.root
    if isinstance(files, LocalFiles):
        _take_local(files.path, where, name)
    else:
        _take_remote(files, where, name)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            if files.read(name) == _mine():
                files.remove(name)


def lock_owner(files: AnyFiles, name: str = LOCK) -> tuple[dict[str, Any], bool] | None:
    """Who holds a run's lock (host, pid, started) and whether that process lives.

    None when nobody does. An owner on another machine counts as alive.
    """
    try:
        owner = _owner(files.read(name))
    except FileNotFoundError:
        return None
    return owner or {}, _alive(owner)
