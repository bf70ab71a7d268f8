"""A system in a process of its own: the same port, whatever happens to that process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import psutil
import pytest

from adapters.memory.contract import check_system
from adapters.memory.contract.network import NetworkGuard
from adapters.memory.guard import Guard
from adapters.memory.isolated import Isolated, Pool
from memprobe.errors import (
    AdapterContractError,
    AdapterError,
    BudgetExceeded,
    CallFailed,
    MemProbeError,
    MissingPrerequisite,
    SnapshotError,
    UnsupportedEvent,
)
from memprobe.outcomes import Reason
from memprobe.types import DocumentEvent, MessageEvent, Protocol, SessionEvent, SessionMessage
from tests.adapters.isolated_site import ACCESS, SYSTEM, apartment
from tests.adapters.support import START, WordEmbedder, event, scope


def gone(pid: int) -> bool:
    """Ended, and no zombie of ours. Waits for it; a hanging test is ended by its own limit."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait()
    return not psutil.pid_exists(pid)


def ended(*pids: int) -> bool:
    """Ended within a while. Not our children, so that one that nobody collects counts, too."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            readable, _, _ = select.select([handle], [], [], 30)
            os.close(handle)
            if not readable:
                return False
    return True


def removed(folder: object) -> bool:
    return not Path(str(folder)).exists()


async def told(store: object) -> dict[str, object]:
    await store.write(event("tell"))  # type: ignore[attr-defined]
    found = json.loads((await store.dump())[-1].content)  # type: ignore[attr-defined]
    assert isinstance(found, dict)
    return found


async def test_events_items_and_services_arrive_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-provider")
    zone = timezone(timedelta(hours=5, minutes=30))
    events = [
        MessageEvent(
            role="user",
            text="my \U0001f469 \ud83d broken",
            event_time=datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=zone),
            session_id="s1",
            episode=3,
            turn=2,
        ),
        SessionEvent(
            messages=(SessionMessage(role="tool_output", text="42"),),
            event_time=START,
            session_id="s2",
            label="perturbation",
        ),
        DocumentEvent(text="closed", author="city", event_time=START, session_id="d1"),
    ]
    options = {"apart": {"depth": 5}}
    with apartment(tmp_path, protocol=Protocol.PAPER, options=options) as here:
        store = here.isolated()
        await store.open(scope())
        for each in events[1:]:
            await store.write(each)
        # Its text comes back without the lone half, as from every system behind a guard.
        await store.write(events[0])
        items = await store.dump()
        assert [i.event_time for i in items] == [START, START, events[0].event_time]
        assert items[2].content == "\U0001f469 \ufffd broken"
        for item, sent in zip(items[:2], events[1:], strict=True):
            fields = {"kind": type(sent).__name__, **sent.model_dump(mode="json")}
            assert item.fields == fields
        (found,) = await store.search("broken", 3)
        assert (found.score, found.id) == (1 / 3, "2")
        facts = await told(store)
        await store.close()
    assert facts["models"] == {
        "base_url": ACCESS.base_url,
        "api_key": ACCESS.api_key,
        "chat_model": "chat",
        "embedding_model": "words",
    }
    assert (facts["depth"], facts["protocol"], facts["embedder"]) == (5, "paper", ["words", 64])
    assert facts["secrets"] == []
    assert ACCESS.api_key not in str(facts["argv"])
    assert facts["pid"] != os.getpid()
    assert removed(facts["tmp"])


async def test_vectors_are_the_runs_own_to_the_bit(tmp_path: Path) -> None:
    class Thirds(WordEmbedder):
        async def encode(self, texts: object) -> list[list[float]]:
            rows = await super().encode(texts)  # type: ignore[arg-type]
            return [[value / 3 for value in row] for row in rows]

    embedder = Thirds()
    with apartment(tmp_path, embedder) as here:
        store = here.isolated()
        await store.open(scope())
        await store.write(event("embed a red kite"))
        (item,) = await store.dump()
        assert embedder.encoded == ["a red kite", "a red kite"]
        (wanted,) = await embedder.encode(["a red kite"])
        assert json.loads(item.content) == [wanted, wanted]
        await store.close()


async def test_an_embedder_that_fails_is_an_error_of_the_call(tmp_path: Path) -> None:
    class Failing(WordEmbedder):
        async def encode(self, texts: object) -> list[list[float]]:
            raise RuntimeError("out of order")

    with apartment(tmp_path, Failing()) as here:
        store = here.isolated()
        await store.open(scope())
        with pytest.raises(AdapterError, match="the embedder failed: RuntimeError: out of order"):
            await store.write(event("embed it"))
        await store.write(event("goes on"))
        assert len(await store.dump()) == 1
        await store.close()


@pytest.mark.parametrize(
    ("word", "kind", "said"),
    [
        ("adapter", AdapterError, "apart: no"),
        ("snapshot", SnapshotError, "gone"),
        ("unsupported", UnsupportedEvent, "not this"),
        ("call", CallFailed, "truncated: too long"),
        ("budget", BudgetExceeded, "1 USD"),
        ("prerequisite", MissingPrerequisite, "install it"),
        ("value", AdapterError, "apart: ValueError: a key [redacted]"),
        ("cancel", AdapterError, "apart: CancelledError: "),
        ("exit", AdapterError, "apart: tried to end the process (exit code 4)"),
    ],
)
async def test_errors_keep_their_type_and_the_store_goes_on(
    word: str, kind: type[MemProbeError], said: str, tmp_path: Path
) -> None:
    with apartment(tmp_path) as here:
        store = here.isolated()
        await store.open(scope())
        with pytest.raises(kind) as caught:
            await store.write(event(word))
        assert type(caught.value) is kind
        assert str(caught.value) == said
        if isinstance(caught.value, CallFailed) and word == "call":
            assert (caught.value.reason, caught.value.call_id) == (Reason.TRUNCATED, "key1")
        await store.write(event("goes on"))
        assert len(await store.dump()) == 1
        await store.close()


async def test_items_that_are_none_are_named(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        store = here.isolated()
        await store.open(scope())
        await store.write(event("odd"))
        with pytest.raises(AdapterContractError, match="dump, item 1 is a str"):
            await store.dump()
        await store.close()


async def test_noise_of_libraries_does_not_reach_the_channel(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        store = here.isolated()
        await store.open(scope())
        await store.write(event("noise all over"))
        assert [i.content for i in await store.dump()] == ["all over"]
        await store.close()


@pytest.mark.parametrize(
    ("word", "how"),
    [
        ("die", r"ended by signal 9"),
        ("leave", r"ended \(exit code 3\): the last words \[redacted\]"),
    ],
)
async def test_a_child_that_dies_in_a_write_is_an_error_and_the_next_open_works(
    word: str, how: str, tmp_path: Path
) -> None:
    with apartment(tmp_path, guarded=True) as here:
        store = here.store()
        assert isinstance(store, Guard)
        await store.open(scope())
        facts = await told(store)
        await store.write(event("spawn"))
        grandchild = int((await store.dump())[-1].content)
        with pytest.raises(AdapterError, match=rf"its process (was )?{how}(?s:.*)during write"):
            await store.write(event(word))
        with pytest.raises(AdapterError, match="lost since write was broken off"):
            await store.write(event("too late"))
        await store.close()
        assert gone(int(str(facts["pid"])))
        assert ended(grandchild)
        assert removed(facts["tmp"])
        again = here.store()
        await again.open(scope("b"))
        await again.write(event("it works"))
        assert len(await again.dump()) == 1
        await again.close()


async def test_what_does_not_come_back_is_killed_and_never_used_again(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        inner = here.isolated()
        store = Guard(inner, here.registry.card(here.spec), timeout=20.0)
        await store.open(scope())
        (pid,) = here.pids
        store._timeout = 0.05
        with pytest.raises(CallFailed, match="did not come back within") as caught:
            await store.write(event("hang"))
        assert caught.value.reason is Reason.TIMEOUT
        assert gone(pid)
        await store.close()
        again = here.isolated()
        await again.open(scope("b"))
        call = asyncio.create_task(again.write(event("hang")))
        await asyncio.sleep(0)
        (pid,) = here.pids
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert gone(pid)
        assert here.pids == []
        await again.close()


async def test_two_stores_at_once_have_a_process_each(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        first, second = here.isolated(), here.isolated()
        await asyncio.gather(first.open(scope("a")), second.open(scope("b")))
        await asyncio.gather(first.write(event("say one")), second.write(event("say two")))
        assert [i.content for i in await first.dump()] == ["one"]
        assert [i.content for i in await second.dump()] == ["two"]
        one, two = await told(first), await told(second)
        assert one["pid"] != two["pid"]
        os.kill(int(str(one["pid"])), signal.SIGKILL)
        with pytest.raises(AdapterError, match="signal 9"):
            await first.write(event("say it"))
        await second.write(event("say on"))
        assert len(await second.dump()) == 3
        await asyncio.gather(first.close(), second.close())


async def test_a_process_is_used_again_for_the_next_store_with_nothing_in_it(
    tmp_path: Path,
) -> None:
    with apartment(tmp_path) as here:
        pids = []
        for name in ("a", "b"):
            store = here.isolated()
            await store.open(scope(name))
            assert await store.dump() == []
            facts = await told(store)
            pids.append(facts["pid"])
            await store.close()
            await store.close()
            with pytest.raises(AdapterError, match="the store is not open"):
                await store.write(event("too late"))
        assert pids[0] == pids[1]
        assert facts["loaded"] == ["test_a", "test_b"]
    assert gone(int(str(pids[0])))


async def test_a_system_may_ask_for_a_fresh_process_each_time(tmp_path: Path) -> None:
    fresh = SYSTEM.replace("    Options = Options", "    reusable = False\n    Options = Options")
    assert fresh != SYSTEM
    with apartment(tmp_path, source=fresh) as here:
        for name in ("a", "b"):
            store = here.isolated()
            await store.open(scope(name))
            assert (await told(store))["loaded"] == [f"test_{name}"]
            await store.close()
            assert here.pids == []


async def test_a_store_that_cannot_be_opened_says_why_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    with apartment(tmp_path) as here:
        store = here.isolated()
        with pytest.raises(MissingPrerequisite, match="pip install something"):
            await store.open(scope(user="unwelcome"))
        assert here.pids == []
        await store.close()


async def test_snapshots_go_from_one_process_to_another(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    with apartment(tmp_path, guarded=True) as here:
        store, other = here.store(), here.store()
        await store.open(scope("a"))
        await store.write(event("say it"))
        await store.save(folder)
        await other.open(scope("b"))
        await other.restore(folder)
        assert await other.dump() == await store.dump()
        with pytest.raises(SnapshotError, match="is missing"):
            await other.restore(tmp_path / "nowhere")
        await store.close()
        await other.close()


async def test_more_stores_than_processes_wait_for_their_turn(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        here.registry._pool = Pool(live=1)
        first, second = here.isolated(), here.isolated()
        await first.open(scope("a"))
        opening = asyncio.create_task(second.open(scope("b")))
        left = asyncio.create_task(here.isolated().open(scope("c")))
        await asyncio.sleep(0)
        left.cancel()
        await first.write(event("say it"))
        assert not opening.done()
        await first.close()
        await opening
        assert await second.dump() == []
        await second.close()
        assert len(here.pids) == 1


async def test_the_network_guard_sees_into_the_process(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        store = here.isolated()
        with NetworkGuard() as guard:
            await store.open(scope())
            with pytest.raises(AdapterError) as caught:
                await store.write(event("network"))
            await store.close()
        assert guard.attempts == ["203.0.113.1:80"]
        assert "203.0.113.1:80 is beyond loopback" in str(caught.value.__cause__)


PARENT = """
import asyncio, json, sys
from pathlib import Path
from tests.adapters.isolated_site import apartment
from tests.adapters.support import event, scope

