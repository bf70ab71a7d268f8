"""The call ledger: every finished completion, stored durably before its answer is used.

SQLAlchemy Core over SQLite (WAL, the default) or any other URL. One writer
thread commits whatever has queued up as one transaction, so that a hundred
calls finishing together cost one fsync; readers never wait for it. Prompt and
answer texts are stored once by content, since a store's dump is the shared
prefix of many prompts.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from memprobe.errors import StorageError
from memprobe.types import Asker, Message, Role, Usage
from storage import ledger_engine as engines
from storage import ledger_schema as schema
from storage.ledger_schema import entries, payments, texts, vectors

IDLE_S = 0.5
BATCH = 512
CACHED_ENTRIES = 20_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One finished completion, remote or embedded, as it came back and before any parsing.

    `messages` and `params` are what was sent. `latency_s` is the provider's time
    for the attempt that succeeded, `wait_s` our own waiting (slots, back-off).
    `cost_usd` is None when the price is unknown.
    """

    key: str
    model: str
    messages: tuple[Message, ...]
    params: dict[str, Any]
    text: str | None
    finish_reason: str
    refusal: str | None
    usage: Usage
    cost_usd: float | None
    price_date: str | None
    latency_s: float
    wait_s: float
    retries: int
    created_at: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asked for a completion, and how it ended for them.

    One row for each (asker, role, attempt, key). A repetition on resume keeps
    the first row, unless that one ended without a completion (provider error,
    timeout): then the later one replaces it.
    """

    key: str | None
    asker: Asker
    role: Role
    model: str
    prompt: str
    attempt: int
    ledger_hit: bool
    outcome: str
    detail: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Spending:
    """What all processes together have recorded of a run.

    `calls` were sent for it and paid by it, `hits` are its askers that were
    answered from the ledger; tokens are those of the sent calls. `cost_usd`
    leaves out calls without a known price, of which there are `unpriced`.
    """

    calls: int
    hits: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    unpriced: int


@dataclass(slots=True)
class _Job:
    """Work for the writer: at most one of the payloads, and who waits for the commit."""

    entry: LedgerEntry | None = None
    ask: Ask | None = None
    blobs: tuple[str, dict[str, bytes]] | None = None
    done: Future[bool] | None = None
    stop: bool = False
    stored: bool = True


class Ledger:
    """See the module. Safe for several threads and several processes on one file."""

    def __init__(self, engine: Engine, where: str) -> None:
        self._engine = engine
        self._where = where
        self._dialect = engine.dialect.name
        self._reading = threading.Lock()
        self._reader: Connection | None = None
        self._writing: Connection | None = None
        self._recent: OrderedDict[str, LedgerEntry] = OrderedDict()
        self._known_texts: OrderedDict[str, None] = OrderedDict()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._failure: StorageError | None = None
        self._closed = False
        self._writer = threading.Thread(target=self._write_loop, name="ledger-writer", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open or create a ledger, e.g. `sqlite:///ledger.db`.

        Raises `StorageError` when the file is damaged, not a ledger, or of
        another schema version.
        """
        engine, where = engines.connect(url)
        return cls(engine, where)

    # reading

    def get(self, key: str, *, messages: bool = True) -> LedgerEntry | None:
        """The finished call of that key; `messages=False` leaves the prompt texts unread."""
        with self._reading:
            recent = self._recent.get(key)
            if recent is not None and not messages:
                return recent
            row = self._select(schema.ENTRY_BY_KEY, key).first()
            if row is None:
                return None
            entry = LedgerEntry(
                key=key,
                model=row.model,
                messages=self._messages(row.messages) if messages else (),
                params=json.loads(row.params),
                text=self._answer(row.text_hash, row.body),
                finish_reason=row.finish_reason,
                refusal=row.refusal,
                usage=Usage(
                    prompt_tokens=row.prompt_tokens,
                    cached_tokens=row.cached_tokens,
                    completion_tokens=row.completion_tokens,
                    reasoning_tokens=row.reasoning_tokens,
                ),
                cost_usd=row.cost_usd,
                price_date=row.price_date,
                latency_s=row.latency_s,
                wait_s=row.wait_s,
                retries=row.retries,
                created_at=row.created_at,
                flags=tuple(json.loads(row.flags)),
            )
            if not messages:
                self._recent[key] = entry
                if len(self._recent) > CACHED_ENTRIES:
                    self._recent.popitem(last=False)
            return entry

    def _select(self, statement: sa.Executable, key: str) -> sa.CursorResult[Any]:
        patience = engines.Patience()
        while True:
            try:
                if self._reader is None:
                    self._reader = engines.autocommit(self._engine)
                return self._reader.execute(statement, {"key": key})
            except sa.exc.DBAPIError as error:
                engines.let_go(self._reader)
                self._reader = None
                if not patience.again(error):
                    raise engines.broken(self._where, error) from error

    def _answer(self, digest: str | None, body: bytes | None) -> str | None:
        if digest is None:
            return None
        if body is None:
            raise StorageError(f"{self._where} names a text it does not hold ({digest[:12]})")
        return schema.unpack(body)

    def _text(self, digest: str) -> str:
        row = self._select(schema.TEXT_BY_HASH, digest).first()
        text = self._answer(digest, row.body if row is not None else None)
        return text or ""

    def _messages(self, stored: str) -> tuple[Message, ...]:
        return tuple(
            Message(role=role, content=self._text(digest)) for role, digest in json.loads(stored)
        )

    def _look(self, job: Callable[[Connection], _T]) -> _T:
        """Read on a connection of its own, again when a server comes back from a restart."""
        patience = engines.Patience()
        while True:
            try:
                with self._engine.connect() as connection:
                    return job(connection)
            except sa.exc.DBAPIError as error:
                if not patience.again(error):
                    raise engines.broken(self._where, error) from error

    def spent(self, run: str) -> float:
        """US dollars of the calls this run made itself; replays cost nothing."""
        self.flush()
        statement = sa.select(sa.func.sum(payments.c.cost_usd)).where(payments.c.run == run)
        return float(self._look(lambda connection: connection.scalar(statement)) or 0.0)

    def unpriced(self, run: str) -> int:
        """Calls of this run whose price is unknown, and so are missing from `spent`."""
        self.flush()
        statement = sa.select(sa.func.count()).where(
            payments.c.run == run, payments.c.cost_usd.is_(None)
        )
        return int(self._look(lambda connection: connection.scalar(statement)) or 0)

    def spending(self, run: str) -> Spending:
        """The run's counters, whichever processes made its calls."""
        self.flush()
        paid = self._look(lambda connection: connection.execute(schema.PAID, {"run": run}).one())
        hits = self._look(lambda connection: connection.scalar(schema.HITS, {"run": run}))
        return Spending(
            calls=int(paid.calls),
            hits=int(hits or 0),
            prompt_tokens=int(paid.prompt_tokens or 0),
            completion_tokens=int(paid.completion_tokens or 0),
            cost_usd=float(paid.cost_usd or 0.0),
            unpriced=int(paid.calls) - int(paid.priced),
        )

    def calls(self, run: str) -> Iterator[dict[str, Any]]:
        """The run's asks with their completions: rows of the `calls` table, in a stable order.

        A replayed call costs 0.0 here; tokens are those of the stored completion.
        """
        self.flush()
        for row in self._look(
            lambda connection: connection.execute(schema.CALLS, {"run": run}).mappings().all()
        ):
            record = dict(row)
            hit = bool(record["ledger_hit"])
            record["ledger_hit"], record["repaired"] = hit, bool(record["repaired"])
            record["call_id"] = record["call_id"] or None
            if hit:
                record["cost_usd"] = 0.0
            yield record

    def vectors_get(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        """The stored float32 blobs of the digests that are known."""

        def read(connection: Connection) -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for start in range(0, len(digests), 500):
                chunk = list(digests[start : start + 500])
                statement = sa.select(vectors.c.digest, vectors.c.body).where(
                    vectors.c.model == model, vectors.c.digest.in_(chunk)
                )
                found.update((row.digest, row.body) for row in connection.execute(statement))
            return found

        return self._look(read)

    # writing

    async def put(self, entry: LedgerEntry, ask: Ask | None = None) -> bool:
        """Store a finished call; on return it survives the death of the process.

        `ask` is written in the same transaction, and its run pays for the call.
        False when another process had stored this key first: its answer stands.
        """
        return await self._submit(_Job(entry=entry, ask=ask))

    async def note(self, ask: Ask) -> None:
        """Record who asked; durable after the next `put`, `flush` or `close`."""
        self.note_nowait(ask)

    def note_nowait(self, ask: Ask) -> None:
        """The same, for callers that have nothing to wait for."""
        self._raise_failure()
        self._jobs.put(_Job(ask=ask))

    async def vectors_put(self, model: str, blobs: dict[str, bytes]) -> None:
        """Keep float32 blobs by digest; durable on return."""
        await self._submit(_Job(blobs=(model, blobs)))

    async def _submit(self, job: _Job) -> bool:
        self._raise_failure()
        job.done = Future()
        self._jobs.put(job)
        return await asyncio.shield(asyncio.wrap_future(job.done))

    def flush(self) -> None:
        """Wait until everything noted so far is durable."""
        if self._closed or not self._writer.is_alive():
            return
        done: Future[bool] = Future()
        self._jobs.put(_Job(done=done))
        done.result()
        self._raise_failure()

    def check_writable(self) -> None:
        """Raises `StorageError` when rows cannot be written; leaves nothing behind."""
        try:
            engines.try_writing(self._engine)
        except sa.exc.DBAPIError as error:
            raise engines.broken(self._where, error) from error

    def close(self) -> None:
        """Write what is queued and release the connections; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(_Job(stop=True))
        self._writer.join()
        self._drop_connection()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
        self._engine.dispose()
        if self._failure is not None:
            raise self._failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StorageError(f"{self._where} is closed")

    def _write_loop(self) -> None:
        held: list[_Job] = []
        stopping = False
        while not stopping:
            try:
                job = self._jobs.get(timeout=IDLE_S if held else None)
            except queue.Empty:
                self._commit(held)
                held = []
                continue
            held.append(job)
            while len(held) < BATCH:
                try:
                    held.append(self._jobs.get_nowait())
                except queue.Empty:
                    break
            stopping = any(job.stop for job in held)
            # Notes alone can wait for company; whoever waits for a commit cannot.
            if stopping or len(held) >= BATCH or any(job.done for job in held):
                self._commit(held)
                held = []

    def _commit(self, jobs: list[_Job]) -> None:
        patience = engines.Patience()
        while True:
            known: list[str] = []
            try:
                if self._writing is None:
                    self._writing = engines.autocommit(self._engine)
                with engines.writing(self._writing):
                    self._write(self._writing, jobs, known)
                break
            except Exception as error:
                self._drop_connection()
                # A server that restarts: nobody's answer is lost for that. Was the commit done
                # and only its confirmation lost, the rows are there already; a payment may then
                # count twice, which errs on the safe side of a cost limit.
                if patience.again(error):
                    continue
                self._fail(jobs, error)
                return
        self._known_texts.update(dict.fromkeys(known))
        while len(self._known_texts) > CACHED_ENTRIES:
            self._known_texts.popitem(last=False)
        for job in jobs:
            if job.done is not None:
                job.done.set_result(job.stored)

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        failure = engines.broken(self._where, error)
        failure.__cause__ = error
        if any(job.done is None and job.ask for job in jobs):
            self._failure = failure
        for job in jobs:
            if job.done is not None:
                job.done.set_exception(failure)

    def _drop_connection(self) -> None:
        connection, self._writing = self._writing, None
        engines.let_go(connection)

    def _write(self, connection: Connection, jobs: list[_Job], known: list[str]) -> None:
        finished = [(job, job.entry) for job in jobs if job.entry is not None]
        taken = schema.known_keys(connection, (e.key for _, e in finished)) if finished else set()
        pending: dict[str, str] = {}
        rows: list[dict[str, Any]] = []
        paid: list[dict[str, Any]] = []
        for job, entry in finished:
            run = job.ask.asker.run if job.ask else ""
            paid.append({"run": run, "key": entry.key, "cost_usd": entry.cost_usd})
            job.stored = entry.key not in taken
            if not job.stored:
                continue
            taken.add(entry.key)
            bodies = [message.content for message in entry.messages]
            if entry.text is not None:
                bodies.append(entry.text)
            hashes = [schema.digest(body) for body in bodies]
            pending.update(
                (h, b) for h, b in zip(hashes, bodies, strict=True) if h not in self._known_texts
            )
            rows.append(schema.entry_row(entry, hashes))
        if pending:
            packed = [{"hash": h, "body": schema.pack(b)} for h, b in pending.items()]
            connection.execute(schema.insert_ignoring(self._dialect, texts), packed)
            known.extend(pending)
        if rows:
            connection.execute(schema.insert_ignoring(self._dialect, entries), rows)
        if paid:
            connection.execute(schema.INSERT_PAYMENT, paid)
        noted = [schema.ask_row(job.ask) for job in jobs if job.ask is not None]
        if noted:
            connection.execute(schema.upsert_ask(self._dialect), noted)
        encoded = [
            {"model": job.blobs[0], "digest": d, "body": body}
            for job in jobs
            if job.blobs is not None
            for d, body in job.blobs[1].items()
        ]
        if encoded:
            connection.execute(schema.insert_ignoring(self._dialect, vectors), encoded)
