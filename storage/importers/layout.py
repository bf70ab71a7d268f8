"""The public layout: which file is what, whose, and of which system.

    Deeppersona/data/user_memory_banks_pooled_final.json      the users' banks
    benchmark_data/<set>/<user>.json                          tasks
    history/<run>/<user>/episode_<n>.json                     episodes
    pref_judge/<run>/<user>/episode_<n>.json                  single preferences (may be left out)
    memory/<run>/<user>/memories.json                         what each store held
    output/<run>[_retrieve]/recon_judge/<user>.json           verdicts
    output/<run>[_retrieve]/attribution/<user>.json           attributions
    output/<run>[_retrieve]/<any>.json                        merged reports: counted, not used
    output/_task_design_oracle/<user>.json                    oracle verdicts

A file that says whose it is (`user_id` first) belongs to that user, whatever its name.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from memprobe.errors import UsageError
from memprobe.types import AccessMode
from storage.importers.source import File, Issues, walk

TOP = ("Deeppersona", "benchmark_data", "history", "memory", "output", "pref_judge")
BANK = "user_memory_banks_pooled_final"
TASK_SET = "CustomTasksPooledFinal"
ORACLE = "_task_design_oracle"
RETRIEVE = "_retrieve"
PUBLISHED_RUNS = {
    "amem_pooled_50": "amem",
    "longctx_full_pooled_50": "longctx_full",
    "mem0_pooled_50": "mem0",
    "memt_memonly_pooled_50": "memt",
    "nomem_pooled_50": "nomem",
}
"""The runs behind the paper's tables; its "memt" is the variant that replies from memory only."""

_DEPTH = 4
_PEEK = re.compile(rb'\s*\{\s*"user_id"\s*:\s*"([^"\\]*)"')
_EPISODE = re.compile(r"episode_([0-9]{1,6})\.json\Z")

Slots = dict[str, File]


def find_root(folder: Path) -> Path:
    """The release below a folder, or the folder itself.

    Raises `UsageError` when there is none, or more than one equally complete.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; unpack the release and name where it lies")
    best: list[tuple[int, Path]] = []
    level = [folder]
    for _ in range(_DEPTH):
        below: list[Path] = []
        for one in level:
            try:
                with os.scandir(one) as entries:
                    folders = [e for e in entries if e.is_dir(follow_symlinks=False)]
            except OSError:
                continue
            names = {entry.name: Path(entry.path) for entry in folders}
            known = sum(name in names for name in TOP)
            if known >= 2 or (known and "output" in names):
                best.append((known, one))
            else:
                below += [names[name] for name in sorted(names)][:200]
        level = below[:2000]
    if not best:
        raise UsageError(f"no release in {folder}: none of its folders has two of {', '.join(TOP)}")
    most = max(known for known, _ in best)
    found = [path for known, path in best if known == most]
    if len(found) > 1:
        listed = ", ".join(str(path) for path in found[:5])
        raise UsageError(f"{folder} holds {len(found)} releases: {listed}; name one of them")
    return found[0]


def system_of(run: str) -> str:
    """A system's name from the name of its run."""
    if run in PUBLISHED_RUNS:
        return PUBLISHED_RUNS[run]
    stem = re.sub(r"_pooled_\d+\Z", "", run)
    return f"{stem}_other" if stem in PUBLISHED_RUNS.values() else stem


@dataclass(slots=True)
class RunFiles:
    """The files of one system; episodes by user, the others one a user."""

    run: str
    system: str
    history: dict[str, list[File]] = field(default_factory=dict)
    preferences: dict[str, list[File]] = field(default_factory=dict)
    memory: Slots = field(default_factory=dict)
    verdicts: dict[AccessMode, Slots] = field(default_factory=dict)
    attributions: dict[AccessMode, Slots] = field(default_factory=dict)
    retrieve_history: bool = False

    def users(self) -> set[str]:
        """All users that a file speaks of."""
        slots: list[Iterable[str]] = [self.history, self.preferences, self.memory]
        slots += [*self.verdicts.values(), *self.attributions.values()]
        return {user for one in slots for user in one}


@dataclass(slots=True)
class Release:
    """A release's files, sorted out. `loose` are kept as they are and belong to nobody."""

    root: Path
    bank: File | None = None
    tasks: Slots = field(default_factory=dict)
    oracle: Slots = field(default_factory=dict)
    runs: dict[str, RunFiles] = field(default_factory=dict)
    reports: list[File] = field(default_factory=list)
    loose: list[File] = field(default_factory=list)
    n_files: int = 0


def episode_number(file: File) -> int | None:
    """The number in an episode file's name."""
    found = _EPISODE.fullmatch(file.parts[-1])
    return int(found[1]) if found else None


