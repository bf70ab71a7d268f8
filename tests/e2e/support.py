"""Real runs as subprocesses, a fake model that kills them, and what they leave behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.ledger import Ledger
from tests.support.fake_answers import number
from tests.support.fake_server import FakeServer, Fault, Seen

ROOT = Path(__file__).resolve().parents[2]
UNEQUAL = {"calls", "operations"}
"""Tables with latencies; all others depend on the model's answers only."""
DEADLINE_S = 280.0
REMOTE = ("run", "recovery", "--model", "openai/mock", "--systems", "nomem,longctx_full")
SMALL = ("--users", "2", "--limit", "3")
Body = tuple[tuple[str, str], ...]


def until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of a condition; fails when there is none by the deadline."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {deadline_s:g} s: {what}")


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout; anything else there is an error."""
        return json.loads(self.out)


@dataclass
class Shell:
    """The command line in a folder of its own. `env` is added to the environment."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("MEMPROBE_", "PREFECT_", "OPENAI_"))
        }
        return {**kept, "PYTHONPATH": str(ROOT), **self.env}

    def start(self, *arguments: str, program: str = "flows.cli") -> subprocess.Popen[str]:
        """Start a command as the head of a process group."""
        self.home.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", program, *arguments],
            cwd=self.home,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, program: str = "flows.cli") -> Outcome:
        """Run a command to its end."""
        process = self.start(*arguments, program=program)
        return finish(process)

    def remote(self, name: str, *more: str) -> Outcome:
        """The small run with every role remote, to its end."""
        return self.run(*REMOTE, *SMALL, "--run", name, "--json", *more)

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    def table(self, run: str, query: str) -> list[dict[str, Any]]:
        """Rows of a query through the `sql` command."""
        done = self.run("sql", run, query, "--format", "json")
        assert done.code == 0, done.err
        rows: list[dict[str, Any]] = done.json
        return rows


def finish(process: subprocess.Popen[str], deadline_s: float = DEADLINE_S) -> Outcome:
    """Wait for a process; it and its children are killed past the deadline."""
    try:
        out, err = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        kill_group(process)
        out, err = process.communicate()
        raise AssertionError(f"still running after {deadline_s:g} s:\n{err[-3000:]}") from None
    return Outcome(process.returncode, out, err)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill -9 a process and all of its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def parts(run: Path) -> dict[str, str]:
    """sha256 of every artifact part that must not depend on how often a run was killed."""
    found = {}
    for path in sorted((run / "artifacts").rglob("*.parquet")):
        name = path.relative_to(run / "artifacts")
        if name.parts[0].removesuffix(".parquet") not in UNEQUAL:
            found[name.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found, f"no artifacts in {run}"
    return found


def assert_same_tables(one: Path, other: Path) -> None:
    """Byte for byte, part for part."""
    first, second = parts(one), parts(other)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def stored(ledger: Path) -> set[Body]:
    """The messages of all finished calls in a ledger, read the way another program would."""
    if not ledger.exists():
        return set()
    with contextlib.closing(sqlite3.connect(ledger, timeout=60)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'entries'").fetchone():
            return set()
        bodies = dict(connection.execute("select hash, body from texts"))
        rows = connection.execute("select messages from entries").fetchall()
    return {
        tuple((role, zlib.decompress(bodies[h]).decode()) for role, h in json.loads(raw))
        for (raw,) in rows
    }


def body_of(seen: Seen) -> Body:
    """A request's messages, as `stored` gives them."""
    return tuple((m["role"], m["content"]) for m in seen.body["messages"])


def is_judge(body: dict[str, Any]) -> bool:
    """Whether a request asks for the score of a recovered label."""
    form = body.get("response_format") or {}
    return "score" in (form.get("json_schema") or {}).get("schema", {}).get("properties", {})


def judgement(body: dict[str, Any]) -> str:
    """A score on the whole scale, from the truth and the label and nothing else."""
    user = "\n".join(m["content"] for m in body["messages"] if m["role"] == "user")
    named = [
        line
        for line in user.splitlines()
        if line.startswith(("Recovered", "True, in short", "True, in full"))
    ]
    return json.dumps({"score": number(*named) % 5 / 4, "reason": "as the texts compare"})


class Model(FakeServer):
    """A fake model with hooks: `at` runs a callback when so many requests have come in.

    Its judge uses the whole scale, so that runs differ in more than their zeros.

    `sticky` decides by content which requests always meet a fault.
    """

    def __init__(
        self, *, sticky: Callable[[dict[str, Any]], Fault] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._sticky = sticky
        self._hooks: dict[int, tuple[str, Callable[[], None]]] = {}
        self.arrived = 0

    def at(self, count: int, call: Callable[[], None], moment: str = "arrival") -> None:
        """Call when request `count` (from 1) arrives, or once it is `answered`."""
        self._hooks[count] = (moment, call)

    def _next_fault(self, seen: Seen) -> dict[str, Any]:
        fault = self._sticky(seen.body) if self._sticky else None
        if isinstance(fault, str):
            return {"mode": fault}
        if fault is None:
            fault = super()._next_fault(seen)
        if fault == {"mode": ""} and is_judge(seen.body):
            return {"mode": "", "content": judgement(seen.body)}
        return fault

    async def _chat(self, seen: Seen, receive: Any, send: Any) -> None:
        self.arrived += 1
        moment, call = self._hooks.pop(self.arrived, ("", lambda: None))
        if moment == "arrival":
            call()
        await super()._chat(seen, receive, send)
        if moment == "answered":
            call()

    @property
    def env(self) -> dict[str, str]:
        """What points a client at this server."""
        return {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": self.url}


def on_event() -> tuple[threading.Event, Callable[[], None]]:
    """An event and the call that sets it."""
    event = threading.Event()
    return event, event.set


def processes_with(text: str) -> list[int]:
    """Living processes whose environment holds a text (e.g. a folder of the test's own)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and text.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def killed_at_end(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive its test."""
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate()


def spent(path: os.PathLike[str], run: str) -> float:
    """US dollars of the calls that a run made, by the ledger at a path."""
    ledger = Ledger.open(f"sqlite:///{path}")
    try:
        return ledger.spent(run)
    finally:
        ledger.close()
