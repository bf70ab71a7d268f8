"""Connections of the call ledger: SQLite or PostgreSQL, durable, one writer at a time.

PostgreSQL is held to what SQLite gives: a commit waits for the disk, and a
writing transaction has an advisory lock, so that of two processes with the
same key the second sees the first one's answer and no two can block each other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.schema import CreateIndex, CreateTable

from memprobe.errors import MissingPrerequisite, StorageError, UsageError
from storage.ledger_schema import VERSION, insert_ignoring, meta, metadata, vectors

BUSY_S = 60.0
CONNECT_S = 10
_PREPARING, _WRITING = 7240881, 7240882
"""Advisory locks of a PostgreSQL database: making tables, writing rows."""
_SECRET = re.compile(r"pass|secret|token", re.IGNORECASE)


def broken(where: str, error: Exception) -> StorageError:
    """What to say when the database refuses: what failed, what was kept, what to do."""
    cause = _cause(error)
    if any(word in cause for word in ("malformed", "not a database", "disk image")):
        return StorageError(
            f"the ledger {where} is damaged ({cause}). Artifacts of finished units are not "
            "touched. Move the file away to start a new one (its calls are then made again), or "
            "recover what is readable with: sqlite3 LEDGER .recover"
        )
    return StorageError(f"the ledger {where} could not be read or written: {cause}")


def _cause(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).partition("\n")[0][:300]


class Patience:
    """How long a server that went away is waited for: a restart must not cost a run."""

    def __init__(self, seconds: float = BUSY_S) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = 0.05

    def again(self, error: Exception) -> bool:
        """Waits a little and says whether to try again after this error."""
        if not _is_passing(error) or time.monotonic() > self._deadline:
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, 2.0)
        return True


def let_go(connection: Connection | None) -> None:
    """Close a connection; one to a server that went away cannot be given back."""
    if connection is not None:
        with suppress(sa.exc.SQLAlchemyError):
            connection.close()


def _is_passing(error: Exception) -> bool:
    if not isinstance(error, sa.exc.DBAPIError) or _sqlite_error(error):
        return False
    # Without a statement there was no connection. The states: deadlock, serialization
    # failure, a server that shuts down or starts up.
    state = str(getattr(error.orig, "sqlstate", None) or "")
    lost = error.connection_invalidated or error.statement is None
    return lost or state in ("40P01", "40001", "57P01", "57P03")


def _sqlite_error(error: sa.exc.DBAPIError) -> bool:
    return type(error.orig).__module__.startswith("sqlite3")


def connect(url: str) -> tuple[Engine, str]:
    """An engine whose tables exist and fit this version, and its name for messages.

    Raises `UsageError` for a URL that can be no ledger, `MissingPrerequisite`
    for a driver or server that is not there, `StorageError` for what is in it.
    No message holds the URL's password.
    """
    try:
        parsed = sa.engine.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        # The text itself may be a URL with a slip in it, and hold a password.
        scheme = url.partition("://")[0] if "://" in url else "that"
        raise UsageError(
            f"{scheme!r} is no database URL; the default is sqlite:///PATH, others look like "
            "postgresql+psycopg://USER@HOST/DATABASE"
        ) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed)
    if backend == "postgresql":
        return _postgresql(parsed)
    raise UsageError(f"the ledger cannot be kept in {backend}; use sqlite or postgresql+psycopg")


def _sqlite(url: URL) -> tuple[Engine, str]:
    if url.database in (None, "", ":memory:"):
        raise UsageError("the ledger must be a file: sqlite:///PATH")
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_S}, hide_parameters=True)
    sa.event.listen(engine, "connect", _pragmas)
    return _prepared(engine, str(url.database))


def _postgresql(url: URL) -> tuple[Engine, str]:
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.get_driver_name() != "psycopg":
        raise UsageError(
            f"the ledger speaks to PostgreSQL through psycopg: postgresql+psycopg://..., not "
            f"{url.drivername}://..."
        )
    where = shown(url)
    given = {key: CONNECT_S for key in ("connect_timeout",) if key not in url.query}
    try:
        engine = sa.create_engine(
            url,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"client_encoding": "utf8", "application_name": "memprobe", **given},
        )
    except ImportError as error:
        raise MissingPrerequisite(
            f"the ledger {where} needs the driver psycopg ({error}): "
            "pip install 'memprobe-audit[postgres]'"
        ) from error
    sa.event.listen(engine, "connect", _durable)
    try:
        return _prepared(engine, where)
    except StorageError as failure:
        cause = failure.__cause__
        # A statement that failed had a connection; without one there is no server to use.
        if isinstance(cause, sa.exc.OperationalError) and cause.statement is None:
            raise MissingPrerequisite(
                f"the ledger {where} cannot be reached: {_cause(cause)}. Start the server, or "
                "correct --ledger (MEMPROBE_LEDGER); without it the ledger is a file in the "
                "runs folder"
            ) from cause
        raise


def shown(url: URL) -> str:
    """A URL as text without its secrets, in its address or its parameters."""
    query = {key: "hidden" if _SECRET.search(key) else value for key, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True)


def _durable(connection: Any, _record: Any) -> None:
    """A commit waits for the disk, whatever the server's default."""
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.commit()


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
def writing(connection: Connection, lock: int = _WRITING) -> Iterator[None]:
    """One transaction that holds the write lock from its start, on an autocommit connection."""
    server = connection.dialect.name == "postgresql"
    # A deferred transaction of SQLite that turns writer half-way fails instead of waiting.
    connection.exec_driver_sql("BEGIN" if server else "BEGIN IMMEDIATE")
    try:
        if server:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock})")
        yield
    except BaseException:
        if not connection.invalidated:
            connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def try_writing(engine: Engine) -> None:
    """Write a row and take it back."""
    with autocommit(engine) as connection, suppress(_Undone), writing(connection):
        row = {"model": "", "digest": "", "body": b""}
        connection.execute(insert_ignoring(connection.dialect.name, vectors), row)
        raise _Undone


class _Undone(Exception):
    """Ends a transaction that shall leave nothing."""


def autocommit(engine: Engine) -> Connection:
    """A connection whose transactions are ours to begin and end."""
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def _prepared(engine: Engine, where: str) -> tuple[Engine, str]:
    try:
        _prepare(engine, where)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise broken(where, error) from error
    except StorageError:
        engine.dispose()
        raise
    return engine, where


def _prepare(engine: Engine, where: str) -> None:
    with autocommit(engine) as connection:
        if engine.dialect.name == "postgresql":
            _check_encoding(connection, where)
        # Whoever only reads and writes rows needs no right to make tables.
        if not _has_tables(connection):
            with writing(connection, _PREPARING):
                _create(connection)
        found = connection.execute(
            sa.select(meta.c.value).where(meta.c.name == "schema_version")
        ).scalar()
    if found != str(VERSION):
        raise StorageError(
            f"the ledger {where} has schema version {found}, this MemProbe reads {VERSION}; "
            "use the MemProbe that wrote it or give another ledger"
        )


def _has_tables(connection: Connection) -> bool:
    there = set(sa.inspect(connection).get_table_names())
    return there >= {table.name for table in metadata.sorted_tables}


def _create(connection: Connection) -> None:
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))
    connection.execute(
        insert_ignoring(connection.dialect.name, meta),
        {"name": "schema_version", "value": str(VERSION)},
    )


def _check_encoding(connection: Connection, where: str) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise StorageError(
            f"the ledger {where} is a database in {encoding}, which cannot hold every text; make "
            "one in UTF-8: createdb --encoding UTF8 --template template0 DATABASE"
        )
