"""A tuned Prefect server on loopback: for one run, or kept running by `memprobe up`.

Measured with Prefect 3.9.1: the task recorder writes one row a transaction
unless told otherwise and then falls behind; analytics goes out unless both
switches are off. The server is a plain child process that ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from memprobe.errors import MissingPrerequisite
from memprobe.settings import redact
from tasks.checkpoint import write_atomic

STARTUP_TIMEOUT_S = 180.0
TUNING = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_LOGGING_LEVEL": "WARNING",
}
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its API address, the address of its page, and its process id."""

    api_url: str
    pid: int

    @property
    def ui_url(self) -> str:
        return self.api_url.removesuffix("/api")


def local_home(runs: str) -> Path:
    """The local folder beside which servers live: the runs folder, or here for an object store."""
    return Path() if "://" in runs else Path(runs)


def prefect_home(runs: Path) -> Path:
    """Where servers of a runs folder keep their database and state."""
    return runs / ".prefect"


def _state_file(runs: Path) -> Path:
    return prefect_home(runs) / "server.json"


def healthy(api_url: str, timeout: float = 2.0) -> bool:
    """Whether a server answers."""
    try:
        return httpx.get(f"{api_url.rstrip('/')}/health", timeout=timeout).status_code == 200
    except httpx.HTTPError:
        return False


def running(runs: Path) -> Server | None:
    """The server that `memprobe up` keeps running for this runs folder, if it answers."""
    try:
        state = json.loads(_state_file(runs).read_bytes())
        server = Server(state["api_url"], state["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if healthy(server.api_url) else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    # kill -9 of the run must not leave a server behind; only Linux can tell the child.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def environment(home: Path, api_url: str) -> dict[str, str]:
    """The variables that a server and its clients need; a user's own settings win."""
    tuned = {key: value for key, value in TUNING.items() if key not in os.environ}
    return tuned | {"PREFECT_HOME": str(home.resolve()), "PREFECT_API_URL": api_url}


def start(
    home: Path, port: int | None = None, database: str = ""
) -> tuple[Server, subprocess.Popen[bytes]]:
    """Start a server and wait until it answers; `database` is where it keeps its records.

    The database's URL goes to the server alone, neither to this process's
    environment nor into a file. Raises `MissingPrerequisite` with the end of the
    log when nothing answers within three minutes (the first start builds the
    database and takes the longest).
    """
    home.mkdir(parents=True, exist_ok=True)
    port = port or _free_port()
    api_url = f"http://127.0.0.1:{port}/api"
    log = home / "server.log"
    env = {**os.environ, **environment(home, api_url)}
    # The server must not believe that it is a client of itself.
    env.pop("PREFECT_API_URL")
    if database:
        # Prefect knows the older name too; which one would win is not ours to guess.
        env.pop("PREFECT_API_DATABASE_CONNECTION_URL", None)
        env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database
    command = [sys.executable, "-m", "uvicorn", "--factory"]
    command += ["prefect.server.api.server:create_app", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            # Ctrl-C goes to the whole group of a terminal; the server must outlast the run
            # that is saving its state.
            start_new_session=True,
        )
    deadline = time.monotonic() + STARTUP_TIMEOUT_S
    while time.monotonic() < deadline:
        if healthy(api_url, timeout=1.0):
            return Server(api_url, process.pid), process
        if process.poll() is not None:
            break
        time.sleep(0.1)
    stop(process)
    tail = redact(log.read_text(errors="replace")[-1500:])
    where = f" with its database at {redact(database)}" if database else ""
    raise MissingPrerequisite(
        f"the local Prefect server did not start{where}; its log ({log}) ends with:\n{tail}\n"
        "Start one yourself with `prefect server start` and set PREFECT_API_URL"
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server: asked first, then killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _claim(home: Path) -> Path:
    """The home itself, or one of our own when a living process uses it (one writer a database)."""
    home.mkdir(parents=True, exist_ok=True)
    owner = home / "owner.pid"
    with contextlib.suppress(OSError, ValueError):
        pid = int(owner.read_text())
        if pid != os.getpid() and Path(f"/proc/{pid}").exists():
            home = home.with_name(f"{home.name}-{os.getpid()}")
            home.mkdir(parents=True, exist_ok=True)
            owner = home / "owner.pid"
    write_atomic(owner, str(os.getpid()).encode())
    return home


def given() -> str | None:
    """The API address from the environment, if there is one."""
    return os.environ.get("PREFECT_API_URL") or None


@contextlib.contextmanager
def serving(runs: Path, database: str = "") -> Iterator[str]:
    """An API address for one run, exported to this process's environment.

    Uses `PREFECT_API_URL` when it is set, else the server of `memprobe up`,
    else a server of its own, with that database, for as long as the block lasts.
    """
    address = given()
    if address:
        if not healthy(address, timeout=10.0):
            raise MissingPrerequisite(
                f"PREFECT_API_URL is {address}, and no server answers there; "
                "start it (`prefect server start`) or unset the variable"
            )
        yield address
        return
    kept = running(runs)
    process = None
    if kept is not None:
        home, api_url = prefect_home(runs), kept.api_url
    else:
        home = _claim(prefect_home(runs))
        server, process = start(home, database=database)
        api_url = server.api_url
    before = dict(os.environ)
    os.environ.update(environment(home, api_url))
    try:
        yield api_url
    finally:
        os.environ.clear()
        os.environ.update(before)
        if process is not None:
            stop(process)
            (home / "owner.pid").unlink(missing_ok=True)


def remember(runs: Path, server: Server) -> None:
    """Note a kept server, so that later runs use it."""
    home = prefect_home(runs)
    home.mkdir(parents=True, exist_ok=True)
    state = {"api_url": server.api_url, "pid": server.pid}
    write_atomic(_state_file(runs), json.dumps(state).encode())


def forget(runs: Path) -> None:
    """Drop the note of a kept server."""
    _state_file(runs).unlink(missing_ok=True)
