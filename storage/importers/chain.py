"""One user with one system: the files of a rollout, of recovery and of attribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memprobe.types import AccessMode
from storage.importers import episodes, layout
from storage.importers.episodes import Owner
from storage.importers.judgements import Judged
from storage.importers.keeping import Row, Work, Writer, extra, whole
from storage.importers.layout import RunFiles, Slots
from storage.importers.source import Document, File
from storage.importers.templates import Rows
from storage.runs import Unit

ROLLOUT = ("episodes", "turns", "turn_scores", "preference_scores", "memory_items")
RECOVER = ("retrievals", "slot_fills", "verdicts")


class Chain:
    """Reads one user's records with one system and commits them."""

    def __init__(self, work: Work, run: RunFiles, owner: Owner, shared: Rows) -> None:
        self.work = work
        self.issues = work.issues
        self.run = run
        self.owner = owner
        self.rows = Rows(shared)
        self.extras: list[Row] = []
        self.ids: dict[str, str] = {}

    def commit(self, writer: Writer) -> None:
        """Read everything and store it in the units that a run of our own has."""
        self._rollout()
        for mode in AccessMode:
            self._mode(mode)
        unit, rows = (self.owner.system, self.owner.user_id), self.rows
        writer.commit(Unit("rollout", *unit), {name: rows.list(name) for name in ROLLOUT})
        writer.commit(Unit("recover", *unit), {name: rows.list(name) for name in RECOVER})
        writer.commit(Unit("attribute", *unit), {"attributions": rows.list("attributions")})
        writer.commit(Unit("import", *unit), {"extras": self.extras})

    def _read(self, file: File, table: str) -> Document | None:
        document = self.work.read(file, self.extras, **self.owner.about(table))
        self.work.check_owner(document, self.owner.user_id)
        return document

    def _keep(self, document: Document, kind: str, template: Any, **more: Any) -> None:
        who = {"system": self.owner.system, "user_id": self.owner.user_id}
        self.extras.append(extra(document, kind, template, **who, **more))

    def _keep_whole(self, document: Document) -> None:
        self.extras.append(whole(document, system=self.owner.system, user_id=self.owner.user_id))

    # Rollout --------------------------------------------------------------------------

    def _rollout(self) -> None:
        user = self.owner.user_id
        placed = self._placed(self.run.history.get(user, []), "episodes")
        judged = self._placed(self.run.preferences.get(user, []), "preference_scores")
        for number, document in sorted(placed.items()):
            task = self.rows.get("tasks", (number,))
            template = episodes.add_history(
                self.rows, self.owner, number, task, document, self.issues
            )
            self._keep(document, "history", template, episode=number)
            if number in judged:
                self._preferences(judged.pop(number), number)
        self._left_preferences(judged.values())
        self._missing_episodes(placed)
        self._memories()

    def _placed(self, files: list[File], table: str) -> dict[int, Document]:
        """Which file is which episode: by its name, and by its task where the name cannot be.

        A name that contradicts the task gives way when the task leads to a free place.
        """
        about = self.owner.about(table)
        tasks = self.rows.shared("tasks")
        texts: dict[str, list[int]] = {}
        for task in tasks:
            texts.setdefault(task["task"], []).append(task["task_index"])
        placed: dict[int, Document] = {}
        waiting: list[tuple[int | None, Document, list[int]]] = []
        for file in files:
            document = self._read(file, table)
            if document is None:
                continue
            number = layout.episode_number(file)
            value = document.value
            text = value.get("task") if isinstance(value, dict) else None
            meant = texts.get(text, []) if isinstance(text, str) else []
            if number is not None and number in meant and number not in placed:
                placed[number] = document
            else:
                waiting.append((number, document, meant))
        for number, document, meant in waiting:
            free = [n for n in meant if n not in placed]
            if free:
                place = free[0]
                problem = f"its task is that of episode {place}"
                done = f"it counts as episode {place}"
                self.issues.note(document.path, "task", problem, done, **about)
            elif number is not None and not meant and number not in placed:
                place = number
                if tasks:
                    problem, done = "no task of the user", "the file's name decides"
                    self.issues.add(document.path, "task", problem, done, **about)
            else:
                done = "its text is kept in `extras`, no row is made"
                self.issues.add(document.path, "", "no free episode for it", done, **about)
                self._keep_whole(document)
                continue
            placed[place] = document
        return placed

    def _missing_episodes(self, placed: Mapping[int, Document]) -> None:
        if not self.run.history:
            return
        detail = "the release has no usable file of this episode"
        for task in self.rows.shared("tasks"):
            number = task["task_index"]
            if number not in placed:
                path = f"history/{self.run.run}/{self.owner.user_id}/episode_{number}.json"
                about = self.owner.about("episodes")
                self.issues.add(path, "", "no usable file", "the episode is unscored", **about)
                episodes.missing_episode(self.rows, self.owner, task, detail)

    def _preferences(self, document: Document, episode: int) -> None:
        template = episodes.add_preferences(self.rows, self.owner, episode, document, self.issues)
        self._keep(document, "preferences", template, episode=episode)

    def _left_preferences(self, documents: Iterable[Document]) -> None:
        about = self.owner.about("preference_scores")
        for document in documents:
            done = "its text is kept in `extras`, no row is made"
            self.issues.add(document.path, "", "no such episode in the history", done, **about)
            self._keep_whole(document)

    def _memories(self) -> None:
        file = self.run.memory.get(self.owner.user_id)
        about = self.owner.about("memory_items")
        if file is None:
            if self.run.memory:
                path = f"memory/{self.run.run}/{self.owner.user_id}/memories.json"
                done = "the store is unknown"
                self.issues.add(path, "", "the file is missing", done, **about)
            return
        document = self._read(file, "memory_items")
        if document is None:
            return
        template = episodes.add_memories(self.rows, self.owner, document, self.issues)
        self._keep(document, "memory", template)
        value = document.value
        for seq, item in enumerate(value.get("memories") or () if isinstance(value, dict) else ()):
            row = self.rows.get("memory_items", (seq,))
            if row is not None and not isinstance(item.get("id"), str):
                self.ids.setdefault(episodes.item_key(item), row["item_id"])

    # Recovery and attribution ---------------------------------------------------------

    def _mode(self, mode: AccessMode) -> None:
        slots = self.run.verdicts.get(mode, {})
        blamed = self.run.attributions.get(mode, {})
        suffix = layout.RETRIEVE if mode is AccessMode.RETRIEVE else ""
        folder = f"output/{self.run.run}{suffix}"
        judged = Judged(self.rows, self.owner, mode, self.issues)
        document = self._judged(slots, f"{folder}/recon_judge", "verdicts")
        blame = self._judged(blamed, f"{folder}/attribution", "attributions")
        if document is not None:
            template = judged.add_verdicts(document, self.ids)
            self._keep(document, "verdicts", template, access_mode=mode.value)
        elif blame is not None and slots:
            done = "verdicts are taken from here, where they are repeated"
            self.issues.note(
                blame.path, "details", "recon_judge has no usable file", done,
                **self.owner.about("verdicts"),
            )  # fmt: skip
            judged.add_verdicts(_without_blame(blame), self.ids)
            judged.details.clear()
        elif slots:
            judged.fill("the release has no usable file of this user")
        if blame is not None:
            transcripts = mode is AccessMode.DUMP_ALL or self.run.retrieve_history
            template = judged.add_attributions(blame, transcripts)
            self._keep(blame, "attributions", template, access_mode=mode.value)
        elif blamed:
            judged.fill_attributions("the release has no usable file of this user")

    def _judged(self, slots: Slots, folder: str, table: str) -> Document | None:
        file = slots.get(self.owner.user_id)
        if file is not None:
            return self._read(file, table)
        if slots:
            path, done = f"{folder}/{self.owner.user_id}.json", "its targets are unscored"
            self.issues.add(path, "", "the file is missing", done, **self.owner.about(table))
        return None


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
