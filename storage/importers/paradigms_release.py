"""Import a published paradigms suite (arXiv 2609.30558) with its reports as an ordinary run.

Episodes become the gold side, each report's keys become systems. A published
verdict is kept in the layer `published`; the same answers are scored anew by
both scorers with the shipped specs in the layer `base`. What has no column stays
in `extras` as it was; nothing is dropped in silence.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.systems import SystemCard
from memprobe.types import AccessMode, Protocol
from storage.importers import paradigms_cards as cards
from storage.importers.keeping import RAW_BYTES, Row, Writer, extra, open_import, raw, whole
from storage.importers.paradigms_answers import (
    Agreement,
    Answers,
    Source,
    ingest_rows,
    memory_rows,
    session_rows,
)
from storage.importers.paradigms_episodes import Published, Reader, text
from storage.importers.paradigms_layout import (
    Layout,
    Line,
    entries_of,
    find_suite,
    is_report,
    lines_of,
    memories_of,
)
from storage.importers.source import LOST, Document, Issues, Unread, read
from storage.importers.templates import dumps
from storage.manifest import Manifest, Origin, RunStatus
from storage.runs import Unit

CITATION = "Ding and Wu 2026, arXiv 2609.30558, repository jq-ding/MemProbe"
KIND = "paradigms-release"
RESCORED = "rescored"
"""A second name of the layer `base`: published answers under our scorers."""
MODEL = "published/unknown"
_PREFIX = re.compile(r"^baselines?_report_")

Say = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class ImportedSuite:
    """What an import came to.

    Of `compared` published verdicts the paper scorer gives `agreed` again with the
    shipped specs. `rows` by table, `issues` by severity.
    """

    run: str
    location: str
    suite: str
    episodes: tuple[str, ...]
    systems: tuple[str, ...]
    reports: tuple[str, ...]
    n_files: int
    rows: dict[str, int]
    agreed: int
    compared: int
    lost: int
    notes: int
    issues: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class _Named:
    """A system's entries in a report, under the name it has in the run."""

    source: Source
    report: str
    entries: Mapping[str, Any]
    memories: Mapping[str, list[Any]]


