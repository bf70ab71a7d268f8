"""Stores larger than the window through the real gateway, litellm, HTTP and the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.registry import Registry
from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from adapters.models.retry import RetryPolicy
from flows.outcome import summary_of, unscored_counts
from memprobe.config import RunConfig
from memprobe.dataset import load_dataset
from memprobe.errors import UsageError
from memprobe.types import AccessMode, Role
from storage.bundled import recovery_dir
from storage.catalog import query
from storage.ledger import Ledger
from storage.manifest import Manifest
from storage.runs import RunStore
from tasks.attribute import attribute_user
from tasks.context import RunContext
from tasks.gate import check_gates
from tasks.inputs import store_inputs
from tasks.oracle import oracle_user
from tasks.recover import recover_user
from tasks.rejudge import beside, check_layer, rejudge_user
from tasks.report import build_report
from tasks.rollout import rollout_user
from tasks.score import score_run
from tests.support.fake_server import FakeServer

USER = "user_001"
WINDOW = 2000
Seen = tuple[int, RunStore]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "placeholder-key-0123456789")
        yield running


async def measure(home: Path, reader: str, judge: str | None = None, **changes: Any) -> Seen:
    """Run the stages as the flow does; returns the calls that were sent, and the run."""
    settings = {
        "model": "openai/mock",
        "systems": ("longctx_full",),
        "limit": 4,
        "access": (AccessMode.DUMP_ALL,),
        "context_window": WINDOW,
        "dump_reader": reader,
        **changes,
    }
    config = RunConfig(name="r", **settings)
    if judge is not None:
        config = config.model_copy(update={"model_roles": {Role.JUDGE: judge}})
    dataset = load_dataset(recovery_dir())
    ledger = Ledger.open(f"sqlite:///{home / 'ledger.sqlite'}")
    embedder = MiniLM(ledger)
    gateway = Gateway(config, ledger, {}, policy=RetryPolicy(base_s=0.001, cap_s=0.01, attempts=2))
    registry = Registry(embedder, config.protocol)
    location = home / "r"
    if RunStore.exists(location):
        store = RunStore.open(location)
        if judge is None:
            store.update_manifest(config=config.model_dump(mode="json"))
    else:
        cards = {"longctx_full": registry.card("longctx_full")}
        manifest = Manifest.start(
            config, dataset_name=dataset.name, dataset_digest=dataset.digest, systems=cards
        )
        store = RunStore.create(location, manifest)
    context = RunContext(config, dataset, store, gateway, embedder, registry)
    try:
        if judge is not None:
            await rejudge_user(context, "longctx_full", USER, "second")
        else:
            store_inputs(context, (USER,))
            await oracle_user(context, USER)
            await rollout_user(context, "longctx_full", USER)
            await recover_user(context, "longctx_full", USER)
            await attribute_user(context, "longctx_full", USER)
        for layer in ("base", "chunked"):
            score_run(store, layer)
        return gateway.new_calls, store
    finally:
        await gateway.close()
        await embedder.close()
        ledger.close()


async def test_a_store_larger_than_the_window_is_measured(
    server: FakeServer, tmp_path: Path
) -> None:
    """Case store-overflow, from the wire to the report."""
    whole, store = await measure(tmp_path, "whole")
    assert {(r["status"], r["reason"]) for r in store.read("verdicts")} == {
        ("unscored", "store_overflow")
    }
    share = unscored_counts(store)[1]
    assert share > 0.3

    sent = len(server.chats)
    more, store = await measure(tmp_path, "chunked")
    asked = server.chats[sent:]
    parts = store.read("slot_fill_parts")
    n_parts = {r["n_parts"] for r in parts if r["step"] == 0}.pop()
    assert n_parts > 1
    assert more == len(asked)
    assert sum(r["step"] == 0 for r in parts) == 4 * n_parts
    # Only parts, merges, verdicts and attributions: nothing of the rollout is asked again.
    assert all("feedback_type" not in str(r.body) for r in asked)

    both = {layer: [r for r in store.read("verdicts") if r["layer"] == layer] for layer in LAYERS}
    assert {(r["status"], r["reason"]) for r in both["base"]} == {("unscored", "store_overflow")}
    assert {(r["status"], r["detail"]) for r in both["chunked"]} == {("scored", None)}
    assert any(r["label"] != "unknown" for r in both["chunked"])
    blamed = {r["label"] for r in store.read("attributions") if r["layer"] == "base"}
    assert blamed == {"harness_failure"}
    assert unscored_counts(store)[1] == 0.0

    again, _ = await measure(tmp_path, "chunked")
    assert again == 0
    rows = {row["access_mode"]: row for row in summary_of(store)}
    assert (rows["dump_all"]["n_scored"], rows["chunked"]["n_scored"]) == (0, 4)
    (found,) = query(store, "select * from dump_readers where reader = 'chunked'").dicts()
    assert (found["n_in_parts"], found["n_stores"], found["parts_max"]) == (1, 1, n_parts)
    page = build_report(store).read_text(encoding="utf-8")
    assert "Whole stores, read at once and in parts" in page

    met = check_gates(store, ["recovery.chunked.B>=0", "recovery.dump_all.B>=0"])
    assert [(r.figure, r.met) for r in met] == [
        ("recovery.chunked.longctx_full.B", True),
        ("recovery.dump_all.longctx_full.B", False),
    ]
    assert len(check_gates(store, ["recovery.coverage>=0"])) == 1
    assert whole > 0

    _, store = await measure(tmp_path, "chunked", judge="openai/other")
    layers = {r["layer"]: r for r in store.read("verdicts")}
    assert set(layers) == {"base", "chunked", "second", "second_chunked"}
    assert layers["second"]["reason"] == "store_overflow"
    assert layers["second_chunked"]["judge_model"] == "openai/other"
    assert layers["second_chunked"]["label"] is not None


LAYERS = ("base", "chunked")


async def test_a_run_without_parts_has_no_such_gate_and_table(
    server: FakeServer, tmp_path: Path
) -> None:
    _, store = await measure(tmp_path, "whole", context_window=100_000)
    with pytest.raises(UsageError, match="no access mode chunked"):
        check_gates(store, ["recovery.chunked.B>=0"])
    page = build_report(store).read_text(encoding="utf-8")
    assert "Whole stores, read at once and in parts" not in page


def test_a_second_judge_cannot_take_the_name_of_the_parts() -> None:
    for name in ("chunked", "second_chunked"):
        with pytest.raises(UsageError):
            check_layer(name)
    assert (beside("base"), beside("second")) == ("chunked", "second_chunked")
