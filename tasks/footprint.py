"""How large each store is: items, characters and tokens, counted once and kept.

Encoding a store of a million characters takes a second, so a count is stored with
a hash of what it was made from and made again only when that has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from adapters.models.tokens import count_tokens, tokenizer_of
from adapters.models.windows import window_of
from memprobe.config import RunConfig
from memprobe.types import SuiteName
from storage.catalog import connect
from storage.runs import RunStore, Unit

VERSION = 1
UNIT = Unit("footprint")
Row = dict[str, Any]

_STORES = "SELECT DISTINCT system, user_id, epoch FROM {} ORDER BY ALL"
WRITTEN: dict[SuiteName, str] = {"recovery": "episodes", "paradigms": "ingests"}
"""The table that has every store of a suite's run, also one that holds nothing."""
_CONTENTS = """
SELECT system, user_id, epoch, content FROM memory_items ORDER BY system, user_id, epoch, seq
"""


def reader_window(config: RunConfig) -> int | None:
    """The window of the run's reader in tokens; None when unknown or without limit."""
    reader = config.model_of(config.reading_role)
    if config.context_window is not None and not reader.startswith("embedded/"):
        return config.context_window
    return window_of(reader)


def read_text(contents: Sequence[str]) -> str:
    """A store as its reader is given it: a JSON list, an item a line. Nothing for no items."""
    return json.dumps(contents, ensure_ascii=False, indent=1) if contents else ""


def count_stores(store: RunStore) -> int:
    """Commit `footprints`, a row for each rolled-out store; returns how many were counted anew.

    Characters are Unicode code points of the contents; tokens are those of the
    text that a reader is given, by the reader's tokenizer, whose name is in the row.
    """
    config = store.manifest.config
    reader = config.model_of(config.reading_role)
    tokenizer = tokenizer_of(reader)
    known = {row["source"]: row["tokens"] for row in store.read("footprints")}
    facts = {"tokenizer": tokenizer, "reader": reader, "window": reader_window(config)}
    rows: list[Row] = []
    counted = 0
    written = WRITTEN[config.suite]
    with connect(store, (written, "memory_items")) as connection:
        stores = connection.execute(_STORES.format(written)).fetchall()
        # A cursor of its own: the stores' texts are never in memory all at once.
        cursor = connection.cursor().execute(_CONTENTS)
        pending = cursor.fetchone()
        for key in stores:
            while pending is not None and pending[:3] < key:
                pending = cursor.fetchone()
            contents: list[str] = []
            while pending is not None and pending[:3] == key:
                contents.append(pending[3])
                pending = cursor.fetchone()
            row = _footprint(contents, tokenizer, known)
            counted += row.pop("anew")
            rows.append({**dict(zip(("system", "user_id", "epoch"), key, strict=True)), **row})
    mark = json.dumps({"version": VERSION, **facts}, sort_keys=True)
    store.commit(
        UNIT,
        hashlib.sha256(mark.encode()).hexdigest(),
        {"footprints": [{**row, **facts} for row in rows]},
    )
    return counted


def _footprint(contents: Sequence[str], tokenizer: str, known: dict[str, int]) -> Row:
    text = read_text(contents)
    digest = hashlib.sha256(f"{VERSION}\0{tokenizer}\0".encode())
    digest.update(text.encode("utf-8", "surrogatepass"))
    source = digest.hexdigest()
    tokens = known.get(source)
    return {
        "items": len(contents),
        "chars": sum(map(len, contents)),
        "tokens": count_tokens(tokenizer, text) if tokens is None else tokens,
        "source": source,
        "anew": tokens is None,
    }
