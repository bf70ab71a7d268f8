"""The fact store holds the contract without a language model; with one it is among the askers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapters.memory.contract import CHECKS, NO_NETWORK, check_spec
from adapters.models.minilm import MiniLM


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def embedder() -> AsyncIterator[MiniLM]:
    model = MiniLM()
    yield model
    await model.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_it_holds_the_contract_without_a_model(embedder: MiniLM, tmp_path: Path) -> None:
    results = await check_spec("factstore", embedder, workdir=tmp_path)
    assert [r.name for r in results] == [*CHECKS, NO_NETWORK]
    assert [(r.name, r.detail) for r in results if not r.passed] == []
    # It rewrites what it is told, so that two checks of verbatim text do not apply.
    skipped = [r.name for r in results if r.skipped]
    assert skipped == ["unicode", "long_message", "model_failures"]
    assert next(r for r in results if r.name == "cost").figures["calls"] == 0  # type: ignore[index]
