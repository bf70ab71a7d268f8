"""One store of cognee's: filled, read out, searched, saved and brought back."""

from __future__ import annotations

import gzip
import importlib
import io
import re
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.memory.cognee_library import Wire, give, library, reason_of, take
from memprobe.errors import AdapterError, BudgetExceeded, SnapshotError

DATASET = "memory_{:06d}"
"""A dataset's name; each text has one. A store has folders of its own, so that names may repeat.

The datasets of a store share one graph. A cognify looks at all texts of its datasets again,
so that with one for all of them the hundredth would cost a hundred times the first.
"""

KEPT = ("system", "data")
"""The folders of a store that a snapshot holds."""

_PLUMBING = frozenset({"TextDocument", "EntityType"})
"""Nodes without a content of their own: a file's name, a kind's name."""
_TEXTS = {"TextSummary": "summary", "DocumentChunk": "chunk"}
PREFIX = "memprobe-cognee-"
_ROOT = re.compile(rf"/[^\s\"']*?{PREFIX}\w+(?=/(?:data|system|cache)/)")
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class Row:
    """A node or an edge of the graph. `kind` is "" for what a dump leaves out."""

    key: str
    kind: str
    content: str


@dataclass(frozen=True, slots=True)
class Found:
    """A search's result: the row that it is, as the search shows it."""

    key: str
    kind: str
    content: str
    score: float | None = None


def node_row(key: str, node: Mapping[str, Any]) -> Row:
    """A node of the graph as a row: a chunk's or a summary's text, or `name: description`."""
    kind = str(node.get("type") or "node")
    if kind in _PLUMBING:
        return Row(key, "", str(node.get("name") or ""))
    if kind in _TEXTS:
        return Row(key, _TEXTS[kind], str(node.get("text") or ""))
    name, said = str(node.get("name") or ""), str(node.get("description") or "")
    return Row(key, kind.lower(), f"{name}: {said}" if said and said != name else name)


def edge_row(edge: tuple[str, str, str, Mapping[str, Any]], nodes: Mapping[str, Any]) -> Row:
    """An edge as a row, written as cognee's own context writes it.

    An edge is a fact when both its ends are named things; that a chunk contains a
    thing, or that a thing is of a kind, is the graph's own bookkeeping.
    """
    source, target, label, more = edge
    key = edge_key(source, target, label)
    ends = [nodes.get(end, {}) for end in (source, target)]
    if any(str(end.get("type")) in _PLUMBING | set(_TEXTS) for end in ends):
        return Row(key, "", "")
    first, second = (str(end.get("name") or "") for end in ends)
    text = f"{first} --[{label}]--> {second}"
    said = more.get("edge_text")
    return Row(key, "fact", f"{text}  ({said})" if said and said != label else text)


def edge_key(source: str, target: str, label: str) -> str:
    """Names an edge; a pair of nodes has one of a label."""
    return f"{source} {label} {target}"


