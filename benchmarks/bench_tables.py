"""Time and memory of the tables over many users: synthetic parts, one a user and table.

    python -m benchmarks.bench_tables [--users 5000] [--out FILE]

Prints JSON: seconds to score all metrics and to query the summary view from the packs
that a run makes of its parts (`--unpacked` also from the parts alone), processor
seconds of each (on a busy machine they tell more), peak memory of a fresh process
that does both, and each as a ratio of its bound (<= 1 is met).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import common

BOUND_S = 5.0
BOUND_MB = 1024.0
CATEGORIES = {
    "skill_memory": 7,
    "knowledge_memory": 7,
    "episodic_memory": 7,
    "self_model": 5,
    "assistance_preference": 5,
}
MODES = (("dump_all", None), ("retrieve", 1), ("retrieve", 5))


def make_run(folder: Path, users: int) -> Path:
    """A run of one system with all tables that scoring reads."""
    from memprobe.config import RunConfig
    from storage.manifest import Manifest
    from storage.runs import RunStore, Unit

    config = RunConfig(name="bench", systems=("synthetic",), k=(1, 5))
    store = RunStore.create(
        folder / "bench", Manifest.start(config, dataset_name="synthetic", dataset_digest="0")
    )
    # A bench measures reading; durable writes of 5 tables x 5,000 users would only take time.
    store.files.write = lambda path, data: _write(store.files.path / path, data)
    draw = random.Random(7)
    targets = [(c, f"{c}_{i}") for c, n in CATEGORIES.items() for i in range(n)]
    for number in range(users):
        user = f"user_{number:05d}"
        base = {"system": "synthetic", "user_id": user, "epoch": 1}
        store.commit(
            Unit("rollout", "synthetic", user), "bench", _rollout_rows(base, targets, draw)
        )
        store.commit(
            Unit("recover", "synthetic", user), "bench", _recovery_rows(base, targets, draw)
        )
    return folder / "bench"


def pack_as_a_run_does(run: Path) -> dict[str, float]:
    """Pack all parts, which a run does beside its calls; gives what a user's parts cost."""
    from storage.packed import pack
    from storage.runs import RunStore

    store = RunStore.open(run)
    begun = time.process_time()
    parts = pack(store)
    spent = time.process_time() - begun
    return {"pack_cpu_s": round(spent, 3), "pack_cpu_ms_per_part": round(1000 * spent / parts, 3)}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _rollout_rows(
    base: dict[str, Any], targets: list[tuple[str, str]], draw: random.Random
) -> dict[str, list[dict[str, Any]]]:
    episodes: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    for episode, (category, dimension) in enumerate(targets, 1):
        turns = draw.randint(1, 4)
        episodes.append(
            {
                **base,
                "episode": episode,
                "category": category,
                "dimension": dimension,
                "task": "a task of this user",
                "event_time": "2026-01-01T09:00:00+00:00",
                "end_reason": "satisfied",
                "n_turns": turns,
                "status": "scored",
            }
        )
        scores += [
            {
                **base,
                "episode": episode,
                "turn": turn,
                "idx": idx,
                "dimension": f"assistance_preference_{idx - 1}",
                "score": draw.randint(3, 5),
                "status": "scored",
            }
            for turn in range(1, turns + 1)
            for idx in range(1, 6)
        ]
        for _ in range(2 * turns):
            length = draw.randint(40, 400)
            items.append(
                {
                    **base,
                    "seq": len(items),
                    "item_id": str(len(items)),
                    "content": "x" * length,
                    "chars": length,
                }
            )
    return {"episodes": episodes, "preference_scores": scores, "memory_items": items}


def _recovery_rows(
    base: dict[str, Any], targets: list[tuple[str, str]], draw: random.Random
) -> dict[str, list[dict[str, Any]]]:
    verdicts: list[dict[str, Any]] = []
    blamed: list[dict[str, Any]] = []
    for access_mode, k in MODES:
        for category, dimension in targets:
            score = draw.choice((0.0, 0.25, 0.5, 0.75, 1.0))
            row = {
                **base,
                "layer": "base",
                "access_mode": access_mode,
                "k": k,
                "category": category,
                "dimension": dimension,
                "score": score,
                "status": "scored",
            }
            verdicts.append({**row, "label": "a value"})
            blamed.append({**row, "label": "ok" if score >= 0.75 else "memory_failure"})
    return {"verdicts": verdicts, "attributions": blamed}


def measure(run: Path) -> dict[str, float]:
    """Score and query in this process."""
    from storage.catalog import query
    from storage.runs import RunStore
    from tasks.score import score_run

    store = RunStore.open(run)
    started, cpu_started = time.perf_counter(), time.process_time()
    result = score_run(store)
    scored, cpu_scored = time.perf_counter(), time.process_time()
    rows = query(store, "SELECT * FROM recovery_summary").rows
    done, cpu_done = time.perf_counter(), time.process_time()
    assert len(rows) == len(MODES), rows
    assert all(row[8] is not None and row[9] is not None for row in rows), rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "verdicts": result.n_total,
        "score_s": round(scored - started, 3),
        "score_cpu_s": round(cpu_scored - cpu_started, 3),
        "summary_query_s": round(done - scored, 3),
        "summary_query_cpu_s": round(cpu_done - cpu_scored, 3),
        "peak_mb": round(peak / (1024 if sys.platform == "linux" else 1024**2), 1),
    }


def _fresh(run: Path) -> dict[str, float]:
    """The figures of a process that has nothing in memory yet."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_tables", "--measure", str(run)],
        cwd=common.HOME,
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--unpacked", action="store_true", help="also read the parts themselves")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), options.users)
        unpacked = _fresh(run) if options.unpacked else None
        packing = pack_as_a_run_does(run) if options.users >= 128 else {}
        figures = _fresh(run)
    report = {
        "users": options.users,
        **packing,
        **figures,
        **({"unpacked": unpacked} if unpacked else {}),
        "score_over_bound": round(figures["score_s"] / BOUND_S, 3),
        "summary_query_over_bound": round(figures["summary_query_s"] / BOUND_S, 3),
        "memory_over_bound": round(figures["peak_mb"] / BOUND_MB, 3),
    }
    print(json.dumps(common.record("tables", report, options.out)))


if __name__ == "__main__":
    main()
