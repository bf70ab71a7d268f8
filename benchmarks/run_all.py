"""All benchmarks, one line each: `make bench`.

    python -m benchmarks.run_all [--quick] [--only NAME ...]

Each runs in a process of its own, prints its ratio and writes
`benchmarks/results/<name>.json`. `--quick` is a small version of each, to see that it
works; its figures mean little and go to `benchmarks/results/quick`. Exits with 1 when
one of them failed to run; a target that was missed is shown and is no failure of the
benchmark, as it depends on the machine and on what else runs there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import common

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark: its module, its arguments, and what of its result is shown.

    A ratio of at most 1 meets the target, `higher` ones at least 1. `field` is a path
    of keys; `target` divides the figure.
    """

    name: str
    module: str
    quick: tuple[str, ...]
    field: tuple[str, ...]
    target: float
    what: str
    full: tuple[str, ...] = ()
    higher: bool = False

    def figure(self, result: Result) -> float:
        """The figure that the target is about."""
        value: Any = result
        for key in self.field:
            value = value[key]
        return float(value)

    def line(self, result: Result) -> str:
        """One line: figure, target, ratio of the two."""
        figure = self.figure(result)
        ratio = figure / self.target
        met = ratio >= 1 if self.higher else ratio <= 1
        sign = ">=" if self.higher else "<="
        return (
            f"{self.name:<14} {self.what}: {figure:,.3f} (target {sign} {self.target:g}), "
            f"ratio {ratio:.3f} {'met' if met else 'MISSED'}"
        )


ALL = (
    Bench(
        "critical_path",
        "benchmarks.bench_critical_path",
        ("--users", "2", "--limit", "1", "--systems", "nomem"),
        ("ratio",),
        1.15,
        "wall over critical path, most users",
        full=("--users", "8", "16", "--systems", "nomem"),
    ),
    Bench(
        "live_overhead",
        "benchmarks.bench_live_overhead",
        ("--calls", "8", "--rounds", "1"),
        ("added_cpu_ms",),
        1.0,
        "CPU ms a live call on top of litellm",
    ),
    Bench(
        "ledger",
        "benchmarks.bench_ledger",
        ("--calls", "128"),
        ("replays_per_s_from_file",),
        3000.0,
        "ledger hits a second",
        higher=True,
    ),
    Bench(
        "encodes",
        "benchmarks.bench_encodes",
        ("--users", "1", "--limit", "1"),
        ("ratio",),
        1.0,
        "encodings a distinct text",
    ),
    Bench(
        "report",
        "benchmarks.bench_report",
        ("--users", "4", "--small", "2"),
        ("ratio",),
        100.0,
        "report over 100x data, time ratio",
    ),
    Bench(
        "tables",
        "benchmarks.bench_tables",
        ("--users", "16"),
        ("score_s",),
        5.0,
        "seconds to score 5,000 users",
    ),
    Bench(
        "import",
        "benchmarks.bench_import",
        ("--users", "1"),
        ("import_over_bound",),
        1.0,
        "import of 40 users over 60 s",
    ),
    Bench(
        "mem0",
        "benchmarks.bench_mem0",
        ("--messages", "4", "--rounds", "1"),
        ("share",),
        0.05,
        "our share of mem0's ingestion time",
    ),
)


def run(bench: Bench, quick: bool, folder: Path) -> tuple[Result | None, str]:
    """Run one; its result, or None and what went wrong."""
    out = folder / f"{bench.name}.json"
    arguments = bench.quick if quick else bench.full
    command = [sys.executable, "-m", bench.module, *arguments, "--out", str(out)]
    out.unlink(missing_ok=True)
    done = subprocess.run(command, cwd=common.HOME, capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr or done.stdout).strip()[-1500:]
    try:
        return json.loads(out.read_text(encoding="utf-8")), ""
    except (OSError, ValueError) as error:
        return None, f"no result: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[b.name for b in ALL])
    parser.add_argument("--results", type=Path, help="write the JSON files here")
    given = parser.parse_args()
    folder = given.results or (common.RESULTS / "quick" if given.quick else common.RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    if os.name == "posix" and not given.quick and (busy := os.getloadavg()[0]) > 1:
        print(f"the machine is busy (load {busy:.1f}): times will be worse than they are")
    failed = []
    for bench in ALL:
        if given.only and bench.name not in given.only:
            continue
        begun = time.perf_counter()
        result, problem = run(bench, given.quick, folder)
        if result is None:
            failed.append(bench.name)
            print(f"{bench.name:<14} FAILED: {problem}", flush=True)
        else:
            print(f"{bench.line(result)} [{time.perf_counter() - begun:.0f} s]", flush=True)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
