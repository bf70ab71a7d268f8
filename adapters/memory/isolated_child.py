"""The process of one store at a time: `python -m adapters.memory.isolated_child`.

It is started by `isolated.Pool` and speaks over its standard input and output,
which it takes away from the libraries first: what they print goes to standard
error. It ends with its input, whatever it is doing, and takes its own folder and
the processes it started along.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import IO, Any

from adapters.memory.calls import HeldLine
from adapters.memory.guard import clean_items
from adapters.memory.isolated_wire import (
    HELLO,
    error_out,
    event_in,
    item_out,
    packed,
    read_frame,
    vectors_in,
    write_all,
)
from adapters.memory.registry import Registry
from memprobe.errors import AdapterError
from memprobe.ports import MemorySystem
from memprobe.systems import ModelAccess
from memprobe.types import Protocol, Scope


class RunEmbedder:
    """The run's own embedder, asked over the pipe."""

    def __init__(self, host: Host, name: str, dimensions: int) -> None:
        self._host = host
        self.name = name
        self.dimensions = dimensions

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """As the port says; raises `AdapterError` when the run's embedder failed."""
        return vectors_in(await self._host.encode(list(texts))) if texts else []


class Host:
    """The child's end: one store, calls from the pipe, answers to it."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._store: MemorySystem | None = None
        self._watch = ExitStack()
        self._attempts: list[str] = []
        self._asked: dict[int, asyncio.Future[list[str]]] = {}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, **frame: Any) -> None:
        """One frame to the run."""
        write_all(self._out, packed(frame))

    async def encode(self, texts: list[str]) -> list[str]:
        """Vectors of the run's embedder, as they travel."""
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(encode=number, texts=texts)
        try:
            return await self._asked[number]
        finally:
            del self._asked[number]

    def receive(self, frame: dict[str, Any]) -> None:
        """One frame of the run, in the loop's thread."""
        if "vectors" in frame:
            waiting = self._asked.get(frame["vectors"])
            if waiting is None or waiting.done():
                return
            if "error" in frame:
                waiting.set_exception(AdapterError(frame["error"]))
            else:
                waiting.set_result(frame["rows"])
            return
        task = asyncio.get_running_loop().create_task(self._answer(frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, frame: dict[str, Any]) -> None:
        try:
            answer = {"value": await self._called(frame["call"], frame["with"])}
        except BaseException as error:
            answer = {"error": error_out(error, _blocked(error))}
        seen, self._attempts[:] = self._attempts[:], []
        self.send(id=frame["id"], attempts=seen, **answer)

    async def _called(self, call: str, given: dict[str, Any]) -> Any:
        if call == "open":
            return await self._open(given)
        store = self._store
        if store is None:
            raise AdapterError("the store is not open")
        match call:
            case "write":
                await store.write(event_in(given["event"]))
            case "search":
                found = await store.search(given["query"], given["k"])
                return [item_out(i) for i in clean_items(given["name"], call, found)]
            case "dump":
                found = await store.dump()
                return [item_out(i) for i in clean_items(given["name"], call, found)]
            case "save":
                await store.save(Path(given["directory"]))
            case "restore":
                await store.restore(Path(given["directory"]))
            case "close":
                await store.close()
                self._store = None
                self._watch.close()
            case _:
                raise AdapterError(f"there is no call {call!r}")
        return None

    async def _open(self, order: dict[str, Any]) -> None:
        if order["watched"]:
            # With it comes the whole contract; a run has no need of that.
            from adapters.memory.contract.network import NetworkGuard

            self._attempts = self._watch.enter_context(NetworkGuard()).attempts
        models = order["models"]
        registry = Registry(
            RunEmbedder(self, **order["embedder"]),
            Protocol(order["protocol"]),
            (lambda *_: HeldLine(ModelAccess(**models))) if models else None,
            names=[order["system"]],
            options={order["name"]: order["options"]},
            own_processes=False,
        )
        scope = Scope.model_validate(order["scope"])
        self._store = registry.create(order["system"], scope.user)
        await self._store.open(scope)


def _blocked(error: BaseException) -> str | None:
    network = sys.modules.get("adapters.memory.contract.network")
    link: BaseException | None = error if network is not None else None
    while link is not None:
        if isinstance(link, vars(network)["NetworkBlocked"]):
            return str(link)
        link = link.__cause__ or link.__context__
    return None


def _end() -> None:
    """Leave at once: nobody is there any more to hear of anything."""
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _listen(pipe: IO[bytes], host: Host, loop: asyncio.AbstractEventLoop) -> None:
    while (frame := read_frame(pipe)) is not None:
        loop.call_soon_threadsafe(host.receive, frame)
    _end()


async def _serve(pipe: IO[bytes], out: int) -> None:
    host = Host(out)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_listen, args=(pipe, host, loop), daemon=True).start()
    write_all(out, HELLO)
    await loop.create_future()


def main() -> None:
    """Entry point of the module; its argument is the child's own folder for temporary files."""
    tempfile.tempdir = sys.argv[1]
    pipe, out = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    asyncio.run(_serve(pipe, out))


if __name__ == "__main__":
    main()
