"""A small finished run, made by the stages themselves, for the commands that read runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from adapters.memory.registry import Registry
from adapters.models.embedded.provider import EmbeddedProvider
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from memprobe.config import RunConfig
from memprobe.dataset import load_dataset
from storage.bundled import recovery_dir
from storage.catalog import build_catalog
from storage.ledger import Ledger
from storage.manifest import Manifest, RunStatus
from storage.runs import RunStore
from tasks.attribute import attribute_user
from tasks.context import RunContext
from tasks.inputs import store_inputs
from tasks.judge_check import judge_check
from tasks.oracle import oracle_user
from tasks.recover import recover_user
from tasks.report import export_calls
from tasks.rollout import rollout_user
from tasks.score import score_run

SYSTEMS = ("nomem", "longctx_full")
USERS = ("user_001", "user_002")
Invoke = Callable[..., Result]


async def make_run(home: Path, name: str) -> None:
    """Two users, two tasks each, two systems, embedded models."""
    config = RunConfig(name=name, systems=SYSTEMS, users=2, limit=2)
    dataset = load_dataset(recovery_dir())
    ledger = Ledger.open(f"sqlite:///{home / 'ledger.sqlite'}")
    embedder = MiniLM(ledger)
    gateway = Gateway(
        config, ledger, {"embedded": EmbeddedProvider(dataset, config.seed, embedder)}
    )
    registry = Registry(embedder, config.protocol)
    manifest = Manifest.start(
        config,
        dataset_name=dataset.name,
        dataset_digest=dataset.digest,
        systems={name: registry.card(name) for name in SYSTEMS},
    )
    store = RunStore.create(home / name, manifest)
    context = RunContext(config, dataset, store, gateway, embedder, registry)
    store_inputs(context, USERS)
    for user in USERS:
        await oracle_user(context, user)
        for system in SYSTEMS:
            await rollout_user(context, system, user)
            await recover_user(context, system, user)
            await attribute_user(context, system, user)
    await judge_check(context, USERS)
    await gateway.close()
    await embedder.close()
    ledger.flush()
    export_calls(store, ledger)
    ledger.close()
    score_run(store)
    build_catalog(store)
    store.update_manifest(status=RunStatus.COMPLETE)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder with the finished run `t1`."""
    folder = tmp_path_factory.mktemp("runs")
    asyncio.run(make_run(folder, "t1"))
    return folder


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """The command in an empty folder and a clean environment."""
    import os

    from flows.cli.app import app

    for name in os.environ:
        if name.startswith("MEMPROBE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), prog_name="memprobe")

    return run