class Engine:
    """One store's library, in the loop that made it."""

    def __init__(self, wire: Wire, chunk_tokens: int) -> None:
        self._wire = wire
        take(wire)
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            wire.connect()
            self._cognee = library(self.root, wire.dimensions, chunk_tokens)
        except BaseException:
            give(wire)
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        self._begun = False
        self.texts = 0

    async def add(self, text: str) -> None:
        """One text through cognee's `add` and `cognify`.

        Raises `CallFailed`, `BudgetExceeded` or `AdapterError`.
        """
        self._wire.faults.clear()
        self._begun = True
        self.texts += 1
        dataset = DATASET.format(self.texts)
        try:
            await self._cognee.add(text, dataset_name=dataset)
            await self._cognee.cognify(datasets=[dataset], raise_on_error=True)
        except Exception as error:
            self._raise_fault()
            raise reason_of(error, "cognify") from error
        if self._wire.strict:
            self._raise_fault()

    def _raise_fault(self) -> None:
        """Raise what the library met first: it passes errors on without their reasons."""
        for fault in self._wire.faults:
            if isinstance(fault, BudgetExceeded):
                raise fault
        if self._wire.faults:
            raise self._wire.faults[0]

    async def _graph(self) -> Any:
        module = importlib.import_module("cognee.infrastructure.databases.graph")
        return await module.get_graph_engine()

    async def rows(self) -> list[Row]:
        """Every node and edge of the graph, proven to be all by the database's own count."""
        if not self._begun:
            return []
        graph = await self._graph()
        try:
            nodes, edges = await graph.get_graph_data()
            ((held_nodes,),) = await graph.query("MATCH (n:Node) RETURN COUNT(n)")
            ((held_edges,),) = await graph.query("MATCH (:Node)-[r]->(:Node) RETURN COUNT(r)")
        except Exception as error:
            raise reason_of(error, "a dump") from error
        by_key = {str(key): dict(node) for key, node in nodes}
        found = [node_row(key, node) for key, node in by_key.items()]
        found += [edge_row((str(a), str(b), str(c), d), by_key) for a, b, c, d in edges]
        distinct = len({row.key for row in found})
        if not (
            len(by_key) == len(nodes) == held_nodes
            and len(edges) == held_edges
            and distinct == len(found)
        ):
            raise AdapterError(
                f"cognee: the dump is not complete: {len(nodes)} nodes and {len(edges)} edges "
                f"listed ({distinct} distinct ones), {held_nodes} and {held_edges} in its database"
            )
        return found

    async def search(self, query: str, k: int, what: str) -> list[Found]:
        """At most `k` results of cognee's own retrievers, best first.

        `what` is "graph" (edges, as its GRAPH_COMPLETION hands them to a model) or
        "chunks" (raw text).
        """
        if not self._begun:
            return []
        self._wire.faults.clear()
        try:
            found = await (self._chunks(query, k) if what == "chunks" else self._edges(query, k))
        except Exception as error:
            self._raise_fault()
            raise reason_of(error, "search") from error
        if self._wire.strict:
            self._raise_fault()
        return found[:k]

    async def _edges(self, query: str, k: int) -> list[Found]:
        name = "cognee.modules.retrieval.graph_completion_retriever"
        retriever = importlib.import_module(name).GraphCompletionRetriever(top_k=k)
        edges = await self._retrieved(retriever, query)
        text = importlib.import_module("cognee.modules.graph.utils.resolve_edges_to_text")
        shown: set[str] = set()
        found = []
        for edge in edges:
            parts = []
            # A node's text goes with the first edge that it is part of, as in one context.
            for key, node in text._extract_nodes_from_edges([edge]).items():
                if key not in shown:
                    shown.add(key)
                    parts.append(f"{node['name']}: {node['content']}")
            line = (await text.resolve_edges_to_text([edge])).rpartition("\nConnections:\n")[2]
            label = edge.attributes.get("relationship_name") or ""
            key = edge_key(str(edge.node1.id), str(edge.node2.id), str(label))
            found.append(Found(key, "triplet", "\n".join([line, *parts])))
        return found

    async def _chunks(self, query: str, k: int) -> list[Found]:
        name = "cognee.modules.retrieval.chunks_retriever"
        retriever = importlib.import_module(name).ChunksRetriever(top_k=k)
        hits = await self._retrieved(retriever, query)
        return [
            Found(str(hit.id), "chunk", str(hit.payload["text"]), 1.0 - float(hit.score))
            for hit in sorted(hits, key=lambda hit: float(hit.score))
        ]

    @staticmethod
    async def _retrieved(retriever: Any, query: str) -> list[Any]:
        empty = importlib.import_module("cognee.modules.retrieval.exceptions.exceptions")
        try:
            return list(await retriever.get_retrieved_objects(query) or ())
        except empty.NoDataError:
            return []

    async def state(self) -> bytes:
        """The store's folders as a compressed tar archive, its databases at rest."""
        if self._begun:
            await (await self._graph()).checkpoint()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path in self._files():
                raw = _at_rest(path)
                entry = tarfile.TarInfo(path.relative_to(self.root).as_posix())
                entry.size = len(raw)
                archive.addfile(entry, io.BytesIO(raw))
        return gzip.compress(buffer.getvalue(), 6, mtime=0)

    def _files(self) -> Iterator[Path]:
        for folder in KEPT:
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file() and not path.name.endswith((".lock", "-wal", "-shm")):
                    yield path

    def load(self, raw: bytes, texts: int) -> None:
        """Fill an empty store with what `state` gave. Raises `SnapshotError`."""
        if self._begun:
            raise SnapshotError("cognee: only an empty store can be restored")
        try:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(raw))) as archive:
                members = archive.getmembers()
                archive.extractall(self.root, members=members, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise SnapshotError(f"cognee: unreadable snapshot ({error})") from error
        self._begun, self.texts = bool(members), texts
        for path in self._files():
            if path.read_bytes()[: len(_SQLITE)] == _SQLITE:
                _rebase(path, self.root)

    async def close(self) -> None:
        """Close the databases and the client, and remove the store's folder."""
        try:
            if self._begun:
                graph = await self._graph()
                await graph.close()
                name = "cognee.infrastructure.databases.relational"
                engine = importlib.import_module(name).get_relational_engine()
                await engine.engine.dispose(close=True)
        finally:
            await self._wire.close()
            give(self._wire)
            shutil.rmtree(self.root, ignore_errors=True)


def _at_rest(path: Path) -> bytes:
    """A file's bytes; of an SQLite database those of a copy without a journal."""
    raw = path.read_bytes()
    if raw[: len(_SQLITE)] != _SQLITE:
        return raw
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        copy = Path(folder) / "copy"
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        return copy.read_bytes()


def _rebase(path: Path, root: Path) -> None:
    """Let the file names in a database point to the folder that it was restored to."""
    with closing(sqlite3.connect(path)) as base, base:
        tables = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for column in base.execute(f'PRAGMA table_info("{table}")').fetchall():
                name = f'"{column[1]}"'
                rows = base.execute(
                    f'SELECT rowid, {name} FROM "{table}" WHERE {name} LIKE ?', (f"%{PREFIX}%",)
                ).fetchall()
                for rowid, value in rows:
                    moved = _ROOT.sub(lambda _: str(root), str(value))
                    base.execute(f'UPDATE "{table}" SET {name} = ? WHERE rowid = ?', (moved, rowid))
