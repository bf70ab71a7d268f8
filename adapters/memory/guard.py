"""A memory system held to its port at every call of a run.

Whatever stands behind the port, a run sees items it can trust or an error with
a name. A library that exits the process, cancels itself or never comes back, a
score that is no number, a list that is changed after it was handed out, and a
snapshot that comes back as another store: each of them would otherwise end as a
figure, or end the run as if someone had stopped it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue, ValidationError

from adapters.memory.isolated import Isolated
from memprobe.dataset import explain
from memprobe.errors import (
    AdapterContractError,
    AdapterError,
    BudgetExceeded,
    CallFailed,
    SnapshotError,
)
from memprobe.outcomes import Reason
from memprobe.ports import Capabilities, MemorySystem
from memprobe.systems import ModelLine, SystemCard
from memprobe.text import sanitize
from memprobe.types import Event, MemoryItem, MessageEvent, Protocol, Scope, SessionEvent

TIMEOUT = 1800.0
"""Seconds for one call of a system. A write may make several model calls, each with retries."""

FINGERPRINT = ".memprobe-items.json"
"""In a snapshot's folder: how many items the saved store held, and a hash of them."""

T = TypeVar("T")


def clean_items(system: str, call: str, found: object) -> list[MemoryItem]:
    """A list of our own with valid items: text without lone surrogates, finite scores.

    Raises `AdapterContractError` telling what came instead.
    """
    if not isinstance(found, list):
        raise AdapterContractError(
            f"{system}: {call} gave a {type(found).__name__}, not a list of MemoryItem"
        )
    return [_clean(system, f"{call}, item {n}", item) for n, item in enumerate(found, 1)]


def _clean(system: str, where: str, item: object) -> MemoryItem:
    if not isinstance(item, MemoryItem):
        raise AdapterContractError(f"{system}: {where} is a {type(item).__name__}, no MemoryItem")
    # What was made without validation may lack fields.
    given = item.__dict__
    score = given.get("score")
    if score is not None and not (isinstance(score, int | float) and math.isfinite(score)):
        raise AdapterContractError(f"{system}: {where} has the score {score!r}")
    try:
        return MemoryItem.model_validate(
            {
                "id": _text(given.get("id")),
                "content": _text(given.get("content")),
                "event_time": given.get("event_time"),
                "score": score,
                "fields": _json(given.get("fields", {})),
            }
        )
    except ValidationError as error:
        raise AdapterContractError(f"{system}: {where}: {explain(error)}") from error


def _text(value: object) -> object:
    return sanitize(value)[0] if isinstance(value, str) else value


def _json(value: JsonValue) -> JsonValue:
    """The same value without what JSON or UTF-8 cannot hold."""
    match value:
        case str():
            return sanitize(value)[0]
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {sanitize(str(k))[0]: _json(v) for k, v in value.items()}
        case list():
            return [_json(v) for v in value]
        case _:
            return value


def fingerprint(items: list[MemoryItem]) -> dict[str, JsonValue]:
    """Identifies what a store holds, whatever the order in which it is dumped."""
    digest = hashlib.sha256()
    for text in sorted(item.content for item in items):
        digest.update(hashlib.sha256(text.encode()).digest())
    return {"count": len(items), "sha256": digest.hexdigest()}


def messages_of(session: SessionEvent) -> list[MessageEvent]:
    """A session's messages one by one; what a tool put out is told as the assistant's."""
    turn = 0
    found = []
    for message in session.messages:
        tool = message.role == "tool_output"
        # A turn begins with the user's message, as in a dialogue that is played.
        turn += message.role == "user" or not turn
        found.append(
            MessageEvent(
                role="assistant" if tool else message.role,
                text=f"[tool output] {message.text}" if tool else message.text,
                event_time=session.event_time,
                session_id=session.session_id,
                turn=turn,
            )
        )
    return found


