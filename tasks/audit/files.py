"""Filled sheets as they come back: CSV by some spreadsheet program, or the form's export."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from memprobe.errors import UsageError
from memprobe.text import sanitize
from tasks.audit.form import ANSWER_FORMAT
from tasks.audit.words import ASKED, unguard

MAX_BYTES = 64 << 20
MAX_ROWS = 100_000
_NEEDED = ("id", "score", "cause")


@dataclass(frozen=True, slots=True)
class Answer:
    """One row as given: nothing in it was checked yet.

    `row` counts the rows of the file from 1, the head of a CSV being row 1. `texts`
    are the cells that a rater should not have changed.
    """

    file: str
    row: int
    item_id: str
    rater: str
    score: str
    cause: str
    note: str
    texts: dict[str, str] = field(default_factory=dict)


def read_file(path: Path) -> list[Answer]:
    """The answers of a file; raises `UsageError` naming what is wrong with the file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: more than {MAX_BYTES >> 20} MB, this is no filled sheet")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f'{path} is not UTF-8; save it as "CSV UTF-8"') from None
    if text.lstrip().startswith("{"):
        return _from_form(path, text)
    return _from_csv(path, text)


def _from_form(path: Path, text: str) -> list[Answer]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    if found.get("format") != ANSWER_FORMAT or not isinstance(found.get("answers"), list):
        raise UsageError(f"{path} was not saved by an audit form")
    if found.get("version") != 1:
        raise UsageError(
            f"{path} has version {found.get('version')!r} of the form's answers; this MemProbe "
            "reads version 1"
        )
    rater = _plain(found.get("rater")).strip() or path.stem
    out = []
    for row, answer in enumerate(found["answers"][:MAX_ROWS], 1):
        given = answer if isinstance(answer, dict) else {}
        parts = [_plain(given.get(name)).strip() for name in ("id", "score", "cause", "note")]
        item_id, score, cause, note = parts
        out.append(Answer(path.name, row, item_id, rater, score, cause, note))
    return out


def _plain(value: object) -> str:
    if isinstance(value, str):
        return sanitize(value)[0]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:g}"
    return "" if value is None else sanitize(json.dumps(value))[0]


def _from_csv(path: Path, text: str) -> list[Answer]:
    head = text.lstrip("\r\n").split("\n", 1)[0]
    # A program of another locale saves with semicolons; the head's names hold none of these.
    separator = max(",;\t", key=head.count)
    before = csv.field_size_limit(MAX_BYTES)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise UsageError(f"{path} is not a CSV file: {error}") from None
    finally:
        csv.field_size_limit(before)
    rows = [[unguard(value) if n == 0 else value for value in row] for n, row in enumerate(rows)]
    names = [name.strip().lower() for name in rows[0]] if rows else []
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise UsageError(f"{path} has no column {', '.join(missing)}; is it a filled sheet?")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise UsageError(f"{path} has column {', '.join(twice)} twice")
    out = []
    for number, row in enumerate(rows[1 : MAX_ROWS + 1], 2):
        if not any(value.strip() for value in row):
            continue
        given = dict(zip(names, row, strict=False))

        def own(name: str, given: dict[str, str] = given) -> str:
            return unguard(given.get(name, "").strip()).strip()

        out.append(
            Answer(
                file=path.name,
                row=number,
                item_id=own("id"),
                rater=own("rater") or path.stem,
                score=own("score"),
                cause=own("cause"),
                note=own("note"),
                texts={name: given.get(name, "") for name in ASKED if name in names},
            )
        )
    return out
