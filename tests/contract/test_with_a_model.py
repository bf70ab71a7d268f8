"""The contract for systems that ask a language model, against a server that answers by content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from adapters.memory.contract import CHECKS, NO_NETWORK, check_spec
from adapters.memory.contract.bench import Bench, Violation
from adapters.memory.contract.modelled import TURNS, model_failures
from adapters.memory.contract.models import ContractModels, contract_models
from adapters.memory.registry import Registry
from adapters.models.minilm import MiniLM
from adapters.models.retry import RetryPolicy
from flows.cli.app import app
from memprobe.config import RunConfig
from memprobe.errors import MissingPrerequisite
from tests.support.fake_server import FakeServer

ASKING = (
    "amem",
    "mem0",
    "memt",
    "memoryos",
    "factstore",
    pytest.param("langmem", marks=[pytest.mark.heavy, pytest.mark.timeout(1200)]),
    pytest.param("cognee", marks=[pytest.mark.heavy, pytest.mark.timeout(3600)]),
    pytest.param("graphiti", marks=[pytest.mark.heavy, pytest.mark.timeout(1200)]),
)

ITEMS = {"langmem": 250, "graphiti": 120, "cognee": 60}
"""Facts to write where a write takes a library long: above any page of its listings."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def embedder() -> AsyncIterator[MiniLM]:
    model = MiniLM()
    yield model
    await model.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
        yield fake


@pytest_asyncio.fixture(loop_scope="module")
async def models(
    server: FakeServer, embedder: MiniLM, tmp_path: Path
) -> AsyncIterator[ContractModels]:
    config = RunConfig(name="check", model="openai/mock")
    async with contract_models(config, embedder, tmp_path) as opened:
        yield opened


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ASKING)
async def test_it_holds_the_contract(
    name: str, models: ContractModels, server: FakeServer, embedder: MiniLM, tmp_path: Path
) -> None:
    card = Registry(embedder, names=[name]).card(name)
    if card.package is not None and card.package_version is None:
        pytest.skip(f"{card.package} is not installed")
    done = await check_spec(
        name, embedder, workdir=tmp_path, models=models, items=ITEMS.get(name, 500)
    )
    results = {r.name: r for r in done}
    assert list(results) == [*CHECKS, NO_NETWORK]
    assert [(r.name, r.detail) for r in results.values() if not r.passed] == []
    assert not results["model_failures"].skipped
    figures = results["cost"].figures
    assert figures is not None
    assert figures["turns"] == TURNS
    assert figures["calls"] >= TURNS  # type: ignore[operator]
    assert figures["items"] >= TURNS / 2  # type: ignore[operator]
    assert figures["cost_usd"] is None, "the fake model has no price, and unknown is not 0"
    # Nobody else asked the server, and everything that it was asked is in the books.
    assert {s.path for s in server.seen} == {"/v1/chat/completions"}
    sent, *_ = models.usage()
    assert sent == len(server.chats)


SWALLOWS = """
import httpx
from memprobe import Capabilities
from memprobe.systems import Services

class Swallows:
    capabilities = Capabilities(needs_llm=True)
    def __init__(self, services: Services): self.models, self.items = services.models, []
    async def open(self, scope): self.items = []
    async def write(self, event):
        async with httpx.AsyncClient() as client:
            await client.post(
                f"{self.models.base_url}/chat/completions",
                headers={"Authorization": f"Bearer {self.models.api_key}"},
                json={"model": "m", "messages": [{"role": "user", "content": event.text}]},
            )
    async def search(self, query, k): return []
    async def dump(self): return []
    async def save(self, directory): ...
    async def restore(self, directory): ...
    async def close(self): ...
"""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("guarded", [False, True])
async def test_a_swallowed_outage_is_found_and_a_run_would_hear_it(
    guarded: bool, models: ContractModels, embedder: MiniLM, tmp_path: Path
) -> None:
    path = tmp_path / "swallows.py"
    path.write_text(SWALLOWS)
    spec = f"{path}:Swallows"
    registry = Registry(embedder, lines=models.broken, names=[spec], guarded=guarded)
    bench = Bench(
        factory=lambda: registry.create(spec, "u"),
        card=registry.card(spec),
        workdir=tmp_path,
        models=models,
        broken=lambda: registry.create(spec, "u"),
    )
    if guarded:
        await model_failures(bench)
    else:
        with pytest.raises(Violation, match="silence"):
            await model_failures(bench)
    await bench.close_all()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_missing_package_is_one_message(
    models: ContractModels,
    embedder: MiniLM,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapters.memory.external.version_of", lambda package: None)
    with pytest.raises(MissingPrerequisite, match="pip install 'memprobe-audit\\[mem0\\]'"):
        await check_spec("mem0", embedder, workdir=tmp_path, models=models)


def test_a_server_that_is_not_there_is_one_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("adapters.models.gateway.RetryPolicy", lambda: RetryPolicy(attempts=1))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "amem", "--model", "openai/mock"])
    assert result.exit_code == 2
    assert "openai/mock does not answer" in result.stderr
