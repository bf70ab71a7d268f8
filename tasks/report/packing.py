"""How a report carries its cases: compressed payloads, and an index over all of them.

A user's texts are needed only when a reader opens one of that user's cases, so
each payload is gzip in base64, inflated in the browser on demand.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from memprobe.errors import StorageError
from storage.runs import RunStore, Unit, part_path

Row = dict[str, Any]
PAYLOAD_CAP = 48 * 1024 * 1024
"""Bytes of base64 that a report may carry; beyond it the first users are kept."""


def variant_name(row: Mapping[str, Any]) -> str:
    """How a way of reading is named in links and filters, e.g. `retrieve@5`.

    A later epoch or another score layer is appended: `dump_all;e2;rejudge`.
    """
    name = str(row["access_mode"])
    if row.get("k") is not None:
        name += f"@{row['k']}"
    if row.get("epoch", 1) != 1:
        name += f";e{row['epoch']}"
    if row.get("layer", "base") != "base":
        name += f";{row['layer']}"
    return name


def pack(value: Any) -> str:
    """JSON, compressed, in base64. The same value gives the same text."""
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def unpack(text: str) -> Any:
    """The value of a packed text."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


class Names:
    """Distinct names in the order of their first use."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    @property
    def list(self) -> list[str]:
        return list(self.places)


def outcome(row: Row) -> Row:
    return {key: row[key] for key in ("status", "reason", "detail") if row.get(key) is not None}


def parsed(raw: str | None) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw


class Parts:
    """A run's parts by folder, listed once: a listing for each user would be quadratic."""

    def __init__(self, store: RunStore, tables: Sequence[str]) -> None:
        self.store = store
        self.folders: dict[str, list[str]] = {}
        for table in tables:
            for path in store.parts(table):
                self.folders.setdefault(path.rsplit("/", 1)[0], []).append(path)

    def read(self, table: str, user: str, system: str = "") -> list[Row]:
        """The rows of one user, in stored order; nothing stored gives no rows."""
        folder = part_path(table, Unit("", system, user)).rsplit("/", 1)[0]
        rows: list[Row] = []
        for path in self.folders.get(folder, ()):
            source = io.BytesIO(self.store.files.read(path))
            try:
                # One small file: threads would cost more than they bring.
                rows += pq.ParquetFile(source).read(use_threads=False).to_pylist()
            except pa.ArrowException as error:
                raise StorageError(
                    f"{self.store.location}/{path} cannot be read: {error}"
                ) from error
        return rows


@dataclass(slots=True)
class CaseBook:
    """The packed payloads of the users that fit, and the index over their cases.

    `total` is the number of users of the run; `users` those whose cases are here.
    """

    total: int
    cap: int
    users: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)
    index: str = ""

    @property
    def complete(self) -> bool:
        """Whether every user of the run is here."""
        return len(self.users) == self.total

    @property
    def cap_mb(self) -> int:
        """The bound in whole MB."""
        return self.cap // (1024 * 1024)


class Index(Protocol):
    """What the list of cases and its filters know, by suite."""

    def add(self, place: int, payload: Row) -> None:
        """Take in the cases of the user at a place."""
        ...

    def value(self) -> Row:
        """The index as JSON; `users` is added to it."""
        ...


def ahead(payload_of: Callable[[str], Row], users: Sequence[str]) -> Generator[Row]:
    """The payloads in order, read by a few threads: few enough to bound memory."""
    waiting_room = 8
    with ThreadPoolExecutor(max_workers=4) as pool:
        waiting = [pool.submit(payload_of, user) for user in users[:waiting_room]]
        for place in range(len(users)):
            done = waiting.pop(0).result()
            following = place + waiting_room
            if following < len(users):
                waiting.append(pool.submit(payload_of, users[following]))
            yield done


def fill(
    total: int,
    payloads: Generator[Row],
    index: Index,
    cap: int,
    look: Callable[[Row], None] | None = None,
) -> CaseBook:
    """Pack payloads in their order until the next does not fit under `cap` bytes.

    `look` is shown every payload, those that do not fit as well.
    """
    book = CaseBook(total=total, cap=cap)
    used, full = 0, False
    for payload in payloads:
        if look is not None:
            look(payload)
        if full:
            continue
        text = pack(payload)
        if used + len(text) > cap:
            full = True
            if look is not None:
                continue
            payloads.close()
            break
        used += len(text)
        index.add(len(book.users), payload)
        book.users.append(payload["user"])
        book.packed.append(text)
    book.index = pack({"users": book.users, **index.value()})
    return book
