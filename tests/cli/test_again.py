"""`reread`, `retrievals` and `attribute` on a small imported run, and that they ask nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.memory.contract.network import NetworkGuard
from adapters.models.minilm import MiniLM
from memprobe.types import Category
from storage.runs import RunStore
from tests.cli.conftest import Invoke
from tests.importers.release import RUNS, TARGETS, change, items, make_release
from tests.importers.support import imported
from tests.support.fake_server import FakeServer

USERS = ("user_001", "user_002")
QUESTION = "What is to be said of the {dimension} of them? {boundary}"
BOUNDARIES = {category.value: f"All about {category.value}." for category in Category}
SCORER = f"""
import nothing_that_exists
GUIDE = {BOUNDARIES!r}
class Evaluator:
    def query(category, dimension):
        guide = GUIDE[category]
        return f"What is to be said of the {{dimension.replace('_', ' ')}} of them? {{guide}}"
"""
READER = ("--model-role", "reader=embedded/reader")


def ranking(query: str, texts: list[str]) -> list[tuple[int, float]]:
    """Places and cosines by plain numpy, nearest first."""

    async def encoded() -> Any:
        embedder = MiniLM()
        try:
            return await embedder.matrix([query, *texts])
        finally:
            await embedder.close()

    vectors = asyncio.run(encoded()).astype(np.float64)
    scores = [float(np.dot(v, vectors[0])) for v in vectors[1:]]
    return sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))


def search_really(root: Path) -> None:
    """The records of longctx_full hold what a search by the queries of this file finds."""
    held = items("longctx_full", "user_001")
    found = {}
    for category, dimension in TARGETS:
        query = f"What is to be said of the {dimension.replace('_', ' ')} of them? "
        ranked = ranking(query + BOUNDARIES[category], [item["content"] for item in held])
        found[dimension] = [{**held[place], "score": score} for place, score in ranked[:5]]

    def edit(document: Any) -> None:
        for detail in document["details"]:
            detail["retrieved_memories"] = found[detail["dimension"]]

    for user in USERS:
        for kind in ("recon_judge", "attribution"):
            change(root / f"output/{RUNS['longctx_full']}_retrieve/{kind}/{user}.json", edit)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_release(tmp_path_factory.mktemp("release"))
    search_really(root)
    return root


@pytest.fixture
def pub(release: Path, tmp_path: Path) -> RunStore:
    (tmp_path / "scorer.py").write_text(SCORER)
    return imported(release, tmp_path / "runs" / "pub")[0]


@pytest.fixture
def guard() -> Iterator[NetworkGuard]:
    with NetworkGuard() as watching:
        yield watching


def parsed(result: Any, code: int = 0) -> Any:
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def of_layer(run: RunStore, layer: str, table: str = "verdicts") -> list[dict[str, Any]]:
    return [row for row in run.read(table) if row["layer"] == layer]


def test_all_of_it_without_a_call(invoke: Invoke, pub: RunStore, guard: NetworkGuard) -> None:
    before = of_layer(pub, "base")
    judge = ("--model-role", "judge=embedded/judge", "--layer", "emb")
    assert invoke("score", "pub", *judge).exit_code in (0, 1)
    compared = parsed(invoke("compare", "pub@published", "pub@emb", "--json"))
    agreement = compared["agreement"]
    judged = next(a for a in agreement if a["system"] is None and a["scope"] == "judged")
    labels = [r for r in before if r["label"] != "unknown"]
    assert judged["figures"]["n_items"] == len(labels) > 0
    assert sum(map(sum, judged["figures"]["confusion"])) == len(labels)
    first = {(r["system"], r["access_mode"]): r["difference"] for r in compared["rows"]}
    said = {(a["system"], a["access_mode"]) for a in agreement if a["scope"] == "judged"}
    zeros = {
        (r["system"], r["access_mode"])
        for layer in ("published", "emb")
        for r in of_layer(pub, layer)
        if r["status"] == "scored" and r["reason"] is not None
    }
    expected = [abs(d) for key, d in first.items() if key in said - zeros]
    assert zeros
    assert expected
    assert compared["b_error"]["mean"] == pytest.approx(sum(expected) / len(expected))
    text = invoke("compare", "pub@published", "pub@emb").stdout
    assert "same side of 0.75" in text
    assert "error of B" in text
    made = invoke("reread", "pub", *READER, "--layer", "again")
    assert made.exit_code == 0, made.stderr
    assert invoke("attribute", "pub", "--model", "embedded/default", "--layer", "right").exit_code \
        in (0, 1)  # fmt: skip
    assert guard.attempts == []
    assert {row["model"].partition("/")[0] for row in pub.read("calls")} == {"embedded"}
    assert of_layer(pub, "base") == before


def test_recorded_searches_are_made_again(
    invoke: Invoke, pub: RunStore, tmp_path: Path, guard: NetworkGuard
) -> None:
    (tmp_path / "q.json").write_text(json.dumps({"question": QUESTION, "boundaries": BOUNDARIES}))
    for file in ("scorer.py", "q.json"):
        found = parsed(invoke("retrievals", "pub", "--queries", file, "--json"))
        assert found["outcomes"] == {"equal": 2 * len(TARGETS)}
        assert found["score_error"] < 1e-6
    assert found["encoded"] == 0, "the ledger has every vector from the first time"
    assert guard.attempts == []
    unknown = invoke("retrievals", "pub")
    assert unknown.exit_code == 1
    assert "--queries" in unknown.stderr
    assert invoke("retrievals", "pub", "--check", "mem0").exit_code == 2


def test_a_ranking_that_differs_is_listed_with_both(
    invoke: Invoke, release: Path, tmp_path: Path
) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)
    dimension = TARGETS[0][1]
    paths = [
        release / f"output/{RUNS['longctx_full']}_retrieve/{kind}/user_001.json"
        for kind in ("recon_judge", "attribution")
    ]
    kept = [path.read_bytes() for path in paths]

    def swap(document: Any) -> None:
        for detail in document["details"]:
            if detail["dimension"] == dimension:
                found = detail["retrieved_memories"]
                found[0], found[1] = found[1], found[0]

    try:
        for path in paths:
            change(path, swap)
        imported(release, tmp_path / "runs" / "pub")
    finally:
        for path, data in zip(paths, kept, strict=True):
            path.write_bytes(data)
    found = parsed(invoke("retrievals", "pub", "--queries", "scorer.py", "--json"), 1)
    assert found["outcomes"] == {"different": 1, "equal": 2 * len(TARGETS) - 1}
    (one,) = found["differing"]
    assert (one["user_id"], one["dimension"]) == ("user_001", dimension)
    ids = [[place["item_id"] for place in one[side]] for side in ("recorded", "found")]
    assert ids[0] == [ids[1][1], ids[1][0], *ids[1][2:]]
    shown = invoke("retrievals", "pub", "--queries", "scorer.py").stdout
    assert all(item in shown for item in ids[0])
    deep = invoke(
        *("reread", "pub", "--systems", "longctx_full", "--k", "7", "--access", "retrieve"),
        *(*READER, "--queries", "scorer.py", "--layer", "deep"),
    )
    rows = of_layer(RunStore.open(tmp_path / "runs" / "pub"), "deep")
    lost = [r for r in rows if r["status"] == "unscored"]
    assert [(r["user_id"], r["dimension"]) for r in lost] == [("user_001", dimension)]
    assert "differs from the recorded one" in deep.stderr


def test_more_k_than_recorded_is_read_where_it_can_be_had(
    invoke: Invoke, pub: RunStore, guard: NetworkGuard
) -> None:
    made = invoke(
        *("reread", "pub", "--systems", "longctx_full,mem0", "--k", "1,5,7", "--access"),
        *("retrieve", *READER, "--queries", "scorer.py", "--layer", "sweep", "--json"),
    )
    assert parsed(made, 1)["new_calls"] > 0
    rows = of_layer(pub, "sweep")
    n = 2 * len(TARGETS)
    assert len(rows) == 2 * 3 * n
    lost = [row for row in rows if row["status"] == "unscored"]
    assert {(row["system"], row["k"]) for row in lost} == {("mem0", 7)}
    assert len(lost) == n
    assert all(row["score"] is None and row["label"] is None for row in lost)
    assert "k=7 is beyond the 5 items that were recorded" in made.stderr
    sizes = {(r["system"], r["k"], r["n_items"]) for r in of_layer(pub, "sweep", "slot_fills")}
    assert {("longctx_full", 1, 1), ("longctx_full", 5, 5), ("longctx_full", 7, 7)} <= sizes
    query = "select k, n_scored from budget_probe where layer = 'sweep' and system = 'longctx_full'"
    probe = parsed(invoke("sql", "pub", query, "--format", "json"))
    assert [(row["k"], row["n_scored"]) for row in probe] == [(1, n), (5, n), (7, n)]
    again = invoke(
        *("reread", "pub", "--systems", "longctx_full,mem0", "--k", "1,5,7", "--access"),
        *("retrieve", *READER, "--queries", "scorer.py", "--layer", "sweep", "--json"),
    )
    assert parsed(again, 1)["new_calls"] == 0
    other = ("reread", "pub", "--systems", "mem0", "--k", "1", *READER, "--layer", "sweep")
    refused = invoke(*other)
    assert refused.exit_code == 2
    assert "not written over" in refused.stderr
    assert of_layer(pub, "sweep") == rows
    taken = invoke("attribute", "pub", "--model", "embedded/default", "--layer", "sweep")
    assert taken.exit_code == 2
    assert "memprobe reread" in taken.stderr
    assert guard.attempts == []


def test_without_the_queries_nothing_is_guessed(invoke: Invoke, pub: RunStore) -> None:
    chosen = ("--systems", "longctx_full", "--access", "retrieve", "--k", "3,6")
    made = invoke("reread", "pub", *chosen, *READER, "--layer", "r1")
    assert made.exit_code == 1
    assert "give --queries" in made.stderr
    assert {r["k"] for r in of_layer(pub, "r1") if r["status"] == "unscored"} == {6}
    own = invoke("reread", "pub", *chosen, *READER, "--layer", "r2", "--queries", "own")
    assert own.exit_code == 0
    assert {r["status"] for r in of_layer(pub, "r2")} == {"scored"}


def test_an_import_without_a_store_is_not_read_as_empty(
    invoke: Invoke, release: Path, tmp_path: Path
) -> None:
    path = release / f"memory/{RUNS['mem0']}/user_002/memories.json"
    kept = path.read_bytes()
    try:
        path.write_bytes(kept[:50])
        run, _ = imported(release, tmp_path / "runs" / "pub")
    finally:
        path.write_bytes(kept)
    invoke(*("reread", "pub", "--systems", "mem0", "--access", "dump_all", *READER, "--layer", "x"))
    status = {(r["user_id"], r["status"], r["score"] is None) for r in of_layer(run, "x")}
    assert ("user_002", "unscored", True) in status
    assert {s for u, s, _ in status if u == "user_002"} == {"unscored"}
    assert {s for u, s, _ in status if u == "user_001"} == {"scored"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "placeholder-key-0123456789")
        yield running


def test_a_model_attributes_top_k_rows_on_the_episodes(
    invoke: Invoke, pub: RunStore, server: FakeServer
) -> None:
    base = of_layer(pub, "base", "attributions")
    options = ("attribute", "pub", "--model", "openai/mock", "--access", "retrieve")
    plan = parsed(invoke(*options, "--layer", "right", "--dry-run", "--json"))["calls"]
    assert server.chats == []
    most = {row["role"]: row["calls"] for row in plan}
    assert most["disclosure"] == most["subclass"] > 0
    assert all(row["prompt_tokens"] > 0 for row in plan if row["calls"])
    made = parsed(invoke(*options, "--layer", "right", "--json"))
    assert 0 < made["new_calls"] == len(server.chats) <= sum(most.values())
    said = [json.dumps(row["user_text"], ensure_ascii=False)[1:-1] for row in pub.read("turns")]
    prompts = [json.dumps(seen.body, ensure_ascii=False) for seen in server.chats]
    assert all(any(text in prompt for text in said) for prompt in prompts)
    rows = of_layer(pub, "right", "attributions")
    kept = [row for row in base if row["access_mode"] == "retrieve"]
    assert len(rows) == len(kept) > 0
    assert {row["access_mode"] for row in rows} == {"retrieve"}
    assert sum(row["label"] == "ok" for row in rows) == sum(row["label"] == "ok" for row in kept)
    asked = [row for row in rows if row["disclosed"] is not None]
    assert asked
    assert all(row["disclosure_call"] for row in asked)
    assert of_layer(pub, "base", "attributions") == base
    before = len(server.chats)
    assert parsed(invoke(*options, "--layer", "right", "--json"))["new_calls"] == 0
    assert len(server.chats) == before


def test_options_that_do_not_belong_are_refused(invoke: Invoke, pub: RunStore) -> None:
    wrong = invoke("reread", "pub", "--model-role", "simulator=embedded/scripted")
    assert wrong.exit_code == 2
    assert "simulator" in wrong.stderr
    published = invoke("reread", "pub", *READER, "--layer", "published")
    assert published.exit_code == 2
    nobody = invoke("reread", "pub", *READER, "--layer", "x", "--systems", "nobody")
    assert nobody.exit_code == 2
    assert "longctx_full" in nobody.stderr
