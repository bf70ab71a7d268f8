"""Tables and statements of the call ledger."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from memprobe.outcomes import Reason

if TYPE_CHECKING:
    from storage.ledger import Ask, LedgerEntry

VERSION = 1


class Text(sa.types.TypeDecorator[str]):
    """Text that comes back as it was, in the same order, from SQLite and from PostgreSQL.

    PostgreSQL refuses the character NUL and sorts by a locale: NUL is escaped
    there (by a private-use character that stands for itself when doubled), and
    texts are compared by their bytes as SQLite does.
    """

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TEXT(collation="C"))
        return dialect.type_descriptor(sa.Text())

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        # SQLite takes every text as it is; reading a call must not cost a function a column.
        return _escaped if dialect.name == "postgresql" else None

    def result_processor(self, dialect: sa.Dialect, coltype: Any) -> Any:
        return _restored if dialect.name == "postgresql" else None


_MARK = "\ue000"


def _escaped(value: str | None) -> str | None:
    if value is None or ("\0" not in value and _MARK not in value):
        return value
    return value.replace(_MARK, _MARK * 2).replace("\0", _MARK + "0")


def _restored(value: str | None) -> str | None:
    if value is None or _MARK not in value:
        return value
    # Doubled marks first: what is left of a mark then stands before its 0.
    return _MARK.join(part.replace(_MARK + "0", "\0") for part in value.split(_MARK * 2))


metadata = sa.MetaData()
meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", Text, primary_key=True),
    sa.Column("value", Text, nullable=False),
)
texts = sa.Table(
    "texts",
    metadata,
    sa.Column("hash", Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
entries = sa.Table(
    "entries",
    metadata,
    sa.Column("key", Text, primary_key=True),
    sa.Column("model", Text, nullable=False),
    sa.Column("messages", Text, nullable=False),
    sa.Column("params", Text, nullable=False),
    sa.Column("text_hash", Text),
    sa.Column("finish_reason", Text, nullable=False),
    sa.Column("refusal", Text),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("cached_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("reasoning_tokens", sa.Integer),
    sa.Column("cost_usd", sa.Double),
    sa.Column("price_date", Text),
    sa.Column("latency_s", sa.Double, nullable=False),
    sa.Column("wait_s", sa.Double, nullable=False),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("created_at", Text, nullable=False),
    sa.Column("flags", Text, nullable=False),
)
_WHO = ("run", "suite", "stage", "system", "user_id", "item", "role", "attempt", "key")
asks = sa.Table(
    "asks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    *(sa.Column(name, Text, nullable=False) for name in _WHO if name != "attempt"),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("model", Text, nullable=False),
    sa.Column("prompt", Text, nullable=False),
    sa.Column("ledger_hit", sa.Boolean, nullable=False),
    sa.Column("outcome", Text, nullable=False),
    sa.Column("detail", Text, nullable=False),
    sa.Column("repaired", sa.Boolean, nullable=False),
    sa.UniqueConstraint(*_WHO, name="asks_once"),
)
payments = sa.Table(
    "payments",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run", Text, nullable=False, index=True),
    sa.Column("key", Text, nullable=False),
    sa.Column("cost_usd", sa.Double),
)
vectors = sa.Table(
    "vectors",
    metadata,
    sa.Column("model", Text, primary_key=True),
    sa.Column("digest", Text, primary_key=True),
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
PAID = (
    sa.select(
        sa.func.count().label("calls"),
        sa.func.count(payments.c.cost_usd).label("priced"),
        sa.func.sum(payments.c.cost_usd).label("cost_usd"),
        sa.func.sum(entries.c.prompt_tokens).label("prompt_tokens"),
        sa.func.sum(entries.c.completion_tokens).label("completion_tokens"),
    )
    .select_from(payments.outerjoin(entries, payments.c.key == entries.c.key))
    .where(payments.c.run == sa.bindparam("run"))
)
HITS = (
    sa.select(sa.func.count())
    .select_from(asks)
    .where(asks.c.run == sa.bindparam("run"), asks.c.ledger_hit)
)
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
