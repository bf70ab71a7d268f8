"""Footprint, windows, budget and ingestion on the page: right figures, marks, and plain text."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import UsageError
from tasks.report import build_report, load
from tasks.report.charts import all_charts
from tasks.report.data import ReportData
from tasks.report.drawing import Chart
from tasks.report.sections import all_tables
from tasks.report.tables import WRITERS
from tests.report.make_run import Row, make_run

NEW = ("budget", "footprint", "windows", "ingestion")


def chart(data: ReportData, name: str) -> Chart:
    (found,) = [made for made in all_charts(data) if made.id == name]
    return found


def trace(made: Chart, name: str) -> dict[str, Any]:
    (found,) = [t for t in made.figure["data"] if t["name"] == name]
    return dict(found)


def memory_call(base: Row, system: str, number: int, **changes: Any) -> Row:
    return {
        **base,
        **{"role": "memory", "stage": "rollout", "system": system, "call_id": f"{system}{number}"},
        **{"item": "s0001/turn1/user/write", "prompt_tokens": 930, "completion_tokens": 62},
        **{"cost_usd": 0.31, "latency_s": 1.0, **changes},
    }


def test_the_footprint_names_its_tokenizer_and_who_has_a_store(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=2)
    table = all_tables(load(store))["footprint"]
    rows = {row["system"]: row for row in table.rows}
    counted = [r["tokens"] for r in store.read("footprints") if r["system"] == "rag"]
    assert rows["rag"]["tokens"] == sum(counted) / 2
    assert (rows["rag"]["users"], rows["rag"]["items"], rows["rag"]["largest"]) == (
        "2/2",
        62,
        max(counted),
    )
    assert (rows["nomem"]["items"], rows["nomem"]["tokens"]) == (0, 0)
    assert "tokenizer: o200k_base" in table.notes[0]


def test_a_run_scored_before_tokens_were_counted_has_characters_and_says_how(
    tmp_path: Path,
) -> None:
    data = load(make_run(tmp_path / "run", users=1, score=False))
    tables = all_tables(data)
    assert {row["tokens"] for row in tables["footprint"].rows} == {None}
    assert "memprobe score" in tables["footprint"].notes[0]
    assert not tables["windows"].rows
    assert "characters" in chart(data, "footprint").figure["layout"]["xaxis"]["title"]["text"]
    assert "windows" not in {made.id for made in all_charts(data)}


def test_a_store_too_long_for_a_window_is_marked_and_not_scored(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=2)
    tokens = min(r["tokens"] for r in store.read("footprints") if r["system"] == "rag")
    data = load(store, (f"small={tokens}", "openai/gpt-4o"))
    rows = [row for row in all_tables(data)["windows"].rows if row["system"] == "rag"]
    small, known = (next(r for r in rows if r["reader"] == n) for n in ("small", "openai/gpt-4o"))
    assert (small["over"], known["over"]) == ("2/2", "0/2")
    assert small["largest"] >= 100.0
    assert known["window"] == 128000
    bars = chart(data, "windows")
    assert "rag<br>⚠ 2 of 2 too long" in trace(bars, f"small ({tokens:,})")["y"]
    assert {t["name"] for t in bars.figure["data"]} == {
        f"small ({tokens:,})",
        "openai/gpt-4o (128,000)",
    }
    (line,) = bars.figure["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 100
    scored = {row["scored"] for row in all_tables(data)["headline"].rows}
    assert scored == {"62/62"}


def test_a_huge_share_is_drawn_short_and_said_in_full(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=1, systems=("rag",))
    bars = chart(load(store, ("tiny=10",)), "windows").figure["data"][0]
    assert bars["x"] == [300.0]
    (tokens,) = (r["tokens"] for r in store.read("footprints"))
    assert f"{10 * tokens:,.1f} %, 1 of 1 too long" in bars["text"][0]


def test_the_readers_own_window_comes_first_and_an_unknown_one_is_said(tmp_path: Path) -> None:
    known = make_run(tmp_path / "a", users=1, model="openai/m", context_window=5000)
    rows = all_tables(load(known))["windows"].rows
    assert (rows[0]["reader"], rows[0]["source"], rows[0]["window"]) == (
        "openai/m",
        "reader",
        5000,
    )
    unknown = make_run(tmp_path / "b", users=1, model="openai/unheard-of")
    table = all_tables(load(unknown))["windows"]
    assert {row["source"] for row in table.rows} == {"well known"}
    assert "not known" in table.notes[0]
    with pytest.raises(UsageError, match="no window is known"):
        load(unknown, ("openai/unheard-of",))


def test_the_budget_line_ends_at_the_whole_store(tmp_path: Path) -> None:
    data = load(make_run(tmp_path / "run", users=2, ks=(1, 3, 5)))
    made = chart(data, "budget")
    line = trace(made, "rag")
    assert line["x"] == [40, 120, 200, 2480]
    sizes = line["marker"]["size"]
    assert sizes[-1] > max(sizes[:-1])
    assert not any("open" in symbol for symbol in line["marker"]["symbol"])
    assert "hollow" not in made.title
    assert "nomem" not in {t["name"] for t in made.figure["data"]}  # nothing is read there
    rows = [r for r in all_tables(data)["budget"].rows if r["system"] == "rag"]
    assert [r["read"] for r in rows] == [
        "retrieve k=1",
        "retrieve k=3",
        "retrieve k=5",
        "dump_all",
    ]
    assert [r["scored"] for r in rows] == ["62/62"] * 4


def test_a_point_with_too_few_scores_is_hollow_and_the_title_says_so(tmp_path: Path) -> None:
    gone = {"status": "unscored", "reason": "store_overflow", "label": None}

    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table not in ("slot_fills", "verdicts"):
            return rows
        out = []
        for row in rows:
            lost = row["system"] == "rag" and row["k"] is None and row["user_id"] == "user_000"
            blank = gone | ({"score": None} if table == "verdicts" else {})
            out.append({**row, **blank} if lost else row)
        return out

    data = load(make_run(tmp_path / "run", users=2, ks=(1, 3), edit=edit))
    made = chart(data, "budget")
    symbols = trace(made, "rag")["marker"]["symbol"]
    assert [symbol.endswith("-open") for symbol in symbols] == [False, False, True]
    assert "hollow: too few items scored" in made.title
    assert "hollow" in chart(data, "footprint").title
    whole = all_tables(data)["budget"].rows[-1]
    assert (whole["scored"], whole["overflow"], whole["tokens"]) == ("31/62", 31, 2480)


def test_another_layer_of_reading_has_a_line_of_its_own(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table not in ("slot_fills", "verdicts"):
            return rows
        again = [{**r, "layer": "chunked"} for r in rows if r["k"] is None and r["system"] == "rag"]
        return [*rows, *again]

    data = load(make_run(tmp_path / "run", users=1, edit=edit))
    assert len(trace(chart(data, "budget"), "rag · chunked")["x"]) == 1
    rows = all_tables(data)["budget"].rows
    assert [r["read"] for r in rows if r["layer"] == "chunked"] == ["dump_all"]


def test_ingestion_shows_the_price_of_the_work_beside_what_was_paid(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table != "calls":
            return rows
        base = rows[0]
        mine = [memory_call(base, "rag", n, ledger_hit=n > 0) for n in range(2)]
        other = memory_call(base, "longctx_full", 0, cost_usd=None)
        return [*rows, *mine, other]

    data = load(make_run(tmp_path / "run", users=1, edit=edit))
    table = all_tables(data)["ingestion"]
    rows = {row["system"]: row for row in table.rows}
    rag = rows["rag"]
    assert (rag["messages"], rag["calls"], rag["ledger_hits"]) == (31, 2, 1)
    assert (rag["work_usd_per_user"], rag["paid_usd"]) == (0.62, 0.31)
    assert rag["work_usd_per_1000_messages"] == pytest.approx(20.0)
    assert rag["prompt_tokens_per_message"] == 60
    assert (rag["seconds_per_message"], rag["replayed_s"]) == (pytest.approx(0.002), 1.0)
    assert (rows["nomem"]["calls"], rows["nomem"]["work_usd"]) == (0, 0.0)
    assert rows["longctx_full"]["work_usd"] is None
    cells = table.cells(rows["longctx_full"])
    assert cells[-3:] == ["unknown"] * 3
    bars = chart(data, "ingestion-tokens")
    assert trace(bars, "tokens in")["x"] == [0, 30, 60]
    assert trace(bars, "tokens out")["x"] == [0, 2, 4]


def test_no_chart_of_tokens_without_calls_of_the_memory(tmp_path: Path) -> None:
    data = load(make_run(tmp_path / "run", users=1))
    drawn = {made.id for made in all_charts(data)}
    assert "ingestion-tokens" not in drawn
    assert "ingestion-seconds" in drawn


def test_an_empty_run_has_the_tables_and_none_of_the_charts(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=1, edit=lambda table, rows: [])
    data = load(store)
    tables = all_tables(data)
    assert all(not tables[name].rows for name in NEW)
    assert not all_charts(data)
    assert "no messages were written" in build_report(store).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NEW)
def test_a_systems_name_is_text_in_every_format(tmp_path: Path, name: str) -> None:
    system = "=x<b>|y&\\z_"
    data = load(make_run(tmp_path / "run", users=1, systems=(system, "rag"), ks=(1, 5)))
    table = all_tables(data)[name]
    texts = {kind: write(table) for kind, write in WRITERS.items()}
    cells = list(csv.reader(io.StringIO(texts["csv"], newline="")))
    assert any(cell == f"'{system}" for row in cells for cell in row)
    assert "<b>" not in texts["md"].replace("\\<b\\>", "")
    assert r"\textless{}b\textgreater{}" in texts["tex"]
    for made in all_charts(data):
        for drawn in made.figure["data"]:
            ends = drawn["y"] if drawn["type"] == "bar" else []
            assert "<b>" not in " ".join([drawn.get("name", ""), *map(str, ends)])
