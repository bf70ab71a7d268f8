"""The report over a hundred times the data of the demo: seconds, seconds a megabyte, ratio.

    python -m benchmarks.bench_report [--users 800] [--small 8] [--keep DIR]

Runs are synthetic, written through the run store. `ratio` is the time over the
large run divided by that over the small one; linear work would give
users / small. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from unittest import mock

from benchmarks import common
from storage.runs import RunStore
from tasks.report import build_report, load
from tests.report.make_run import make_run


def _run(folder: Path, users: int) -> RunStore:
    if RunStore.exists(folder):
        return RunStore.open(folder)
    # Writing the input durably is not what is measured.
    with mock.patch.object(os, "fsync", return_value=None):
        return make_run(folder, users=users)


def measure(folder: Path, users: int) -> dict[str, float]:
    """Build the report of a run of that many users; sizes in MB (10**6 bytes)."""
    store = _run(folder, users)
    artifacts = sum(p.stat().st_size for p in (folder / "artifacts").rglob("*.parquet")) / 1e6
    start = time.perf_counter()
    load(store)
    figures = time.perf_counter() - start
    start = time.perf_counter()
    page = build_report(store)
    seconds = time.perf_counter() - start
    size = page.stat().st_size / 1e6
    return {
        "users": users,
        "verdicts": store.scan("verdicts").num_rows,
        "artifacts_mb": round(artifacts, 2),
        "report_mb": round(size, 2),
        "figures_s": round(figures, 3),
        "report_s": round(seconds, 3),
        "s_per_artifact_mb": round(seconds / artifacts, 3),
        "s_per_report_mb": round(seconds / size, 3),
    }


def main() -> None:
    """Measure both sizes and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--users", type=int, default=800)
    parser.add_argument("--small", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="keep the synthetic runs here and use them again")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = options.keep or Path(temporary)
        measure(home / f"report-{options.small}", options.small)  # imports and caches, once
        small = measure(home / f"report-{options.small}", options.small)
        large = measure(home / f"report-{options.users}", options.users)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    result = {
        "small": small,
        "large": large,
        "data_ratio": options.users / options.small,
        "ratio": round(large["report_s"] / small["report_s"], 2),
        "peak_rss_mb": round(peak),
    }
    print(json.dumps(common.record("report", result, options.out)))


if __name__ == "__main__":
    main()
