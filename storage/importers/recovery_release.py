"""Import the published recovery release (arXiv 2606.24595, CC BY 4.0) as an ordinary run.

One user at a time: a user's files become rows in the units that a run of our own
has (inputs, oracle, rollout, recover, attribute), so that everything that reads
a run reads this one. What has no column stays in `extras`, see `templates`.
Nothing is dropped in silence: every file that could not be used is an `Issue`,
and a record that is missing or unusable is an unscored row, never a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.types import AccessMode, Protocol
from storage.importers import cards, layout, users
from storage.importers.chain import Chain
from storage.importers.episodes import Owner
from storage.importers.judgements import TOP_K
from storage.importers.keeping import Row, Work, Writer, extra, open_import, whole
from storage.importers.layout import Release, RunFiles
from storage.importers.source import LOST, Document, Issues, read
from storage.importers.templates import Rows
from storage.manifest import Manifest, Origin, RunStatus
from storage.runs import Unit

MODEL = "openai/gpt-5.4-mini"
CITATION = "Ma et al. 2026, arXiv 2606.24595, repository sora1998/MemProbe, CC BY 4.0"
LAYER = "published"
"""What the imported verdicts may be called beside `base`, e.g. in `compare pub@published`."""

PAPER_ORDER = ("nomem", "amem", "longctx_full", "mem0", "memt")

Say = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to: rows by table, and issues by severity."""

    run: str
    location: str
    users: tuple[str, ...]
    systems: tuple[str, ...]
    n_files: int
    rows: dict[str, int]
    lost: int
    notes: int
    issues: tuple[Row, ...]


