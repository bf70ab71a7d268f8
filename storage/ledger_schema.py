"""Tables, statements and connection settings of the call ledger."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.schema import CreateIndex, CreateTable

from memprobe.errors import StorageError, UsageError
from memprobe.outcomes import Reason

if TYPE_CHECKING:
    from storage.ledger import Ask, LedgerEntry

VERSION = 1
BUSY_S = 60.0

metadata = sa.MetaData()
meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
texts = sa.Table(
    "texts",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
entries = sa.Table(
    "entries",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("messages", sa.Text, nullable=False),
    sa.Column("params", sa.Text, nullable=False),
    sa.Column("text_hash", sa.Text),
    sa.Column("finish_reason", sa.Text, nullable=False),
    sa.Column("refusal", sa.Text),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("cached_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("reasoning_tokens", sa.Integer),
    sa.Column("cost_usd", sa.Double),
    sa.Column("price_date", sa.Text),
    sa.Column("latency_s", sa.Double, nullable=False),
    sa.Column("wait_s", sa.Double, nullable=False),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("flags", sa.Text, nullable=False),
)
_WHO = ("run", "suite", "stage", "system", "user_id", "item", "role", "attempt", "key")
asks = sa.Table(
    "asks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in _WHO if name != "attempt"),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("ledger_hit", sa.Boolean, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("repaired", sa.Boolean, nullable=False),
    sa.UniqueConstraint(*_WHO, name="asks_once"),
)
payments = sa.Table(
    "payments",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run", sa.Text, nullable=False, index=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("cost_usd", sa.Double),
)
vectors = sa.Table(
    "vectors",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# One statement for an entry and its answer: this is what a replay waits for.
ENTRY_BY_KEY = (
    sa.select(entries, texts.c.body)
    .select_from(entries.outerjoin(texts, entries.c.text_hash == texts.c.hash))
    .where(entries.c.key == sa.bindparam("key"))
)
_KNOWN_KEYS = sa.select(entries.c.key).where(
    entries.c.key.in_(sa.bindparam("keys", expanding=True))
)
INSERT_PAYMENT = payments.insert()
TEXT_BY_HASH = sa.select(texts.c.body).where(texts.c.hash == sa.bindparam("key"))
CALLS = (
    sa.select(
        asks.c.key.label("call_id"),
        *(asks.c[n] for n in ("stage", "role", "model", "system", "user_id", "item", "prompt")),
        *(asks.c[n] for n in ("attempt", "ledger_hit", "outcome", "detail", "repaired")),
        entries.c.prompt_tokens,
        entries.c.cached_tokens,
        entries.c.completion_tokens,
        entries.c.reasoning_tokens,
        entries.c.cost_usd,
        entries.c.latency_s,
        entries.c.wait_s,
        entries.c.retries,
        entries.c.created_at,
    )
    .select_from(asks.outerjoin(entries, asks.c.key == entries.c.key))
    .where(asks.c.run == sa.bindparam("run"))
    .order_by(*(asks.c[name] for name in _WHO))
)


def digest(text: str) -> str:
    """The content hash a text is stored under."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def pack(text: str) -> bytes:
    """A text as it is stored."""
    return zlib.compress(text.encode("utf-8"), 1)


def unpack(body: bytes) -> str:
    """The text of a stored body."""
    return zlib.decompress(body).decode("utf-8")


# Statements are built once: building one costs more than running it.
@cache
def insert_ignoring(dialect: str, table: sa.Table) -> Any:
    """An insert that leaves a row with the same key as it is."""
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def upsert_ask(dialect: str) -> Any:
    """An insert that replaces only a row which ended without a completion."""
    statement = _insert(dialect, asks)
    fields = ("model", "prompt", "ledger_hit", "outcome", "detail", "repaired")
    return statement.on_conflict_do_update(
        index_elements=list(_WHO),
        set_={name: statement.excluded[name] for name in fields},
        where=sa.or_(
            asks.c.outcome == sa.literal_column(f"'{Reason.PROVIDER_ERROR.value}'"),
            asks.c.outcome == sa.literal_column(f"'{Reason.TIMEOUT.value}'"),
        ),
    )


def _insert(dialect: str, table: sa.Table) -> Any:
    dialects: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
    return dialects[dialect](table)


