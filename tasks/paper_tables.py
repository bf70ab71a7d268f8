"""The published tables as a reader sees them: text, CSV, LaTeX; and compared with given values."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, Overflow
from pathlib import Path
from typing import Any

from memprobe.errors import UsageError
from tasks.paper_figures import CATEGORIES, GAPS, LABELS, QUANTILES, Cell, PaperFigures, leaves
from tasks.report.tables import defuse, tex

ABSENT = "—"
PM = r"$\pm$"
_SHORT = {
    "ok": "Recovered",
    "memory_failure": "Memory",
    "task_design_failure": "Task",
    "agent_elicitation_failure": "Agent",
    "simulator_too_strict": "User",
    "other": "Other",
    "recovery_rate_pct": "Rate %",
    "skill_memory": "Skill",
    "knowledge_memory": "Knowledge",
    "episodic_memory": "Episodic",
    "self_model": "Self-model",
    "assistance_preference": "Preference",
}
MAX_EXPECTED = 16 << 20


@dataclass(frozen=True, slots=True)
class Printed:
    """A place in a table: one or two cells (mean and deviation), and the digits shown."""

    cells: tuple[Cell, ...]
    digits: int

    @property
    def text(self) -> str:
        """The figure with its n: `0.609 ± 0.063 [40]`, or a dash."""
        first = self.cells[0]
        if first.value is None:
            return ABSENT
        text = _number(first.value, self.digits)
        if len(self.cells) > 1:
            spread = self.cells[1].value
            text += f" ± {ABSENT if spread is None else _number(spread, self.digits)}"
        n = f"{first.n}" if first.n == first.total else f"{first.n}/{first.total}"
        return f"{text} [{n}]"


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table of the paper: its columns, and rows of a label and a place for each column."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Printed | None, ...]], ...]
    notes: tuple[str, ...]


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _short(name: str) -> str:
    return _SHORT.get(name, name)


def table_of(
    identity: str, title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]]
) -> PaperTable:
    """A table whose notes tell why a dash is one: rows of a label and a place for each column."""
    whys: dict[tuple[str, str], list[str]] = defaultdict(list)
    for label, places in rows:
        for column, place in zip(columns, places, strict=True):
            if place is not None and place.cells[0].value is None:
                whys[place.cells[0].why or "no value", column].append(label)
    where: dict[str, list[str]] = defaultdict(list)
    for (why, column), labels in whys.items():
        every = len(labels) == len(rows) > 1
        where[why] += [f"{label}, {column}" for label in (["every row"] if every else labels)]
    notes = tuple(f"{ABSENT} {why}: {'; '.join(places)}" for why, places in where.items())
    made = tuple((label, tuple(places)) for label, places in rows)
    return PaperTable(identity, title, tuple(columns), made, notes)


def _pair(row: Mapping[str, Cell], name: str, digits: int) -> Printed | None:
    if f"{name}_mean" not in row:
        return None
    return Printed((row[f"{name}_mean"], row[f"{name}_std"]), digits)


def _label(name: str) -> str:
    system, _, mode = name.partition("/")
    if not mode:
        return system
    return f"{system}, {'full store' if mode == 'dump_all' else mode.replace('retrieve', 'top-k')}"


def layout(figures: PaperFigures) -> list[PaperTable]:
    """The tables in the order of the paper."""
    t = figures.tables
    ways = dict.fromkeys(
        key.removesuffix("_mean")
        for row in t["table2"].values()
        for key in row
        if key.startswith("B_") and key.endswith("_mean")
    )
    heads = [f"B {'full' if w == 'B_dump' else w[2:].replace('retrieve', 'top-k')}" for w in ways]
    tables = [
        table_of(
            "table2",
            "Table 2. Task completion, preference, turns, recovery, footprint",
            ["A %", "D", "C", *heads, "Items", "Chars/item"],
            [
                (
                    system,
                    [
                        Printed((row["A_pct"],), 2),
                        _pair(row, "D", 3),
                        _pair(row, "C", 2),
                        *(_pair(row, way, 3) for way in ways),
                        Printed((row["items_mean"],), 1),
                        Printed((row["chars_mean"],), 1),
                    ],
                )
                for system, row in t["table2"].items()
            ],
        ),
        table_of(
            "table3",
            "Table 3. Recovery by category",
            [_short(c) for c in CATEGORIES],
            [
                (_label(name), [Printed(tuple(row[c]), 3) for c in CATEGORIES])
                for name, row in t["table3"].items()
            ],
        ),
    ]
    labels = [*LABELS, *(["other"] if any("other" in row for row in t["table4"].values()) else [])]
    columns = [*labels, "recovery_rate_pct"]
    tables.append(
        table_of(
            "table4",
            "Table 4. Who lost what was not recovered (targets)",
            [_short(c) for c in columns],
            [
                (
                    _label(name),
                    [
                        Printed((row[c],), 1 if c == "recovery_rate_pct" else 0)
                        if c in row
                        else None
                        for c in columns
                    ],
                )
                for name, row in t["table4"].items()
            ],
        )
    )
    tables.append(
        table_of(
            "table13",
            "Table 13. Attribution by category, full store (targets)",
            [_short(c) for c in labels],
            [
                (
                    f"{system}, {_short(category)}",
                    [Printed((row[c],), 0) if c in row else None for c in labels],
                )
                for system, by_category in t["table13"].items()
                for category, row in by_category.items()
            ],
        )
    )
    tables.append(
        table_of(
            "table14",
            "Table 14. Footprint over users (quantiles are order statistics)",
            [f"{kind} {q}" for kind in ("Items", "Chars") for q in QUANTILES],
            [
                (
                    system,
                    [
                        Printed((cell,), 0 if kind == "items" and q != "mean" else 1)
                        for kind in ("items", "chars")
                        for q, cell in zip(QUANTILES, row[kind], strict=True)
                    ],
                )
                for system, row in t["table14"].items()
            ],
        )
    )
    tables.append(
        table_of(
            "gap",
            "Appendix H. Gap of a user: full store minus top-k",
            [q.capitalize() for q in GAPS],
            [
                (_label(name), [Printed((row[q],), 3) for q in GAPS])
                for name, row in t["gap"].items()
            ],
        )
    )
    return tables


def to_text(tables: Sequence[PaperTable]) -> str:
    """Tables for a terminal or a file; the number in brackets is the n of the figure."""
    out: list[str] = []
    for table in tables:
        head = ["", *table.columns]
        body = [[label, *(p.text if p else "" for p in places)] for label, places in table.rows]
        widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
        out.append(table.title)
        for row in [head, *body]:
            first = row[0].ljust(widths[0])
            rest = (cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
            out.append("  ".join([first, *rest]).rstrip())
        out += [f"  {note}" for note in table.notes]
        if not table.rows:
            out.append("  no records")
        out.append("")
    return "\n".join(out)


def to_latex(tables: Sequence[PaperTable]) -> str:
    """One booktabs `tabular` a table, with n beside each figure; missing cells in comments."""
    out: list[str] = []
    for table in tables:
        out.append(f"% {table.title}")
        out.append(rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}")
        out.append(r"\toprule")
        out.append(" & ".join(["", *map(tex, table.columns)]) + r" \\")
        out.append(r"\midrule")
        for label, places in table.rows:
            cells = [_latex_cell(place) for place in places]
            out.append(" & ".join([tex(label), *cells]) + r" \\")
        out += [r"\bottomrule", r"\end{tabular}"]
        out += [f"% {' '.join(note.replace(ABSENT, '--').split())}" for note in table.notes]
        out.append("")
    return "\n".join(out)


def _latex_cell(place: Printed | None) -> str:
    if place is None:
        return ""
    if place.text == ABSENT:
        return "--"
    figure, _, n = place.text.rpartition(" [")
    return f"{tex(figure).replace('±', PM)} {{\\scriptsize {tex('[' + n)}}}"


def to_csv(figures: PaperFigures, before: str = "") -> str:
    """One line a figure, with full precision, n, and the reason of a missing one.

    With `before`, a prefix of the tables' names, the lines go below others and have
    no head.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if not before:
        writer.writerow(["table", "row", "column", "value", "n", "total", "missing_because"])
    for path, cell in leaves(figures.tables).items():
        table, row, column = _place(path)
        value = "" if cell.value is None else repr(cell.value)
        name = f"{before}{table}"
        writer.writerow([name, defuse(row), column, value, cell.n, cell.total, cell.why])
    return out.getvalue()


