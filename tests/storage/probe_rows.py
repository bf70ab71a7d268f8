"""Rows of the paradigms tables from results, for the tests of scoring and of the views."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memprobe.paradigms.metrics import Result
from memprobe.paradigms.scoring import Match
from storage.runs import RunStore, Unit
from tests.storage.rows import Row


def commit_probes(run: RunStore, results: Sequence[Result]) -> None:
    """The probes of the results' episodes, as the gold side of a run."""
    for user in dict.fromkeys(r.episode for r in results):
        mine = [r for r in results if r.episode == user and r.epoch == 1]
        rows = [
            {
                "user_id": user,
                "probe_index": index,
                "probe_type": r.probe_type.value,
                "question": f"{r.probe_type.value}?",
                "gold_answer": "gold",
                "expected": r.expected.value,
                "paradigm": r.paradigm.value,
                "condition": r.condition.value,
                "domain": str(r.domain),
                "split": r.split,
                "group_id": "01",
                "fact_type": "pool",
                "structured_temporal": True,
            }
            for index, r in enumerate(mine, 1)
        ]
        run.commit(Unit("inputs", "", user), "f", {"probes": rows})


def verdict_row(system: str, result: Result, scorer: str, **where: object) -> Row:
    """One result as a verdict; an error and a skip have a reason, and an error no match."""
    match = result.score.match
    row: Row = {
        "system": system,
        "user_id": result.episode,
        "epoch": result.epoch,
        "layer": "base",
        "access_mode": "dump_all",
        "k": None,
        "scorer": scorer,
        "probe_type": result.probe_type.value,
        "match": match.value,
        "parts_json": json.dumps(dict(result.score.parts)),
        "why": result.score.reason,
        "status": "scored",
        "call_id": "c1",
    }
    reasons = {Match.EXECUTION_ERROR: "timeout", Match.SKIP: "dataset_error"}
    if match in reasons:
        skip = match.value if match is Match.SKIP else None
        row |= {"match": skip, "status": "unscored", "reason": reasons[match]}
    return row | where


def commit_answers(
    run: RunStore,
    system: str,
    results: Sequence[Result],
    *,
    paper: Sequence[Result] | None = None,
    failures: Sequence[Row] = (),
    variant: str = "",
    **where: object,
) -> None:
    """Verdicts of both scorers (the same, unless `paper` has others), a unit an episode."""
    for user in dict.fromkeys(r.episode for r in results):
        rows = [
            verdict_row(system, r, scorer, **where)
            for scorer, found in (("strict", results), ("paper", paper or results))
            for r in found
            if r.episode == user
        ]
        mine = [row for row in failures if row["user_id"] == user]
        tables = {"probe_verdicts": rows, "probe_failures": mine}
        run.commit(Unit("answer", system, user, variant), "f", tables)


def failure_row(
    system: str, user: str, probe: str, failure: str, side: str, **where: object
) -> Row:
    """A diagnosed wrong answer under the corrected rules."""
    row: Row = {
        "system": system,
        "user_id": user,
        "epoch": 1,
        "layer": "base",
        "access_mode": "dump_all",
        "k": None,
        "scorer": "strict",
        "probe_type": probe,
        "failure": failure,
        "side": side,
        "evidence": f"why {failure}",
        "item_ids_json": json.dumps(["1"]),
    }
    return row | where
