"""Answers and calls that fail: strict says so and keeps the store as it was, paper goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from adapters.memory.memoryos import MemoryOS, parsing
from adapters.memory.memoryos.model import FAILED, UNNAMED
from adapters.memory.memoryos.parsing import Learnt, Theme
from adapters.models.door import Door
from adapters.models.gateway import Gateway
from adapters.models.prices import Price
from adapters.models.structured import InvalidAnswer
from memprobe.config import RunConfig
from memprobe.errors import AdapterError, BudgetExceeded, CallFailed
from memprobe.outcomes import Reason
from memprobe.types import Asker, Protocol
from tests.adapters.support import WordEmbedder, scope
from tests.support.gateways import ledger_at
from tests.support.memoryos import (
    PAPER,
    STRICT,
    MemoryOSBench,
    contents,
    learnt,
    message,
    new,
    of,
    said,
    say,
    serving,
    snapshot,
    tell,
    themes,
)

MALFORMED = {
    "continuity": ["perhaps", "true or false", "It goes on: true", " "],
    "meta": [" \n"],
    "themes": [
        "There are two themes.",
        '[{"theme": "t", "keywords": ["k"]',
        '{"theme": "t", "keywords": [], "content": "c"}',
        '[{"theme": "t", "keywords": ["k"]}]',
        '[{"theme": "t", "keywords": [1], "content": "c"}]',
        '[{"theme": "t", "keywords": [], "content": " "}]',
        '["a theme"]',
        '[] or [{"theme": "t", "keywords": [], "content": "c"}]',
    ],
    "profile": ["\n"],
    "knowledge": [
        "The user has a boat.",
        "【User Private Data】\n- The user has a boat.",
        "User Private Data\n- a\nAssistant Knowledge\n- b",
    ],
}
CASES = [(kind, bad) for kind, answers in MALFORMED.items() for bad in answers]
GOOD = {
    "continuity": "false",
    "meta": "On a boat.",
    "themes": themes("boat"),
    "profile": "Curiosity (High): asks about boats.",
    "knowledge": learnt(["a"], ["b"]),
}
T = Theme(theme="t", keywords=("k", "l"), content="c")
T_JSON = '[{"theme": "t", "keywords": ["k", "l"], "content": "c"}]'


@pytest.fixture
def bench() -> Iterator[MemoryOSBench]:
    with serving() as made:
        yield made


async def ready(
    bench: MemoryOSBench,
    protocol: Protocol = STRICT,
    embedder: WordEmbedder | None = None,
    name: str = "a",
) -> MemoryOS:
    """A store with three pages of one segment, so that the next pair asks all five questions."""
    store = await bench.store(protocol, embedder=embedder, name=name)
    say("themes", *[themes("boat")] * 3)
    await tell(store, *(f"boat {n}" for n in range(1, 6)))
    return store


async def refused(store: MemoryOS, text: str = "boat 6") -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await store.write(said(6, text))
    return caught.value


@pytest.mark.parametrize(("kind", "bad"), CASES)
async def test_a_malformed_answer_is_asked_for_once_more(
    bench: MemoryOSBench, kind: str, bad: str
) -> None:
    store = await ready(bench)
    say("themes", *[] if kind == "themes" else [themes("boat")])
    say(kind, bad, GOOD[kind])
    start = bench.asked().count(kind)
    await store.write(said(6, "boat 6"))
    first, second = (body["messages"] for body in bench.bodies(kind)[start:])
    assert second[: len(first)] == first
    assert [m["role"] for m in second[len(first) :]] == ["assistant", "user"][not bad.strip() :]
    assert "cannot be used" in second[-1]["content"]
    assert len(await of(store, "page")) == 4
    assert await of(store, "profile")


@pytest.mark.parametrize(("kind", "bad"), CASES)
async def test_a_second_malformed_answer_fails_the_write_and_changes_nothing(
    bench: MemoryOSBench, tmp_path: Path, kind: str, bad: str
) -> None:
    store = await ready(bench)
    before = await snapshot(store, tmp_path / "before")
    say("themes", *[] if kind == "themes" else [themes("boat")])
    say(kind, bad, bad)
    failure = await refused(store)
    assert failure.reason is Reason.INVALID_OUTPUT
    assert failure.call_id
    assert failure.detail.startswith(f"memoryos_{kind}: ")
    assert await snapshot(store, tmp_path / "after") == before
    # It goes on as if the session had never come.
    say("themes", themes("boat"))
    await store.write(said(7, "boat 7"))
    whole = await ready(bench, name="whole")
    say("themes", themes("boat"))
    await whole.write(said(7, "boat 7"))
    assert await store.dump() == await whole.dump()
    assert await snapshot(store, tmp_path / "a") == await snapshot(whole, tmp_path / "b")


@pytest.mark.parametrize(
    ("modes", "reason"),
    [
        (["truncated", "truncated"], Reason.TRUNCATED),
        (["refusal"], Reason.REFUSAL),
        (["content_filter"], Reason.REFUSAL),
        (["server_error"], Reason.PROVIDER_ERROR),
        (["empty", "empty"], Reason.INVALID_OUTPUT),
        (["reasoning_only", "reasoning_only"], Reason.TRUNCATED),
    ],
)
async def test_a_failed_call_has_its_own_reason(
    bench: MemoryOSBench, modes: Sequence[str], reason: Reason
) -> None:
    store = await ready(bench)
    bench.server.script(*modes)
    assert (await refused(store)).reason is reason
    assert len(await of(store, "page")) == 3
    assert FAILED not in "".join(item.model_dump_json() for item in await store.dump())


async def test_a_session_that_fails_in_its_middle_is_not_half_there(
    bench: MemoryOSBench, tmp_path: Path
) -> None:
    store = await ready(bench)
    await store.write(message("a question", episode=8))
    before = await snapshot(store, tmp_path / "before")
    say("meta", "fine", " ", " ")
    say("themes", themes("pasta"))
    for event in (said(9, "boat 9"), message("an answer", role="assistant", episode=9)):
        with pytest.raises(CallFailed):
            # Both end the wait of the question, and move two pairs.
            await store.write(event)
        assert await snapshot(store, tmp_path / f"after_{event.session_id}_{event.text[:2]}") == (
            before
        )
        say("meta", "fine", " ", " ")
        say("themes", themes("pasta"))


async def test_as_published_the_sentence_of_a_failed_call_is_its_answer(
    bench: MemoryOSBench,
) -> None:
    store = await bench.store(PAPER, heat_threshold=2)
    # The continuity, the meta-info, the themes, the profile and the knowledge.
    bench.server.script(*["server_error"] * 5)
    await tell(store, "boat one", "boat two", "boat three")
    assert bench.asked()[:3] == ["continuity", "meta", "themes"]
    assert sorted(bench.asked()[3:]) == ["knowledge", "profile"]
    (page,) = await of(store, "page")
    assert page.fields["meta_info"] == FAILED
    assert page.fields["defaulted"] == [
        f"memoryos_{kind}: provider_error" for kind in ("continuity", "meta", "themes")
    ]
    assert await contents(store, "segment_summary") == [UNNAMED]
    (profile,) = await of(store, "profile")
    assert profile.content == FAILED
    assert profile.fields["defaulted"] == [
        "memoryos_knowledge: provider_error",
        "memoryos_profile: provider_error",
    ]
    assert await of(store, "user_knowledge") == []


@pytest.mark.parametrize(("kind", "bad"), CASES)
async def test_as_published_something_is_made_of_anything(
    bench: MemoryOSBench, kind: str, bad: str
) -> None:
    store = await ready(bench, PAPER)
    say("themes", *[] if kind == "themes" else [themes("boat")])
    say(kind, bad)
    start = bench.asked().count(kind)
    await store.write(said(6, "boat 6"))
    assert bench.asked().count(kind) == start + 1
    pages = await of(store, "page")
    assert {i.fields["page_id"] for i in pages} >= {"page_00004"}
    assert all("defaulted" not in page.fields for page in pages)


@pytest.mark.parametrize("protocol", [STRICT, PAPER])
async def test_the_cost_limit_is_swallowed_by_nobody(
    bench: MemoryOSBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Protocol
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", bench.server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "placeholder")
    ledger = ledger_at(new(tmp_path / "ledger"))
    config = RunConfig(name="r", model="openai/mock", max_cost=1e-9)
    gateway = Gateway(config, ledger, {}, prices=lambda model: Price(1.0, 1.0, 1.0, "given"))
    async with Door(gateway, WordEmbedder()) as door:
        asker = Asker(run="r", suite="paradigms", stage="ingest", system="memoryos", user="u")
        store = await bench.store(protocol, access=door.access(door.token(asker)))
        await tell(store, "one", "two")
        with pytest.raises(BudgetExceeded):
            await store.write(said(3, "three"))
        assert await contents(store, "short_term") == [
            "User: one\nAssistant: Noted.",
            "User: two\nAssistant: Noted.",
        ]
        assert bench.asked() == []
        await store.close()
    await gateway.close()
    ledger.close()


class Failing(WordEmbedder):
    """Fails on texts with a certain word."""

    bad = ""

    async def encode(self, texts: Sequence[str]) -> list[list[float]]:
        if self.bad and any(self.bad in text for text in texts):
            raise RuntimeError("no vector")
        return await super().encode(texts)


@pytest.mark.parametrize("bad", ["boat 4", "hoist", "learnt"])
async def test_a_failed_encoding_changes_nothing(
    bench: MemoryOSBench, tmp_path: Path, bad: str
) -> None:
    embedder = Failing()
    store = await ready(bench, embedder=embedder)
    before = await snapshot(store, tmp_path / "before")
    say("themes", themes("boat", "hoist"))
    say("knowledge", learnt(["learnt"]))
    embedder.bad = bad
    with pytest.raises(RuntimeError, match="no vector"):
        await store.write(said(6, "six"))
    assert await snapshot(store, tmp_path / "after") == before


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


async def test_a_write_that_is_cut_off_leaves_the_store_as_it_was(
    bench: MemoryOSBench, tmp_path: Path
) -> None:
    embedder = Stuck("hoist")
    store = await ready(bench, embedder=embedder)
    before = await snapshot(store, tmp_path / "before")
    say("themes", themes("hoist"))
    writing = asyncio.create_task(store.write(said(6, "six")))
    await embedder.arrived.wait()
    writing.cancel()
    await asyncio.wait([writing])
    assert writing.cancelled()
    assert await snapshot(store, tmp_path / "after") == before
    assert await store.search("boat", 1)


async def test_a_store_closed_under_a_write_takes_nothing_over(bench: MemoryOSBench) -> None:
    store = await ready(bench)
    writing = asyncio.create_task(store.write(said(6, "six")))
    await asyncio.sleep(0)
    await store.close()
    await asyncio.wait([writing])
    assert isinstance(writing.exception(), AdapterError | CallFailed)
    await store.open(scope())
    assert await store.dump() == []


@pytest.mark.parametrize(
    ("text", "strict", "published"),
    [
        ("true", True, True),
        ("FALSE", False, False),
        ('"True."', True, False),
        ("**false**", False, False),
    ],
)
def test_a_truth_value_is_read(text: str, strict: bool, published: bool) -> None:
    assert parsing.truth(text, published=False) is strict
    assert parsing.truth(text, published=True) is published


@pytest.mark.parametrize(
    ("text", "strict", "published"),
    [
        (T_JSON, (T,), (T,)),
        (f"```json\n{T_JSON}\n```", (T,), ()),
        (f"Here: {T_JSON} I hope it helps.", (T,), ()),
        ("[]", (), ()),
        (f"[{T_JSON[1:-1]}, {T_JSON[1:-1]}, {T_JSON[1:-1]}]", (T, T), (T, T, T)),
        (
            '[{"keywords": [" k ", "k", ""], "content": " c ", "more": 1}]',
            (Theme(theme="", keywords=("k",), content="c"),),
            (Theme(theme="", keywords=(" k ", "k", ""), content=" c "),),
        ),
    ],
)
def test_themes_are_read(
    text: str, strict: tuple[Theme, ...], published: tuple[Theme, ...]
) -> None:
    assert parsing.themes(text, published=False) == strict
    assert parsing.themes(text, published=True) == published


@pytest.mark.parametrize("protocol", [STRICT, PAPER])
async def test_a_lone_surrogate_spelt_in_an_answer_is_replaced(
    bench: MemoryOSBench, tmp_path: Path, protocol: Protocol
) -> None:
    store = await ready(bench, protocol)
    say("themes", '[{"theme": "t\\ud83d", "keywords": ["k\\ud83d"], "content": "new c\\ud83d"}]')
    await store.write(said(6, "boat 6"))
    summaries = await of(store, "segment_summary")
    assert [(s.content, s.fields["summary_keywords"]) for s in summaries][-1] == (
        "new c\ufffd",
        ["k\ufffd"],
    )
    assert await snapshot(store, tmp_path / "a")


def test_knowledge_is_read_line_by_line() -> None:
    text = (
        "Here it is.\n【User Private Data】\n- Has a boat.\n* Lives in Lisbon.\n2. Is 40.\n"
        "\n- None\n"
        "【Assistant Knowledge】\n- none.\n"
    )
    found = Learnt(user=("Has a boat.", "Lives in Lisbon.", "Is 40."))
    for published in (False, True):
        assert parsing.knowledge(text, published=published) == found
    turned = "【Assistant Knowledge】\n- Can sail.\n【User Private Data】\nNone"
    assert parsing.knowledge(turned, published=False) == Learnt(assistant=("Can sail.",))
    half = "【User Private Data】\n- Has a boat."
    assert parsing.knowledge(half, published=True) == Learnt(user=("Has a boat.",))
    with pytest.raises(InvalidAnswer, match="Assistant Knowledge"):
        parsing.knowledge(half, published=False)


def test_thoughts_are_no_part_of_an_answer() -> None:
    text = "<think>Is it?\nfalse</think>\n true "
    assert parsing.without_thoughts(text) == "true"
    assert parsing.without_thoughts("a <think>b</think> c <think>d</think>") == "a  c"


def test_a_profile_is_taken_if_it_says_enough() -> None:
    for text in ("None", "none.", "`NONE`", "Too short to replace one", "x" * 29):
        assert parsing.profile(text, published=False) is None
    assert parsing.profile(f" {'x' * 30}\n", published=False) == "x" * 30
