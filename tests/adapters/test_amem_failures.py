"""Answers and calls that fail: strict says so and keeps the store as it was, paper goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.memory.amem import AMem
from adapters.models.prices import Price
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, event, scope
from tests.support.amem import (
    PAPER,
    STRICT,
    AmemBench,
    amem_bench,
    analysis,
    evolution,
    new,
    snapshot,
)

EVOLVES = evolution("strengthen", tags_to_update=["new"])
BAD_ANALYSES = {
    "prose": "I could not find any keywords.",
    "blank": " \n",
    "cut off": '{"keywords": ["a", "b"',
    "a list": '["a"]',
    "null": "null",
    "keywords as text": '{"keywords": "a, b", "context": "c", "tags": []}',
    "numbers": '{"keywords": [1], "context": "c", "tags": []}',
    "context of null": '{"keywords": ["a"], "context": null, "tags": []}',
    "empty object": "{}",
    "nothing found": analysis([], "General", []),
    "blanks only": analysis(["", " "], " ", ["t"]),
    "two answers": f"{analysis(['a'])}\n{analysis(['b'])}",
}
BAD_DECISIONS = {
    "prose": "Nothing should evolve.",
    "a missing key": '{"should_evolve": false, "actions": []}',
    "a word for a truth value": evolution(should_evolve="yes"),
    "actions as text": evolution("strengthen", actions="strengthen"),
    "flat tags": evolution("update_neighbor", new_tags_neighborhood=["a"]),
    "null": "null",
    "a bare truth value": "true",
}
REPAIRED = {
    "fenced": "```json\n{}\n```",
    "in prose": "Here it is: {} I hope it helps.",
    "byte order mark": "\ufeff{}",
}


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AmemBench]:
    async with amem_bench(tmp_path / "ledger", monkeypatch) as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    return new(tmp_path / "ledger")


async def refused(store: AMem, text: str = "sail") -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await store.write(event(text, turn=2))
    return caught.value


async def started(
    bench: AmemBench, protocol: Protocol = STRICT, embedder: WordEmbedder | None = None
) -> AMem:
    """A store with one note."""
    store = await bench.store(protocol, embedder=embedder)
    bench.say(analysis(["a"], "First.", ["old"]))
    await store.write(event("rope"))
    return store


@pytest.mark.parametrize("bad", BAD_ANALYSES.values(), ids=BAD_ANALYSES.keys())
async def test_an_unusable_analysis_is_asked_for_once_more(bench: AmemBench, bad: str) -> None:
    store = await bench.store()
    bench.say(bad, analysis(["good"]))
    await store.write(event("x"))
    assert (await store.dump())[0].fields["keywords"] == ["good"]
    first, second = (body["messages"] for body in bench.bodies)
    assert second[: len(first)] == first
    # What came is shown to the model where there is something to show.
    assert [m["role"] for m in second[len(first) :]] == ["assistant", "user"][not bad.strip() :]
    assert "cannot be used" in second[-1]["content"]
    assert '"keywords"' in second[-1]["content"]


@pytest.mark.parametrize("bad", BAD_DECISIONS.values(), ids=BAD_DECISIONS.keys())
async def test_an_unusable_decision_is_asked_for_once_more(bench: AmemBench, bad: str) -> None:
    store = await started(bench)
    bench.say(analysis(), bad, EVOLVES)
    await store.write(event("sail", turn=2))
    assert (await store.dump())[1].fields["tags"] == ["new"]
    assert len(bench.bodies) == 4


@pytest.mark.parametrize("bad", BAD_ANALYSES.values(), ids=BAD_ANALYSES.keys())
async def test_a_second_unusable_analysis_is_an_error(bench: AmemBench, bad: str) -> None:
    store = await bench.store()
    bench.say(bad, bad)
    failure = await refused(store)
    assert failure.reason is Reason.INVALID_OUTPUT
    assert failure.call_id
    assert "amem_analysis" in failure.detail
    assert await store.dump() == []
    assert await store.search("x", 5) == []
    assert len(bench.bodies) == 2


@pytest.mark.parametrize("form", REPAIRED.values(), ids=REPAIRED.keys())
async def test_strict_reads_what_can_be_read(bench: AmemBench, form: str) -> None:
    store = await bench.store()
    bench.say(form.replace("{}", analysis(["a"])))
    await store.write(event("x"))
    assert (await store.dump())[0].fields["keywords"] == ["a"]
    assert len(bench.bodies) == 1


async def test_strict_reads_python_and_passes_over_other_keys(bench: AmemBench) -> None:
    store = await started(bench)
    decision = {**json.loads(EVOLVES), "reason": "because"}
    bench.say(analysis(), repr(decision))
    await store.write(event("sail", turn=2))
    assert (await store.dump())[1].fields["tags"] == ["new"]
    assert len(bench.bodies) == 3


@pytest.mark.parametrize(
    ("modes", "reason"),
    [
        (["truncated", "truncated"], Reason.TRUNCATED),
        (["refusal"], Reason.REFUSAL),
        (["content_filter"], Reason.REFUSAL),
        (["server_error", "server_error"], Reason.PROVIDER_ERROR),
        (["empty", "empty"], Reason.INVALID_OUTPUT),
        (["reasoning_only", "reasoning_only"], Reason.TRUNCATED),
    ],
)
async def test_a_failed_call_has_its_own_reason(
    bench: AmemBench, modes: Sequence[str], reason: Reason
) -> None:
    store = await started(bench)
    bench.server.script(*modes)
    assert (await refused(store)).reason is reason
    assert len(await store.dump()) == 1


@pytest.mark.parametrize(
    "answers",
    [["no", "no"], [analysis(), "no", "no"]],
    ids=["analysis", "decision"],
)
async def test_a_failed_write_leaves_no_half_note(
    bench: AmemBench, tmp_path: Path, answers: Sequence[str]
) -> None:
    store = await started(bench)
    before = await snapshot(store, tmp_path / "before")
    bench.say(*answers)
    await refused(store)
    assert await snapshot(store, tmp_path / "after") == before
    # It goes on as if the message had never come.
    await store.write(event("anchor", turn=3))
    whole = await bench.store(name="whole")
    for text, turn in (("rope", 1), ("anchor", 3)):
        await whole.write(event(text, turn=turn))
    assert await store.dump() == await whole.dump()
    assert await snapshot(store, tmp_path / "a") == await snapshot(whole, tmp_path / "b")


class Failing(WordEmbedder):
    """Fails from a certain text on."""

    bad = ""

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        if self.bad and any(self.bad in text for text in texts):
            raise RuntimeError("no vector")
        return await super().encode(texts)


@pytest.mark.parametrize("protocol", [STRICT, PAPER])
async def test_a_failed_encoding_leaves_no_half_note_and_no_evolution(
    bench: AmemBench, tmp_path: Path, protocol: Protocol
) -> None:
    embedder = Failing()
    store = await started(bench, protocol, embedder)
    before = await snapshot(store, tmp_path / "before")
    decision = evolution(
        "update_neighbor", new_context_neighborhood=["N."], new_tags_neighborhood=[["n"]]
    )
    bench.say(analysis(["hoist"]), decision)
    embedder.bad = "hoist"
    with pytest.raises(RuntimeError, match="no vector"):
        await store.write(event("sail", turn=2))
    assert await snapshot(store, tmp_path / "after") == before
    # The same message again finds its answers in the ledger.
    embedder.bad, calls = "", len(bench.bodies)
    await store.write(event("sail", turn=2))
    assert len(bench.bodies) == calls
    assert (await store.dump())[0].fields["tags"] == ["n"]


@pytest.mark.parametrize(
    "bad",
    [
        *(v for k, v in BAD_ANALYSES.items() if k not in ("empty object", "nothing found")),
        f"```json\n{analysis(['a'])}\n```",
    ],
)
async def test_paper_goes_on_with_defaults(bench: AmemBench, bad: str) -> None:
    store = await bench.store(PAPER)
    bench.say(bad)
    await store.write(event("x"))
    (item,) = await store.dump()
    blank = bad == BAD_ANALYSES["blanks only"]
    assert item.fields["keywords"] == (["", " "] if blank else [])
    assert item.fields["context"] == (" " if blank else "General")
    assert item.fields.get("defaulted") == (None if blank else ["analysis: invalid_output"])
    assert len(bench.bodies) == 1


@pytest.mark.parametrize("bad", BAD_DECISIONS.values(), ids=BAD_DECISIONS.keys())
async def test_paper_takes_a_failed_decision_for_none(bench: AmemBench, bad: str) -> None:
    store = await started(bench, PAPER)
    bench.say(analysis(["b"], "Second.", ["own"]), bad)
    await store.write(event("sail", turn=2))
    first, second = await store.dump()
    assert (first.fields["tags"], second.fields["tags"]) == (["old"], ["own"])
    assert (second.fields["evolution"], second.fields["links"]) == (None, [])
    assert second.fields["defaulted"] == ["evolution: invalid_output"]
    assert len(bench.bodies) == 3


async def test_paper_stores_a_bare_note_through_an_outage(bench: AmemBench) -> None:
    embedder = WordEmbedder()
    store = await started(bench, PAPER, embedder)
    bench.server.script(*["server_error"] * 4)
    await store.write(event("sail", turn=2))
    _, second = await store.dump()
    marks = ["analysis: provider_error", "evolution: provider_error"]
    assert second.fields["defaulted"] == marks
    assert embedder.encoded[-1] == "sail"


@pytest.mark.parametrize("protocol", [STRICT, PAPER])
async def test_the_cost_limit_is_swallowed_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Protocol
) -> None:
    dear = Price(1.0, 1.0, 1.0, "given")
    async with amem_bench(
        tmp_path / "ledger", monkeypatch, lambda model: dear, max_cost=1e-9
    ) as bench:
        store = await bench.store(protocol)
        with pytest.raises(BudgetExceeded):
            await store.write(event("x"))
        assert await store.dump() == []
        assert bench.bodies == []


async def test_a_lone_surrogate_spelt_in_an_answer_is_replaced(
    bench: AmemBench, tmp_path: Path
) -> None:
    for protocol in (STRICT, PAPER):
        store = await bench.store(protocol)
        bad = '{"keywords": ["a\\ud83d"], "context": "C\\ud83d.", "tags": ["t"]}'
        bench.say(bad, analysis([protocol.value]), evolution())
        await store.write(event(f"x {protocol.value}"))
        await store.write(event(f"y {protocol.value}", turn=2))
        item = (await store.dump())[0]
        assert (item.fields["keywords"], item.fields["context"]) == (["a\ufffd"], "C\ufffd.")
        assert await snapshot(store, tmp_path / protocol.value)


class Stuck(WordEmbedder):
    """Never comes back from a certain text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.arrived = text, asyncio.Event()

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        if any(self.text in text for text in texts):
            self.arrived.set()
            await asyncio.Event().wait()
        return await super().encode(texts)


@pytest.mark.parametrize("where", ["sail", "hoist"], ids=["neighbours", "taking over"])
async def test_a_write_that_is_cut_off_leaves_the_store_as_it_was(
    bench: AmemBench, tmp_path: Path, where: str
) -> None:
    embedder = Stuck(where)
    store = await started(bench, embedder=embedder)
    before = await snapshot(store, tmp_path / "before")
    bench.say(analysis(["hoist"]), EVOLVES)
    writing = asyncio.create_task(store.write(event("sail", turn=2)))
    await embedder.arrived.wait()
    writing.cancel()
    await asyncio.wait([writing])
    assert writing.cancelled()
    assert await snapshot(store, tmp_path / "after") == before


async def test_a_store_closed_under_a_write_takes_nothing_over(bench: AmemBench) -> None:
    store = await started(bench)
    writing = asyncio.create_task(store.write(event("sail", turn=2)))
    await store.close()
    await asyncio.wait([writing])
    assert isinstance(writing.exception(), AdapterError | CallFailed)
    await store.open(scope())
    assert await store.dump() == []
