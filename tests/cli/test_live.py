"""The display of a run: numbers as they are, on stderr, nothing repeated."""

import pytest

from flows.cli.live import Display, duration, footer, grid, line, money
from flows.cli.run import fresh_name, outcome_code
from flows.progress import Progress
from memprobe.ids import slug


def progress() -> Progress:
    made = Progress()
    made.expect("rollout", "nomem", 2)
    made.expect("rollout", "rag", 2)
    made.expect("oracle", "", 3)
    made.watch(lambda: (1200, 34, 5_000_000, 60_000, None))
    made.finish("rollout", "rag")
    return made


def test_stages_are_rows_and_systems_columns() -> None:
    columns, rows = grid(progress().snapshot())
    assert columns == ["stage", "all", "nomem", "rag"]
    assert rows == [["rollout", "", "0/2", "1/2"], ["oracle", "0/3", "", ""]]


def test_one_line_sums_up_the_systems() -> None:
    text = line(progress().snapshot())
    assert text.startswith("rollout 1/4, oracle 0/3 ·")
    assert "calls 1,200" in text
    assert "ledger 34" in text
    assert "5,000,000 in, 60,000 out" in text


def test_an_unknown_price_is_not_shown_as_nothing() -> None:
    assert "unknown" in footer(progress().snapshot())
    assert money(None) == "unknown"
    assert money(0.0) == "$0.00"
    assert money(1234.5) == "$1,234.50"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.4, "0 s"), (59.6, "1 m 00 s"), (125, "2 m 05 s"), (7322, "2 h 02 m")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_come_on_stderr_and_only_on_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = progress()
    display = Display(counted, "t1")
    display.tell()
    display.tell()
    counted.finish("oracle", "")
    display.tell()
    out, err = capsys.readouterr()
    assert out == ""
    assert [text.split(" ·")[0] for text in err.splitlines()] == [
        "t1: rollout 1/4, oracle 0/3",
        "t1: rollout 1/4, oracle 1/3",
    ]


def test_the_last_state_is_told_when_the_run_ends(capsys: pytest.CaptureFixture[str]) -> None:
    counted = progress()
    with Display(counted, "t1"):
        counted.finish("oracle", "")
    assert capsys.readouterr().err.startswith("t1: rollout 1/4, oracle 1/3")


@pytest.mark.parametrize(
    ("status", "share", "code"),
    [
        ("complete", 0.0, 0),
        ("complete", 0.05, 0),
        ("complete", 0.051, 1),
        ("incomplete", 0.0, 1),
        ("interrupted", 0.5, 130),
    ],
)
def test_exit_codes_of_a_run(status: str, share: float, code: int) -> None:
    assert outcome_code(status, share, 0.05, n_scored=3) == code


def test_a_run_that_measured_nothing_did_not_succeed() -> None:
    """Case zero-rows."""
    assert outcome_code("complete", 0.0, 0.05, n_scored=0) == 1


def test_a_fresh_name_is_its_own_folder() -> None:
    name = fresh_name("recovery")
    assert name.startswith("recovery_2")
    assert slug(name) == name
