"""Every system that comes with MemProbe, and the documented example, hold the contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapters.memory.contract import CHECKS, NO_NETWORK, check_spec
from adapters.memory.registry import BUILT_IN, Registry
from adapters.memory.sessions import BASELINES
from adapters.models.minilm import MiniLM
from tests.contract.support import ROOT, failed, run_checks


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def embedder() -> AsyncIterator[MiniLM]:
    model = MiniLM()
    yield model
    await model.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["nomem", "longctx_full", "rag", *BASELINES])
async def test_built_in_holds_the_contract(name: str, embedder: MiniLM, tmp_path: Path) -> None:
    assert name in BUILT_IN
    results = await check_spec(name, embedder, workdir=tmp_path)
    assert [r.name for r in results] == [*CHECKS, NO_NETWORK]
    assert [(r.name, r.detail) for r in results if not r.passed] == []
    if name != "nomem":
        sessions = Registry(embedder).card(name).capabilities.sessions
        skipped = [] if sessions else ["whole_sessions"]
        assert [r.name for r in results if r.skipped] == [*skipped, "model_failures"]


async def test_the_example_holds_the_contract(tmp_path: Path) -> None:
    results = await run_checks(f"{ROOT / 'examples/my_memory.py'}:MyMemory", tmp_path)
    assert failed(results) == []
    assert [name for name, r in results.items() if r.skipped] == [
        "whole_sessions",
        "model_failures",
    ]