class _Import:
    def __init__(self, layout: Layout, issues: Issues) -> None:
        self.layout = layout
        self.issues = issues
        self.digest = hashlib.sha256()
        self.extras: list[Row] = []
        self.episodes: dict[str, Published] = {}
        self.agreement = Agreement()

    # the suite

    def _specs(self) -> dict[str, Mapping[str, Any]]:
        file = self.layout.specs
        if file is None:
            path = "/".join((*self.layout.episodes.parts[:-1], "latent_specs.json"))
            done = "the spec inside each episode is used"
            self.issues.note(path, "", "the file is missing", done)
            return {}
        document = self._document(read(file, self.issues, table="specs"))
        if document is None:
            return {}
        self.extras.append(whole(document))
        listed = document.value.get("specs") if isinstance(document.value, dict) else None
        if not isinstance(listed, list):
            done = "the spec inside each episode is used"
            self.issues.add(document.path, "specs", "no list", done, table="specs")
        specs: dict[str, Mapping[str, Any]] = {}
        for place, spec in enumerate(listed if isinstance(listed, list) else []):
            name = text(spec.get("episode_id")) if isinstance(spec, dict) else ""
            if not name or name in specs:
                problem = f"{name} is there twice" if name else "no episode_id"
                done = "the first counts" if name else "not used"
                self.issues.add(document.path, f"specs[{place}]", problem, done, table="specs")
                continue
            specs[name] = spec
        return specs

    def _document(self, found: Document | Unread | None) -> Document | None:
        if found is None:
            return None
        self.digest.update(f"{found.file.path}\0{found.sha256}\n".encode())
        if isinstance(found, Unread):
            self.extras.append(raw(found))
            return None
        return found

    def read_suite(self) -> None:
        """Episodes by id, in the order of the file."""
        specs, path = self._specs(), self.layout.episodes.path
        taken: set[str] = set()
        reader = Reader(path, self.issues, "")
        for line in lines_of(self.layout.episodes, self.issues):
            self.digest.update(hashlib.sha256(line.raw).digest())
            name = self._keep_line(path, line, taken)
            if name is None:
                continue
            taken.add(name)
            own = line.value.get("latent_spec")
            inside: Mapping[str, Any] = own if isinstance(own, dict) else {}
            spec = specs.get(name)
            if spec is None:
                if specs:
                    problem = f"{name} has no spec in latent_specs.json"
                    done = "the spec inside the episode is used"
                    self.issues.note(path, f"line {line.number}", problem, done, user_id=name)
                spec = inside
            elif inside and inside.get("gold") != spec.get("gold"):
                problem = f"the gold inside {name} is not that of latent_specs.json"
                done = "latent_specs.json counts"
                self.issues.note(path, f"line {line.number}", problem, done, user_id=name)
            episode = reader.read(line.number, line.value, spec)
            if episode is not None:
                self.episodes[name] = episode
        for name in sorted(specs.keys() - taken):
            problem = f"a spec of {name}, which has no episode"
            done = "no row is made; kept in `extras`"
            where = self.layout.specs.path if self.layout.specs else ""
            self.issues.add(where, name, problem, done, user_id=name, table="probes")

    def _keep_line(self, path: str, line: Line, taken: set[str]) -> str | None:
        at = f"line {line.number}"
        name = text(line.value.get("episode_id")) if isinstance(line.value, dict) else ""
        kind, template = "line", dumps(line.value)
        if line.problem:
            kept = len(line.raw) <= RAW_BYTES
            kind = "raw_line" if kept else "hash"
            template = dumps(base64.b64encode(line.raw).decode("ascii") if kept else None)
        self.extras.append(
            {
                "kind": kind,
                "path": path,
                "place": line.number,
                "user_id": name or None,
                "sha256": hashlib.sha256(line.raw).hexdigest(),
                "style": "",
                "template_json": template,
            }
        )
        problem = line.problem
        if not problem and not isinstance(line.value, dict):
            problem = "no object"
        elif not problem and not name:
            problem = "no episode_id"
        elif name in taken:
            problem = f"a second episode {name}; the first counts"
        if not problem:
            return name
        done = "its text is kept in `extras`, no row is made"
        self.issues.add(path, at, problem, done, table="probes")
        return None

    # the reports

    def read_reports(self, say: Say) -> list[_Named]:
        """The systems of all reports; whatever else is JSON is kept as it is."""
        reports: list[Document] = []
        candidates = self.layout.candidates
        for done, file in enumerate(candidates):
            say(done, len(candidates), file.path)
            document = self._document(read(file, self.issues, table="probe_verdicts"))
            if document is None:
                continue
            if is_report(document.value, self.episodes):
                reports.append(document)
                continue
            problem = "no report of this suite's episodes"
            self.issues.once("other", file.path, "", problem, "its text is kept in `extras`")
            self.extras.append(whole(document))
        if not reports:
            path = self.layout.episodes.path
            problem = "no report with answers to these episodes"
            self.issues.note(path, "", problem, "the run has no verdict")
        for file in self.layout.others:
            problem = "a file of another kind"
            self.issues.once("kind", file.path, "", problem, "not read")
        reports.sort(key=lambda d: (-len(_systems(d.value)), d.path))
        taken: set[str] = set()
        named: list[_Named] = []
        for document in reports:
            named += self._named(document, taken)
        return named

    def _named(self, document: Document, taken: set[str]) -> list[_Named]:
        report = _PREFIX.sub("", document.file.stem)
        found = _systems(document.value)
        rest = {key: value for key, value in document.value.items() if key not in found}
        kept = {"keys": list(document.value), "rest": rest}
        self.extras.append(extra(document, "report", kept))
        texts = _memories(document.value, found)
        named: list[_Named] = []
        for place, (key, entries) in enumerate(found.items()):
            # A second report of the same system is another reader's or model's: another system.
            name = cards.base_name(key)
            if name in taken:
                name = f"{name}@{report}"[:120]
            while name in taken:
                name += "+"
            taken.add(name)
            made = cards.card(name, key, document.path)
            way = made.probe_access
            k = made.probe_k if way is AccessMode.RETRIEVE else None
            keeps = cards.base_name(key) in cards.KEEPS_SESSIONS
            source = Source(document.path, key, name, way.value, k, keeps)
            named.append(_Named(source, document.path, entries, texts.get(key, {})))
            self.extras.append(
                extra(document, "report_system", {key: entries}, place=place, system=name)
            )
        return named

    def write(self, writer: Writer, named: list[_Named], say: Say) -> None:
        """All units of the run but the import's own."""
        for name, episode in self.episodes.items():
            writer.commit(Unit("inputs", "", name), episode.rows)
        for done, one in enumerate(named):
            say(done, len(named), one.source.system)
            self._system(writer, one)

    def _system(self, writer: Writer, one: _Named) -> None:
        about = {"system": one.source.system, "table": "probe_verdicts"}
        missing = [name for name in self.episodes if name not in one.entries]
        if missing:
            listed = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
            problem = f"nothing of {len(missing)} of {len(self.episodes)} episodes: {listed}"
            done = "their probes are unscored"
            self.issues.add(one.report, one.source.key, problem, done, **about)
        for name in one.entries.keys() - self.episodes.keys():
            where = f"{one.source.key}.{name}"
            problem, done = "no episode of the suite that can be used", "no row; kept in `extras`"
            self.issues.add(one.report, where, problem, done, **about)
        for name, episode in self.episodes.items():
            answers = Answers(one.source, episode, self.issues, self.agreement)
            entry = one.entries.get(name)
            if entry is None:
                answers.none()
            else:
                answers.read(entry)
            stored = {"ingests": ingest_rows(answers, entry, self.issues)}
            if one.source.keeps_sessions:
                stored["memory_items"] = session_rows(answers)
            else:
                items = self._items(one, name, entry)
                stored["memory_items"] = memory_rows(answers, items, self.issues)
            if any(stored.values()):
                writer.commit(Unit("ingest", one.source.system, name), stored)
            writer.commit(Unit("answer", one.source.system, name), answers.tables)

    def _items(self, one: _Named, name: str, entry: Any) -> list[Any]:
        inside = entry.get("stored_memories") if isinstance(entry, dict) else None
        items = inside if isinstance(inside, list) else one.memories.get(name, [])
        stated = entry.get("n_memories") if isinstance(entry, dict) else None
        if items and isinstance(stated, int) and stated != len(items):
            where = f"{one.source.key}.{name}.n_memories"
            problem = f"{stated} stated, {len(items)} there"
            about = {"system": one.source.system, "user_id": name, "table": "memory_items"}
            self.issues.note(one.report, where, problem, "those that are there", **about)
        return items


