"""A PostgreSQL server for tests: Debian's binaries, a temporary cluster, loopback only."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

USER, PASSWORD = "auditor", "s3cret/p:w"
"""The password holds what a URL must escape."""
ESCAPED = "s3cret%2Fp%3Aw"
HOMES = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt", "/usr/local/pgsql")


def binaries() -> Path | None:
    """The folder that holds initdb and pg_ctl; None when PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    everywhere = (p.parent for home in HOMES for p in Path(home).glob("*/bin/initdb"))
    return max(everywhere, key=lambda p: p.parent.name.zfill(4), default=None)


def _as_owner(command: list[str]) -> list[str]:
    """initdb and postgres refuse to work as root: they are run as `postgres` then."""
    if os.geteuid() != 0:
        return command
    return ["runuser", "-u", "postgres", "--", *command]


def _run(*command: str) -> None:
    done = subprocess.run(
        _as_owner(list(command)), capture_output=True, text=True, check=False, cwd="/", timeout=120
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {done.stdout[-800:]}{done.stderr[-1500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Postgres:
    """A running server. Its databases are in UTF-8 and in a locale that sorts as people do."""

    bin: Path
    data: Path
    port: int
    _names: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        log = str(self.data / "server.log")
        _run(
            str(self.bin / "pg_ctl"), "-D", str(self.data), "-o", options, "-l", log, "-w", "start"
        )

    def stop(self, mode: str = "fast") -> None:
        _run(str(self.bin / "pg_ctl"), "-D", str(self.data), "-m", mode, "-w", "stop")

    def new(self, encoding: str = "UTF8") -> str:
        """The name of a new, empty database."""
        import psycopg

        name = f"test_{next(self._names)}"
        where = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD}
        with psycopg.connect(**where, dbname="postgres", autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'"
                if encoding != "UTF8"
                else f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0 "
                "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"
            )
        return name

    def url(self, name: str, driver: str = "psycopg", password: str = ESCAPED) -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+{driver}://{USER}:{password}@127.0.0.1:{self.port}/{name}"


@contextlib.contextmanager
def running() -> Iterator[Postgres]:
    """A server of its own; skips the test when PostgreSQL or its driver is missing."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    home = binaries()
    if home is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="memprobe-postgres-"))
    if os.geteuid() == 0:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    server = Postgres(home, folder / "data", _free_port())
    try:
        initdb = [str(home / "initdb"), "-D", str(server.data), "-U", USER, "-A", "scram-sha-256"]
        _run(*initdb, "--pwfile", str(secret), "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the session."""
    with running() as server:
        yield server
