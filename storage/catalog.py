"""The catalog: DuckDB views over a run's Parquet, rebuilt any time, opened read-only.

A local run's views read its files where they are. A run in an object store is
copied into the catalog as tables, so that it can be queried without access to
the store. Views and macros are in `storage/views/*.sql`.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from memprobe.errors import StorageError, UsageError
from memprobe.types import SUITES, SuiteName
from storage.packed import sources
from storage.runs import ARTIFACTS, RunStore
from storage.schemas import SCHEMAS

CATALOG = "memprobe.duckdb"

_SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Column names, DuckDB type names, and rows as tuples of Python values."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _escaped(folder: Path) -> str:
    """A folder as the beginning of a pattern; its own name may hold `*`, `?` or `[`."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in folder.as_posix())


def _glob(folder: Path) -> str:
    return f"{_escaped(folder)}/**/*.parquet"


def view_statements(suite: SuiteName | None = None) -> list[str]:
    """The SQL of the analysis views, in order; of one suite, without those of the others."""
    folder = resources.files("storage").joinpath("views")
    others = [] if suite is None else [name for name in SUITES if name != suite]
    files = sorted(
        (
            f
            for f in folder.iterdir()
            if f.name.endswith(".sql") and not any(name in f.name for name in others)
        ),
        key=lambda f: f.name,
    )
    return [file.read_text(encoding="utf-8") for file in files]


def _has_parts(run: RunStore, table: str) -> bool:
    if run.path is None:
        return bool(run.parts(table))
    # Ends at the first part: a table may have one for each of thousands of users.
    return any(
        name.endswith(".parquet")
        for _, _, names in os.walk(run.path / ARTIFACTS / table)
        for name in names
    )


def _add_empty(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    columns = ", ".join(f'NULL::{_SQL_TYPES[f.type]} AS "{f.name}"' for f in SCHEMAS[table])
    connection.execute(f'CREATE VIEW "{table}" AS SELECT {columns} WHERE false')


def _source(run: RunStore, home: Path, table: str) -> str:
    """What `read_parquet` is given: the packs and loose parts, or all parts by a pattern."""
    found = sources(run, table)
    if found is None:
        return quoted(_glob(home / ARTIFACTS / table))
    files = [quoted(_escaped(path)) for path in (*found.packs, *found.loose)]
    return f"[{', '.join(files)}]"


def _add_stored(connection: duckdb.DuckDBPyConnection, run: RunStore, table: str) -> None:
    if run.path is not None:
        source = _source(run, run.path, table)
        connection.execute(
            f'CREATE OR REPLACE VIEW "{table}" AS SELECT * FROM '
            f"read_parquet({source}, hive_partitioning = false)"
        )
        return
    connection.register("incoming", run.scan(table))
    connection.execute(f'DROP VIEW IF EXISTS "{table}"')
    connection.execute(f'CREATE TABLE "{table}" AS SELECT * FROM incoming')
    connection.unregister("incoming")


def _fill(connection: duckdb.DuckDBPyConnection, run: RunStore) -> None:
    """Tables, views and macros of a run.

    The analysis views are made over empty tables and the stored ones put in
    afterwards: making a view lists all files of the tables it stands on.
    """
    for table in SCHEMAS:
        _add_empty(connection, table)
    for statement in view_statements():
        connection.execute(statement)
    for table in SCHEMAS:
        if _has_parts(run, table):
            _add_stored(connection, run, table)


def connect(run: RunStore, tables: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with some of the run's tables, for the stages."""
    connection = duckdb.connect()
    for table in tables:
        if _has_parts(run, table):
            _add_stored(connection, run, table)
        else:
            _add_empty(connection, table)
    return connection


def _signature(run: RunStore) -> str:
    """Changes when the catalog has to be built again: moved, new tables or columns, other views."""
    columns = {table: schema.to_string() for table, schema in SCHEMAS.items()}
    digest = hashlib.sha256(repr((duckdb.__version__, view_statements(), columns)).encode())
    digest.update(run.location.encode())
    if run.path is None:
        digest.update(repr(sorted(run.files.listing(ARTIFACTS, ".parquet").items())).encode())
        return digest.hexdigest()
    for table in SCHEMAS:
        facts = _source(run, run.path, table) if _has_parts(run, table) else ""
        digest.update(f"{table}\0{facts}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def catalog_path(run: RunStore) -> Path:
    """Where the run's catalog lies on this machine."""
    return (run.path or run.scratch()) / CATALOG


def build_catalog(run: RunStore) -> Path:
    """Write the catalog and return its path; an open reader keeps the one it has."""
    target = catalog_path(run)
    temporary = target.with_name(f".{CATALOG}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with duckdb.connect(temporary) as connection:
            _fill(connection, run)
            connection.execute(
                "CREATE TABLE catalog_info AS SELECT ? AS signature", [_signature(run)]
            )
            connection.execute("CHECKPOINT")
        temporary.replace(target)
    except duckdb.Error as error:
        raise StorageError(f"{target} could not be built: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    if run.path is None:
        run.files.write(CATALOG, target.read_bytes())
    return target


def _is_current(run: RunStore, path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with duckdb.connect(path, read_only=True) as connection:
            found = connection.execute("SELECT signature FROM catalog_info").fetchone()
    except duckdb.Error:
        return False
    return found is not None and found[0] == _signature(run)


def ensure_catalog(run: RunStore) -> Path:
    """The run's catalog, built when it is missing, damaged or out of date."""
    path = catalog_path(run)
    return path if _is_current(run, path) else build_catalog(run)


def _open_read_only(run: RunStore, path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(path, read_only=True)
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET autoinstall_known_extensions = false")
    if run.path is not None:
        # The folder, what a symbolic link in it leads to, and its spelling in the views' patterns.
        folders = {run.path.as_posix(), run.path.resolve().as_posix(), _escaped(run.path)}
        listed = ", ".join(quoted(folder) for folder in sorted(folders))
        connection.execute(f"SET allowed_directories = [{listed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


_EXPLAINS = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+|\([^()]*\)\s*)?", re.IGNORECASE)


def _kind(sql: str) -> str:
    """The kind of a text's one statement; raises `UsageError` for none, several or a wrong one."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(_explain(error)) from error
    if len(statements) != 1:
        raise UsageError(f"one statement at a time; this is {len(statements)}")
    return str(statements[0].type).rsplit(".", 1)[-1]


def query(run: RunStore, sql: str) -> QueryResult:
    """Run one reading statement over a run.

    The database is opened read-only and no file outside the run can be read.
    Raises `UsageError` with DuckDB's message for a statement that is wrong, that
    changes anything, or that is more than one.
    """
    kind = _kind(sql)
    if kind == "EXPLAIN":
        # EXPLAIN ANALYZE carries out what it explains, a COPY into the run's folder too.
        kind = _kind(_EXPLAINS.sub("", sql, count=1))
    if kind != "SELECT":
        raise UsageError(f"only reading statements such as SELECT; this is {kind}")
    with _open_read_only(run, ensure_catalog(run)) as connection:
        try:
            cursor = connection.execute(sql)
            description = cursor.description or []
            rows = cursor.fetchall()
        except duckdb.Error as error:
            raise UsageError(_explain(error)) from error
    return QueryResult(
        tuple(str(column[0]) for column in description),
        tuple(str(column[1]) for column in description),
        rows,
    )


def _explain(error: duckdb.Error) -> str:
    message = str(error).strip()
    if 'near "case"' in message:
        message += '\nCASE is an SQL keyword: write "case"(user, dimension) or case_file(...)'
    return message