def known_keys(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Those of the keys that are stored already."""
    return set(connection.execute(_KNOWN_KEYS, {"keys": list(keys)}).scalars())


def entry_row(entry: LedgerEntry, hashes: Sequence[str]) -> dict[str, Any]:
    """The columns of a finished call; `hashes` are those of its messages and, last, its text."""
    count = len(entry.messages)
    return {
        "key": entry.key,
        "model": entry.model,
        "messages": json.dumps(
            [[m.role, h] for m, h in zip(entry.messages, hashes[:count], strict=True)]
        ),
        "params": json.dumps(entry.params, sort_keys=True),
        "text_hash": hashes[count] if entry.text is not None else None,
        "finish_reason": entry.finish_reason,
        "refusal": entry.refusal,
        "prompt_tokens": entry.usage.prompt_tokens,
        "cached_tokens": entry.usage.cached_tokens,
        "completion_tokens": entry.usage.completion_tokens,
        "reasoning_tokens": entry.usage.reasoning_tokens,
        "cost_usd": entry.cost_usd,
        "price_date": entry.price_date,
        "latency_s": entry.latency_s,
        "wait_s": entry.wait_s,
        "retries": entry.retries,
        "created_at": entry.created_at,
        "flags": json.dumps(list(entry.flags)),
    }


def ask_row(ask: Ask) -> dict[str, Any]:
    """The columns of an ask."""
    who = ask.asker
    return {
        "run": who.run,
        "suite": who.suite,
        "stage": who.stage,
        "system": who.system,
        "user_id": who.user,
        "item": who.item,
        "role": ask.role.value,
        "attempt": ask.attempt,
        "key": ask.key or "",
        "model": ask.model,
        "prompt": ask.prompt,
        "ledger_hit": ask.ledger_hit,
        "outcome": ask.outcome,
        "detail": ask.detail,
        "repaired": ask.repaired,
    }


def broken(where: str, error: Exception) -> StorageError:
    """What to say when the database refuses: what failed, what was kept, what to do."""
    cause = str(getattr(error, "orig", None) or error).partition("\n")[0][:300]
    if any(word in cause for word in ("malformed", "not a database", "disk image")):
        return StorageError(
            f"the ledger {where} is damaged ({cause}). Artifacts of finished units are not "
            "touched. Move the file away to start a new one (its calls are then made again), or "
            "recover what is readable with: sqlite3 LEDGER .recover"
        )
    return StorageError(f"the ledger {where} could not be read or written: {cause}")


def connect(url: str) -> tuple[Engine, str]:
    """An engine whose tables exist and fit this version, and its name for messages."""
    try:
        parsed = sa.engine.make_url(url)
    except sa.exc.ArgumentError as error:
        raise UsageError(f"{url!r} is no database URL; the default is sqlite:///PATH") from error
    where = parsed.database or "" if parsed.drivername.startswith("sqlite") else ""
    where = where or parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise UsageError("the ledger must be a file: sqlite:///PATH")
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_S}, hide_parameters=True)
        sa.event.listen(engine, "connect", _pragmas)
    elif parsed.get_backend_name() == "postgresql":
        engine = sa.create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
    else:
        raise UsageError(f"the ledger cannot be kept in {parsed.get_backend_name()}")
    try:
        _prepare(engine, where)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise broken(where, error) from error
    except StorageError:
        engine.dispose()
        raise
    return engine, where


def _pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            break
        # The switch to WAL does not wait for the busy timeout when processes start together.
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


@contextmanager
def writing(connection: Connection) -> Iterator[None]:
    """One transaction that holds the write lock from its start, on an autocommit connection."""
    # A deferred transaction that turns writer half-way fails at once instead of waiting.
    lock = "BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "BEGIN"
    connection.exec_driver_sql(lock)
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def autocommit(engine: Engine) -> Connection:
    """A connection whose transactions are ours to begin and end."""
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def _prepare(engine: Engine, where: str) -> None:
    with autocommit(engine) as connection, writing(connection):
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7240881)"))
        for table in metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))
        connection.execute(
            insert_ignoring(engine.dialect.name, meta),
            {"name": "schema_version", "value": str(VERSION)},
        )
        found = connection.execute(
            sa.select(meta.c.value).where(meta.c.name == "schema_version")
        ).scalar()
    if found != str(VERSION):
        raise StorageError(
            f"the ledger {where} has schema version {found}, this MemProbe reads {VERSION}; "
            "use the MemProbe that wrote it or give another ledger"
        )