class _Users(Work):
    """Reads the bank, then each user with all systems."""

    def bank(self) -> tuple[Document | None, list[users.BankUser]]:
        """The bank, which is what tells who the users are."""
        file = self.release.bank
        if file is None:
            done = "targets are taken from the judged records"
            self.issues.add("Deeppersona/data", "", "no bank of the users", done, table="targets")
            return None, []
        document = self.read(file, self.general, table="targets")
        if document is None:
            return None, []
        return document, users.bank_users(document, self.issues)

    def keep_bank(self, document: Document, kept: set[int], left_out: frozenset[str]) -> None:
        """The bank's template, in which the users of this import are parts of their own."""
        value = document.value
        if isinstance(value, dict) and isinstance(value.get("users"), list):
            parts: list[Any] = []
            for place, entry in enumerate(value["users"]):
                if place in kept:
                    parts.append({"$": ["part", place]})
                    continue
                said = entry.get("user_id") if isinstance(entry, dict) else None
                if not isinstance(said, str) or said not in left_out:
                    parts.append(entry)
            value = {**value, "users": parts}
        self.general.append(extra(document, "bank", value))

    def user(
        self, writer: Writer, user_id: str, entry: users.BankUser | None, bank: Document | None
    ) -> None:
        """All records of one user."""
        extras: list[Row] = []
        shared = Rows()
        known = entry is not None or bank is None
        if entry is not None and bank is not None:
            users.add_bank(shared, entry, bank.path, self.issues)
            template = users.bank_template(shared, entry, bank.dollar)
            extras.append(extra(bank, "bank_user", template, place=entry.place, user_id=user_id))
        else:
            shared.add("users", users.blank_user(user_id))
        if bank is not None:
            # The bank's own hash: the version of the truth that this user was read from.
            shared.tables["users"][()]["dataset_digest"] = bank.sha256
        if not known:
            done = "all its records are unscored"
            self.issues.add("", "user_id", f"{user_id} is not in the bank", done, user_id=user_id)
        if not shared.list("targets"):
            self._targets(shared, user_id)
        tasks = self._of_user(self.release.tasks, user_id, "tasks", extras)
        if tasks is not None:
            template = users.add_tasks(shared, user_id, tasks, self.issues)
            extras.append(extra(tasks, "tasks", template, user_id=user_id))
        oracle = self._of_user(self.release.oracle, user_id, "oracle_verdicts", extras)
        if oracle is not None:
            template = users.add_oracle(shared, user_id, oracle, self.issues, known)
            extras.append(extra(oracle, "oracle", template, user_id=user_id))
        path = oracle.path if oracle is not None else f"output/{layout.ORACLE}"
        users.complete_user(shared, user_id, path if self.release.oracle else None, self.issues)
        inputs = {table: shared.list(table) for table in ("users", "targets", "tasks")}
        writer.commit(Unit("inputs", "", user_id), inputs)
        verdicts = {"oracle_verdicts": shared.list("oracle_verdicts")}
        writer.commit(Unit("oracle", "", user_id), verdicts)
        writer.commit(Unit("import", "", user_id), {"extras": extras})
        for run in self.release.runs.values():
            if known or user_id in run.users():
                Chain(self, run, Owner(run.system, user_id, known), shared).commit(writer)

    def _of_user(
        self, slots: layout.Slots, user_id: str, table: str, extras: list[Row]
    ) -> Document | None:
        """A user's file of a kind; a missing one is reported where others have one."""
        file = slots.get(user_id)
        if file is not None:
            document = self.read(file, extras, user_id=user_id, table=table)
            self.check_owner(document, user_id)
            return document
        if slots:
            folder = "/".join(next(iter(slots.values())).parts[:-1])
            path, done = f"{folder}/{user_id}.json", "the user has none of it"
            about = {"user_id": user_id, "table": table}
            self.issues.add(path, "", "the file is missing", done, **about)
        return None

    def strangers(self, known: Sequence[str]) -> None:
        """Keep the tasks and oracle files of users that nothing else speaks of."""
        for slots, table in (
            (self.release.tasks, "tasks"),
            (self.release.oracle, "oracle_verdicts"),
        ):
            for user_id in sorted(slots.keys() - set(known)):
                problem = f"{user_id} is neither in the bank nor in the records of a system"
                done = "its text is kept in `extras`, no row is made"
                about = {"user_id": user_id, "table": table}
                self.issues.add(slots[user_id].path, "user_id", problem, done, **about)
                self.release.loose.append(slots[user_id])

    def _targets(self, shared: Rows, user_id: str) -> None:
        """Targets from the judged records of the first system that has them."""
        for run in self.release.runs.values():
            for slots in (*run.verdicts.values(), *run.attributions.values()):
                if user_id not in slots:
                    continue
                # Reported when the file is read for its own sake.
                found = read(slots[user_id], Issues())
                value = found.value if isinstance(found, Document) else None
                details = value.get("details") if isinstance(value, dict) else None
                if users.targets_from_details(shared, user_id, details):
                    problem = "the bank has no targets of the user"
                    about = {"user_id": user_id, "table": "targets"}
                    done = "they are taken from here"
                    self.issues.note(slots[user_id].path, "details", problem, done, **about)
                    return

    def rest(self, n_users: int) -> None:
        """Merged reports and stray files: kept as they are, never a source of figures."""
        for file in self.release.reports:
            found = self.read(file, self.general)
            if found is None:
                continue
            stated = found.value.get("num_users") if isinstance(found.value, dict) else None
            what = "a merged report"
            if stated != n_users:
                what = f"a partial merged report: {stated!r:.40} users, {n_users} imported"
            done = "not used, figures come from the records; its text is kept in `extras`"
            self.issues.note(file.path, "num_users", what, done)
            self.general.append(whole(found))
        for file in self.release.loose:
            found = self.read(file, self.general)
            if found is not None:
                self.general.append(whole(found))

    def absent(self) -> None:
        """Report what is not there as a whole."""
        for run in self.release.runs.values():
            for folder, found, table in _wanted(run):
                if not found:
                    problem, done = "nothing of this is there", "the run has no rows of it"
                    self.issues.add(folder, "", problem, done, system=run.system, table=table)
            if run.history and not run.preferences:
                problem = "nothing of this is there"
                done = "D comes from the turn means in the histories"
                about = {"system": run.system, "table": "preference_scores"}
                self.issues.note(f"pref_judge/{run.run}", "", problem, done, **about)
        for folder, slots, table in (
            ("benchmark_data", self.release.tasks, "tasks"),
            (f"output/{layout.ORACLE}", self.release.oracle, "oracle_verdicts"),
        ):
            if not slots:
                problem, done = "nothing of this is there", "the run has none"
                self.issues.add(folder, "", problem, done, table=table)


