"""The SQL of docs/read-the-results.md runs, and the export it relies on is there."""

import re
from pathlib import Path

import pytest

from storage.catalog import build_catalog, query
from storage.runs import RunStore
from tests.report.make_run import make_run

PAGE = Path(__file__).parents[2] / "docs" / "read-the-results.md"
BLOCKS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
STATEMENTS = [s.strip() for block in BLOCKS for s in block.split(";") if s.strip()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    store = make_run(tmp_path_factory.mktemp("docs") / "run", users=["user_001"])
    build_catalog(store)
    return store


@pytest.mark.parametrize("statement", STATEMENTS, ids=range(len(STATEMENTS)))
def test_each_query_runs(run: RunStore, statement: str) -> None:
    named = statement.replace("time_management_skill", "skill_memory_1")
    result = query(run, named)
    # The made run has no calls of these verdicts, and no store that was read in parts.
    answers_nothing = "join calls" in named or "slot_fill_parts" in named
    assert result.columns
    assert bool(result.rows) or answers_nothing


def test_there_are_queries_to_check() -> None:
    assert len(STATEMENTS) >= 8
