"""The published tables from a run: by hand on a small release, and what a run does not have."""

from __future__ import annotations

import json
import math
import statistics
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import UsageError
from storage.catalog import query
from storage.runs import RunStore
from tasks import paper_tables
from tasks.paper_figures import Cell, PaperFigures, leaves, paper_figures
from tasks.score import score_run
from tests.importers.release import CATEGORIES, RUNS, TARGETS, change, load, make_release
from tests.importers.support import imported
from tests.report.make_run import make_run

USERS = ("user_001", "user_002", "user_003")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunStore, PaperFigures]:
    folder = tmp_path_factory.mktemp("tables")
    root = make_release(folder, USERS)
    run, found = imported(root, folder / "pub")
    assert found.lost == 0
    return root, run, paper_figures(run)


def by_user(root: Path, run: str, user: str) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for detail in load(root / f"output/{run}/recon_judge/{user}.json")["details"]:
        scores.setdefault(detail["category"], []).append(detail["score"])
    return {category: statistics.mean(values) for category, values in scores.items()}


Home = tuple[Path, RunStore, PaperFigures]


def test_recovery_is_the_mean_of_category_means_then_over_users(home: Home) -> None:
    root, _, figures = home
    for system, run in RUNS.items():
        for short, suffix in (("dump", ""), ("retrieve", "_retrieve")):
            row = figures.tables["table2"][system]
            if system == "nomem" and suffix:
                assert row["B_retrieve_mean"].value is None
                assert "no retrieval" in row["B_retrieve_mean"].why
                continue
            means = [by_user(root, run + suffix, user) for user in USERS]
            b = [statistics.mean(one.values()) for one in means]
            assert row[f"B_{short}_mean"].value == pytest.approx(statistics.mean(b), abs=1e-12)
            assert row[f"B_{short}_std"].value == pytest.approx(statistics.stdev(b), abs=1e-12)
            assert row[f"B_{short}_mean"].n == row[f"B_{short}_mean"].total == 3
            name = f"{system}/{'dump_all' if short == 'dump' else short}"
            for category in CATEGORIES:
                mean, std = figures.tables["table3"][name][category]
                values = [one[category] for one in means]
                assert mean.value == pytest.approx(statistics.mean(values), abs=1e-12)
                assert std.value == pytest.approx(statistics.stdev(values), abs=1e-12)


def test_turns_preference_and_completion_are_per_user_first(home: Home) -> None:
    root, _, figures = home
    row = figures.tables["table2"]["mem0"]
    counts = []
    for user in USERS:
        files = list((root / f"history/{RUNS['mem0']}/{user}").glob("*.json"))
        counts.append(statistics.mean(len(load(f)["turns"]) for f in files))
    assert row["C_mean"].value == pytest.approx(statistics.mean(counts))
    assert row["C_std"].value == pytest.approx(statistics.stdev(counts))
    assert (row["A_pct"].value, row["D_mean"].value) == (100.0, 4.5)


def test_attributions_are_counts_and_the_rate_is_of_what_the_memory_was_given(home: Home) -> None:
    root, _, figures = home
    files = (root / f"output/{RUNS['amem']}_retrieve/attribution").glob("*.json")
    labels = [d["attribution"]["category"] for f in files for d in load(f)["details"]]
    row = figures.tables["table4"]["amem/retrieve"]
    for label in ("ok", "memory_failure", "agent_elicitation_failure"):
        assert row[label].value == labels.count(label)
        assert row[label].n == 3 * len(TARGETS)
    ok, failed = labels.count("ok"), labels.count("memory_failure")
    assert row["recovery_rate_pct"].value == pytest.approx(100 * ok / (ok + failed))
    assert row["recovery_rate_pct"].n == ok + failed
    by_category = figures.tables["table13"]["amem"]
    assert sum(c["ok"].value for c in by_category.values()) == (
        figures.tables["table4"]["amem/dump_all"]["ok"].value
    )