async def main():
    with apartment(Path(sys.argv[1])) as here:
        store = here.isolated()
        await store.open(scope())
        await store.write(event("tell"))
        await store.write(event("spawn"))
        items = await store.dump()
        facts = json.loads(items[0].content)
        print(json.dumps([facts["pid"], int(items[1].content), facts["tmp"]]), flush=True)
        if sys.argv[2] == "busy":
            await store.write(event("hang"))
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux to watch the process")
def test_the_process_ends_when_the_run_is_killed(state: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child, grandchild, folder = json.loads(parent.stdout.readline())
        assert psutil.pid_exists(child)
        parent.kill()
    assert ended(child, grandchild)
    assert removed(folder)


def test_stores_of_several_loops_share_a_pool(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        pids = []

        async def work(name: str) -> None:
            store = here.isolated()
            await store.open(scope(name))
            await store.write(event("embed it"))
            pids.append((await told(store))["pid"])
            await store.close()

        asyncio.run(work("a"))
        thread = threading.Thread(target=lambda: asyncio.run(work("b")))
        thread.start()
        thread.join()
        assert len(pids) == 2
        assert pids[0] == pids[1]


CONTRACT = """
from adapters.memory.longctx import LongContext

class Apart(LongContext):
    card = LongContext.card.model_copy(update={"name": "apart", "process": "own"})
"""


async def test_an_isolated_system_holds_the_contract(tmp_path: Path) -> None:
    with apartment(tmp_path, source=CONTRACT) as here:
        card = here.registry.card(here.spec)
        # By no name: each store has a process here, and the restored one another than the saved.
        results = await check_system(here.isolated, card, workdir=tmp_path, items=60)
        assert [(r.name, r.detail) for r in results if not r.passed] == []
    assert psutil.Process().children() == []


def test_only_a_card_that_asks_for_it_gets_a_process(tmp_path: Path) -> None:
    with apartment(tmp_path) as here:
        assert isinstance(here.registry.create(here.spec, "u"), Isolated)
        assert not isinstance(here.registry.create("rag", "u"), Isolated)
        assert here.pids == []
    with apartment(tmp_path, own_processes=False) as here:
        assert not isinstance(here.store(), Isolated)


def test_the_clocks_zone_is_no_part_of_the_wire() -> None:
    from adapters.memory.isolated_wire import event_in, event_out

    sent = event("x").model_copy(update={"event_time": datetime(2024, 1, 1, tzinfo=UTC)})
    assert event_in(json.loads(json.dumps(event_out(sent)))) == sent
