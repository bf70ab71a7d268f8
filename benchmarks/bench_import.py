"""Time and memory of an import, and of the paper tables after it.

    python -m benchmarks.bench_import [--users 40] [--release DIR] [--out FILE]

Prints JSON: seconds and processor seconds of the import of a release in the public
layout, peak memory of its process, seconds of all paper tables afterwards, and each as a
ratio of its bound for 40 users (<= 1 is met). Without `--release`, an unpacked one, the
release is synthetic: the layout of the real one with 31 targets a user, about its
number of items a store and their length, and texts without meaning.
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

IMPORT_S, TABLES_S, MEMORY_MB, USERS = 60.0, 1.0, 1024.0, 40
RUNS = {
    "nomem_pooled_50": (0, 0),
    "amem_pooled_50": (110, 445),
    "longctx_full_pooled_50": (161, 716),
    "mem0_pooled_50": (213, 205),
    "memt_memonly_pooled_50": (480, 1027),
}
"""Items a store, and characters an item."""
CATEGORIES = {
    "skill_memory": 7,
    "knowledge_memory": 7,
    "episodic_memory": 7,
    "self_model": 5,
    "assistance_preference": 5,
}
TARGETS = [(c, f"{c}_{n}") for c, size in CATEGORIES.items() for n in range(size)]
WORDS = ("harbour", "violin", "ledger", "moss", "tram", "orchard", "kiln", "atlas", "ferry")


def _text(draw: random.Random, chars: int) -> str:
    words: list[str] = []
    while sum(map(len, words)) + len(words) < chars:
        words.append(draw.choice(WORDS))
    return " ".join(words)[:chars]


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def _item(run: str, n: int, draw: random.Random, chars: int) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"i{n}", "content": _text(draw, chars), "category": "fact"}
    if run.startswith("longctx"):
        del item["id"]
    if run.startswith("memt"):
        item["metadata"] = {
            "memory_content": _text(draw, 200),
            "original_turns": [_text(draw, 600)],
        }
    return item


def make_release(root: Path, users: int) -> None:
    """A synthetic release in the public layout."""
    draw = random.Random(7)
    names = [f"user_{n:03d}" for n in range(1, users + 1)]
    bank = []
    for user in names:
        truth = {pair: (_text(draw, 50), _text(draw, 250)) for pair in TARGETS}
        entries: dict[str, list[Any]] = {category: [] for category in CATEGORIES}
        for (category, dimension), (short, explanation) in truth.items():
            entries[category].append(
                {"dimension": dimension, "short": short, "explanation": explanation}
            )
        bank.append({"user_id": user, "base_profile": {"gender": "x"}, "memory_bank": entries})
        listed = [
            {"task": f"task {n} of {user}", "rationale": _text(draw, 150), "target_category": c,
             "target_dimension": d, "target_short": truth[c, d][0], "pipeline_note": ""}
            for n, (c, d) in enumerate(TARGETS, 1)
        ]  # fmt: skip
        tasks = {"user_id": user, "n_tasks": len(listed), "tasks": listed}
        _write(root / f"benchmark_data/CustomTasksPooledFinal/{user}.json", tasks)
        oracle = {d: {"can_invite": True, "reason": _text(draw, 150)} for _, d in TARGETS}
        _write(root / f"output/_task_design_oracle/{user}.json", oracle)
        for run, (items, chars) in RUNS.items():
            held = [_item(run, n, draw, chars) for n in range(items)]
            memories = {"num_memories": items, "memories": held}
            _write(root / f"memory/{run}/{user}/memories.json", memories)
            _episodes(root / f"history/{run}/{user}", user, draw)
            for suffix in ("", "_retrieve")[: 1 if run.startswith("nomem") else 2]:
                _judged(root / f"output/{run}{suffix}", user, truth, oracle, held, suffix, draw)
    _write(
        root / "Deeppersona/data/user_memory_banks_pooled_final.json",
        {"num_users": users, "users": bank},
    )


def _episodes(folder: Path, user: str, draw: random.Random) -> None:
    for n in range(1, len(TARGETS) + 1):
        turns = draw.randint(1, 4)
        _write(
            folder / f"episode_{n}.json",
            {
                "user_id": user, "task": f"task {n} of {user}", "ground_truth": None,
                "end_reason": "satisfied", "final_preference_score": 4.5,
                "turns": [
                    {"turn": t, "agent_response": _text(draw, 1500),
                     "user_simulator": {"feedback_type": "followup", "text": _text(draw, 300),
                                        "is_done": t == turns},
                     "preference_evaluator": {"score": 4.5}}
                    for t in range(1, turns + 1)
                ],
            },
        )  # fmt: skip


def _judged(
    folder: Path, user: str, truth: dict[Any, Any], oracle: dict[str, Any],
    held: list[Any], suffix: str, draw: random.Random,
) -> None:  # fmt: skip
    details, blamed = [], []
    for n, ((category, dimension), (short, explanation)) in enumerate(truth.items(), 1):
        score = draw.choice((0.0, 0.25, 0.5, 0.75, 1.0))
        detail: dict[str, Any] = {
            "category": category, "dimension": dimension, "explanation": explanation,
            "ground_truth": short, "predicted": _text(draw, 50),
            "slot_fill_reason": _text(draw, 150), "score": score,
            "judge_reason": _text(draw, 200), "scoring_mode": "retrieve" if suffix else "dump_all",
        }  # fmt: skip
        if suffix:
            detail["retrieved_memories"] = draw.sample(held, min(5, len(held)))
        details.append(detail)
        given: dict[str, Any] = {"category": "ok", "score": score, "stages": []}
        if score < 0.75:
            stages = [{"stage": "oracle", **oracle[dimension]},
                      {"stage": "disclosure", "disclosed": True, "evidence": _text(draw, 100),
                       "reason": _text(draw, 150)}]  # fmt: skip
            given = {"category": "memory_failure", "score": score, "stages": stages, "ep_index": n}
        blamed.append({**detail, "attribution": given})
    _write(folder / f"recon_judge/{user}.json", {"user_id": user, "details": details})
    _write(folder / f"attribution/{user}.json", {"user_id": user, "details": blamed})


def measure(release: Path, run: Path, users: int) -> dict[str, Any]:
    """Import, then compute all tables, in this process."""
    from storage.importers.recovery_release import import_release
    from storage.runs import RunStore
    from tasks import paper_tables
    from tasks.paper_figures import paper_figures

    begun, cpu = time.perf_counter(), time.process_time()
    found = import_release(release, str(run), "bench", users, lambda *_: None)
    imported, cpu_imported = time.perf_counter(), time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store = RunStore.open(run)
    started = time.perf_counter()
    text = paper_tables.to_text(paper_tables.layout(paper_figures(store)))
    tables = time.perf_counter() - started
    assert "Table 14" in text
    return {
        "users": len(found.users),
        "files": found.n_files,
        "lost": found.lost,
        "rows": sum(found.rows.values()),
        "import_s": round(imported - begun, 2),
        "import_cpu_s": round(cpu_imported - cpu, 2),
        "tables_s": round(tables, 3),
        "peak_mb": round(peak / (1024 if sys.platform == "linux" else 1024**2), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--release", type=Path, help="an unpacked release; synthetic otherwise")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.measure:
            print(json.dumps(measure(options.measure, Path(folder) / "run", options.users)))
            return
        release = options.release
        if release is None:
            release = Path(folder) / "release"
            make_release(release, options.users)
        # A fresh process: the peak is the import's own.
        command = [sys.executable, "-m", "benchmarks.bench_import", "--measure", str(release)]
        done = subprocess.run(
            [*command, "--users", str(options.users)],
            cwd=common.HOME,
            check=True,
            capture_output=True,
            text=True,
        )
    figures: dict[str, Any] = json.loads(done.stdout)
    share = figures["users"] / USERS
    report = {
        "synthetic": options.release is None,
        **figures,
        "import_over_bound": round(figures["import_s"] / (IMPORT_S * share), 3),
        "tables_over_bound": round(figures["tables_s"] / TABLES_S, 3),
        "memory_over_bound": round(figures["peak_mb"] / MEMORY_MB, 3),
    }
    print(json.dumps(common.record("import", report, options.out)))


if __name__ == "__main__":
    main()
