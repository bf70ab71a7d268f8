"""Import the published recovery release (arXiv 2606.24595, CC BY 4.0) as an ordinary run.

One user at a time: a user's files become rows in the units that a run of our own
has (inputs, oracle, rollout, recover, attribute), so that everything that reads
a run reads this one. What has no column stays in `extras`, see `templates`.
Nothing is dropped in silence: every file that could not be used is an `Issue`,
and a record that is missing or unusable is an unscored row, never a zero.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.types import AccessMode, Protocol
from storage.importers import cards, episodes, layout, users
from storage.importers.episodes import Owner
from storage.importers.judgements import TOP_K, Judged
from storage.importers.layout import Release, RunFiles
from storage.importers.source import LOST, NOTE, Document, File, Issues, Unread, read
from storage.importers.templates import Rows, dumps
from storage.manifest import Manifest, Origin, RunStatus
from storage.runs import RunStore, Unit

VERSION = "1"
MODEL = "openai/gpt-5.4-mini"
CITATION = "Ma et al. 2026, arXiv 2606.24595, repository sora1998/MemProbe, CC BY 4.0"
LAYER = "published"
"""What the imported verdicts may be called beside `base`, e.g. in `compare pub@published`."""
RAW_BYTES = 4 << 20
UNIT = Unit("import")

Say = Callable[[int, int, str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to: rows by table, files and issues by severity."""

    run: str
    location: str
    users: tuple[str, ...]
    systems: tuple[str, ...]
    n_files: int
    rows: dict[str, int]
    lost: int
    notes: int
    issues: tuple[Row, ...]


def _extra(file: File, kind: str, sha256: str, style: str, template: Any, **more: Any) -> Row:
    return {
        "system": None, "user_id": None, "kind": kind, "path": file.path, "place": -1,
        "episode": None, "access_mode": None, "sha256": sha256, "style": style,
        "template_json": dumps(template), **more,
    }  # fmt: skip


