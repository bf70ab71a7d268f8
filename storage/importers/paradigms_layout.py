"""Where the files of a published paradigms suite lie, and which of them are reports.

A suite is a folder with `episodes.jsonl` (and `latent_specs.json`); reports are
found by what they hold, wherever they lie, so that a part of a release will do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memprobe.errors import UsageError
from storage.importers.source import MAX_BYTES, File, Issues, too_deep, walk

EPISODES, SPECS = "episodes.jsonl", "latent_specs.json"
MAX_LINE = 64 << 20


@dataclass(slots=True)
class Layout:
    """A suite's files; `candidates` may be reports, `others` are neither read nor kept."""

    suite: str
    episodes: File
    specs: File | None
    candidates: list[File] = field(default_factory=list)
    others: list[File] = field(default_factory=list)
    n_files: int = 0


def find_suite(root: Path, wanted: str | None, issues: Issues) -> Layout:
    """The files of one suite below a folder.

    Raises `UsageError` for a folder without a suite, for a suite that is not
    there, and for several when none is named.
    """
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder")
    files = list(walk(root, issues))
    suites = {_name(root, f): f for f in files if f.parts[-1] == EPISODES}
    if not suites:
        raise UsageError(f"{root}: no {EPISODES} in it or below; is this a paradigms release?")
    listed = ", ".join(sorted(suites))
    if wanted is None and len(suites) > 1:
        raise UsageError(f"{root} has the suites {listed}; choose one with --suite")
    name = wanted if wanted is not None else next(iter(suites))
    if name not in suites:
        raise UsageError(f"{root} has no suite {name!r}; it has {listed}")
    mine = suites[name]
    found = Layout(name, mine, None, n_files=len(files))
    strange = set(suites) - {name}
    for file in files:
        if file == mine:
            continue
        if file.parts == (*mine.parts[:-1], SPECS):
            found.specs = file
        elif strange & set(file.parts[:-1]):
            # What belongs to another suite is another import's.
            found.n_files -= 1
        elif file.parts[-1].endswith(".json"):
            found.candidates.append(file)
        else:
            found.others.append(file)
    return found


def _name(root: Path, file: File) -> str:
    return file.parts[-2] if len(file.parts) > 1 else root.resolve().name


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a JSONL file, from 1: its text, and its value or what is wrong with it."""

    number: int
    raw: bytes
    value: Any = None
    problem: str = ""


def lines_of(file: File, issues: Issues) -> Iterator[Line]:
    """The lines of a JSONL file that are not blank; a file that cannot be read is an issue."""
    try:
        size = file.real.stat().st_size
        if size > MAX_BYTES:
            text = f"{size:,} bytes, more than {MAX_BYTES:,}"
            issues.add(file.path, "", text, "not read", table="probes")
            return
        raw = file.real.read_bytes()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        issues.add(file.path, "", problem, "no episode", table="probes")
        return
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip():
            yield _line(number, line.removesuffix(b"\r"))


def _line(number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE:
        return Line(number, raw, problem=f"{len(raw):,} bytes, more than {MAX_LINE:,}")
    try:
        value = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        return Line(number, raw, problem=f"not UTF-8 at byte {error.start}")
    except RecursionError:
        return Line(number, raw, problem="nested too deeply")
    except ValueError as error:
        return Line(number, raw, problem=f"not valid JSON: {error}")
    if too_deep(value):
        return Line(number, raw, problem="nested too deeply")
    return Line(number, raw, value)


def entries_of(value: Any) -> dict[str, Any] | None:
    """A report's entries of one system, by episode: lists of answers, or objects with them."""
    if not isinstance(value, dict):
        return None
    shaped = [entry for entry in value.values() if _holds_answers(entry)]
    return value if shaped else None


def _holds_answers(entry: Any) -> bool:
    answers = entry.get("answers") if isinstance(entry, dict) else entry
    return isinstance(answers, list) and any(
        isinstance(one, dict) and "probe_type" in one and "match" in one for one in answers
    )


def memories_of(value: Any) -> dict[str, list[Any]] | None:
    """Stored memories by episode: lists of texts or items that are no answers."""
    if not isinstance(value, dict) or not value:
        return None
    if not all(isinstance(items, list) for items in value.values()):
        return None
    flat = [item for items in value.values() for item in items]
    if any(isinstance(item, dict) and "probe_type" in item for item in flat):
        return None
    return value if all(isinstance(item, str | dict) for item in flat) else None


def is_report(value: Any, episodes: Collection[str]) -> bool:
    """Whether a parsed file holds answers to probes of these episodes."""
    if not isinstance(value, dict):
        return False
    known = set(episodes)
    return any(
        known & found.keys() for found in map(entries_of, value.values()) if found is not None
    )
