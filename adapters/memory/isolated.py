"""A memory system in a process of its own, behind the same port.

For libraries that cannot be loaded beside each other, and for those that keep
process-wide settings. A system asks for it by `process="own"` on its card, and
`Registry.create` then gives an `Isolated` in its place; nothing else changes for
the system or for who uses it. Its class is made in the child by a registry of
the child's, with

- `Services.models` as in the run: the door's address and the store's key, sent over
  the pipe and never on a command line;
- `Services.embedder` that asks the run's own embedder over the pipe, so that no text
  is encoded twice (a library may as well ask the door's `/embeddings`);
- `tempfile.gettempdir()` (and `TMPDIR`) of the child's own, removed when it ends;
- no `*_API_KEY`, `*_TOKEN` or `*_SECRET` in the environment: the door is the way;
- standard output and input taken away: what a library prints harms nothing.

Errors come back as what they were: every error of `memprobe.errors`, with the
reason of a `CallFailed`; any other becomes an `AdapterError` that names its type.

A child serves one store at a time. `close` gives it back to be taken by the next
store of the same system, libraries loaded; a class attribute `reusable = False`
of the system has each store start a new one. A child that died, or in which a
call was cancelled or timed out, is killed and never used again: that store is lost
(`AdapterError`), the next `open` works. All end with their `Pool`, and with this
process however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from adapters.memory.isolated_wire import (
    error_in,
    event_out,
    item_in,
    packed,
    read_frame,
    read_hello,
    vectors_out,
    write_all,
)
from adapters.models.redaction import redact
from memprobe.errors import AdapterError
from memprobe.ports import Embedder
from memprobe.systems import Services, SystemCard
from memprobe.types import Event, MemoryItem, Scope

IDLE = 4
"""Children of a pool that are kept for the next store."""

LIVE = max(8, 2 * (os.cpu_count() or 1))
"""Children of a pool that live at the same time; a store that would be one more waits."""

LAST_WORDS = 2000
"""Characters of standard error that are shown when a child died."""

_SECRET = ("_API_KEY", "_TOKEN", "_SECRET")
_MODULE = "adapters.memory.isolated_child"


def _network() -> ModuleType | None:
    """The contract's network guard; where it is not loaded, nobody watches."""
    return sys.modules.get("adapters.memory.contract.network")


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.upper().endswith(_SECRET)}
    places = os.pathsep.join(p or "." for p in sys.path)
    folders = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    return {**kept, **folders, "PYTHONPATH": places, "PYTHONFAULTHANDLER": "1"}


