"""What becomes of facts: reinforcement, authors, the temporal guard, supersession, conflict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.memory.factstore.records import Action
from memprobe.types import Protocol
from tests.support.factstore import FactstoreBench, changes, document, fact, factstore_bench
from tests.support.fake_memory_factstore import decision, observation

OLD, LATER, LATEST = "2025-01-20", "2025-03-10", "2025-05-02"


@pytest_asyncio.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FactstoreBench]:
    async with factstore_bench(tmp_path, monkeypatch) as made:
        yield made


async def test_three_reinforcements_add_three_tenths_and_end_at_one(bench: FactstoreBench) -> None:
    store = await bench.store()
    low = observation("Vela Foods may move to Oslo.", "Low")
    high = observation("Vela Foods has 12 shops.")
    await bench.tell(store, document("x", OLD), low, high, decide=(decision("create"),))
    for number, day in enumerate((LATER, LATEST, "2025-06-01")):
        again = (decision("reinforce", 1), decision("reinforce", 2))
        # The nearest comes first, so that each is listed as number 1 of its own decision.
        await bench.tell(
            store, document(f"again {number}", day), low, high, decide=(again[0], again[0])
        )
    dump = await store.dump()
    assert changes(fact(dump, "f00001")) == [
        ("create", 0.5, OLD),
        ("reinforce", 0.6, LATER),
        ("reinforce", 0.7, LATEST),
        ("reinforce", 0.8, "2025-06-01"),
    ]
    assert [c for _, c, _ in changes(fact(dump, "f00002"))] == [0.9, 1.0, 1.0, 1.0]
    assert fact(dump, "f00001")["last_update"].startswith("2025-06-01")
    assert fact(dump, "f00001")["created"].startswith(OLD)


async def test_an_older_contradicting_document_leaves_the_statement(bench: FactstoreBench) -> None:
    store = await bench.store()
    new, stale = "Vela Foods has 14 shops.", "Vela Foods has 12 shops."
    await bench.tell(store, document(new, LATER), observation(new))
    await bench.tell(
        store,
        document(stale, OLD, "Ivo Lang"),
        observation(stale),
        decide=(decision("supersede", 1),),
    )
    (item,) = await store.dump()
    assert (item.content, item.fields["status"]) == (new, "active")
    assert item.event_time == document(new, LATER).event_time
    assert changes(dict(item.fields)) == [("create", 0.9, LATER), ("reinforce", 1.0, OLD)]
    assert item.fields["history"][1]["decided"] == "supersede"  # type: ignore[index, call-overload]
    last = store.operations()[-1]
    assert (last.decided, last.action, last.guarded) == (Action.SUPERSEDE, Action.REINFORCE, True)


@pytest.mark.parametrize(("second", "count"), [("Ivo Lang", 2), ("Ana Brandt", 1)])
async def test_authors_are_counted_once_each(
    bench: FactstoreBench, second: str, count: int
) -> None:
    store = await bench.store()
    text = "Vela Foods has 12 shops."
    await bench.tell(store, document(text, OLD), observation(text))
    again = document(text, LATER, second)
    await bench.tell(store, again, observation(text), decide=(decision("reinforce", 1),))
    (item,) = await store.dump()
    assert item.fields["author_count"] == count
    assert item.fields["authors"] == list(dict.fromkeys(["Ana Brandt", second]))
    assert item.fields["observation_ids"] == ["o00001", "o00002"]


async def test_linear_evolution_by_hand(bench: FactstoreBench) -> None:
    store = await bench.store()
    looks = "Northgate Freight is evaluating Kafka for its event bus."
    plans = "Northgate Freight plans a Kafka proof of concept for Q2."
    both = "Northgate Freight is evaluating Kafka for its event bus, with a trial due in Q2."
    chose = "Northgate Freight runs its event bus on Kafka since 30 June 2025."
    keeps = "The event bus of Northgate Freight keeps messages for 7 days."
    days = ("2025-01-15", "2025-02-20", "2025-06-30", "2025-07-10")
    await bench.tell(store, document("a", days[0]), observation(looks, "Medium"))
    await bench.tell(
        store,
        document("b", days[1]),
        observation(plans),
        decide=(decision("update", 1),),
        synthesise=(both,),
    )
    await bench.tell(
        store,
        document("c", days[2], "Ivo Lang"),
        observation(chose),
        observation(keeps, "Medium"),
        decide=(decision("supersede", 1), decision("create")),
    )
    await bench.tell(
        store, document("d", days[3]), observation(chose), decide=(decision("reinforce", 1),)
    )
    dump = await store.dump()
    assert [(i.id, i.fields["status"]) for i in dump] == [
        ("f00001", "superseded"),
        ("f00002", "active"),
        ("f00003", "active"),
    ]
    first, second, third = (fact(dump, i.id) for i in dump)
    assert changes(first) == [
        ("create", 0.7, days[0]),
        ("update", 0.9, days[1]),
        ("supersede", 0.9, days[2]),
    ]
    assert (first["statement"], first["superseded_by"]) == (both, "f00002")
    assert dump[0].content == f"[superseded] {both}"
    assert first["last_update"].startswith(days[1])
    assert changes(second) == [("supersede", 0.9, days[2]), ("reinforce", 1.0, days[3])]
    assert (second["authors"], second["supersedes"]) == (["Ivo Lang", "Ana Brandt"], ["f00001"])
    assert (third["statement"], third["confidence"]) == (keeps, 0.7)
    assert [o.action.value for o in store.operations()] == [
        "create",
        "update",
        "supersede",
        "create",
        "reinforce",
    ]
    # A search passes over what holds no longer.
    assert {i.id for i in await store.search("Kafka event bus", 10)} == {"f00002", "f00003"}


@pytest.mark.parametrize("guard", ["strict", "enrich"])
async def test_out_of_order_arrival_under_both_guards_by_hand(
    bench: FactstoreBench, guard: str
) -> None:
    store = await bench.store(guard=guard)
    runs = "Tidewater Labs resizes its images on ECS."
    tries = "In January 2025 Tidewater Labs was evaluating Lambda for resizing its images."
    was = "Tidewater Labs resizes its images on EC2."
    await bench.tell(store, document("a", LATER), observation(runs))
    await bench.tell(
        store,
        document("b", OLD, "Ivo Lang"),
        observation(tries, "Medium"),
        decide=(decision("update", 1),),
    )
    (item,) = await store.dump()
    enriched = guard == "enrich"
    assert item.content == (f"{runs} {tries}" if enriched else runs)
    assert item.fields["confidence"] == (0.9 if enriched else 1.0)
    assert item.event_time == document("a", LATER).event_time, "the past sets nothing back"
    assert item.fields["authors"] == ["Ana Brandt", "Ivo Lang"]
    await bench.tell(
        store, document("c", OLD), observation(was), decide=(decision("supersede", 1),)
    )
    (after,) = await store.dump()
    assert after.content == item.content, "neither guard lets the past replace the present"
    assert after.fields["confidence"] == 1.0
    assert [c for c, _, _ in changes(dict(after.fields))] == [
        "create",
        "update" if enriched else "reinforce",
        "reinforce",
    ]
    assert "synthesise" not in bench.kinds(), "a model might reword what it may only add to"


async def test_a_conflict_marks_both_until_a_later_document_settles_it(
    bench: FactstoreBench,
) -> None:
    store = await bench.store()
    one, other = "The plan covers 62 % of the spend.", "The plan covers 48 % of the spend."
    await bench.tell(store, document(one, OLD), observation(one))
    await bench.tell(
        store,
        document(other, LATER, "Ivo Lang"),
        observation(other),
        decide=(decision("conflict", 1),),
    )
    dump = await store.dump()
    assert [(i.content, i.fields["in_conflict"], i.fields["status"]) for i in dump] == [
        (one, True, "active"),
        (other, True, "active"),
    ]
    assert fact(dump, "f00001")["conflicts_with"] == ["f00002"]
    assert changes(fact(dump, "f00001"))[-1] == ("conflict", 0.9, LATER)
    await bench.tell(
        store,
        document("settled", LATEST, "Mae Quist"),
        observation(other),
        decide=(decision("supersede", 2, agrees_with=1),),
    )
    dump = await store.dump()
    beaten, held = fact(dump, "f00001"), fact(dump, "f00002")
    assert (beaten["status"], beaten["superseded_by"]) == ("superseded", "f00002")
    assert (held["status"], held["in_conflict"], held["confidence"]) == ("active", False, 1.0)
    assert (held["authors"], held["supersedes"]) == (["Ivo Lang", "Mae Quist"], ["f00001"])
    assert len(dump) == 2, "what is said already makes no third fact"


async def test_superseding_one_side_ends_the_conflict_of_the_other(bench: FactstoreBench) -> None:
    store = await bench.store()
    said = ("The dock has 3 cranes.", "The dock has 4 cranes.", "The dock has 5 cranes.")
    await bench.tell(store, document(said[0], OLD), observation(said[0]))
    await bench.tell(
        store, document(said[1], LATER), observation(said[1]), decide=(decision("conflict", 1),)
    )
    await bench.tell(
        store, document(said[2], LATEST), observation(said[2]), decide=(decision("supersede", 1),)
    )
    dump = {i.id: i.fields for i in await store.dump()}
    beaten = [i for i, f in dump.items() if f["status"] == "superseded"]
    assert len(beaten) == 1
    assert not any(f["in_conflict"] for f in dump.values())


async def test_a_supersede_of_two_goes_on_with_the_one_that_is_not_newer(
    bench: FactstoreBench,
) -> None:
    store = await bench.store()
    old, new, between = "Bay 1 is leased.", "Bay 2 is leased.", "No bay is leased."
    await bench.tell(store, document(old, OLD), observation(old))
    await bench.tell(store, document(new, LATEST), observation(new), decide=(decision("create"),))
    await bench.tell(
        store,
        document(between, LATER),
        observation(between),
        decide=(decision("supersede", 1, 2),),
    )
    status = {i.fields["statement"]: i.fields["status"] for i in await store.dump()}
    assert status == {old: "superseded", new: "active", between: "active"}


async def test_what_is_procedural_is_observed_and_makes_no_fact(bench: FactstoreBench) -> None:
    store = await bench.store(observations=True)
    text, chat = "Vela Foods has 12 shops.", "The meeting began late."
    await bench.tell(store, document(text, OLD), observation(text))
    await bench.tell(store, document(chat, LATER), observation(chat), decide=(decision("none"),))
    kinds: dict[str, dict[str, Any]] = {i.id: dict(i.fields) for i in await store.dump()}
    assert list(kinds) == ["f00001", "o00001", "o00002"]
    assert (kinds["o00001"]["action"], kinds["o00001"]["result"]) == ("create", "f00001")
    assert (kinds["o00002"]["action"], kinds["o00002"]["result"]) == ("none", None)
    assert kinds["o00001"]["entities"] == ["Vela Foods"]


async def test_the_published_prompt_knows_no_conflict(bench: FactstoreBench) -> None:
    for protocol, known in ((Protocol.PAPER, False), (Protocol.STRICT, True)):
        store = await bench.store(protocol)
        text = f"Vela Foods has 12 shops in {protocol.value}."
        await bench.tell(store, document(text, OLD), observation(text))
        again = document(f"{text} Indeed.", LATER)
        await bench.tell(store, again, observation(text), decide=(decision("reinforce", 1),))
        asked = str(bench.server.chats[-1].body["messages"][1]["content"])
        assert ("- conflict:" in asked) is known