def test_footprint_quantiles_are_lower_order_statistics(tmp_path: Path) -> None:
    root = make_release(tmp_path, ("user_001", "user_002", "user_003", "user_004"))
    for n, user in enumerate(("user_001", "user_002", "user_003", "user_004"), 1):
        memories = [{"id": str(i), "content": "猫" * n} for i in range(10 * n)]
        path = root / f"memory/{RUNS['mem0']}/{user}/memories.json"
        change(path, lambda d, m=memories: d.update(num_memories=len(m), memories=m))
    run, _ = imported(root, tmp_path / "pub")
    figures = paper_figures(run).tables
    assert [c.value for c in figures["table14"]["mem0"]["items"]] == [25.0, 20.0, 40.0, 40.0]
    # Code points, not bytes.
    assert [c.value for c in figures["table14"]["mem0"]["chars"]] == [2.5, 2.0, 4.0, 4.0]
    assert "nomem" not in figures["table14"]
    whole = [statistics.mean(by_user(root, RUNS["mem0"], u).values()) for u in _users(4)]
    part = [
        statistics.mean(by_user(root, RUNS["mem0"] + "_retrieve", u).values()) for u in _users(4)
    ]
    gaps = [a - b for a, b in zip(whole, part, strict=True)]
    gap = figures["gap"]["mem0"]
    assert gap["median"].value == pytest.approx(statistics.median(gaps))
    assert (gap["min"].value, gap["max"].value) == (min(gaps), max(gaps))


def _users(n: int) -> list[str]:
    return [f"user_{i:03d}" for i in range(1, n + 1)]


def test_a_store_that_is_lost_is_not_an_empty_store(tmp_path: Path) -> None:
    root = make_release(tmp_path, USERS)
    (root / f"memory/{RUNS['mem0']}/user_001/memories.json").write_bytes(b"")
    run, _ = imported(root, tmp_path / "pub")
    cell = paper_figures(run).tables["table2"]["mem0"]["items_mean"]
    assert (cell.value, cell.n, cell.total) == (7.0, 2, 3)
    score_run(run)
    metrics = {
        r["metric"]: r for r in run.read("metrics") if r["system"] == "mem0" and r["n_total"] == 3
    }
    assert (metrics["items"]["value"], metrics["items"]["n_scored"]) == (7.0, 2)
    assert metrics["chars"]["n_scored"] == 2
    (summary,) = query(run, "select * from rollout_summary where system = 'mem0'").dicts()
    assert summary["items_mean"] == 7.0


def test_a_lost_record_lowers_n_and_is_never_a_zero(tmp_path: Path) -> None:
    root = make_release(tmp_path, USERS)
    for kind in ("recon_judge", "attribution"):
        (root / f"output/{RUNS['mem0']}/{kind}/user_001.json").unlink()
    run, _ = imported(root, tmp_path / "pub")
    figures = paper_figures(run).tables
    cell = figures["table2"]["mem0"]["B_dump_mean"]
    b = [statistics.mean(by_user(root, RUNS["mem0"], u).values()) for u in USERS[1:]]
    assert (cell.n, cell.total) == (2, 3)
    assert cell.value == pytest.approx(statistics.mean(b))
    assert figures["table4"]["mem0/dump_all"]["other"].value == len(TARGETS)


def test_tables_of_a_run_of_our_own(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=["user_001", "user_002"])
    figures = paper_figures(store)
    tables = paper_tables.layout(figures)
    assert [t.id for t in tables] == ["table2", "table3", "table4", "table13", "table14", "gap"]
    assert set(figures.systems) == set(store.manifest.system_names)
    text = paper_tables.to_text(tables)
    assert "longctx_full, full store" in text
    for cell in leaves(figures.tables).values():
        assert cell.value is not None or cell.why


def test_an_empty_run_has_no_rows_and_no_error(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=[])
    figures = paper_figures(store)
    for write in (paper_tables.to_text, paper_tables.to_latex):
        assert "Table 2" in write(paper_tables.layout(figures))


def test_every_figure_is_shown_with_its_n(home: Home) -> None:
    _, _, figures = home
    for table in paper_tables.layout(figures):
        for _, places in table.rows:
            for place in places:
                assert place is not None
                assert place.text == "—" or place.text.endswith("]"), table.id
    text = paper_tables.to_text(paper_tables.layout(figures))
    assert "the system has no retrieval of its own: nomem, B top-k" in text
    csv = paper_tables.to_csv(figures).splitlines()
    assert len(csv) == 1 + len(leaves(figures.tables))
    latex = paper_tables.to_latex(paper_tables.layout(figures))
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 6
    assert r"longctx\_full" in latex


