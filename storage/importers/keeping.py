"""What an import's parts share: files that are read and kept, and units that are written."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from memprobe.errors import UsageError
from storage.importers.layout import Release
from storage.importers.source import Document, File, Issues, Unread, read
from storage.importers.templates import dumps
from storage.manifest import Manifest, RunStatus
from storage.runs import RunStore, Unit

VERSION = "1"
RAW_BYTES = 4 << 20
"""Up to this size a file that is not understood is kept whole; a larger one by its hash."""
_THREADS, _PENDING = 4, 12

Row = dict[str, Any]


def open_import(location: str, manifest: Manifest) -> RunStore:
    """The store of a new import, or of one that was not finished and is done again.

    Raises `UsageError` when there is a run already, or an unfinished import of
    something else.
    """
    if not RunStore.exists(location):
        return RunStore.create(location, manifest)
    store = RunStore.open(location)
    begun = store.manifest
    if begun.origin is None or begun.status is RunStatus.COMPLETE:
        raise UsageError(f"{store.location} holds a run already; choose another --run name")
    if begun.config != manifest.config:
        raise UsageError(
            f"{store.location} is an unfinished import of other users or systems; "
            "choose another --run name, or delete it"
        )
    return store


class Writer:
    """Commits units in threads: a durable write mostly waits for the disk.

    Bounded, so that rows do not pile up. An error of an earlier commit is raised
    by a later one, or at the end.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="import")
        self._pending: deque[Future[None]] = deque()
        self.rows: dict[str, int] = {}

    def commit(self, unit: Unit, tables: Mapping[str, Sequence[Row]]) -> None:
        """Store a unit; its write may still be under way when this returns."""
        there = {table: rows for table, rows in tables.items() if rows}
        for table, rows in there.items():
            self.rows[table] = self.rows.get(table, 0) + len(rows)
        while len(self._pending) >= _PENDING:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._store.commit, unit, VERSION, there))

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
        if error is None:
            for pending in self._pending:
                pending.result()


def extra(document: Document, kind: str, template: Any, **more: Any) -> Row:
    """A row of `extras`: a file's template with what identifies the file."""
    return {
        "system": None,
        "user_id": None,
        "kind": kind,
        "path": document.path,
        "place": -1,
        "episode": None,
        "access_mode": None,
        "sha256": document.sha256,
        "style": document.style,
        "template_json": dumps(template),
        **more,
    }


def whole(document: Document, **owner: Any) -> Row:
    """A file that is kept as it is."""
    kept = document.file.real.stat().st_size <= RAW_BYTES
    return extra(document, "whole" if kept else "hash", document.value if kept else None, **owner)


def raw(unread: Unread, **owner: Any) -> Row:
    """The bytes of a file that is no usable JSON, base64."""
    kept = len(unread.raw) <= RAW_BYTES
    bare = Document(unread.file, None, unread.sha256, "", False)
    text = base64.b64encode(unread.raw).decode("ascii") if kept else None
    return extra(bare, "raw" if kept else "hash", text, **owner)


class Work:
    """The state of one import.

    `general` are the extras that belong to no user, `digest` covers the name and
    content of every file that was read.
    """

    def __init__(self, release: Release, issues: Issues) -> None:
        self.release = release
        self.issues = issues
        self.general: list[Row] = []
        self.digest = hashlib.sha256()

    def read(self, file: File, extras: list[Row], **about: str) -> Document | None:
        """A parsed file; the text of one that cannot be parsed goes to `extras`."""
        found = read(file, self.issues, **about)
        if found is not None:
            self.digest.update(f"{file.path}\0{found.sha256}\n".encode())
        if isinstance(found, Unread):
            extras.append(raw(found, **{k: about.get(k) for k in ("system", "user_id")}))
            return None
        return found

    def check_owner(self, document: Document | None, user_id: str) -> None:
        """Report a file that names another user further down than its beginning."""
        value = document.value if document else None
        said = value.get("user_id") if isinstance(value, dict) else None
        if document and said is not None and said != user_id:
            problem = f"{said!r:.60} in a file of {user_id}"
            done = "the file's place decides"
            self.issues.add(document.path, "user_id", problem, done, user_id=user_id)
