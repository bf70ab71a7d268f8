"""Reading filled sheets: what counts, what does not and why, row by row; then the figures.

Nothing is guessed. A row that names no item of this run, whose texts were edited, that
answers off the scale, contradicts itself, or is there twice with two answers does not
count, and is reported with its file and row. An answer that is missing leaves its own
figure, and is reported too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memprobe.errors import UsageError
from memprobe.types import AttributionLabel
from storage.runs import RunStore, Unit
from tasks.audit.agreement import SheetFigures, figures
from tasks.audit.files import Answer, read_file
from tasks.audit.sampling import Candidate, candidates
from tasks.audit.sheet import read_key, text_hash
from tasks.audit.words import CAUSE_ORDER, OK_SCORE, UNSURE, score_of

VERSION = "1"
REFUSED, INCOMPLETE = "refused", "incomplete"
OK = AttributionLabel.OK.value

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that does not count, or not wholly. `kind` is `refused` or `incomplete`."""

    sheet: str
    file: str
    row: int
    item_id: str
    rater: str
    kind: str
    problem: str


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What the raters' files came to; the figures are by sheet."""

    run: str
    sheets: tuple[SheetFigures, ...]
    problems: tuple[Problem, ...]
    n_rows: int

    @property
    def refused(self) -> int:
        """How many rows do not count at all."""
        return sum(problem.kind == REFUSED for problem in self.problems)


def audit_unit(sheet: str) -> Unit:
    """The unit of a sheet's answers."""
    return Unit("audit", variant=sheet)


class _Sheet:
    """The key of a sheet with the run's judgements as they are now."""

    def __init__(self, store: RunStore, sheet: str, key: dict[str, Any]) -> None:
        self.sheet = sheet
        self.key = key
        self.items: dict[str, Row] = {item["id"]: item for item in key["items"]}
        now = candidates(store, key["layer"])[0]
        self.now = {_identity(asdict(candidate)): candidate for candidate in now}

    def changed(self, item: Row) -> bool:
        """Whether the run's judgement is no longer the one that was drawn."""
        found: Candidate | None = self.now.get(_identity(item))
        if found is None:
            return True
        label = hashlib.sha256(found.label.encode("utf-8")).hexdigest()
        drawn = (item["label_sha256"], item["score"], item["attribution"])
        return (label, found.score, found.attribution) != drawn


def _identity(row: Row) -> tuple[Any, ...]:
    names = ("system", "user_id", "epoch", "access_mode", "k", "category", "dimension")
    return tuple(row[name] for name in names)


