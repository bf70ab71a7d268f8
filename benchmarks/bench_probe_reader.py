"""How well the extractive probe reader reads a suite's sessions, by the strict scorer.

    python -m benchmarks.bench_probe_reader [--suite DIR] [--half tuning|held-out|all]
                                            [--ledger sqlite:///PATH] [--json]

Four views: `oracle` (the sessions that state or challenge the fact), `full` (all), `naive`
(the five that share most words with the question) and `recency` (the last five). No
session type, gold value or episode id is shown. The reader's constants were fitted on
the tuning half of suite56 (groups by hash); of another suite every episode is held out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from adapters.models.embedded.probe_constants import constants
from adapters.models.embedded.probe_reader import ProbeReader
from adapters.models.minilm import MiniLM
from benchmarks.probe_views import VIEWS, entries, tuning
from memprobe.paradigms.scoring import key_of, score
from memprobe.paradigms.spec import Episode, Expected, ProbeType
from memprobe.paradigms.suite import load_suite
from storage.bundled import data_dir
from storage.ledger import Ledger


def figures(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Accuracy over rows, by probe type and by what a sound memory does."""
    rows = list(rows)

    def accuracy(of: Sequence[dict[str, Any]]) -> float | None:
        return round(sum(r["correct"] for r in of) / len(of), 3) if of else None

    by_type = {t.value: accuracy([r for r in rows if r["type"] == t]) for t in ProbeType}
    return {
        "n": len(rows),
        "accuracy": accuracy(rows),
        "plasticity": accuracy([r for r in rows if r["expected"] is Expected.UPDATE]),
        "stability": accuracy([r for r in rows if r["expected"] is Expected.PRESERVE]),
        **by_type,
    }


async def measure(
    episodes: Sequence[Episode], reader: ProbeReader, views: Sequence[str] = VIEWS
) -> dict[str, list[dict[str, Any]]]:
    """Every probe of the episodes under each view: type, expected behaviour, verdict."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for episode in episodes:
        for view in views:
            for probe in episode.probes:
                shown = entries(episode, probe.question, view)
                start = time.perf_counter()
                given = await reader.answer(probe.probe_type.value, probe.question, shown)
                text = given.model_dump_json()
                verdict = score(key_of(episode, probe), text)
                found[view].append(
                    {
                        "episode": episode.id,
                        "type": probe.probe_type,
                        "expected": episode.spec.expected_behavior,
                        "correct": verdict.match.value == "correct",
                        "match": verdict.match.value,
                        "why": verdict.reason,
                        "answer": text,
                        "seconds": time.perf_counter() - start,
                    }
                )
    return found


async def run(suite_dir: Path, half: str, ledger_url: str) -> dict[str, Any]:
    """The figures of a suite, by half and view."""
    suite = load_suite(suite_dir)
    ledger = Ledger.open(ledger_url)
    embedder = MiniLM(ledger)
    reader = ProbeReader(embedder)
    own = suite.digest == constants().provenance.get("suite_digest")
    halves = {
        "tuning": [e for e in suite.episodes if own and tuning(e)],
        "held-out": [e for e in suite.episodes if not (own and tuning(e))],
    }
    report: dict[str, Any] = {"suite": suite.name, "digest": suite.digest, "halves": {}}
    try:
        for name, episodes in halves.items():
            if not episodes or half not in (name, "all"):
                continue
            rows = await measure(episodes, reader)
            report["halves"][name] = {
                "episodes": len(episodes),
                "groups": len({e.spec.group_id for e in episodes}),
                "views": {view: figures(rows[view]) for view in VIEWS},
                "rows": rows,
            }
        if half == "all" and own:
            both = {v: [r for h in report["halves"].values() for r in h["rows"][v]] for v in VIEWS}
            report["halves"]["all"] = {
                "episodes": len(suite.episodes),
                "groups": len({e.spec.group_id for e in suite.episodes}),
                "views": {view: figures(both[view]) for view in VIEWS},
                "rows": both,
            }
    finally:
        await embedder.close()
        ledger.close()
    return report


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def table(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f"{report['suite']} ({report['digest'][:12]})"]
    for name, half in report["halves"].items():
        lines.append(f"\n{name}: {half['episodes']} episodes, {half['groups']} groups")
        columns = list(next(iter(half["views"].values())))
        lines.append("view      " + " ".join(f"{c[:10]:>10}" for c in columns))
        for view, f in half["views"].items():
            cells = (
                "-" if f[c] is None else f"{f[c]:.3f}" if c != "n" else str(f[c]) for c in columns
            )
            lines.append(f"{view:<10}" + " ".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--suite", type=Path, default=data_dir() / "paradigms" / "suite56")
    parser.add_argument("--half", choices=("tuning", "held-out", "all"), default="all")
    parser.add_argument("--ledger", help="keep the vectors in this ledger and use them again")
    parser.add_argument("--json", action="store_true", help="print JSON, without single answers")
    parser.add_argument("--rows", type=Path, help="write every answer with its verdict here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.ledger or f"sqlite:///{folder}/ledger.db"
        report = asyncio.run(run(given.suite, given.half, url))
    if given.rows:
        given.rows.write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")
    if given.json:
        for half in report["halves"].values():
            half.pop("rows")
        print(json.dumps(report, indent=1))
    else:
        print(table(report))


if __name__ == "__main__":
    main()
