"""What a system swallows is heard; whose call it was is known; options reach the system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapters.memory.guard import Guard
from adapters.memory.registry import Registry, install_command
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed, UsageError
from memprobe.outcomes import Reason
from memprobe.ports import Capabilities
from memprobe.systems import ModelAccess, SystemCard
from memprobe.types import Event, MemoryItem, Protocol, Scope
from tests.adapters.support import FixedLine, WordEmbedder, event, scope

CARD = SystemCard(
    name="quiet",
    title="Quiet",
    summary="swallows",
    licence="MIT",
    capabilities=Capabilities(needs_llm=True),
)
ACCESS = ModelAccess("http://127.0.0.1:1/v1", "key", "chat", "embed")
OUTAGE = CallFailed(Reason.PROVIDER_ERROR, "503")


class Quiet:
    """Carries on whatever its model does; a test says what happens during its calls."""

    capabilities = CARD.capabilities

    def __init__(self, line: FixedLine, *during: Exception) -> None:
        self.line, self.during = line, list(during)
        self.own: Exception | None = None

    async def open(self, scope: Scope) -> None:
        return None

    def _happens(self) -> None:
        self.line.failures += [e for e in self.during if isinstance(e, CallFailed | AdapterError)]
        if self.own is not None:
            raise self.own

    async def write(self, event: Event) -> None:
        self._happens()

    async def search(self, query: str, k: int) -> list[MemoryItem]:
        self._happens()
        return []

    async def dump(self) -> list[MemoryItem]:
        self._happens()
        return []

    async def save(self, directory: Path) -> None:
        self._happens()

    async def restore(self, directory: Path) -> None:
        self._happens()

    async def close(self) -> None:
        return None


async def guarded(*during: Exception, protocol: Protocol = Protocol.STRICT) -> tuple[Guard, Any]:
    line = FixedLine(ACCESS)
    store = Quiet(line, *during)
    guard = Guard(store, CARD, line=line, protocol=protocol)
    await guard.open(scope())
    return guard, store


@pytest.mark.parametrize("failure", [OUTAGE, AdapterError("the door refused")])
async def test_a_swallowed_failure_is_raised(failure: Exception) -> None:
    guard, _ = await guarded(failure)
    with pytest.raises(type(failure)) as caught:
        await guard.write(event("hello"))
    assert caught.value is failure
    with pytest.raises(type(failure)):
        await guard.search("hello", 3)


async def test_the_published_protocol_swallows_but_never_the_cost_limit() -> None:
    guard, _ = await guarded(OUTAGE, protocol=Protocol.PAPER)
    await guard.write(event("hello"))
    guard, _ = await guarded(BudgetExceeded("limit"), protocol=Protocol.PAPER)
    with pytest.raises(BudgetExceeded):
        await guard.write(event("hello"))


async def test_a_librarys_own_error_gives_way_to_the_cause() -> None:
    guard, store = await guarded(OUTAGE)
    store.own = ValueError("no JSON in None")
    with pytest.raises(CallFailed) as caught:
        await guard.write(event("hello"))
    assert caught.value is OUTAGE
    assert caught.value.__cause__ is store.own


@pytest.mark.parametrize("phase", ["dump", "save", "restore"])
async def test_what_fails_while_a_store_is_read_or_kept_is_heard(
    tmp_path: Path, phase: str
) -> None:
    guard, _ = await guarded(OUTAGE)
    call = guard.dump() if phase == "dump" else getattr(guard, phase)(tmp_path)
    with pytest.raises(CallFailed) as caught:
        await call
    assert caught.value is OUTAGE


async def test_what_fails_behind_an_answer_is_heard_at_the_next_call() -> None:
    guard, store = await guarded()
    await guard.write(event("hello"))
    store.line.failures.append(OUTAGE)
    with pytest.raises(CallFailed):
        await guard.search("hello", 3)
    assert await guard.search("hello", 3) == []


async def test_calls_are_named_after_what_they_serve_and_the_key_is_turned_away() -> None:
    guard, store = await guarded()
    await guard.write(event("hello"))
    await guard.search("what tea?", 3)
    await guard.search("what tea?", 3)
    opened, written, first, again = store.line.begun
    assert opened == "open"
    assert written == "s0001/turn1/user/write"
    assert first.startswith("search/")
    assert first == again
    await guard.close()
    assert store.line.closed


OPTIONED = """
from memprobe.systems import Services, SystemOptions

class Options(SystemOptions):
    depth: int = 3
    eager: bool = False

    @classmethod
    def published(cls):
        return {"eager": True}

class Mine:
    Options = Options
    def __init__(self, services: Services): self.options = services.options
    async def open(self, scope): ...
    async def write(self, event): ...
    async def search(self, query, k): return []
    async def dump(self): return []
    async def save(self, directory): ...
    async def restore(self, directory): ...
    async def close(self): ...
"""


def made(tmp_path: Path, options: Any, protocol: Protocol = Protocol.STRICT) -> tuple[Any, Any]:
    path = tmp_path / "mine.py"
    path.write_text(OPTIONED)
    spec = f"{path}:Mine"
    registry = Registry(WordEmbedder(), protocol, names=[spec], options=options)
    registry.check_options()
    return registry.create(spec, "u"), registry.card(spec)


def test_options_reach_the_system_and_its_card(tmp_path: Path) -> None:
    store, card = made(tmp_path, {"mine": {"depth": 5}})
    assert (store.options.depth, store.options.eager) == (5, False)
    assert card.options == {"depth": 5, "eager": False}
    _, card = made(tmp_path, {}, Protocol.PAPER)
    assert card.options == {"depth": 3, "eager": True}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mine": {"dept": 5}}, "mine has no such option; it has depth, eager"),
        ({"mine": {"depth": "deep"}}, "--system-option mine.*depth"),
        ({"yours": {"depth": 5}}, "the run has no system 'yours'"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(tmp_path, options)


def test_a_system_without_options_takes_none() -> None:
    registry = Registry(WordEmbedder(), names=["rag"])
    assert registry.card("rag").options == {}
    with pytest.raises(UsageError, match="it has none"):
        Registry(WordEmbedder(), names=["rag"], options={"rag": {"depth": 1}})


def test_the_install_command_names_the_extra() -> None:
    assert install_command(CARD.model_copy(update={"package": "x"})) == "pip install x"
    card = CARD.model_copy(update={"package": "x", "extra": "e"})
    assert install_command(card) == "pip install 'memprobe-audit[e]'"