def _wanted(run: RunFiles) -> list[tuple[str, Any, str]]:
    """The folders that a complete run has: name, what is there, and whose table it fills."""
    modes = [AccessMode.DUMP_ALL]
    if cards.card(run.system, run.run).retrieve:
        modes.append(AccessMode.RETRIEVE)
    wanted: list[tuple[str, Any, str]] = [
        (f"history/{run.run}", run.history, "episodes"),
        (f"memory/{run.run}", run.memory, "memory_items"),
    ]
    for mode in modes:
        folder = f"output/{run.run}{layout.RETRIEVE if mode is AccessMode.RETRIEVE else ''}"
        wanted.append((f"{folder}/recon_judge", run.verdicts.get(mode), "verdicts"))
        wanted.append((f"{folder}/attribution", run.attributions.get(mode), "attributions"))
    return wanted


def chosen_users(known: Sequence[str], wanted: int | tuple[str, ...] | None) -> tuple[str, ...]:
    """The users to import: all, the first n, or those named; raises `UsageError` for others."""
    if wanted is None:
        return tuple(known)
    if isinstance(wanted, int):
        return tuple(known[:wanted])
    missing = [user for user in wanted if user not in known]
    if missing:
        more = " ..." if len(known) > 20 else ""
        raise UsageError(
            f"the release has no user {', '.join(missing)}; it has {', '.join(known[:20])}{more}"
        )
    return tuple(user for user in known if user in wanted)


def _manifest(name: str, people: Sequence[str], release: Release) -> Manifest:
    found = {run.system: run.run for run in release.runs.values()}
    order = [system for system in PAPER_ORDER if system in found]
    runs = {system: found[system] for system in [*order, *sorted(found.keys() - set(order))]}
    made = {system: cards.card(system, run) for system, run in runs.items()}
    config = RunConfig(
        name=name,
        systems=tuple(made),
        users=tuple(people),
        model=MODEL,
        k=(TOP_K,),
        protocol=Protocol.PAPER,
    )
    started = Manifest.start(
        config, dataset_name="published recovery release", dataset_digest="", systems=made
    )
    origin = Origin(kind="recovery-release", layer=LAYER, source=CITATION, runs=runs)
    return started.model_copy(
        update={
            "status": RunStatus.RUNNING,
            "origin": origin,
            "note": f"Imported: {CITATION}. Nothing was measured by this installation.",
        }
    )


def import_release(
    source: Path, location: str, name: str, wanted: int | tuple[str, ...] | None, say: Say
) -> Imported:
    """Import a release into a new run; an unfinished import is done again.

    `say` is told users done, users in all, and what is done now. Raises
    `UsageError` when there is no release, no such user, or a run already.
    """
    issues = Issues()
    say(0, 0, "looking for files")
    release = layout.scan(layout.find_root(source), issues)
    if not release.runs:
        raise UsageError(f"{source}: no history, memory or output of any system")
    work = _Users(release, issues)
    bank, listed = work.bank()
    entries = {user.user_id: user for user in listed}
    others = {user for run in release.runs.values() for user in run.users()}
    if not entries:
        others |= set(release.tasks)
    known = [*sorted(entries), *sorted(others - set(entries))]
    people = chosen_users(known, wanted)
    if not people:
        raise UsageError(f"{source}: no users")
    store = open_import(location, _manifest(name, people, release))
    with store.lock():
        with Writer(store) as writer:
            for done, user_id in enumerate(people):
                say(done, len(people), user_id)
                work.user(writer, user_id, entries.get(user_id), bank)
            if bank is not None:
                kept = {entries[user].place for user in people if user in entries}
                work.keep_bank(bank, kept, frozenset(known) - set(people))
            work.absent()
            work.strangers(known)
            work.rest(len(people))
            found = tuple(_row(n, asdict(issue)) for n, issue in enumerate(issues.all(), 1))
            writer.commit(Unit("import"), {"extras": work.general, "import_issues": found})
        store.update_manifest(status=RunStatus.COMPLETE, dataset_digest=work.digest.hexdigest())
    say(len(people), len(people), "done")
    lost = sum(row["severity"] == LOST for row in found)
    return Imported(
        run=name,
        location=store.location,
        users=people,
        systems=store.manifest.system_names,
        n_files=release.n_files,
        rows=dict(sorted(writer.rows.items())),
        lost=lost,
        notes=len(found) - lost,
        issues=found,
    )


def _row(number: int, issue: Row) -> Row:
    table = issue.pop("table")
    return {"number": number, **issue, "table_name": table}
