"""Checking a bundle: files, rows, and the metrics re-computed from its verdicts.

Three lines of defence, so that a change is named even by who adapted the one before:

1. every file against its size and hash;
2. every verdict, attribution and figure against its own hash, and every table against
   the rows that its units' markers state;
3. every figure against the one that the score functions make of the verdicts, every
   attribution's score against its verdict's, and every verdict on a probe against the one
   that the rules make of its answer.

What this cannot show is that a whole bundle was not made up; compare its sha256 with
the one that its author published.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from memprobe.errors import StorageError, UsageError
from memprobe.types import Protocol
from storage.bundles import ROWS, Opened, open_bundle
from storage.manifest import Manifest, package_versions, read_manifest
from storage.runs import MANIFEST
from storage.schemas import SCHEMAS, UNIQUE, schema_of
from tasks.bundle import row_hash, row_key, scrub
from tasks.evidence import EVIDENCE, Evidence
from tasks.rescored import Rescored

TOLERANCE = 1e-9
MAX_ROWS = 50_000_000
MAX_LINE = 1 << 20

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check found. `problems` name each difference; `notes` are no differences."""

    run: str
    files: int
    rows: int
    metrics: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as stated."""
        return not self.problems


def verify_bundle(path: Path) -> Verified:
    """Check a bundle's file or folder; nothing outside a temporary folder is written.

    Raises `UsageError` for what is no bundle, `MissingPrerequisite` for one of a newer
    version. Every other flaw is a problem of the result.
    """
    with open_bundle(path) as opened:
        check = _Check(opened)
        check.run()
        return Verified(
            run=str(opened.facts.get("run", ""))[:200],
            files=len(opened.facts["files"]) + 1,
            rows=check.rows,
            metrics=check.metrics,
            problems=tuple(check.problems),
            notes=tuple(check.notes),
        )


@dataclass(slots=True)
class _Check:
    opened: Opened
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    metrics: int = 0
    tables: dict[str, list[Path]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    evidence: Evidence = EVIDENCE["recovery"]

    def run(self) -> None:
        """Everything, in the order of the lines of defence."""
        self.problems += self.opened.problems
        manifest = self._manifest()
        if manifest is not None:
            self.evidence = EVIDENCE[manifest.config.suite]
        self._parts()
        self._markers()
        named = self.evidence.named
        stated = self._stated()
        found = {table: self._named(table) for table in named}
        if stated is not None:
            for table in named:
                self._compare_rows(table, stated[table], found[table])
        if "attributions" in named:
            self._attributions(found)
        if "answers" in named:
            self._answers(found, manifest)
        if manifest is None:
            self.notes.append("no figure was re-computed: the manifest cannot be read")
        else:
            self._metrics(manifest, found[self.evidence.figures])

    def _manifest(self) -> Manifest | None:
        name = MANIFEST
        if not (self.opened.folder / name).is_file():
            if f"{name}: missing" not in self.problems:
                self.problems.append(f"{name}: missing")
            return None
        try:
            found = read_manifest((self.opened.folder / name).read_bytes(), name)
        except StorageError as error:
            self.problems.append(f"{name}: {error}")
            return None
        for fact, ours in (
            ("run", scrub(found.name)),
            ("dataset_digest", found.dataset_digest),
            ("seed", found.config.seed),
            ("status", found.status.value),
        ):
            if self.opened.facts.get(fact) != ours:
                said = f"{self.opened.facts.get(fact)!r:.80}"
                self.problems.append(f"bundle.json: {fact} is {said}, the manifest says {ours!r}")
        return found

    def _parts(self) -> None:
        """The tables' parts, of their schema; also a part whose hash differs is looked into."""
        for name in sorted(self.opened.facts["files"]):
            if not name.startswith("artifacts/"):
                continue
            table = name.split("/")[1]
            real = self.opened.folder / name
            if not real.is_file() or real.is_symlink():
                continue
            if table not in SCHEMAS or not name.endswith(".parquet"):
                self.notes.append(f"{name}: a table that this version does not know")
                continue
            try:
                with pq.ParquetFile(real, pre_buffer=False) as file:
                    schema, count = file.schema_arrow, file.metadata.num_rows
            except (pa.ArrowException, OSError) as error:
                self.problems.append(f"{name}: no Parquet that can be read ({error})")
                continue
            if not schema.remove_metadata().equals(schema_of(table)):
                self.problems.append(f"{name}: other columns than table {table} has")
                continue
            self.counts[name] = count
            if sum(self.counts.values()) > MAX_ROWS:
                raise UsageError(f"{name}: more than {MAX_ROWS:,} rows in all; nothing was read")
            self.tables.setdefault(table, []).append(real)

    def _markers(self) -> None:
        """Rows and parts as the units state them."""
        for name in sorted(self.opened.facts["files"]):
            real = self.opened.folder / name
            if not name.startswith("units/") or not real.is_file() or real.is_symlink():
                continue
            try:
                parts = json.loads(real.read_bytes())["parts"]
                stated = [(str(p["path"]), int(p["rows"]), str(p["sha256"])) for p in parts]
            except (ValueError, KeyError, TypeError, RecursionError):
                self.problems.append(f"{name}: cannot be read")
                continue
            for path, rows, digest in stated:
                there = self.opened.facts["files"].get(path)
                if there is None:
                    self.problems.append(f"{path}: missing, {name} states {rows} rows")
                    continue
                if path in self.counts and self.counts[path] != rows:
                    self.problems.append(f"{path}: {self.counts[path]} rows, {name} states {rows}")
                if there["sha256"] != digest:
                    self.problems.append(f"{path}: not the content that {name} states")

    def _stated(self) -> dict[str, dict[str, str]] | None:
        """The rows' hashes by table and key."""
        place = self.opened.folder / ROWS
        if not place.is_file():
            if f"{ROWS}: missing" not in self.problems:
                self.problems.append(f"{ROWS}: missing")
            return None
        out: dict[str, dict[str, str]] = {table: {} for table in self.evidence.named}
        with place.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE), ""), 1):
                try:
                    found = json.loads(line)
                    out[found["table"]][json.dumps(found["key"])] = str(found["hash"])
                except (ValueError, KeyError, TypeError, RecursionError):
                    self.problems.append(f"{ROWS}: line {number} cannot be read")
                    return None
        return out

    def _named(self, table: str) -> dict[str, Row]:
        """A table's rows by key; a second row of a key is a problem."""
        out: dict[str, Row] = {}
        for path in self.tables.get(table, ()):
            for row in self._read(path):
                key = json.dumps(row_key(table, row))
                if key in out:
                    self.problems.append(f"{_name(table, row)}: there twice")
                out[key] = row
        return out

    def _read(self, path: Path) -> list[Row]:
        try:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                rows: list[Row] = file.read(use_threads=False).to_pylist()
                return rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            name = path.relative_to(self.opened.folder).as_posix()
            self.problems.append(f"{name}: no Parquet that can be read ({error})")
            return []

    def _compare_rows(
        self, table: str, stated: Mapping[str, str], found: Mapping[str, Row]
    ) -> None:
        if table != self.evidence.figures:
            self.rows += len(found)
        for key, row in found.items():
            if key not in stated:
                self.problems.append(f"{_name(table, row)}: not in {ROWS}")
            elif stated[key] != row_hash(row):
                self.problems.append(f"{_name(table, row)}: not the row that {ROWS} states")
        for key in sorted(stated.keys() - found.keys()):
            row = dict(zip(UNIQUE[table], json.loads(key), strict=False))
            self.problems.append(f"{_name(table, row)}: missing")

    def _attributions(self, found: Mapping[str, Mapping[str, Row]]) -> None:
        """An attribution stands on its verdict's score."""
        for key, row in found["attributions"].items():
            verdict = found["verdicts"].get(key)
            if verdict is None or row["status"] != "scored" or row["score"] is None:
                continue
            if verdict["score"] != row["score"]:
                self.problems.append(
                    f"{_name('verdicts', verdict)}: score {verdict['score']}, its attribution "
                    f"was made for {row['score']}"
                )

    def _answers(self, found: Mapping[str, Mapping[str, Row]], manifest: Manifest | None) -> None:
        """A probe's verdict is what the rules make of its answer, from a whole store."""
        if manifest is not None and manifest.origin is not None:
            note = "verdicts of an import were not made again: they stand on the publication's gold"
            self.notes.append(note)
            return
        tables = {
            name: [row for path in self.tables.get(name, ()) for row in self._read(path)]
            for name in ("specs", "sessions", "probes", "ingests")
        }
        ingests = tables.pop("ingests")
        if manifest is not None and manifest.protocol is Protocol.STRICT:
            lost = {
                (row["system"], row["user_id"], row["epoch"])
                for row in ingests
                if row["status"] != "scored"
            }
            self.problems += [
                f"{_name('answers', row)}: scored, and not every session went into its store"
                for row in found["answers"].values()
                if row["status"] == "scored"
                and (row["system"], row["user_id"], row["epoch"]) in lost
            ]
        try:
            rescored = Rescored(**tables)
        except (ValueError, KeyError, TypeError) as error:
            self.problems.append(f"no verdict was made again: {error}")
            return
        answers = found["answers"].values()
        for row, problem in rescored.problems(answers, found["probe_verdicts"].values()):
            self.problems.append(f"{_name('probe_verdicts', row)}: {problem}")

    def _metrics(self, manifest: Manifest, stored: Mapping[str, Row]) -> None:
        """Figures made anew, beside the stored ones."""
        by_layer: dict[str, dict[tuple[Any, ...], Row]] = {}
        for row in stored.values():
            by_layer.setdefault(row["layer"], {})[self.evidence.key(row)] = row
        differed = len(self.problems)
        with duckdb.connect() as connection:
            try:
                self._connect(connection)
                layers = self.evidence.layers(connection)
                made = {
                    layer: self.evidence.make(connection, layer, manifest)
                    for layer in sorted({*layers, *by_layer})
                }
            except (duckdb.Error, ValueError, KeyError) as error:
                self.problems.append(f"the metrics cannot be re-computed: {error}")
                return
        for layer, rows in made.items():
            self._compare_metrics(rows, by_layer.get(layer, {}))
        ours, theirs = package_versions(), self.opened.facts.get("versions")
        if differed != len(self.problems) and isinstance(theirs, dict):
            other = [n for n in ("numpy", "duckdb") if theirs.get(n) != ours.get(n)]
            if other:
                self.notes.append(f"made with other versions of {', '.join(other)}")

    def _connect(self, connection: duckdb.DuckDBPyConnection) -> None:
        for table in self.evidence.inputs:
            connection.register("incoming", schema_of(table).empty_table())
            connection.execute(f'CREATE TABLE "{table}" AS FROM incoming')
            connection.unregister("incoming")
            for path in self.tables.get(table, ()):
                with pq.ParquetFile(path, pre_buffer=False) as file:
                    part = file.read(use_threads=False).replace_schema_metadata(None)
                connection.register("incoming", part)
                connection.execute(f'INSERT INTO "{table}" FROM incoming')
                connection.unregister("incoming")

    def _compare_metrics(self, made: list[Row], stored: Mapping[tuple[Any, ...], Row]) -> None:
        figures = self.evidence.figures
        seen = set()
        for row in made:
            key = self.evidence.key(row)
            seen.add(key)
            self.metrics += 1
            if key not in stored:
                self.problems.append(f"{_name(figures, row)}: not stored")
                continue
            for name in self.evidence.values:
                if not _close(row[name], stored[key][name]):
                    self.problems.append(
                        f"{_name(figures, row)}: {name} {stored[key][name]} is stored, the "
                        f"verdicts give {row[name]}"
                    )
        for key in stored.keys() - seen:
            self.problems.append(f"{_name(figures, stored[key])}: the verdicts give no such figure")


def _close(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _name(table: str, row: Mapping[str, Any]) -> str:
    """A row as it is named, e.g. `verdicts mem0 user_001 dump_all skill_memory/x`."""
    parts = []
    for name in ("metric", "group_name", "scorer", "system", "user_id", "access_mode"):
        if row.get(name):
            parts.append(str(row[name]))
    if row.get("k") is not None:
        parts[-1] += f"@{row['k']}"
    if row.get("probe_type"):
        parts.append(str(row["probe_type"]))
    if row.get("category"):
        parts.append("/".join(filter(None, (row["category"], row.get("dimension")))))
    if row.get("layer") not in (None, "base"):
        parts.append(f"layer {row['layer']}")
    if row.get("epoch", 1) != 1:
        parts.append(f"epoch {row['epoch']}")
    return " ".join([table, *parts])[:300]