def _systems(value: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = {key: entries_of(one) for key, one in value.items()}
    return {key: entries for key, entries in found.items() if entries is not None}


def _memories(
    value: Mapping[str, Any], systems: Mapping[str, Any]
) -> dict[str, Mapping[str, list[Any]]]:
    """Stored memories by a report's key.

    They stand under a key of their own, by episode, or by system and then episode; in
    the first form they are those of the report's only memory system.
    """
    holders = [k for k, entries in systems.items() if any(_keeps(e) for e in entries.values())]
    found: dict[str, Mapping[str, list[Any]]] = {}
    for key, one in value.items():
        if key in systems or not isinstance(one, dict):
            continue
        flat = memories_of(one)
        if flat is not None and (len(holders) == 1 or len(systems) == 1):
            found.setdefault((holders or list(systems))[0], flat)
            continue
        for name, inner in one.items():
            by_episode = memories_of(inner)
            match = next((s for s in systems if s == name or cards.base_name(s) == name), None)
            if by_episode is not None and match is not None:
                found.setdefault(match, by_episode)
    return found


def _keeps(entry: Any) -> bool:
    return isinstance(entry, dict) and "n_memories" in entry


def _model(named: list[_Named], documents: Mapping[str, Any]) -> str:
    for one in named:
        meta = documents.get(one.report, {})
        for key in ("reader_model", "reader", "model"):
            if isinstance(meta, dict) and isinstance(meta.get(key), str) and meta[key]:
                return str(meta[key])
    return MODEL


def _manifest(
    name: str, layout: Layout, episodes: tuple[str, ...], named: list[_Named], model: str
) -> Manifest:
    made: dict[str, SystemCard] = {}
    order = {system: place for place, system in enumerate(cards.ORDER)}
    ranked = sorted(
        named,
        key=lambda n: (
            order.get(n.source.system, len(order)),
            n.source.system,
        ),
    )
    for one in ranked:
        made[one.source.system] = cards.card(one.source.system, one.source.key, one.report)
    config = RunConfig(
        name=name,
        suite="paradigms",
        systems=tuple(made) or ("none",),
        users=episodes,
        model=model,
        protocol=Protocol.PAPER,
    )
    started = Manifest.start(config, dataset_name=layout.suite, dataset_digest="", systems=made)
    runs = {one.source.system: f"{one.source.key} of {one.report}" for one in ranked}
    origin = Origin(kind=KIND, layer=RESCORED, source=CITATION, runs=runs)
    return started.model_copy(
        update={
            "status": RunStatus.RUNNING,
            "origin": origin,
            "note": f"Imported: {CITATION}. Nothing was measured by this installation.",
        }
    )


def import_suite(
    source: Path, location: str, name: str, suite: str | None, say: Say
) -> ImportedSuite:
    """Import a suite and its reports into a new run; an unfinished import is done again.

    `suite` chooses one of several by its folder's name. `say` is told files or
    systems done, all of them, and what is done now. Raises `UsageError` when there
    is no suite, no usable episode, or a run already.
    """
    issues = Issues()
    say(0, 0, "looking for files")
    layout = find_suite(source, suite, issues)
    work = _Import(layout, issues)
    work.read_suite()
    if not work.episodes:
        problems = [i for i in issues.all() if i.severity == LOST][:3]
        said = "; ".join(f"{i.path}, {i.field}: {i.problem}" for i in problems)
        raise UsageError(f"{source}: no episode that can be used: {said}")
    named = work.read_reports(say)
    metas = {row["path"]: _meta(row) for row in work.extras if row["kind"] == "report"}
    episodes = tuple(work.episodes)
    digest = work.digest.hexdigest()
    for episode in work.episodes.values():
        for row in episode.rows.get("specs", []):
            row["dataset_digest"] = digest
    manifest = _manifest(name, layout, episodes, named, _model(named, metas))
    store = open_import(location, manifest)
    with store.lock():
        with Writer(store) as writer:
            work.write(writer, named, say)
            found = tuple(
                {"number": n, **{k: v for k, v in asdict(issue).items() if k != "table"},
                 "table_name": issue.table}
                for n, issue in enumerate(issues.all(), 1)
            )  # fmt: skip
            writer.commit(Unit("import"), {"extras": work.extras, "import_issues": found})
        store.update_manifest(status=RunStatus.COMPLETE, dataset_digest=digest)
    say(len(named), len(named), "done")
    lost = sum(row["severity"] == LOST for row in found)
    return ImportedSuite(
        run=name,
        location=store.location,
        suite=layout.suite,
        episodes=episodes,
        systems=store.manifest.system_names if named else (),
        reports=tuple(dict.fromkeys(one.report for one in named)),
        n_files=layout.n_files,
        rows=dict(sorted(writer.rows.items())),
        agreed=work.agreement.same,
        compared=work.agreement.compared,
        lost=lost,
        notes=len(found) - lost,
        issues=found,
    )


def _meta(row: Row) -> Any:
    return json.loads(row["template_json"])["rest"].get("meta")