class Guard:
    """One store behind its port. A call that never came back leaves it unusable."""

    def __init__(
        self,
        system: MemorySystem,
        card: SystemCard,
        timeout: float = TIMEOUT,
        *,
        line: ModelLine | None = None,
        protocol: Protocol = Protocol.STRICT,
    ) -> None:
        self.capabilities: Capabilities = card.capabilities
        self._system = system
        self._name = card.name
        self._timeout = timeout
        self._line = line
        self._heard = protocol is Protocol.STRICT
        self._abandoned: str | None = None

    async def _asking(self, item: str, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """A call in which the system may ask its model. What it swallows is heard all the same.

        That goes for what failed since the call before, too: a system may work on
        behind its answer. Under the published protocol a swallowed failure stays
        swallowed; the cost limit ends a run under any.
        """
        if self._line is None:
            return await self._call(what, call())
        self._line.begin(item)
        try:
            answer = await self._call(what, call())
        except Exception as error:
            failure = self._line.failure()
            if failure is not None and not isinstance(error, CallFailed):
                raise failure from error
            raise
        failure = self._line.failure()
        if failure is not None and (self._heard or isinstance(failure, BudgetExceeded)):
            raise failure
        return answer

    async def _call(self, what: str, call: Awaitable[T]) -> T:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                try:
                    return await call
                except asyncio.CancelledError as error:
                    if task is not None and task.cancelling():
                        raise
                    raise AdapterError(f"{self._name}: {what} was cancelled from within") from error
                except SystemExit as error:
                    raise AdapterError(
                        f"{self._name}: {what} tried to end the process (exit code {error.code})"
                    ) from error
        except TimeoutError as error:
            if not deadline.expired():
                raise
            self._abandoned = f"{what} did not come back within {self._timeout:g} s"
            raise CallFailed(Reason.TIMEOUT, f"{self._name}: {self._abandoned}") from error

    def _usable(self) -> None:
        if self._abandoned is not None:
            raise AdapterError(f"{self._name}: the store was given up: {self._abandoned}")

    async def open(self, scope: Scope) -> None:
        """As the port says. Waiting for a process of its own is not the system's time."""
        self._abandoned = None
        if isinstance(self._system, Isolated):
            await self._system.admit()
        await self._asking("open", "open", lambda: self._system.open(scope))

    async def write(self, event: Event) -> None:
        """As the port says; a session goes message by message to a system that takes none."""
        if isinstance(event, SessionEvent) and not self.capabilities.sessions:
            for message in messages_of(event):
                await self.write(message)
            return
        self._usable()
        turn = f"/turn{event.turn}/{event.role}" if isinstance(event, MessageEvent) else ""
        item = f"{event.session_id}{turn}/write"
        await self._asking(item, "write", lambda: self._system.write(event))

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """As the port says."""
        self._usable()
        # Named by what was asked, and not counted: a resumed run must use the same names.
        item = f"search/{hashlib.sha256(query.encode('utf-8', 'replace')).hexdigest()[:12]}"
        found = await self._asking(item, "search", lambda: self._system.search(query, k))
        return clean_items(self._name, "search", found)

    async def dump(self) -> list[MemoryItem]:
        """As the port says."""
        self._usable()
        return clean_items(
            self._name, "dump", await self._asking("dump", "dump", self._system.dump)
        )

    async def save(self, directory: Path) -> None:
        """As the port says; with it goes a fingerprint of what the store held."""
        self._usable()
        await self._asking("save", "save", lambda: self._system.save(directory))
        if self.capabilities.full_dump:
            held = fingerprint(await self.dump())
            (directory / FINGERPRINT).write_text(json.dumps(held), encoding="utf-8")

    async def restore(self, directory: Path) -> None:
        """As the port says. Raises `SnapshotError` when the store is not the saved one."""
        self._usable()
        await self._asking("restore", "restore", lambda: self._system.restore(directory))
        note = directory / FINGERPRINT
        if not note.is_file():
            return
        try:
            saved = dict(json.loads(note.read_bytes()))
            count = int(saved["count"])
        except (ValueError, TypeError, KeyError) as error:
            raise SnapshotError(f"{self._name}: {note} is unreadable ({error})") from error
        found = fingerprint(await self.dump())
        if found != saved:
            raise SnapshotError(
                f"{self._name}: the restored store is not the saved one: {count} items "
                f"were saved, {found['count']} came back"
                + ("" if found["count"] != count else " with other contents")
            )

    async def close(self) -> None:
        """As the port says; the store's key opens no door any more."""
        try:
            await self._call("close", self._system.close())
        finally:
            if self._line is not None:
                self._line.close()
