"""Each format escapes for itself, and an absent value never becomes a 0."""

import csv
import io

import pytest

from tasks.report.tables import (
    Column,
    Table,
    defuse,
    display,
    md,
    tex,
    to_csv,
    to_markdown,
    to_tex,
)

COLUMNS = (
    Column("name", "Name"),
    Column("b", "B", "score"),
    Column("range", "95 % interval", "interval"),
    Column("cost", "Cost", "usd"),
)


def _table(*rows: dict[str, object]) -> Table:
    return Table("t_1", "100 % of_it", COLUMNS, rows, ("a note & more",))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "  ="])
def test_a_cell_that_a_spreadsheet_would_run_is_quoted(start: str) -> None:
    row = {"name": f"{start}HYPERLINK(1)", "b": 0.5, "range": None, "cost": None}
    cell = next(csv.DictReader(io.StringIO(to_csv(_table(row)), newline="")))["name"]
    assert cell.startswith("'")
    assert cell[1:] == row["name"]


def test_a_negative_number_stays_a_number_in_csv() -> None:
    row = {"name": "x", "b": -0.25, "range": (-0.5, 0.125), "cost": 0.0}
    cells = next(csv.DictReader(io.StringIO(to_csv(_table(row)))))
    assert float(cells["b"]) == -0.25
    assert (float(cells["range_lo"]), float(cells["range_hi"])) == (-0.5, 0.125)


def test_csv_keeps_quotes_commas_and_line_breaks_in_one_cell() -> None:
    text = 'a "quoted", two\nlines'
    rows = list(csv.reader(io.StringIO(to_csv(_table({"name": text})))))
    assert len(rows) == 2
    assert rows[1][0] == text


def test_csv_keeps_full_precision() -> None:
    cells = next(csv.DictReader(io.StringIO(to_csv(_table({"name": "x", "b": 1 / 3})))))
    assert float(cells["b"]) == 1 / 3


def test_an_unknown_cost_is_never_zero() -> None:
    row = {"name": "x", "b": None, "range": None, "cost": None}
    for text in (to_csv(_table(row)), to_tex(_table(row)), to_markdown(_table(row))):
        assert "unknown" in text
        assert "0.0" not in text
    assert display(0.0, "usd") == "$0.0000"


def test_an_absent_value_is_a_dash_or_an_empty_cell() -> None:
    assert display(None, "score") == "—"
    assert display((None, None), "interval") == "—"
    assert to_csv(_table({"name": "x"})).splitlines()[1] == "x,,,,unknown"


def test_latex_sets_every_special_character_as_text() -> None:
    assert tex(r"50% & $x_1^2$ #{a} ~b\input") == (
        r"50\% \& \$x\_1\textasciicircum{}2\$ \#\{a\} \textasciitilde{}b\textbackslash{}input"
    )


def test_a_latex_row_that_starts_with_a_bracket_is_no_option_of_the_row_before() -> None:
    body = to_tex(_table({"name": "[1em]"}, {"name": "[2em]"}))
    assert "{[}1em{]}" in body
    assert "\n[" not in body


def test_latex_braces_are_balanced_and_columns_match() -> None:
    body = to_tex(_table({"name": "}{\\", "b": 0.5, "range": (0.1, 0.2), "cost": 1.0}))
    bare = body.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    row = next(line for line in body.splitlines() if "0.500" in line)
    assert row.replace("\\&", "").count("&") == len(COLUMNS) - 1


def test_markdown_cannot_break_out_of_its_cell() -> None:
    text = "a | b\n# head [link](javascript:alert(1)) <img src=x> `code` *x*"
    lines = to_markdown(_table({"name": text, "b": 0.5})).splitlines()
    row = next(line for line in lines if line.startswith("| a"))
    assert row.replace("\\|", "").count("|") == len(COLUMNS) + 1
    assert "\\[link\\]" in row
    assert "\\<img" in row
    assert not any(line.startswith("# head") for line in lines)


def test_markdown_escapes_what_would_format() -> None:
    assert md("a_b*c\\d") == r"a\_b\*c\\d"


def test_a_table_without_rows_says_so_in_every_format() -> None:
    empty = _table()
    assert "no scored samples" in to_markdown(empty)
    assert "no scored samples" in to_tex(empty)
    assert to_csv(empty).splitlines() == ["name,b,range_lo,range_hi,cost"]


def test_ordinary_text_is_left_alone() -> None:
    assert defuse("longctx_full") == "longctx_full"
    assert defuse("") == ""
