"""Untrusted files of a published release: found, bounded, read, and reported on.

Nothing in an archive is trusted: links that leave the folder and what is no
regular file are refused, a file is bounded in size, JSON in depth, and every
problem becomes an `Issue` instead of an exception.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_BYTES = 256 << 20
"""Largest file that is read: a record of one user, or of all users' banks."""
MAX_DEPTH = 100
MAX_ISSUES = 20_000
_MAX_FILES = 2_000_000

LOST, NOTE = "lost", "note"


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that was not as expected.

    `path` is relative to the release, `field` the place in the file ("" for the
    whole file), `done` what became of it. `severity` is `lost` when a record that
    figures are made of is missing or could not be used, else `note`. `table` is
    the table that has less because of it, "" for none.
    """

    path: str
    field: str
    problem: str
    done: str
    severity: str
    system: str = ""
    user_id: str = ""
    table: str = ""


@dataclass(slots=True)
class Issues:
    """What was found on the way; repeated kinds of note are counted, not repeated.

    Bounded: beyond `MAX_ISSUES` only the number goes on, and says so.
    """

    found: list[Issue] = field(default_factory=list)
    more: int = 0
    more_lost: int = 0
    _counted: dict[tuple[str, str], tuple[Issue, int]] = field(default_factory=dict)

    def add(self, path: str, where: str, problem: str, done: str, **more: str) -> None:
        """A loss, unless `severity` says otherwise."""
        issue = Issue(path, where, problem, done, **{"severity": LOST, **more})
        if len(self.found) < MAX_ISSUES:
            self.found.append(issue)
            return
        self.more += 1
        self.more_lost += issue.severity == LOST

    def note(self, path: str, where: str, problem: str, done: str, **more: str) -> None:
        """Something to know that cost nothing."""
        self.add(path, where, problem, done, severity=NOTE, **more)

    def once(self, kind: str, path: str, where: str, problem: str, done: str) -> None:
        """A note of which only the first file and the number of places is kept."""
        known = self._counted.get((kind, where))
        if known is None:
            self._counted[kind, where] = (Issue(path, where, problem, done, NOTE), 1)
        else:
            self._counted[kind, where] = (known[0], known[1] + 1)

    def all(self) -> list[Issue]:
        """Everything, in the order found; counted notes and the overflow last."""
        out = list(self.found)
        for issue, n in self._counted.values():
            problem = (
                issue.problem if n == 1 else f"{issue.problem} ({n} places, this is the first)"
            )
            out.append(Issue(issue.path, issue.field, problem, issue.done, NOTE))
        if self.more:
            severity = LOST if self.more_lost else NOTE
            text = f"{self.more} more issues, {self.more_lost} of them losses"
            out.append(Issue("", "", text, f"the first {MAX_ISSUES} are listed", severity))
        return out

    @property
    def lost(self) -> int:
        """How many losses there are."""
        return sum(issue.severity == LOST for issue in self.found) + self.more_lost


def shown(name: str) -> str:
    """A file name as text: bytes that are no UTF-8 are written as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of the release: where it is, and its path below the root as text."""

    real: Path
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """The relative path, for reports and as the file's name in the tables."""
        return "/".join(self.parts)

    @property
    def stem(self) -> str:
        """The file's name without `.json`."""
        return self.parts[-1].removesuffix(".json")


