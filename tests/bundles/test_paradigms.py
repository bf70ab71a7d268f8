"""A bundle of a paradigms run: figures and verdicts are made again from the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memprobe.types import Role
from storage.schemas import SCHEMAS
from tasks.bundle import write_bundle
from tasks.paradigms.answer import answer_episode
from tasks.paradigms.ingest import ingest_episode
from tasks.paradigms.score import score_paradigms
from tasks.verify import verify_bundle
from tests.support.paradigms_bench import probe_bench

SYSTEMS = ("full_context", "always_update")


@pytest.fixture(scope="module")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bundle")
    b = probe_bench(home / "p1", systems=SYSTEMS)
    for system in SYSTEMS:
        for episode in b.context.suite.episodes:
            await ingest_episode(b.context, system, episode.id)
            await answer_episode(b.context, system, episode.id)
    assert b.chat.of(Role.READER)
    score_paradigms(b.context.store)
    write_bundle(b.context.store, home / "out")
    return home / "out"


def changed(bundle: Path, to: Path, table: str, change: Any) -> Path:
    """A copy of the bundle with one row of a table changed."""
    import shutil

    shutil.copytree(bundle, to)
    for path in sorted((to / "artifacts" / table).rglob("*.parquet")):
        rows = pq.read_table(path, partitioning=None).to_pylist()
        hit = next((row for row in rows if change(row)), None)
        if hit is not None:
            pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[table]), path)
            return to
    raise AssertionError("no row was changed")


def test_a_bundle_is_as_stated_with_its_evidence_counted(bundle: Path) -> None:
    found = verify_bundle(bundle)
    assert found.problems == ()
    assert found.metrics > 100
    assert found.rows == 2 * 2 * 4 * 3, "an answer and two verdicts for each probe"


def test_a_verdict_that_its_answer_does_not_give_is_named(bundle: Path, tmp_path: Path) -> None:
    def flatter(row: dict[str, Any]) -> bool:
        if row["match"] == "incorrect" and row["scorer"] == "strict":
            row["match"] = "correct"
            return True
        return False

    found = verify_bundle(changed(bundle, tmp_path / "b", "probe_verdicts", flatter))
    text = "\n".join(found.problems)
    assert "correct is stored, the answer gives incorrect" in text
    assert "the verdicts give" in text, "the figures made of it are told, too"


def test_an_answer_that_was_put_in_changes_its_verdicts(bundle: Path, tmp_path: Path) -> None:
    def better(row: dict[str, Any]) -> bool:
        if row["system"] == "always_update" and row["probe_type"] == "change":
            answer = json.loads(row["answer_json"])
            row["answer_json"] = json.dumps({**answer, "changed": not answer["changed"]})
            return True
        return False

    found = verify_bundle(changed(bundle, tmp_path / "b", "answers", better))
    assert any("the answer gives" in problem for problem in found.problems)


def test_a_score_from_a_store_that_lost_a_session_is_named(bundle: Path, tmp_path: Path) -> None:
    def lost(row: dict[str, Any]) -> bool:
        row.update(status="unscored", reason="adapter_error")
        return True

    found = verify_bundle(changed(bundle, tmp_path / "b", "ingests", lost))
    assert any("not every session went into its store" in p for p in found.problems)


def test_a_verdict_without_an_answer_is_named(bundle: Path, tmp_path: Path) -> None:
    def gone(row: dict[str, Any]) -> bool:
        row["probe_type"], moved = "moved", row["probe_type"]
        return bool(moved)

    found = verify_bundle(changed(bundle, tmp_path / "b", "answers", gone))
    assert any("it has no answer" in problem for problem in found.problems)