_LISTS = {"table3": ("mean", "std"), "table14": QUANTILES}


def _place(path: tuple[Any, ...]) -> tuple[str, str, str]:
    """A path as table, row and cell in words."""
    table, *rest = path
    if table in _LISTS and rest and isinstance(rest[-1], int):
        names = _LISTS[table]
        last = names[rest[-1]] if rest[-1] < len(names) else str(rest[-1])
        rest = [*rest[:-1], last]
    words = [str(part) for part in rest]
    return str(table), words[0] if words else "", " ".join(words[1:])


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is not the expected one: where, what the run gives, what was wanted."""

    table: str
    row: str
    cell: str
    got: str
    want: str

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.table, self.row, self.cell) if part)
        return f"{where}: got {self.got}, want {self.want}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a comparison came to: values compared, and those that differ."""

    compared: int
    differences: tuple[Difference, ...]


def read_expected(path: Path) -> dict[str, Any]:
    """A file of expected values; raises `UsageError` saying what is wrong with it."""
    try:
        if path.stat().st_size > MAX_EXPECTED:
            raise UsageError(f"{path} has more than {MAX_EXPECTED:,} bytes")
        found = json.loads(
            path.read_text(encoding="utf-8"), parse_float=Decimal, parse_int=Decimal,
            parse_constant=_no_constant,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(found, dict) or not any(isinstance(v, dict) for v in found.values()):
        raise UsageError(f"{path} has no tables: an object of a table's rows is needed for each")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no value")


def _digits(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    # No float has more to compare, and `scaleb` ends where a file can still write on.
    return min(max(0, -exponent), 50) if isinstance(exponent, int) else 0


def compare(figures: PaperFigures, expected: Mapping[str, Any]) -> Expectation:
    """Hold every value of a file against the run's, to the digits that the file prints.

    A number counts with the most digits of its column, as JSON drops zeros at the
    end; a number written as a text counts with its own. A value is the same when
    it rounds to the expected one, either way for a tie.
    """
    differences: list[Difference] = []
    wanted_users = expected.get("users")
    if isinstance(wanted_users, list):
        wanted = {str(user) for user in wanted_users}
        if wanted != set(figures.users):
            missing, more = sorted(wanted - set(figures.users)), sorted(set(figures.users) - wanted)
            differences.append(
                Difference(
                    "users",
                    "",
                    "",
                    f"{len(figures.users)}" + (f", also {_some(more)}" if more else ""),
                    f"{len(wanted)}" + (f", missing {_some(missing)}" if missing else ""),
                )
            )
    tables = {k: v for k, v in expected.items() if isinstance(v, (dict, list)) and k != "users"}
    got = leaves(figures.tables)
    want = leaves(tables)
    digits: dict[Any, int] = defaultdict(int)
    for path, value in want.items():
        if isinstance(value, Decimal):
            digits[_column(path)] = max(digits[_column(path)], _digits(value))
    for path, value in want.items():
        number, places = value, digits[_column(path)]
        if isinstance(value, str):
            number = _parsed(value)
            places = _digits(number) if number is not None else 0
        cell = got.get(_path(path, got))
        if isinstance(number, Decimal) and cell is not None and cell.value is not None:
            if _same(cell.value, number, places):
                continue
            shown = f"{cell.value:.{max(places, 0)}f} [{cell.n}]"
        elif cell is None:
            shown = "no such cell"
        elif cell.value is None:
            if value is None:
                continue
            shown = f"nothing ({cell.why})"
        else:
            shown = repr(cell.value)
        differences.append(Difference(*_place(path), shown, str(value)))
    return Expectation(len(want), tuple(differences))


def _parsed(text: str) -> Decimal | None:
    try:
        found = Decimal(text.strip().rstrip("%").strip())
    except ArithmeticError:
        return None
    return found if found.is_finite() else None


def _path(path: tuple[Any, ...], got: Mapping[Any, Any]) -> tuple[Any, ...]:
    """The place of an expected value; `retrieve` means k = 5 where a run has several k."""
    if path in got:
        return path
    renamed = tuple(
        part.replace("/retrieve", "/retrieve@5").replace("B_retrieve_", "B_retrieve@5_")
        if isinstance(part, str)
        else part
        for part in path
    )
    if renamed in got or path[0] != "gap":
        return renamed
    return ("gap", f"{path[1]}/retrieve@5", *path[2:])


def _column(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """What shares digits: a table's cells of the same name in all rows."""
    return (path[0], *path[2:]) if len(path) > 2 else path


def _same(got: float, want: Decimal, digits: int) -> bool:
    half = Decimal(5).scaleb(-digits - 1)
    # The last bits of a sum of floats are no difference.
    try:
        return abs(Decimal(got) - want) <= half + Decimal("1e-12")
    except Overflow:
        return False


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