@dataclass
class _Import:
    store: RunStore
    release: Release
    issues: Issues
    counts: dict[str, int] = field(default_factory=dict)
    digest: Any = field(default_factory=hashlib.sha256)
    general: list[Row] = field(default_factory=list)

    def commit(self, unit: Unit, tables: Mapping[str, Sequence[Row]]) -> None:
        self.store.commit(unit, VERSION, tables)
        for table, rows in tables.items():
            self.counts[table] = self.counts.get(table, 0) + len(rows)

    def read(self, file: File, extras: list[Row], **about: str) -> Document | None:
        """A parsed file; the text of one that cannot be parsed goes to `extras`."""
        found = read(file, self.issues, **about)
        if found is not None:
            self.digest.update(f"{file.path}\0{found.sha256}\n".encode())
        if isinstance(found, Unread):
            owner = {k: about.get(k) for k in ("system", "user_id")}
            extras.append(_raw(found, **owner))
            return None
        return found

    def bank(self) -> tuple[Document | None, list[users.BankUser]]:
        """The bank, which is all that tells who the users are."""
        if self.release.bank is None:
            self.issues.add(
                "Deeppersona/data", "", "no bank of the users",
                "targets are taken from the judged records", table="targets",
            )  # fmt: skip
            return None, []
        document = self.read(self.release.bank, self.general, table="targets")
        if document is None:
            return None, []
        return document, users.bank_users(document, self.issues)

    def bank_head(self, document: Document, kept: set[int]) -> None:
        """The bank's template, in which the users of this import are parts."""
        value = document.value
        if isinstance(value, dict) and isinstance(value.get("users"), list):
            parts: list[Any] = []
            for place, entry in enumerate(value["users"]):
                if place in kept:
                    parts.append({"$": ["part", place]})
                elif not isinstance(entry, dict) or entry.get("user_id") not in self.left_out:
                    parts.append(entry)
            value = {**value, "users": parts}
        self.general.append(_extra(document.file, "bank", document.sha256, document.style, value))

    left_out: frozenset[str] = frozenset()

    # One user -----------------------------------------------------------------------

    def user(self, user_id: str, entry: users.BankUser | None, bank: Document | None) -> None:
        """All records of one user."""
        extras: list[Row] = []
        shared = Rows()
        about = {"user_id": user_id}
        known = entry is not None or bank is None
        if not known:
            self.issues.add(
                "", "user_id", f"{user_id} is not in the bank", "all its records are unscored",
                user_id=user_id,
            )  # fmt: skip
        if entry is not None and bank is not None:
            users.add_bank(shared, entry, bank.path, self.issues)
            template = users.bank_template(shared, entry, bank.dollar)
            extras.append(
                _extra(bank.file, "bank_user", bank.sha256, bank.style, template,
                       place=entry.place, **about)
            )  # fmt: skip
        else:
            shared.add("users", {
                "user_id": user_id, "profile_json": "{}", "n_targets": 0, "n_tasks": 0,
                "dataset_digest": "",
            })  # fmt: skip
        if not shared.list("targets"):
            self.targets(shared, user_id)
        tasks = self.of_user(self.release.tasks, user_id, "tasks", extras)
        if tasks is not None:
            template = users.add_tasks(shared, user_id, tasks, self.issues)
            extras.append(_extra(tasks.file, "tasks", tasks.sha256, tasks.style, template, **about))
        oracle = self.of_user(self.release.oracle, user_id, "oracle_verdicts", extras)
        if oracle is not None:
            template = users.add_oracle(shared, user_id, oracle, self.issues, known)
            extras.append(
                _extra(oracle.file, "oracle", oracle.sha256, oracle.style, template, **about)
            )
        where = oracle.path if oracle else f"output/{layout.ORACLE}"
        users.complete_user(shared, user_id, where if self.release.oracle else None, self.issues)
        inputs = {table: shared.list(table) for table in ("users", "targets", "tasks")}
        self.commit(Unit("inputs", "", user_id), inputs)
        self.commit(
            Unit("oracle", "", user_id), {"oracle_verdicts": shared.list("oracle_verdicts")}
        )
        self.commit(Unit("import", "", user_id), {"extras": extras})
        for run in self.release.runs.values():
            self.chain(run, Owner(run.system, user_id, known), shared)

    def of_user(
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
            self.issues.add(
                f"{folder}/{user_id}.json", "", "the file is missing", "the user has none of it",
                user_id=user_id, table=table,
            )  # fmt: skip
        return None

    def check_owner(self, document: Document | None, user_id: str) -> None:
        """Report a file that names another user further down than its beginning."""
        value = document.value if document else None
        said = value.get("user_id") if isinstance(value, dict) else None
        if document and said is not None and said != user_id:
            self.issues.add(
                document.path, "user_id", f"{said!r:.60} in a file of {user_id}",
                "the file's place decides", user_id=user_id,
            )  # fmt: skip

    def targets(self, shared: Rows, user_id: str) -> None:
        """Targets from the judged records of the first system that has them."""
        for run in self.release.runs.values():
            for slots in (*run.verdicts.values(), *run.attributions.values()):
                if user_id not in slots:
                    continue
                found = read(slots[user_id], Issues())
                value = found.value if isinstance(found, Document) else None
                details = value.get("details") if isinstance(value, dict) else None
                if users.targets_from_details(shared, user_id, details):
                    self.issues.note(
                        slots[user_id].path, "details", "the bank has no targets of the user",
                        "they are taken from here", user_id=user_id, table="targets",
                    )  # fmt: skip
                    return

    # One user with one system --------------------------------------------------------

    def chain(self, run: RunFiles, owner: Owner, shared: Rows) -> None:
        """Rollout, recovery and attribution."""
        if not owner.known and owner.user_id not in run.users():
            return
        rows = Rows(shared)
        extras: list[Row] = []
        ids = self.rollout(run, owner, rows, extras)
        names = ("episodes", "turns", "turn_scores", "preference_scores", "memory_items")
        unit = (owner.system, owner.user_id)
        self.commit(Unit("rollout", *unit), {name: rows.list(name) for name in names})
        for mode in AccessMode:
            self.mode(run, owner, mode, rows, extras, ids)
        names = ("retrievals", "slot_fills", "verdicts")
        self.commit(Unit("recover", *unit), {name: rows.list(name) for name in names})
        self.commit(Unit("attribute", *unit), {"attributions": rows.list("attributions")})
        self.commit(Unit("import", *unit), {"extras": extras})

    def rollout(self, run: RunFiles, owner: Owner, rows: Rows, extras: list[Row]) -> dict[str, str]:
        """Episodes and the store; returns the ids given to items without one."""
        about = owner.about("episodes")
        who = {"system": owner.system, "user_id": owner.user_id}
        tasks = rows.shared("tasks")
        placed = self.placed(run.history.get(owner.user_id, []), owner, tasks, extras)
        preferences = {
            layout.episode_number(file): file for file in run.preferences.get(owner.user_id, [])
        }
        for number in sorted(placed):
            document = placed[number]
            task = rows.get("tasks", (number,))
            self.check_owner(document, owner.user_id)
            template = episodes.add_history(rows, owner, number, task, document, self.issues)
            extras.append(
                _extra(document.file, "history", document.sha256, document.style, template,
                       episode=number, **who)
            )  # fmt: skip
            at = layout.episode_number(document.file) or number
            file = preferences.pop(at, None)
            if file is not None:
                self.preferences(file, number, owner, rows, extras)
        for file in preferences.values():
            self.issues.add(
                file.path, "", "no such episode in the history", "its text is kept in `extras`",
                **owner.about("preference_scores"),
            )  # fmt: skip
            found = self.read(file, extras, **owner.about("preference_scores"))
            if found is not None:
                extras.append(_whole(found, **who))
        if run.history:
            for task in tasks:
                if task["task_index"] in placed:
                    continue
                path = f"history/{run.run}/{owner.user_id}/episode_{task['task_index']}.json"
                self.issues.add(path, "", "no usable file", "the episode is unscored", **about)
                detail = "the release has no usable file of this episode"
                episodes.missing_episode(rows, owner, task, detail)
        file = run.memory.get(owner.user_id)
        if file is not None:
            document = self.read(file, extras, **owner.about("memory_items"))
            if document is not None:
                template = episodes.add_memories(rows, owner, document, self.issues)
                extras.append(
                    _extra(file, "memory", document.sha256, document.style, template, **who)
                )
                return self.given_ids(document, rows)
        elif run.memory or run.history:
            self.issues.add(
                f"memory/{run.run}/{owner.user_id}/memories.json", "", "the file is missing",
                "the store is unknown", **owner.about("memory_items"),
            )  # fmt: skip
        return {}

    @staticmethod
    def given_ids(document: Document, rows: Rows) -> dict[str, str]:
        ids: dict[str, str] = {}
        for seq, item in enumerate(document.value.get("memories") or ()):
            row = rows.get("memory_items", (seq,))
            if row is not None and not isinstance(item.get("id"), str):
                ids.setdefault(episodes.item_key(item), row["item_id"])
        return ids

    def placed(
        self, files: list[File], owner: Owner, tasks: list[Row], extras: list[Row]
    ) -> dict[int, Document]:
        """Which file is which episode: by its name, and by its task where the name cannot be.

        A name that contradicts the task gives way when the task leads to a free place.
        """
        about = owner.about("episodes")
        who = {"system": owner.system, "user_id": owner.user_id}
        texts: dict[str, list[int]] = {}
        for task in tasks:
            texts.setdefault(task["task"], []).append(task["task_index"])
        placed: dict[int, Document] = {}
        waiting: list[tuple[int | None, Document, list[int]]] = []
        for file in files:
            document = self.read(file, extras, **about)
            if document is None:
                continue
            number = layout.episode_number(file)
            value = document.value
            text = value.get("task") if isinstance(value, dict) else None
            meant = texts.get(text, []) if isinstance(text, str) else []
            if number in meant and number not in placed:
                placed[number] = document
            else:
                waiting.append((number, document, meant))
        for number, document, meant in waiting:
            free = [n for n in meant if n not in placed]
            if free:
                place = free[0]
                self.issues.note(
                    document.path, "task", f"its task is that of episode {place}",
                    f"it counts as episode {place}", **about,
                )  # fmt: skip
            elif number is not None and not meant and number not in placed:
                place = number
                if tasks:
                    self.issues.add(
                        document.path, "task", "no task of the user",
                        "the file's name decides", **about,
                    )  # fmt: skip
            else:
                self.issues.add(
                    document.path, "", "no free episode for it",
                    "its text is kept in `extras`, no row is made", **about,
                )  # fmt: skip
                extras.append(_whole(document, **who))
                continue
            placed[place] = document
        return placed

    def preferences(
        self, file: File, episode: int, owner: Owner, rows: Rows, extras: list[Row]
    ) -> None:
        """An episode's single preferences."""
        document = self.read(file, extras, **owner.about("preference_scores"))
        if document is None:
            return
        template = episodes.add_preferences(rows, owner, episode, document, self.issues)
        extras.append(
            _extra(file, "preferences", document.sha256, document.style, template,
                   episode=episode, system=owner.system, user_id=owner.user_id)
        )  # fmt: skip

    def mode(
        self, run: RunFiles, owner: Owner, mode: AccessMode, rows: Rows, extras: list[Row],
        ids: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Verdicts and attributions of one access mode."""
        who: Row = {"system": owner.system, "user_id": owner.user_id, "access_mode": mode.value}
        slots, blamed = run.verdicts.get(mode, {}), run.attributions.get(mode, {})
        judged = Judged(rows, owner, mode, self.issues)
        folder = f"output/{run.run}{layout.RETRIEVE if mode is AccessMode.RETRIEVE else ''}"
        document = self.judged_file(slots, owner, f"{folder}/recon_judge", "verdicts", extras)
        blame = self.judged_file(blamed, owner, f"{folder}/attribution", "attributions", extras)
        if document is not None:
            template = judged.add_verdicts(document, ids)
            extras.append(
                _extra(document.file, "verdicts", document.sha256, document.style, template, **who)
            )
        elif blame is not None and slots:
            self.issues.note(
                blame.path, "details", "recon_judge has no usable file",
                "verdicts are taken from here, where they are repeated", **owner.about("verdicts"),
            )  # fmt: skip
            judged.add_verdicts(_without_blame(blame), ids)
            judged.details.clear()
        elif slots:
            judged.fill("the release has no usable file of this user")
        if blame is not None:
            transcripts = mode is AccessMode.DUMP_ALL or run.retrieve_history
            template = judged.add_attributions(blame, transcripts)
            extras.append(
                _extra(blame.file, "attributions", blame.sha256, blame.style, template, **who)
            )
        elif blamed:
            judged.fill_attributions("the release has no usable file of this user")

    def judged_file(
        self, slots: layout.Slots, owner: Owner, folder: str, table: str, extras: list[Row]
    ) -> Document | None:
        file = slots.get(owner.user_id)
        if file is not None:
            document = self.read(file, extras, **owner.about(table))
            self.check_owner(document, owner.user_id)
            return document
        if slots:
            self.issues.add(
                f"{folder}/{owner.user_id}.json", "", "the file is missing",
                "its targets are unscored", **owner.about(table),
            )  # fmt: skip
        return None

    # What belongs to nobody -----------------------------------------------------------

    def rest(self, n_users: int) -> None:
        """Merged reports and stray files: kept as they are, never a source of figures."""
        for file in self.release.reports:
            found = self.read(file, self.general)
            if found is None:
                continue
            stated = found.value.get("num_users") if isinstance(found.value, dict) else None
            partial = stated != n_users
            about = f"{stated!r:.40} users stated, {n_users} imported" if partial else "a summary"
            self.issues.note(
                file.path, "num_users", f"a merged report: {about}",
                "not used, figures come from the records; its text is kept in `extras`",
            )  # fmt: skip
            self.general.append(_whole(found))
        for file in self.release.loose:
            found = self.read(file, self.general)
            if found is not None:
                self.general.append(_whole(found))

    def absent(self) -> None:
        """Report whole folders that are not there."""
        for run in self.release.runs.values():
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
            for folder, found, table in wanted:
                if not found:
                    self.issues.add(
                        folder, "", "nothing of this is there", "the run has no rows of it",
                        system=run.system, table=table,
                    )  # fmt: skip
            if not run.preferences and run.history:
                self.issues.note(
                    f"pref_judge/{run.run}", "", "nothing of this is there",
                    "D comes from the turn means in the histories", system=run.system,
                    table="preference_scores",
                )  # fmt: skip
        for folder, slots, table in (
            ("benchmark_data", self.release.tasks, "tasks"),
            (f"output/{layout.ORACLE}", self.release.oracle, "oracle_verdicts"),
        ):
            if not slots:
                self.issues.add(
                    folder, "", "nothing of this is there", "the run has none", table=table
                )


def _without_blame(document: Document) -> Document:
    value = document.value
    listed = value.get("details") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return document
    bare = [
        {k: v for k, v in d.items() if k != "attribution"} if isinstance(d, dict) else d
        for d in listed
    ]
    return Document(
        document.file, {**value, "details": bare}, document.sha256, document.style, document.dollar
    )


def _whole(document: Document, **owner: Any) -> Row:
    """A file kept as it is; one that is too large is known by its hash alone."""
    kept = document.value if document.file.real.stat().st_size <= RAW_BYTES else None
    kind = "whole" if kept is not None else "hash"
    return _extra(document.file, kind, document.sha256, document.style, kept, **owner)


def _raw(unread: Unread, **owner: Any) -> Row:
    kept = len(unread.raw) <= RAW_BYTES
    text = base64.b64encode(unread.raw).decode("ascii") if kept else None
    return _extra(unread.file, "raw" if kept else "hash", unread.sha256, "", text, **owner)


def chosen_users(known: Sequence[str], wanted: int | tuple[str, ...] | None) -> tuple[str, ...]:
    """The users to import: all, the first n in id order, or those named."""
    if wanted is None:
        return tuple(known)
    if isinstance(wanted, int):
        return tuple(known[:wanted])
    missing = [user for user in wanted if user not in known]
    if missing:
        raise UsageError(
            f"the release has no user {', '.join(missing)}; it has {', '.join(known[:20])}"
            f"{' ...' if len(known) > 20 else ''}"
        )
    return tuple(sorted(set(wanted)))


def _manifest(name: str, people: Sequence[str], release: Release) -> Manifest:
    systems = tuple(sorted({run.system for run in release.runs.values()}))
    config = RunConfig(
        name=name, systems=systems, users=tuple(people), model=MODEL, k=(TOP_K,),
        protocol=Protocol.PAPER,
    )  # fmt: skip
    made = {run.system: cards.card(run.system, run.run) for run in release.runs.values()}
    manifest = Manifest.start(
        config, dataset_name="recovery release", dataset_digest="",
        systems={name: made[name] for name in systems},
    )  # fmt: skip
    origin = Origin(
        kind="recovery-release", layer=LAYER, source=CITATION,
        runs={run.system: run.run for run in release.runs.values()},
    )  # fmt: skip
    return manifest.changed(
        status=RunStatus.RUNNING, origin=origin.model_dump(), self_judged=False,
        note=f"Imported: {CITATION}. Nothing was measured by this installation.",
    )  # fmt: skip


def _open(location: str, manifest: Manifest) -> RunStore:
    if not RunStore.exists(location):
        return RunStore.create(location, manifest)
    store = RunStore.open(location)
    begun = store.manifest
    if begun.origin is None or begun.status is RunStatus.COMPLETE:
        raise UsageError(f"{store.location} holds a run already; choose another --run name")
    if begun.config.users != manifest.config.users or begun.systems != manifest.systems:
        raise UsageError(
            f"{store.location} is an unfinished import of other users or systems; "
            "choose another --run name, or delete it"
        )
    return store


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
    # The bank is read before there is a run: it tells who the users are.
    probe = _Import.__new__(_Import)
    probe.release, probe.issues, probe.general = release, issues, []
    probe.digest = hashlib.sha256()
    bank, listed = probe.bank()
    entries = {user.user_id: user for user in listed}
    others = {user for run in release.runs.values() for user in run.users()}
    if not entries:
        others |= set(release.tasks)
    known = [*sorted(entries), *sorted(others - set(entries))]
    people = chosen_users(known, wanted)
    if not people:
        raise UsageError(f"{source}: no users")
    store = _open(location, _manifest(name, people, release))
    with store.lock():
        work = _Import(store, release, issues, digest=probe.digest, general=probe.general)
        work.left_out = frozenset(known) - set(people)
        for done, user_id in enumerate(people):
            say(done, len(people), user_id)
            work.user(user_id, entries.get(user_id), bank)
        if bank is not None:
            work.bank_head(bank, {entries[u].place for u in people if u in entries})
        work.absent()
        work.rest(len(people))
        found = [_issue_row(number, issue) for number, issue in enumerate(issues.all(), 1)]
        work.commit(UNIT, {"extras": work.general, "import_issues": found})
        digest = work.digest.hexdigest()
        store.update_manifest(status=RunStatus.COMPLETE, dataset_digest=digest)
    say(len(people), len(people), "done")
    lost = sum(row["severity"] == LOST for row in found)
    return Imported(
        name, store.location, people, store.manifest.system_names, release.n_files, work.counts,
        lost, sum(row["severity"] == NOTE for row in found), tuple(found),
    )  # fmt: skip


def _issue_row(number: int, issue: Any) -> Row:
    names = ("severity", "path", "field", "problem", "done", "system", "user_id")
    row = {name: getattr(issue, name) for name in names}
    return {"number": number, **row, "table_name": issue.table}


__all__ = ["Imported", "chosen_users", "import_release"]
_ = json
