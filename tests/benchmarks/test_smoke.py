"""Every benchmark runs small and writes its figures; how large they are is no test's business."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench_critical_path, bench_ledger, bench_live_overhead, calibrate_embedded
from benchmarks.calibrate_embedded import Sample
from benchmarks.run_all import ALL, Bench, run


@pytest.mark.parametrize("bench", ALL, ids=[bench.name for bench in ALL])
def test_a_small_version_runs_and_tells_its_ratio(bench: Bench, tmp_path: Path) -> None:
    result, problem = run(bench, True, tmp_path)
    assert result is not None, problem
    assert result == json.loads((tmp_path / f"{bench.name}.json").read_text())
    assert result["benchmark"] == bench.name
    assert f"ratio {bench.figure(result) / bench.target:.3f}" in bench.line(result)


def test_a_benchmark_that_breaks_is_told(tmp_path: Path) -> None:
    broken = Bench("ledger", "benchmarks.bench_ledger", ("--calls", "many"), ("x",), 1.0, "nothing")
    result, problem = run(broken, True, tmp_path)
    assert result is None
    assert "many" in problem


def test_encodings_are_counted_once_and_never_again(tmp_path: Path) -> None:
    bench = next(b for b in ALL if b.name == "encodes")
    result, problem = run(bench, True, tmp_path)
    assert result is not None, problem
    assert (result["ratio"], result["encoded_again"]) == (1.0, 0)
    assert result["distinct_texts"] > 10


def test_added_users_ask_for_something_of_their_own(tmp_path: Path) -> None:
    home = bench_critical_path.dataset_of(tmp_path, 10)
    users = [json.loads(p.read_bytes()) for p in sorted((home / "users").glob("*.json"))]
    assert len({u["user_id"] for u in users}) == 10
    tasks = [task["task"] for user in users for task in user["tasks"]]
    assert len(set(tasks)) == len(tasks)


class _Tables:
    """The tables of a run whose chain is known."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def scan(self, table: str) -> _Tables:
        return _Tables(only=self.rows[table])

    def select(self, _: list[str]) -> _Tables:
        return self

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.rows["only"]


def test_the_critical_path_counts_the_calls_that_waited_for_one_another() -> None:
    who = {"system": "rag", "user_id": "u"}
    at = {**who, "access_mode": "dump_all", "k": None, "dimension": "tea"}
    store = _Tables(
        turns=[who, who, who],
        slot_fills=[{**at, "call_id": "f", "prompt_tokens": 2000}],
        verdicts=[{**at, "call_id": "j"}],
        attributions=[{**at, "disclosure_call": "d", "subclass_call": None}],
    )
    # Three turns of two calls, then warming, slot-fill, judge and disclosure.
    assert bench_critical_path.chain_lengths(store) == {("rag", "u"): 10}


def _samples(pairs: list[tuple[float, bool]]) -> list[Sample]:
    return [Sample(f"u{i % 3}", cosine, positive) for i, (cosine, positive) in enumerate(pairs)]


def test_a_threshold_lies_between_what_it_separates() -> None:
    apart = _samples([(0.1, False), (0.15, False), (0.5, True), (0.6, True)] * 3)
    cut = calibrate_embedded.best(apart)
    assert 0.15 < cut <= 0.5
    assert calibrate_embedded.rates(apart, cut) == (6, 0, 0, 6)
    assert calibrate_embedded.balanced(apart, cut) == 1.0


def test_a_threshold_keeps_the_share_of_positives_that_it_must() -> None:
    mixed = _samples([(0.01 * i, True) for i in range(100)] + [(0.5, False)] * 50)
    free = calibrate_embedded.best(mixed)
    bound = calibrate_embedded.best(mixed, 0.10)
    assert free > 0.5 > bound
    assert calibrate_embedded.rates(mixed, bound)[2] <= 10


def test_figures_hold_each_user_out() -> None:
    told = calibrate_embedded.figures(
        _samples([(0.1, False), (0.7, True), (0.2, False), (0.8, True)] * 3),
        calibrate_embedded.best,
        0.75,
    )
    assert told["balanced_accuracy"] == told["held_out_balanced_accuracy"] == 1.0
    assert told["balanced_accuracy_present"] == 0.75
    assert told["n_positive"] + told["n_negative"] == 12


def test_questions_are_all_different() -> None:
    keys = {request.messages for request in bench_ledger.requests(20, "x")}
    assert len(keys) == 20
    assert bench_live_overhead.question("a").messages != bench_live_overhead.question("b").messages
