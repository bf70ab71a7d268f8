"""The figures say what the stored rows say, and no more."""

from pathlib import Path
from typing import Any

import pytest

from memprobe.types import Protocol
from tasks.report import build_report, load, summary_markdown
from tasks.report.build import statements
from tasks.report.charts import all_charts
from tasks.report.data import compare, refusals, verdict_notice, warnings
from tasks.report.sections import all_tables
from tests.report.make_run import Row, make_run


def _unscored(rows: list[Row], reason: str = "provider_error") -> list[Row]:
    gone = {"score": None, "status": "unscored", "reason": reason, "detail": "HTTP 500"}
    return [{**row, **gone, "label": None, "judge_reason": None} for row in rows]


def _failed(rows: list[Row]) -> list[Row]:
    return [
        {
            **row,
            "label": "harness_failure",
            "score": None,
            "status": "unscored",
            "reason": "provider_error",
        }
        for row in rows
    ]


def _outage(table: str, rows: list[Row]) -> list[Row]:
    if table == "verdicts":
        return _unscored(rows)
    return _failed(rows) if table == "attributions" else rows


def test_headline_is_b_by_the_published_formula(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=3)
    per_user: dict[str, dict[str, list[float]]] = {}
    for row in store.scan("verdicts").to_pylist():
        if row["system"] == "rag" and row["access_mode"] == "dump_all":
            per_user.setdefault(row["user_id"], {}).setdefault(row["category"], []).append(
                row["score"]
            )
    means = [
        sum(sum(s) / len(s) for s in categories.values()) / len(categories)
        for categories in per_user.values()
    ]
    rows = all_tables(load(store))["headline"].rows
    found = next(r for r in rows if r["system"] == "rag" and r["read"] == "dump_all")
    assert found["b"] == pytest.approx(sum(means) / len(means))
    assert found["scored"] == "93/93"
    lo, hi = found["interval"]
    assert lo <= found["b"] <= hi


def test_nothing_scored_is_said_and_no_figure_is_made_up(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=2, edit=_outage)
    data = load(store)
    tables = all_tables(data)
    assert all(row["b"] is None for row in tables["headline"].rows)
    assert {row["coverage"] for row in tables["headline"].rows} == {0.0}
    assert {"verdicts", "attributions"} <= {row["item"] for row in tables["unscored"].rows}
    drawn = {chart.id for chart in all_charts(data)}
    assert not drawn & {"scores", "slope", "footprint"}
    assert not statements(data)
    text = summary_markdown(data)
    assert "0/62" in text
    assert "Not ranked" in text
    page = build_report(store).read_text(encoding="utf-8")
    assert "No pair of systems can be compared" in page


def test_a_run_without_verdicts_still_gives_a_report(tmp_path: Path) -> None:
    dropped = {"verdicts", "slot_fills", "attributions", "retrievals", "operations", "judge_checks"}
    store = make_run(
        tmp_path / "run", users=1, edit=lambda table, rows: [] if table in dropped else rows
    )
    page = build_report(store).read_text(encoding="utf-8")
    assert "no scored samples" in page
    assert "no planted answers were judged" in page