def expected_of(figures: PaperFigures, digits: int) -> dict[str, Any]:
    """What a file of expected values would hold for this run."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            found = {k: plain(v) for k, v in value.items()}
            return {k: v for k, v in found.items() if v is not None}
        if isinstance(value, list):
            return [plain(v) for v in value]
        return None if value.value is None else round(value.value, digits)

    return {"users": list(figures.users), **plain(figures.tables)}


@pytest.mark.parametrize("digits", [1, 3, 9])
def test_the_run_is_as_expected_at_any_digits(home: Home, tmp_path: Path, digits: int) -> None:
    figures = home[2]
    path = tmp_path / "expected.json"
    path.write_text(json.dumps(expected_of(figures, digits)), encoding="utf-8")
    found = paper_tables.compare(figures, paper_tables.read_expected(path))
    assert found.differences == ()
    assert found.compared == sum(c.value is not None for c in leaves(figures.tables).values())


@pytest.mark.parametrize("number", ["1e-999999999", "1e999999999", "-1e999999", "0." + "1" * 5000])
def test_a_number_beyond_all_floats_is_a_difference(home: Home, number: str) -> None:
    (path, *_) = (p for p, c in leaves(home[2].tables).items() if c.value is not None)
    for value in (number, Decimal(number)):
        expected = {path[0]: {path[1]: {path[2]: value}}}
        (difference,) = paper_tables.compare(home[2], expected).differences
        assert (difference.table, difference.row) == path[:2]
        assert len(str(difference)) < 6000


def test_each_changed_value_is_named(home: Home, tmp_path: Path) -> None:
    figures = home[2]
    expected = expected_of(figures, 9)
    clean = json.dumps(expected)
    paths = [p for p, c in leaves(figures.tables).items() if c.value is not None]
    for path in paths[:: max(1, len(paths) // 40)]:
        wrong = json.loads(clean)
        place = wrong
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = round(place[path[-1]] + 2e-9, 9) if place[path[-1]] % 1 else 99
        (difference,) = paper_tables.compare(figures, _decimals(wrong)).differences
        assert difference.table == path[0]
        assert difference.row == path[1]
        assert str(path[-1]) in difference.cell or isinstance(path[-1], int)


def _decimals(value: Any) -> Any:
    return json.loads(json.dumps(value), parse_float=Decimal, parse_int=Decimal)


@pytest.mark.parametrize(
    ("given", "same"),
    [("0.500", True), ("0.5", True), (" 50.0 % ", False), ("0.501", False), ("a half", False),
     (None, False), ("NaN", False), (True, False)],
)  # fmt: skip
def test_values_written_as_texts(given: Any, same: bool) -> None:
    figures = PaperFigures("r", "base", (), ("s",), {"table2": {"s": {"B": Cell(0.5, 1, 1)}}})
    found = paper_tables.compare(figures, {"table2": {"s": {"B": given}}})
    assert (found.differences == ()) is same


def test_a_tie_may_be_rounded_either_way() -> None:
    figures = PaperFigures("r", "base", (), ("s",), {"t": {"s": {"D": Cell(4.6315, 5, 5)}}})
    for text, same in (("4.631", True), ("4.632", True), ("4.630", False), ("4.633", False)):
        found = paper_tables.compare(figures, {"t": {"s": {"D": text}}})
        assert (found.differences == ()) is same, text


def test_dropped_zeros_do_not_make_a_value_vaguer() -> None:
    cells = {"a": {"B": Cell(0.58004, 1, 1)}, "b": {"B": Cell(0.58123, 1, 1)}}
    figures = PaperFigures("r", "base", (), ("a", "b"), {"t": cells})
    expected = {"t": {"a": {"B": Decimal("0.58")}, "b": {"B": Decimal("0.58123")}}}
    (difference,) = paper_tables.compare(figures, expected).differences
    assert (difference.row, difference.got) == ("a", "0.58004 [1]")


def test_what_the_run_does_not_have_is_a_difference(home: Home) -> None:
    figures = home[2]
    expected = {
        "users": ["user_001", "user_009"],
        "table2": {"nomem": {"B_retrieve_mean": Decimal("0.1")}, "other": {"A_pct": Decimal(1)}},
        "table99": {"x": Decimal(1)},
    }
    lines = [str(d) for d in paper_tables.compare(figures, expected).differences]
    assert len(lines) == 4
    assert "user_009" in lines[0]
    assert "no retrieval of its own" in lines[1]
    assert lines[2:] == [
        "table2, other, A_pct: got no such cell, want 1",
        "table99, x: got no such cell, want 1",
    ]


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"users": []}', '{"table2": {"a": NaN}}', "[" * 10_000, "{"]
)
def test_a_file_of_expected_values_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "expected.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"expected\.json"):
        paper_tables.read_expected(path)


def test_no_figure_is_a_nan(home: Home) -> None:
    assert all(c.value is None or math.isfinite(c.value) for c in leaves(home[2].tables).values())
