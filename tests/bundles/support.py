"""Bundles as others might change them: taken apart, altered, and put together with new hashes."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.bundle import row_hash, row_key

Files = dict[str, bytes]
Row = dict[str, Any]


def unpack(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def find(files: Files, table: str, *words: str) -> str:
    """The first part of a table whose path holds the words."""
    return next(
        name
        for name in sorted(files)
        if name.startswith(f"artifacts/{table}/") and all(word in name for word in words)
    )


def edit_part(files: Files, name: str, edit: Callable[[list[Row]], Any]) -> None:
    """Change rows of a part in place."""
    table = pq.read_table(io.BytesIO(files[name]))
    rows = table.to_pylist()
    edit(rows)
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), buffer)
    files[name] = buffer.getvalue()


def adapt_list(files: Files) -> None:
    """Make sizes and hashes of the list those of the files as they are."""
    value = json.loads(files["bundle.json"])
    value["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "bundle.json"
    }
    files["bundle.json"] = json.dumps(value).encode()


def adapt_markers(files: Files) -> None:
    """Make the units' markers state the parts as they are."""
    for name in [n for n in files if n.startswith("units/")]:
        marker = json.loads(files[name])
        marker["parts"] = [p for p in marker["parts"] if p["path"] in files]
        for part in marker["parts"]:
            data = files[part["path"]]
            rows = pq.read_metadata(io.BytesIO(data)).num_rows
            part.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)
        files[name] = json.dumps(marker).encode()


def adapt_rows(files: Files) -> None:
    """Make the rows' hashes those of the rows as they are."""
    lines = []
    for name in sorted(files):
        table = name.split("/")[1] if name.startswith("artifacts/") else ""
        if table in ("verdicts", "attributions", "metrics"):
            for row in pq.read_table(io.BytesIO(files[name])).to_pylist():
                line = {"table": table, "key": row_key(table, row), "hash": row_hash(row)}
                lines.append(json.dumps(line))
    files["rows.jsonl"] = ("\n".join(lines) + "\n").encode()