def walk(root: Path, issues: Issues) -> Iterator[File]:
    """All regular files below a folder, in sorted order.

    A link is followed when its end lies below the root; folders that were seen
    before are not entered again.
    """
    top = os.path.realpath(root)
    seen = {top}
    count = 0

    def inside(real: str) -> bool:
        return real == top or real.startswith(top + os.sep)

    def below(folder: str, parts: tuple[str, ...]) -> Iterator[File]:
        nonlocal count
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            issues.add("/".join(parts), "", f"cannot be listed: {error.strerror}", "left out")
            return
        for entry in found:
            here = (*parts, shown(entry.name))
            path = "/".join(here)
            count += 1
            if count > _MAX_FILES:
                if count == _MAX_FILES + 1:
                    issues.add(path, "", f"more than {_MAX_FILES} files", "the rest is left out")
                return
            real = entry.path
            try:
                if entry.is_symlink():
                    real = os.path.realpath(entry.path)
                    if not inside(real):
                        issues.add(path, "", "a link that leaves the release", "refused")
                        continue
                    if not Path(real).exists():
                        issues.add(path, "", "a link to nothing", "left out")
                        continue
                if entry.is_dir():
                    target = os.path.realpath(real)
                    if target in seen:
                        issues.note(path, "", "a link to a folder that is there", "not read twice")
                        continue
                    seen.add(target)
                    yield from below(real, here)
                elif entry.is_file():
                    yield File(Path(real), here)
                else:
                    issues.add(path, "", "no regular file", "refused")
            except OSError as error:
                issues.add(path, "", f"cannot be read: {error.strerror}", "left out")

    yield from below(top, ())


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file with what is needed to write it again.

    `style` is how it was laid out: the indent ("" for none) and `n` when it
    ended with a line break. `dollar` tells that some object has a key `$`.
    """

    file: File
    value: Any
    sha256: str
    style: str
    dollar: bool

    @property
    def path(self) -> str:
        """The file's path below the release."""
        return self.file.path


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that holds no usable JSON, with its bytes."""

    file: File
    raw: bytes
    sha256: str


def _style(text: str) -> str:
    end = "n" if text.endswith("\n") else ""
    if not text.startswith(("{\n", "[\n")):
        return end
    line = text[2:202]
    return f"{len(line) - len(line.lstrip(' ')) or ''}{end}"


def _deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        below: list[Any] = []
        for one in level:
            if type(one) is dict:
                below += [v for v in one.values() if type(v) is dict or type(v) is list]
            elif type(one) is list:
                below += [v for v in one if type(v) is dict or type(v) is list]
        if not below:
            return False
        level = below
    return True


def too_deep(value: Any) -> bool:
    """Whether a parsed value is nested deeper than what is read."""
    return _deeper(value, MAX_DEPTH)


def read(file: File, issues: Issues, **about: str) -> Document | Unread | None:
    """Parse a file; what cannot be used is reported. None when there are no bytes to keep."""
    path = file.path
    try:
        size = file.real.stat().st_size
        if size > MAX_BYTES:
            text = f"{size:,} bytes, more than {MAX_BYTES:,}"
            issues.add(path, "", text, "not read", **about)
            return None
        raw = file.real.read_bytes()
    except OSError as error:
        issues.add(path, "", f"cannot be read: {error.strerror}", "left out", **about)
        return None
    digest = hashlib.sha256(raw).hexdigest()

    def unusable(problem: str) -> Unread:
        issues.add(path, "", problem, "its text is kept in `extras`, no row is made", **about)
        return Unread(file, raw, digest)

    if not raw.strip():
        return unusable("the file is empty")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return unusable(f"not UTF-8 at byte {error.start}")
    if text.startswith("\ufeff"):
        issues.note(path, "", "begins with a byte order mark", "skipped", **about)
        text = text[1:]
    twice: list[tuple[str, Any]] = []
    dollar = False

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal dollar
        out = dict(found)
        if len(out) != len(found):
            kept: set[str] = set()
            for key, value in reversed(found):
                if key in kept:
                    twice.append((key, value))
                kept.add(key)
        if "$" in out:
            dollar = True
        return out

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        return unusable("nested too deeply")
    except ValueError as error:
        return unusable(f"not valid JSON: {error}")
    if too_deep(value):
        return unusable(f"nested more than {MAX_DEPTH} levels")
    for key, value_before in twice[:20]:
        dropped = json.dumps(value_before, ensure_ascii=True)[:200]
        issues.add(
            path, key, "the key is there twice", f"the last counts; dropped: {dropped}", **about
        )
    if len(twice) > 20:
        issues.add(path, "", f"{len(twice) - 20} more keys twice", "the last counts", **about)
    return Document(file, value, digest, _style(text), dollar)


def number(value: Any) -> float | None:
    """A finite JSON number as a float; None for anything else, true and false too."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if found - found == 0 else None


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; anything else gives none."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
