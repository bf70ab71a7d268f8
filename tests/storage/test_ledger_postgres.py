"""What a server adds to a ledger: odd texts, rivals, restarts, and errors without secrets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import MissingPrerequisite, StorageError, UsageError
from memprobe.types import Asker, Message
from storage.ledger import Ledger
from tests.storage.test_ledger import WHO, ask, entry, url
from tests.support.postgres import ESCAPED, PASSWORD, USER, Postgres, running

ODD = (
    "a\0b",
    "\0",
    "\ue000",
    "\ue0000",
    "\ue000\0\ue000\ue000\0",
    "e\u0301 é 😊 שלום 你好 \u202e",
    "back\\slash 'quote' \"double\" %s :name",
    " trailing\n",
)


@pytest.fixture
def address(postgres: Postgres) -> str:
    return postgres.url(postgres.new())


def asker(number: int, text: str) -> Asker:
    return Asker(
        run="r", suite="s", stage=f"{number}", system=text, user=text, item=text * 3 + str(number)
    )


async def fill(ledger: Ledger) -> list[dict[str, Any]]:
    for number, text in enumerate(ODD):
        kept = entry(
            f"k{number}{text}",
            text=text,
            model=text,
            messages=(Message(role="user", content=text),),
            params={"stop": text},
            refusal=text,
            flags=(text,),
        )
        who = ask(kept.key, "ok", asker=asker(number, text))
        assert await ledger.put(kept, who)
        assert ledger.get(kept.key) == kept
    for name in ("b", "A", "a", "B", "_", "é", "-"):
        await ledger.note(ask("k0", "ok", asker=asker(0, name)))
    return list(ledger.calls("r"))


async def test_odd_texts_come_back_in_the_same_order_from_both(
    address: str, tmp_path: Path
) -> None:
    server, file = Ledger.open(address), Ledger.open(url(tmp_path))
    rows = await fill(server)
    assert rows == await fill(file)
    assert {row["user_id"] for row in rows} >= set(ODD)
    server.close()
    file.close()


async def test_a_long_prompt_is_stored_whole(address: str) -> None:
    ledger = Ledger.open(address)
    long = entry(
        "long", text="x" * 3_000_000, messages=(Message(role="user", content="yé" * 10**6),)
    )
    await ledger.put(long)
    assert ledger.get("long") == long
    ledger.close()


RIVAL = """
import asyncio, random, sys
from storage.ledger import Ledger
from tests.storage.test_ledger import ask, entry

async def main():
    ledger = Ledger.open(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    keys = [f"k{i}" for i in range(400)]
    random.Random(sys.argv[2]).shuffle(keys)
    for start in range(0, len(keys), 25):
        batch = keys[start : start + 25]
        won = await asyncio.gather(*(ledger.put(entry(k, sys.argv[2]), ask(k)) for k in batch))
        blobs = {k: k.encode() for k in batch}
        await ledger.vectors_put("m", blobs)
        print("\\n".join(k for k, first in zip(batch, won) if first), flush=True)
    ledger.close()

asyncio.run(main())
"""


def test_of_rivals_with_the_same_keys_one_wins_each(address: str) -> None:
    """The loser of a key is told so, as it must use the answer that stands."""
    names = ("one", "two", "three")
    rivals = {
        name: subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RIVAL), address, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name in names
    }
    for rival in rivals.values():
        assert rival.stdout is not None
        assert rival.stdout.readline() == "ready\n"
    for rival in rivals.values():
        assert rival.stdin is not None
        rival.stdin.write("\n")
        rival.stdin.flush()
    won = {name: rival.communicate(timeout=120)[0].split() for name, rival in rivals.items()}
    assert [rival.returncode for rival in rivals.values()] == [0, 0, 0]
    counts = Counter(key for keys in won.values() for key in keys)
    assert (len(counts), set(counts.values())) == (400, {1})
    ledger = Ledger.open(address)
    for name, keys in won.items():
        assert {ledger.get(key, messages=False).text for key in keys} <= {name}  # type: ignore[union-attr]
    assert ledger.spent(WHO.run) == pytest.approx(3 * 400 * 0.25)
    assert len(list(ledger.calls(WHO.run))) == 400
    ledger.close()


async def test_a_restart_of_the_server_costs_nothing() -> None:
    with running() as server:
        ledger = Ledger.open(server.url(server.new()))
        await ledger.put(entry("before"), ask("before"))
        assert ledger.get("before") is not None
        await ledger.vectors_put("m", {"d": b"vector"})
        await asyncio.to_thread(server.stop, "immediate")
        looking = asyncio.create_task(asyncio.to_thread(ledger.vectors_get, "m", ["d"]))
        waiting = asyncio.create_task(ledger.put(entry("during"), ask("during")))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert not looking.done()
        await asyncio.to_thread(server.start)
        assert await waiting
        assert await looking == {"d": b"vector"}
        assert ledger.get("before") == entry("before")
        assert ledger.get("during") == entry("during")
        assert ledger.spent(WHO.run) == 0.5
        ledger.close()


def test_a_commit_waits_for_the_disk_whatever_the_servers_default(
    postgres: Postgres, address: str
) -> None:
    import sqlalchemy as sa

    from storage import ledger_engine

    name = address.rsplit("/", 1)[1]
    with sa.create_engine(address, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    engine, _ = ledger_engine.connect(address)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    engine.dispose()


def refused(address: str, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match) as caught:
        Ledger.open(address)
    for secret in (PASSWORD, ESCAPED, "hunter2"):
        assert secret not in str(caught.value)


def test_what_cannot_be_reached_is_named_without_its_password(postgres: Postgres) -> None:
    name = postgres.new()
    right = postgres.url(name)
    refused(right.replace(str(postgres.port), "1"), MissingPrerequisite, r":\*\*\*@127.0.0.1:1/")
    refused(right.replace(ESCAPED, "hunter2"), MissingPrerequisite, "authentication failed")
    query = f"postgresql+psycopg://{USER}@127.0.0.1:{postgres.port}/{name}?password=hunter2"
    refused(query, MissingPrerequisite, "password=hidden")
    refused(postgres.url("nowhere"), MissingPrerequisite, 'database "nowhere" does not exist')
    Ledger.open(right.replace("+psycopg", "")).close()


@pytest.mark.parametrize(
    "bad", ["postgresql+asyncpg://u:hunter2@h/d", "mysql://u:hunter2@h/d", "u:hunter2@h/d"]
)
def test_a_url_of_another_kind_is_refused_without_its_password(bad: str) -> None:
    refused(bad, UsageError, "postgresql")


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Postgres) -> None:
    refused(postgres.url(postgres.new("LATIN1")), StorageError, "createdb --encoding UTF8")


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    address = "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"
    refused(address, MissingPrerequisite, r"pip install 'memprobe-audit\[postgres\]'")


async def test_rows_can_be_written_without_the_right_to_make_tables(address: str) -> None:
    import sqlalchemy as sa

    Ledger.open(address).close()
    with sa.create_engine(address, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("CREATE ROLE worker LOGIN PASSWORD 'w'")
        connection.exec_driver_sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO worker")
        connection.exec_driver_sql("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO worker")
    ledger = Ledger.open(address.replace(f"{USER}:{ESCAPED}", "worker:w"))
    assert await ledger.put(entry("k"), ask("k"))
    ledger.check_writable()
    with sa.create_engine(address, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("REVOKE INSERT ON vectors FROM worker")
    with pytest.raises(StorageError, match="permission denied"):
        ledger.check_writable()
    ledger.close()
