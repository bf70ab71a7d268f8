"""Packs change nothing but the time it takes: every row once, whatever happens to the parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.catalog import query
from storage.packed import PACKED, pack, sources
from storage.runs import RunStore, Unit
from tests.storage.rows import new_run, verdict

ALL = "SELECT user_id, score, n FROM (SELECT user_id, score, count(*) n FROM verdicts GROUP BY ALL)"


def commit(run: RunStore, users: range, score: float = 1.0) -> None:
    for number in users:
        user = f"u{number:03d}"
        rows = [verdict("rag", user, "skill_memory", "a", score=score)]
        run.commit(Unit("recover", "rag", user), f"mark {score}", {"verdicts": rows})


def seen(run: RunStore) -> dict[str, float]:
    rows = query(run, ALL).rows
    assert all(count == 1 for _, _, count in rows), rows
    assert len({user for user, _, _ in rows}) == len(rows)
    return {user: score for user, score, _ in rows}


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return new_run(tmp_path / "o'[d]d *name" / "run")


def packs(run: RunStore) -> list[Path]:
    assert run.path is not None
    return sorted((run.path / PACKED).glob("*.parquet"))


def test_few_parts_stay_as_they_are(run: RunStore) -> None:
    commit(run, range(5))
    assert pack(run, 6) == 0
    assert sources(run, "verdicts") is None
    assert len(seen(run)) == 5


def test_a_packed_run_shows_the_same_rows_and_grows(run: RunStore) -> None:
    commit(run, range(6))
    before = seen(run)
    assert pack(run, 4) == 6
    assert seen(run) == before
    commit(run, range(6, 8))
    assert len(seen(run)) == 8
    assert pack(run, 4) == 0
    commit(run, range(8, 12))
    assert pack(run, 4) == 6
    assert len(packs(run)) == 2
    found = sources(run, "verdicts")
    assert found is not None
    assert (len(found.packs), found.loose) == (2, [])
    assert len(seen(run)) == 12


def test_a_part_that_was_measured_again_takes_its_pack_out_of_use(run: RunStore) -> None:
    commit(run, range(6))
    pack(run, 4)
    commit(run, range(2, 3), score=0.25)
    assert seen(run)["u002"] == 0.25
    assert pack(run, 4) == 6
    assert len(packs(run)) == 1
    assert seen(run)["u002"] == 0.25


def test_a_unit_that_was_reset_is_gone(run: RunStore) -> None:
    commit(run, range(6))
    pack(run, 4)
    run.reset(Unit("recover", "rag", "u001"))
    assert sorted(seen(run)) == ["u000", "u002", "u003", "u004", "u005"]


def test_packs_that_overlap_or_are_damaged_count_no_row_twice(run: RunStore) -> None:
    commit(run, range(6))
    pack(run, 4)
    commit(run, range(6, 10))
    first = packs(run)[0]
    kept = first.read_bytes()
    first.unlink()
    pack(run, 4)
    first.write_bytes(kept)
    assert len(packs(run)) == 2
    assert len(seen(run)) == 10
    for path in packs(run):
        path.write_bytes(b"PAR1 no more")
    assert len(seen(run)) == 10
    assert pack(run, 4) == 10
    assert len(packs(run)) == 1


def test_deleted_packs_are_not_missed(run: RunStore) -> None:
    commit(run, range(6))
    pack(run, 4)
    assert len(seen(run)) == 6
    for path in packs(run):
        path.unlink()
    assert len(seen(run)) == 6


def test_a_run_in_an_object_store_is_left_alone() -> None:
    run = new_run("memory://packed/run")
    commit(run, range(6))
    assert pack(run, 4) == 0
    assert len(seen(run)) == 6