class _Reader:
    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.sheets: dict[str, _Sheet | None] = {}
        self.problems: list[Problem] = []
        self.rows: dict[str, dict[tuple[str, str], tuple[Answer, Row]]] = {}
        self.contested: set[tuple[str, str]] = set()

    def sheet(self, name: str) -> _Sheet | None:
        if name not in self.sheets:
            # What a file says is no path: only a name that a sheet can have is looked up.
            hexed = len(name) == 8 and all(c in "0123456789abcdef" for c in name)
            key = read_key(self.store, name) if hexed else None
            self.sheets[name] = _Sheet(self.store, name, key) if key else None
        return self.sheets[name]

    def report(self, answer: Answer, kind: str, problem: str) -> None:
        sheet = answer.item_id.partition("-")[0]
        known = sheet if self.sheets.get(sheet) else ""
        self.problems.append(
            Problem(
                known,
                answer.file,
                answer.row,
                answer.item_id[:60],
                answer.rater[:80],
                kind,
                problem,
            )
        )

    def take(self, answer: Answer) -> None:
        """One row: into the answers, or into the problems."""
        name = answer.item_id.partition("-")[0]
        sheet = self.sheet(name)
        item = sheet.items.get(answer.item_id) if sheet else None
        if sheet is None or item is None:
            what = "no id" if not answer.item_id else "not an item of a sheet of this run"
            self.report(answer, REFUSED, what)
            return
        hashes = text_hash(answer.texts)
        edited = [column for column, found in hashes.items() if found != item["texts"][column]]
        if edited:
            self.report(answer, REFUSED, f"the text of {', '.join(edited)} was changed")
            return
        if sheet.changed(item):
            self.report(answer, REFUSED, "the run's judgement is no longer the one that was drawn")
            return
        row = self.checked(answer, item)
        if row is None:
            return
        rows = self.rows.setdefault(name, {})
        at = (answer.item_id, answer.rater)
        if at not in rows:
            rows[at] = (answer, row)
            return
        first, before = rows[at]
        where = f"{first.file} row {first.row}"
        if at in self.contested or before != row:
            self.contested.add(at)
            self.report(answer, REFUSED, f"answered differently in {where}; none counts")
        else:
            self.report(answer, INCOMPLETE, f"the same answer is in {where}; it counts once")

    def checked(self, answer: Answer, item: Row) -> Row | None:
        """The answers as stored; None when nothing of the row counts."""
        said, cause = answer.score.lower(), answer.cause.lower()
        score = score_of(said)
        if said not in ("", UNSURE) and score is None:
            self.report(answer, REFUSED, f"score {answer.score[:40]!r} is not on the scale")
            return None
        if cause not in ("", UNSURE, *CAUSE_ORDER):
            self.report(answer, REFUSED, f"cause {answer.cause[:40]!r} is none of the labels")
            return None
        recovered = score is not None and score >= OK_SCORE
        if recovered and cause not in ("", OK):
            self.report(answer, REFUSED, f"score {score:g} contradicts cause {cause}")
            return None
        if score is not None and not recovered and cause == OK:
            self.report(answer, REFUSED, f"score {score:g} contradicts cause {OK}")
            return None
        if not said and not cause:
            self.report(answer, INCOMPLETE, "no answer")
            return None
        label = OK if recovered else cause
        if score is None:
            self.report(answer, INCOMPLETE, "score: unsure" if said else "no score")
            # Where it was lost presupposes that it was not recovered.
            label = ""
        elif not label or label == UNSURE:
            self.report(answer, INCOMPLETE, "cause: unsure" if label else "no cause")
            label = ""
        return {
            **{name: item[name] for name in _KEPT},
            "sheet": answer.item_id.partition("-")[0],
            "item_id": answer.item_id,
            "rater": answer.rater[:80],
            "judge_score": item["score"],
            "judge_label": item["attribution"],
            "human_score": score,
            "human_label": label or None,
            "note": answer.note[:2000] or None,
        }


_KEPT = (
    *("system", "user_id", "epoch", "access_mode", "k", "category", "dimension"),
    *("stratum", "weight"),
)


def read_answers(store: RunStore, paths: Sequence[Path]) -> AuditResult:
    """Read raters' files, store what counts (tables `audits`, `audit_problems`), score it.

    All files of a sheet are given together: they replace what was read before. Raises
    `UsageError` for a file that is no filled sheet, and when no row belongs to the run.
    """
    reader = _Reader(store)
    answers = [answer for path in paths for answer in read_file(path)]
    for answer in answers:
        reader.take(answer)
    for rows in reader.rows.values():
        for at in reader.contested & rows.keys():
            first, _ = rows.pop(at)
            reader.report(first, REFUSED, "answered differently in another row; none counts")
    known = {name: sheet for name, sheet in reader.sheets.items() if sheet is not None}
    if not known:
        raise UsageError(
            f"no row of {', '.join(path.name for path in paths)} belongs to a sheet of run "
            f"{store.name!r}"
        )
    found = []
    with store.lock():
        for name, sheet in sorted(known.items()):
            rows_of = [row for _, row in reader.rows.get(name, {}).values()]
            n_items = len(sheet.items)
            extra = {"layer": sheet.key["layer"], "n_items": n_items}
            audits = [{**row, **extra} for row in rows_of]
            problems = [p for p in reader.problems if p.sheet in (name, "")]
            stored = [{"number": n, **asdict(p), "sheet": name} for n, p in enumerate(problems, 1)]
            store.commit(audit_unit(name), VERSION, {"audits": audits, "audit_problems": stored})
            seed = store.manifest.config.seed
            found.append(figures(name, sheet.key["layer"], n_items, audits, seed))
    return AuditResult(store.name, tuple(found), tuple(reader.problems), len(answers))