def _says(file: File) -> str | None:
    """The user that a file names at its beginning."""
    try:
        with file.real.open("rb") as opened:
            found = _PEEK.match(opened.read(4096))
    except OSError:
        return None
    if found is None:
        return None
    try:
        return found[1].decode("utf-8") or None
    except UnicodeDecodeError:
        return None


class _Sorter:
    def __init__(self, root: Path, issues: Issues) -> None:
        self.release = Release(root)
        self.issues = issues
        self.other: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.banks: list[File] = []
        self.task_sets: dict[str, list[File]] = {}
        self.slots: list[tuple[Slots, File, str, bool]] = []

    def run(self, name: str) -> RunFiles:
        if name not in self.release.runs:
            system = system_of(name)
            if name not in PUBLISHED_RUNS:
                self.issues.note(
                    name, "", "a run that the paper's tables do not use",
                    f"imported as system {system}", system=system,
                )  # fmt: skip
            self.release.runs[name] = RunFiles(name, system)
        return self.release.runs[name]

    def leave(self, file: File) -> None:
        top = file.parts[0]
        self.other[top] += 1
        self.first.setdefault(top, file.path)

    def put(self, file: File) -> None:
        """Sort one file in."""
        match file.parts:
            case _ if not file.parts[-1].endswith(".json"):
                self.leave(file)
            case ("Deeppersona", "data", _):
                self.banks.append(file)
            case ("benchmark_data", folder, _):
                self.task_sets.setdefault(folder, []).append(file)
            case ("history" | "pref_judge" as kind, run, user, _):
                self.episode(kind, run, user, file)
            case ("memory", run, user, _):
                # These files name no user: the folder's name is all there is.
                self.slots.append((self.run(run).memory, file, user, False))
            case ("output", folder, _) if folder == ORACLE:
                self.slots.append((self.release.oracle, file, file.stem, False))
            case ("output", _, _):
                self.release.reports.append(file)
            case ("output", folder, "recon_judge" | "attribution" as kind, _):
                mode = AccessMode.RETRIEVE if folder.endswith(RETRIEVE) else AccessMode.DUMP_ALL
                files = self.run(folder.removesuffix(RETRIEVE))
                of_kind = files.verdicts if kind == "recon_judge" else files.attributions
                self.slots.append((of_kind.setdefault(mode, {}), file, file.stem, True))
            case _:
                self.leave(file)

    def episode(self, kind: str, run: str, user: str, file: File) -> None:
        if run.endswith(RETRIEVE):
            if kind == "history":
                self.run(run.removesuffix(RETRIEVE)).retrieve_history = True
            self.leave(file)
            return
        said = _says(file)
        if said is not None and said != user:
            self.issues.note(
                file.path,
                "user_id",
                f"the file is of {said}",
                f"it counts for {said}",
                user_id=said,
            )
        files = self.run(run)
        by_user = files.history if kind == "history" else files.preferences
        by_user.setdefault(said or user, []).append(file)

    def finish(self) -> Release:
        """Decide where several files could be meant."""
        release = self.release
        names = sorted(
            self.banks, key=lambda f: (f.stem != "user_memory_banks_pooled_final", f.path)
        )
        release.bank = names[0] if names else None
        for file in names[1:]:
            self.leave(file)
        sets = sorted(self.task_sets, key=lambda s: (s != TASK_SET, s))
        for folder in sets[:1]:
            self.slots += [(release.tasks, f, f.stem, True) for f in self.task_sets[folder]]
        for folder in sets[1:]:
            for file in self.task_sets[folder]:
                self.leave(file)
        self.assign()
        for top, n in sorted(self.other.items()):
            self.issues.note(
                self.first[top], "", f"{n} files in {top} are no records of the layout (the first)",
                "left out",
            )  # fmt: skip
        return release

    def assign(self) -> None:
        """Give each file its user; well-named files come before renamed ones."""
        waiting = []
        for slots, file, name, speaks in self.slots:
            said = _says(file) if speaks else None
            odd = file.parts[0] == "memory" and file.parts[-1] != "memories.json"
            renamed = odd or (said is not None and said != name)
            waiting.append((renamed, file.path, slots, file, said or name))
        for renamed, path, slots, file, user in sorted(waiting, key=lambda w: w[:2]):
            if user in slots:
                self.issues.add(
                    path, "", f"a second file of {user}; the first is {slots[user].path}",
                    "its text is kept in `extras`, no row is made", user_id=user,
                )  # fmt: skip
                self.release.loose.append(file)
                continue
            if renamed:
                self.issues.note(
                    path, "", f"not the name of a file of {user}", f"it counts for {user}",
                    user_id=user,
                )  # fmt: skip
            slots[user] = file


def scan(root: Path, issues: Issues) -> Release:
    """Sort a release's files; contents are looked at only for whose they are."""
    sorter = _Sorter(root, issues)
    for file in walk(root, issues):
        sorter.release.n_files += 1
        sorter.put(file)
    return sorter.finish()