def test_low_coverage_refuses_the_ranking_of_that_way_only(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table != "verdicts":
            return rows
        lost = [r for r in rows if r["system"] == "rag" and r["access_mode"] == "dump_all"][:5]
        return [*_unscored(lost, "timeout"), *(r for r in rows if r not in lost)]

    data = load(make_run(tmp_path / "run", users=4, edit=edit))
    assert set(data.refused) == {"dump_all"}
    assert "rag has 104/124" in data.refused["dump_all"]
    order = [r["system"] for r in data.summary if r["access_mode"] == "dump_all"]
    assert order == ["nomem", "longctx_full", "rag"]  # the order asked for, not a ranking
    assert not any(said.startswith("dump_all") for said in statements(data))
    assert any(said.startswith("retrieve k=5") for said in statements(data))
    assert {
        r["result"] for r in all_tables(data)["comparisons"].rows if r["read"] == "dump_all"
    } == {"not ranked"}


def test_overlapping_systems_show_no_difference() -> None:
    rows = [
        {"system": s, "access_mode": "dump_all", "k": None, "user_id": f"u{n}", "b": b}
        for s, shift in (("a", 0.0), ("b", 0.01))
        for n, b in enumerate(
            0.5 + shift + (0.1 if (n + (s == "a")) % 2 else -0.1) for n in [*range(8)]
        )
        for s in [s]
    ]
    (only,) = compare(rows, seed=7)
    assert not only.shown
    assert "no difference shown" in only.says
    assert "more than" not in only.says


@pytest.mark.parametrize(
    ("ks", "title"),
    [
        ((5,), "Whole store against top-5"),
        ((1, 5, 10), "Whole store against top-10, the largest k of 1, 5, 10"),
    ],
)
def test_the_slope_says_which_k_it_shows(tmp_path: Path, ks: tuple[int, ...], title: str) -> None:
    data = load(make_run(tmp_path / "run", users=1, ks=ks))
    (slope,) = [chart for chart in all_charts(data) if chart.id == "slope"]
    assert slope.title == title
    assert all(f"top-{ks[-1]}" in trace["x"] for trace in slope.figure["data"])


def test_one_of_a_thing_is_not_counted_as_many(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=1, systems=("rag",))
    page = build_report(store).read_text(encoding="utf-8")
    assert "1 user, 31 targets, 1 system:" in page
    visible = page[page.index("<body>") : page.index("<script")]
    assert "1 users" not in visible
    assert "The only user is here." in visible


def test_a_clear_difference_names_the_better_first() -> None:
    rows = [
        {"system": s, "access_mode": "dump_all", "k": None, "user_id": f"u{n}", "b": b + n / 100}
        for s, b in (("low", 0.2), ("high", 0.7))
        for n in range(8)
    ]
    (only,) = compare(rows, seed=7)
    assert (only.better, only.other, only.shown) == ("high", "low", True)
    assert only.difference == pytest.approx(0.5)


def test_one_user_is_too_few_to_compare() -> None:
    rows = [
        {"system": s, "access_mode": "dump_all", "k": None, "user_id": "u", "b": b}
        for s, b in (("low", 0.2), ("high", 0.7))
    ]
    assert compare(rows, seed=7) == []


def test_refusal_says_who_and_how_far() -> None:
    row: dict[str, Any] = {"system": "s", "access_mode": "retrieve", "k": 3}
    said = refusals([{**row, "n_scored": 9, "n_total": 10}], 0.95)
    assert said == {"retrieve k=3": "s has 9/10 items scored (90.0%), under the threshold of 95%"}
    assert refusals([{**row, "n_scored": 0, "n_total": 0}], 0.95)
    assert not refusals([{**row, "n_scored": 10, "n_total": 10}], 0.95)


def test_unknown_prices_stay_unknown_and_shared_answers_are_counted(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table != "calls":
            return rows
        paid = {**rows[0], "system": "nomem", "call_id": "shared", "cost_usd": 0.5}
        replay = {**paid, "system": "rag", "ledger_hit": True, "cost_usd": 0.0}
        unknown = {**rows[0], "system": "longctx_full", "call_id": "other", "cost_usd": None}
        return [paid, replay, unknown]

    tables = all_tables(load(make_run(tmp_path / "run", users=1, edit=edit)))
    costs = {row["system"]: row["cost"] for row in tables["footprint"].rows}
    assert costs == {"nomem": 0.5, "rag": 0.5, "longctx_full": None}
    (calls,) = tables["calls"].rows
    assert calls["cost_usd"] is None
    assert "unknown" in tables["calls"].cells(calls)


def test_judge_check_gives_sensitivity_and_specificity_with_their_counts(tmp_path: Path) -> None:
    table = all_tables(load(make_run(tmp_path / "run", users=1)))["judge-check"]
    assert "1.000 (4/4)" in table.notes[0]
    assert "0.875 (7/8)" in table.notes[0]


def test_duplicates_are_counted_within_a_store(tmp_path: Path) -> None:
    def edit(table: str, rows: list[Row]) -> list[Row]:
        if table != "memory_items":
            return rows
        return [{**row, "content": "twin"} if row["seq"] < 32 else row for row in rows]

    tables = all_tables(load(make_run(tmp_path / "run", users=1, edit=edit)))
    found = {row["system"]: row["duplicates"] for row in tables["footprint"].rows}
    assert found["rag"] == pytest.approx(100 * 31 / 62)
    assert found["nomem"] is None


def test_the_first_line_tells_whose_verdicts_these_are(tmp_path: Path) -> None:
    embedded = make_run(tmp_path / "a", users=1)
    assert verdict_notice(embedded.manifest).startswith("Embedded deterministic verdicts")
    assert summary_markdown(load(embedded)).splitlines()[2].startswith("Embedded deterministic")
    remote = make_run(tmp_path / "b", users=1, model="openai/m", protocol=Protocol.PAPER)
    assert verdict_notice(remote.manifest) == "Verdicts by the judge model openai/m."
    said = " ".join(warnings(load(remote)))
    assert "self judged" in said
    assert "protocol paper" in said
    assert not warnings(load(embedded))


def test_several_k_make_a_sweep_and_one_does_not(tmp_path: Path) -> None:
    one = {c.id for c in all_charts(load(make_run(tmp_path / "one", users=1)))}
    many = {c.id for c in all_charts(load(make_run(tmp_path / "many", users=1, ks=(1, 3, 5))))}
    assert many - one == {"sweep"}


def test_every_chart_points_at_a_table_of_the_page(tmp_path: Path) -> None:
    data = load(make_run(tmp_path / "run", users=2, ks=(1, 5)))
    assert {chart.table for chart in all_charts(data)} <= set(all_tables(data))
