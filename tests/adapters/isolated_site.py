"""A memory system that does on demand what a library may do, and registries that isolate it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adapters.memory.isolated import Isolated
from adapters.memory.registry import Registry
from memprobe.ports import Embedder
from memprobe.systems import ModelAccess
from tests.adapters.support import FixedLine, WordEmbedder

ACCESS = ModelAccess("http://127.0.0.1:9/v1", "memprobe-the-stores-key", "chat", "words")

SYSTEM = '''
import asyncio, json, os, pathlib, signal, socket, sys, tempfile
from memprobe import Capabilities
from memprobe.errors import *
from memprobe.outcomes import Reason
from memprobe.systems import Services, SystemCard, SystemOptions
from memprobe.types import MemoryItem

LOADED = []

class Options(SystemOptions):
    depth: int = 3

class Apart:
    """Does what it is told to."""
    Options = Options
    capabilities = Capabilities(needs_llm=True, documents=True, sessions=True)
    card = SystemCard(name="apart", title="Apart", summary="x", licence="none",
                      capabilities=capabilities, process="own")

    def __init__(self, services: Services):
        self.services, self.items = services, None

    async def open(self, scope):
        if scope.user == "unwelcome":
            raise MissingPrerequisite("apart needs something: pip install something")
        self.items, self.scope = [], scope
        LOADED.append(scope.key)

    async def write(self, event):
        if self.items is None:
            raise AdapterError("apart: not open")
        word, _, rest = event.text.partition(" ")
        match word:
            case "die": os.kill(os.getpid(), signal.SIGKILL)
            case "leave":
                print("the last words", self.services.models.api_key, file=sys.stderr, flush=True)
                os._exit(3)
            case "exit": sys.exit(4)
            case "hang": await asyncio.sleep(600)
            case "adapter": raise AdapterError("apart: no")
            case "snapshot": raise SnapshotError("gone")
            case "unsupported": raise UnsupportedEvent("not this")
            case "call": raise CallFailed(Reason.TRUNCATED, "too long", "key1")
            case "budget": raise BudgetExceeded("1 USD")
            case "prerequisite": raise MissingPrerequisite("install it")
            case "value": raise ValueError(f"a key {self.services.models.api_key}")
            case "cancel": raise asyncio.CancelledError
            case "noise":
                print("to stdout")
                os.write(1, b"\\x00\\x00\\x00\\x02{}" * 5000)
                os.system("echo from a child of its own")
                assert sys.stdin.read() == ""
            case "network": socket.create_connection(("203.0.113.1", 80), timeout=1)
            case "spawn":
                import subprocess
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                rest = str(child.pid)
            case "tell":
                rest = json.dumps({
                    "pid": os.getpid(), "argv": sys.argv, "tmp": tempfile.gettempdir(),
                    "models": vars_of(self.services.models), "depth": self.services.options.depth,
                    "protocol": self.services.protocol.value, "loaded": LOADED,
                    "embedder": [self.services.embedder.name, self.services.embedder.dimensions],
                    "secrets": [k for k in os.environ if k.endswith("_API_KEY")]})
            case "odd": self.items.append("no item"); return
            case "embed":
                rows = await self.services.embedder.encode([rest, rest])
                rest = json.dumps(rows)
        fields = {"kind": type(event).__name__, **event.model_dump(mode="json")}
        self.items.append(MemoryItem(id=str(len(self.items)), content=rest or word,
                                     event_time=event.event_time, fields=fields))

    async def search(self, query, k):
        return [i.model_copy(update={"score": 1 / 3}) for i in self.items if query in i.content][:k]

    async def dump(self): return list(self.items)

    async def save(self, directory):
        rows = [i.model_dump(mode="json") for i in self.items]
        (directory / "items.json").write_text(json.dumps(rows))

    async def restore(self, directory):
        path = directory / "items.json"
        if not path.is_file():
            raise SnapshotError(f"{path} is missing")
        self.items = [MemoryItem.model_validate(r) for r in json.loads(path.read_text())]

    async def close(self): self.items = None

def vars_of(access):
    return {name: getattr(access, name) for name in access.__dataclass_fields__}
'''


class Apartment:
    """A registry with the system in it; `store` makes an unopened one."""

    def __init__(self, spec: str, embedder: Embedder, **registry: Any) -> None:
        self.spec = spec
        self.registry = Registry(
            embedder, lines=lambda *_: FixedLine(ACCESS), names=[spec], **registry
        )

    def store(self, user: str = "user_001") -> Any:
        return self.registry.create(self.spec, user)

    def isolated(self) -> Isolated:
        found = self.store()
        assert isinstance(found, Isolated)
        return found

    @property
    def pids(self) -> list[int]:
        """The children that there are."""
        pool = self.registry._pool
        return [child.pid for child in pool.live] if pool else []


@contextmanager
def apartment(
    folder: Path, embedder: Embedder | None = None, source: str = SYSTEM, **registry: Any
) -> Iterator[Apartment]:
    path = folder / "apart.py"
    path.write_text(source)
    made = Apartment(f"{path}:Apart", embedder or WordEmbedder(), **registry)
    try:
        yield made
    finally:
        made.registry.close()
