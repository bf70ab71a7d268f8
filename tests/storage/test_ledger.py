"""The ledger: durable when `put` returns, shared between processes, honest when damaged."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from memprobe.errors import StorageError, UsageError
from memprobe.types import Asker, Message, Role, Usage
from storage.ledger import Ask, Ledger, LedgerEntry, Spending
from tests.support.postgres import Postgres

WHO = Asker(run="r1", suite="recovery", stage="recover", system="rag", user="u1", item="i")


def entry(key: str, text: str | None = "an answer", **changes: object) -> LedgerEntry:
    values: dict[str, object] = {
        "key": key,
        "model": "openai/mock",
        "messages": (Message(role="user", content=f"a prompt for {key} 😊"),),
        "params": {"temperature": 0.0},
        "text": text,
        "finish_reason": "stop",
        "refusal": None,
        "usage": Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=3),
        "cost_usd": 0.25,
        "price_date": "given",
        "latency_s": 0.5,
        "wait_s": 0.1,
        "retries": 1,
        "created_at": "2026-01-01T00:00:00+00:00",
        "flags": ("sanitized",),
    }
    return LedgerEntry(**{**values, **changes})  # type: ignore[arg-type]


def ask(key: str, outcome: str = "ok", hit: bool = False, asker: Asker = WHO) -> Ask:
    return Ask(key, asker, Role.JUDGE, "openai/mock", "judge@1", 1, hit, outcome)


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new ledger, in a file or on a server."""
    if request.param == "sqlite":
        return url(tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return server.url(server.new())


async def test_an_entry_comes_back_as_it_was(where: str) -> None:
    stored = entry("k1")
    ledger = Ledger.open(where)
    assert ledger.get("k1") is None
    assert await ledger.put(stored)
    assert ledger.get("k1") == stored
    ledger.close()
    ledger = Ledger.open(where)
    assert ledger.get("k1") == stored
    assert await ledger.put(entry("none", text=None))
    assert ledger.get("none") == entry("none", text=None)
    ledger.close()


async def test_the_first_answer_stands_and_both_payments_count(where: str) -> None:
    one, two = Ledger.open(where), Ledger.open(where)
    assert await one.put(entry("k", "first"), ask("k"))
    other = WHO.model_copy(update={"run": "r2"})
    assert not await two.put(entry("k", "second"), ask("k", asker=other))
    stored = two.get("k")
    assert stored is not None
    assert stored.text == "first"
    assert (one.spent("r1"), one.spent("r2"), one.spent("r3")) == (0.25, 0.25, 0.0)
    one.close()
    two.close()


async def test_an_ask_is_kept_once_and_an_outage_is_replaced(where: str) -> None:
    ledger = Ledger.open(where)
    await ledger.note(ask("k", "provider_error"))
    await ledger.put(entry("k"), ask("k", "ok"))
    await ledger.note(ask("k", "ok", hit=True))
    (row,) = ledger.calls("r1")
    assert (row["outcome"], row["ledger_hit"], row["cost_usd"]) == ("ok", False, 0.25)
    assert (row["call_id"], row["user_id"], row["prompt_tokens"]) == ("k", "u1", 10)
    ledger.close()


async def test_a_replay_costs_its_run_nothing(where: str) -> None:
    ledger = Ledger.open(where)
    await ledger.put(entry("k"), ask("k"))
    later = WHO.model_copy(update={"run": "r2"})
    await ledger.note(ask("k", hit=True, asker=later))
    (row,) = ledger.calls("r2")
    assert (row["cost_usd"], row["ledger_hit"]) == (0.0, True)
    assert ledger.spent("r2") == 0.0
    ledger.close()


async def test_what_all_processes_spent_on_a_run_is_summed(where: str) -> None:
    ledger = Ledger.open(where)
    other = WHO.model_copy(update={"run": "another"})
    usage = Usage(prompt_tokens=10, completion_tokens=3)
    try:
        await ledger.put(entry("a", usage=usage, cost_usd=0.5), ask("a"))
        await ledger.put(entry("b", usage=usage, cost_usd=None), ask("b"))
        await ledger.put(entry("c", usage=usage, cost_usd=1.0), ask("c", asker=other))
        await ledger.note(ask("c", hit=True, asker=WHO.model_copy(update={"item": "elsewhere"})))
        found = ledger.spending(WHO.run)
    finally:
        ledger.close()
    assert (found.calls, found.hits, found.unpriced) == (2, 1, 1)
    assert (found.prompt_tokens, found.completion_tokens) == (20, 6)
    assert found.cost_usd == pytest.approx(0.5)
    empty = Ledger.open(where)
    try:
        assert empty.spending("nobody's") == Spending(0, 0, 0, 0, 0.0, 0)
    finally:
        empty.close()


async def test_a_shared_prefix_is_stored_once(tmp_path: Path) -> None:
    import random

    noise = random.Random(7)
    dump = " ".join(str(noise.random()) for _ in range(20_000))
    ledger = Ledger.open(url(tmp_path))
    for i in range(31):
        system = Message(role="system", content=dump)
        await ledger.put(entry(f"k{i}", messages=(system, Message(role="user", content=str(i)))))
    ledger.close()
    assert (tmp_path / "ledger.db").stat().st_size < 2 * len(dump)


async def test_vectors_are_kept_bit_for_bit(where: str) -> None:
    ledger = Ledger.open(where)
    blobs = {f"d{i}": bytes([i % 256]) * 16 for i in range(1200)}
    await ledger.vectors_put("m", blobs)
    await ledger.vectors_put("m", {"d1": b"another"})
    assert ledger.vectors_get("m", [*blobs, "absent"]) == blobs
    assert ledger.vectors_get("other", ["d1"]) == {}
    ledger.close()


KILLED = """
import asyncio, os, signal, sys
from storage.ledger import Ledger
from tests.storage.test_ledger import ask, entry

async def main():
    ledger = Ledger.open(sys.argv[1])
    n = 0
    while True:
        keys = [f"{sys.argv[2]}-{n}-{i}" for i in range(8)]
        await asyncio.gather(*(ledger.put(entry(k), ask(k)) for k in keys))
        print("\\n".join(keys), flush=True)
        n += 1
        if sys.argv[3] == "kill" and n == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[3] == "count" and n == 20:
            ledger.close()
            return

asyncio.run(main())
"""


def child(where: str, name: str, how: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(KILLED)
    return subprocess.Popen(
        [sys.executable, "-c", code, where, name, how],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_what_put_returned_for_survives_kill_9(where: str) -> None:
    process = child(where, "a", "kill")
    keys = process.communicate(timeout=60)[0].split()
    assert process.returncode == -signal.SIGKILL
    assert len(keys) == 160
    ledger = Ledger.open(where)
    assert all(ledger.get(key) is not None for key in keys)
    assert ledger.spent("r1") == pytest.approx(0.25 * len(keys))
    ledger.close()


def test_several_processes_write_one_ledger(where: str) -> None:
    processes = [child(where, name, "count") for name in "abcd"]
    written: list[str] = []
    for process in processes:
        written += process.communicate(timeout=120)[0].split()
        assert process.returncode == 0
    ledger = Ledger.open(where)
    assert len(written) == 4 * 160
    assert all(ledger.get(key) is not None for key in written)
    ledger.close()


@pytest.mark.parametrize("what", ["not a database", "torn"])
async def test_a_damaged_ledger_says_so_and_what_to_do(tmp_path: Path, what: str) -> None:
    path = tmp_path / "ledger.db"
    if what == "torn":
        ledger = Ledger.open(url(tmp_path))
        for i in range(50):
            await ledger.put(entry(f"k{i}", text="x" * 4000))
        ledger.close()
        data = path.read_bytes()
        path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    else:
        path.write_bytes(b"this was once a ledger " * 400)
    with pytest.raises(StorageError, match=r"damaged.*recover"):  # noqa: PT012
        ledger = Ledger.open(url(tmp_path))
        try:
            ledger.get("k1")
        finally:
            ledger.close()


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    Ledger.open(url(tmp_path)).close()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE meta SET value = '99'")
    connection.close()
    with pytest.raises(StorageError, match="schema version 99"):
        Ledger.open(url(tmp_path))


@pytest.mark.parametrize("bad", ["nonsense", "sqlite://", "mysql://u:p@h/d"])
def test_a_url_that_cannot_be_a_ledger_is_a_usage_error(bad: str) -> None:
    with pytest.raises(UsageError):
        Ledger.open(bad)


async def test_a_failing_disk_reaches_whoever_waits(tmp_path: Path) -> None:
    ledger = Ledger.open(url(tmp_path))
    await ledger.put(entry("before"))
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("DROP TABLE entries")
    connection.close()
    with pytest.raises(StorageError, match="entries"):
        await ledger.put(entry("after"))
    ledger.close()


async def test_a_closed_ledger_takes_nothing(where: str) -> None:
    ledger = Ledger.open(where)
    ledger.close()
    ledger.close()
    with pytest.raises(StorageError, match="closed"):
        await ledger.put(entry("k"))


def test_the_ledger_outlives_event_loops(where: str) -> None:
    ledger = Ledger.open(where)
    for i in range(3):
        asyncio.run(ledger.put(entry(f"k{i}")))
    assert all(ledger.get(f"k{i}") for i in range(3))
    ledger.close()