class Child:
    """One process, its pipes and what it has been asked. Belongs to no event loop."""

    def __init__(self, system: str) -> None:
        self.system = system
        self.embed: Callable[[int, list[str]], None] | None = None
        self.attempts: Callable[[list[str]], None] = lambda targets: None
        self.folder = Path(tempfile.mkdtemp(prefix="memprobe-store-"))
        options: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(self.folder),
                **options,
            )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise AdapterError(f"{system}: no process could be started: {error}") from error
        self._said: deque[str] = deque(maxlen=40)
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._gone = False
        self._ended = threading.Event()
        self._stderr = self._thread(self._overhear)
        self._thread(self._write)
        self._thread(self._read)

    @staticmethod
    def _thread(job: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=job, name="memprobe-store", daemon=True)
        thread.start()
        return thread

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._gone

    def send(self, frame: Mapping[str, Any]) -> None:
        """Hand one frame to the child; never waits for it."""
        self._out.put(packed(frame))

    def ask(self, call: str, given: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """Ask for one call; the answer is its frame. `AdapterError` when the child is gone."""
        answer: Future[dict[str, Any]] = Future()
        # Nobody can cancel it any more: whoever stops waiting has the child killed.
        answer.set_running_or_notify_cancel()
        with self._lock:
            if self._ended.is_set():
                answer.set_exception(AdapterError(f"{self.system}: {self.epitaph()}"))
                return answer
            number = next(self._numbers)
            self._waiting[number] = answer
        self.send({"id": number, "call": call, "with": given})
        return answer

    def kill(self) -> None:
        """End it and what it started, at once; safe to call twice."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is not None:
                # It has been waited for: its number may be another's by now.
                return
            if os.name == "posix":
                # Also when it is dead already: what it started may not be.
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def join(self, timeout: float) -> bool:
        """Wait until it has ended and left nothing behind."""
        return self._ended.wait(timeout)

    def epitaph(self) -> str:
        """How it ended, with the end of what it had to say; once it has."""
        code = self._process.returncode
        how = f"was ended by signal {-code}" if code and code < 0 else f"ended (exit code {code})"
        said = redact("\n".join(self._said).strip())[-LAST_WORDS:]
        return f"its process {how}" + (f": {said}" if said else "")

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while (data := self._out.get()) is not None:
                write_all(pipe.fileno(), data)
        except OSError:
            return
        finally:
            with contextlib.suppress(OSError):
                pipe.close()

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            for line in iter(lambda: pipe.readline(LAST_WORDS), b""):
                self._said.append(line.decode("utf-8", "replace").rstrip())

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            try:
                if read_hello(pipe):
                    while (frame := read_frame(pipe)) is not None:
                        self._take(frame)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._said.append(f"unreadable answer: {error!r}")
        # It closed its pipe: whatever it still does is of no use to anybody.
        self._gone = True
        self.kill()
        self._process.wait()
        self._stderr.join(1.0)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._out.put(None)
        with self._lock:
            self._ended.set()
            left = list(self._waiting.values())
            self._waiting.clear()
        for answer in left:
            answer.set_exception(AdapterError(f"{self.system}: {self.epitaph()}"))

    def _take(self, frame: dict[str, Any]) -> None:
        if "encode" in frame:
            if self.embed is not None:
                self.embed(frame["encode"], frame["texts"])
            return
        if frame["attempts"]:
            self.attempts(frame["attempts"])
        with self._lock:
            answer = self._waiting.pop(frame["id"])
        answer.set_result(frame)


class Pool:
    """The children of one registry. Usable from any thread and any event loop."""

    def __init__(self, *, idle: int = IDLE, live: int = LIVE) -> None:
        self._idle_limit, self._live_limit = idle, live
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._live: set[Child] = set()
        self._queue: deque[Future[None]] = deque()
        self._finalizer = weakref.finalize(self, _end_all, self._live)

    @property
    def live(self) -> list[Child]:
        """The children that have not been killed or closed, idle ones included."""
        with self._lock:
            return list(self._live)

    async def take(self, system: str) -> Child:
        """An idle child of the system, else a new one; waits while there are too many."""
        while True:
            child, turn = self._taken(system)
            if child is not None:
                return child
            assert turn is not None
            try:
                await asyncio.wrap_future(turn)
            except asyncio.CancelledError:
                with self._lock:
                    if turn in self._queue:
                        self._queue.remove(turn)
                    else:
                        # Its place came in the moment it left: somebody else's turn.
                        self._next()
                raise

    def _taken(self, system: str) -> tuple[Child | None, Future[None] | None]:
        with self._lock:
            for child in reversed(self._idle):
                if child.system == system:
                    self._idle.remove(child)
                    if child.alive:
                        return child, None
                    self._live.discard(child)
                    break
            while len(self._live) >= self._live_limit and self._idle:
                self._end(self._idle.pop(0))
            if len(self._live) < self._live_limit:
                child = Child(system)
                self._live.add(child)
                return child, None
            turn: Future[None] = Future()
            self._queue.append(turn)
            return None, turn

    def give(self, child: Child, *, reusable: bool = True) -> None:
        """Take a child back that holds no store any more; `reusable=False` ends it."""
        with self._lock:
            if child not in self._live:
                return
            if reusable and child.alive and self._finalizer.alive:
                child.embed, child.attempts = None, lambda targets: None
                self._idle.append(child)
                while len(self._idle) > self._idle_limit:
                    self._end(self._idle.pop(0))
            else:
                self._end(child)
            self._next()

    def _end(self, child: Child) -> None:
        self._live.discard(child)
        child.kill()

    def _next(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
                return

    def close(self) -> None:
        """End all children and wait for them; safe to call twice. No child is kept afterwards."""
        with self._lock:
            self._idle.clear()
        self._finalizer()


def _end_all(live: set[Child]) -> None:
    children = list(live)
    live.clear()
    for child in children:
        child.kill()
    for child in children:
        child.join(2.0)


class Isolated:
    """One store, in a child from `pool`. `system` is the name as a registry takes it."""

    def __init__(
        self,
        system: str,
        card: SystemCard,
        services: Services,
        pool: Pool,
        *,
        reusable: bool = True,
    ) -> None:
        self.capabilities = card.capabilities
        self._system, self._name = system, card.name
        self._services = services
        self._pool = pool
        self._reusable = reusable
        self._child: Child | None = None
        self._reserved: Child | None = None
        self._lost = ""
        self._encoding: set[asyncio.Task[None]] = set()

    async def admit(self) -> None:
        """Wait for a process, when as many as may live at once do. `open` does so, too."""
        if self._child is None and self._reserved is None:
            self._reserved = await self._pool.take(self._system)

    async def open(self, scope: Scope) -> None:
        """As the port says, in a child."""
        if self._child is not None:
            raise AdapterError(f"{self._name}: the store is open already")
        await self.admit()
        child, self._reserved = self._reserved, None
        assert child is not None
        self._child, self._lost = child, ""
        child.embed = self._embedding(child, asyncio.get_running_loop())
        network = _network()
        if network is not None:
            child.attempts = network.report
        models, embedder = self._services.models, self._services.embedder
        order = {
            "system": self._system,
            "name": self._name,
            "scope": scope.model_dump(),
            "options": self._services.options.model_dump(mode="json"),
            "protocol": self._services.protocol.value,
            "models": asdict(models) if models else None,
            "embedder": {"name": embedder.name, "dimensions": embedder.dimensions},
            "watched": network is not None and network.watching(),
        }
        try:
            await self._call("open", order)
        except BaseException:
            self._give_up(child, "it could not be opened")
            raise

    def _embedding(
        self, child: Child, loop: asyncio.AbstractEventLoop
    ) -> Callable[[int, list[str]], None]:
        """What answers the child's wishes for vectors, in the loop that opened the store."""
        embedder = self._services.embedder

        def start(number: int, texts: list[str]) -> None:
            task = loop.create_task(_encode(child, embedder, number, texts))
            self._encoding.add(task)
            task.add_done_callback(self._encoding.discard)

        def asked(number: int, texts: list[str]) -> None:
            # The loop may be closed by now; then nobody waits for the child either.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(start, number, texts)

        return asked

    async def _call(self, call: str, given: Mapping[str, Any]) -> Any:
        child = self._child
        if child is None:
            raise AdapterError(f"{self._name}: the store is {self._lost or 'not open'}")
        try:
            answer = await asyncio.wrap_future(child.ask(call, given))
        except BaseException as error:
            self._give_up(child, f"lost since {call} was broken off")
            if isinstance(error, AdapterError):
                raise AdapterError(self._without_key(f"{error} (during {call})")) from error
            raise
        if "error" not in answer:
            return answer["value"]
        told = answer["error"]
        failure = error_in({**told, "detail": self._without_key(told["detail"])}, self._name)
        blocked, network = told["blocked"], _network()
        if blocked and network is not None:
            raise failure from network.NetworkBlocked(blocked)
        raise failure

    def _without_key(self, text: str) -> str:
        models = self._services.models
        return text.replace(models.api_key, "[redacted]") if models else text

    def _give_up(self, child: Child, why: str) -> None:
        if self._child is child:
            self._child, self._lost = None, why
        self._pool.give(child, reusable=False)

    async def write(self, event: Event) -> None:
        """As the port says."""
        await self._call("write", {"event": event_out(event)})

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        """As the port says."""
        given = {"query": query, "k": k, "name": self._name}
        return [item_in(row) for row in await self._call("search", given)]

    async def dump(self) -> list[MemoryItem]:
        """As the port says."""
        return [item_in(row) for row in await self._call("dump", {"name": self._name})]

    async def save(self, directory: Path) -> None:
        """As the port says."""
        await self._call("save", {"directory": _absolute(directory)})

    async def restore(self, directory: Path) -> None:
        """As the port says."""
        await self._call("restore", {"directory": _absolute(directory)})

    async def close(self) -> None:
        """Close the store and give its process back; safe to call twice."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            self._pool.give(reserved)
        child = self._child
        if child is None:
            return
        if not child.alive:
            self._give_up(child, "not open")
            return
        try:
            await self._call("close", {})
        except BaseException:
            self._give_up(child, "not open")
            raise
        self._child, self._lost = None, ""
        self._pool.give(child, reusable=self._reusable)


def _absolute(directory: Path) -> str:
    return str(directory.absolute())


async def _encode(child: Child, embedder: Embedder, number: int, texts: list[str]) -> None:
    try:
        rows = vectors_out(await embedder.encode(texts))
    except Exception as error:
        said = f"the embedder failed: {type(error).__name__}: {error}"
        child.send({"vectors": number, "error": redact(said)})
    else:
        child.send({"vectors": number, "rows": rows})
