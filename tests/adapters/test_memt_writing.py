"""What a message becomes: raw turn, summary, personas, facts, and what updates do to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.memory.memt.store import SEPARATOR, document, split_document
from memprobe.errors import AdapterError, CallFailed, UnsupportedEvent
from memprobe.outcomes import Reason
from memprobe.types import DocumentEvent, Protocol
from tests.adapters.support import START, event, scope
from tests.support.fake_memory_memt import call
from tests.support.fake_server import FakeServer
from tests.support.memt import PROTOCOLS, added, asked, fact, opened, rows, says, store, told

SUMMARY = call("update_summary", content="They plan a trip.")
PERSONA = call("update_persona", name="User", profile="Hates heat.")
NOTHING = says("Nothing here is worth keeping.")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


async def test_formation_sees_the_running_state_and_nothing_else(server: FakeServer) -> None:
    memory = await opened(server)
    server.script(says(SUMMARY, PERSONA), NOTHING)
    await memory.write(event('Lisbon, "please"', turn=1))
    await memory.write(event("in March", turn=2))
    first, second = asked(server, "create_fact")
    assert told(first, "Previous summary") == ""
    assert told(first, "Previous personas") == {}
    assert told(first, "Current turn") == 'user said: Lisbon, "please"'
    assert told(second, "Previous summary") == "They plan a trip."
    assert told(second, "Previous personas") == {"User": "Hates heat."}
    assert "tools" not in first
    assert first["response_format"] == {"type": "text"}
    schemas = json.JSONDecoder().raw_decode(
        first["messages"][0]["content"][first["messages"][0]["content"].index("[\n") :]
    )[0]
    assert [s["function"]["name"] for s in schemas] == [
        "create_fact", "create_experience", "update_persona", "update_summary",
    ]  # fmt: skip
    assert all(
        s["function"]["parameters"]["required"] == list(s["function"]["parameters"]["properties"])
        for s in schemas
    )
    await memory.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_message_becomes_rows_of_five_collections(
    server: FakeServer, protocol: Protocol
) -> None:
    memory = await opened(server, protocol)
    said = event("I moved to Lisbon in 2021")
    experience = call("create_experience", experience="Move early.", start_time="", end_time="")
    server.script(
        says(fact("Lives in Lisbon", "2021"), SUMMARY, PERSONA, experience),
        says(added("Lives in Lisbon")),
        says(added("Move early.")),
    )
    await memory.write(said)
    await memory.write(event("I hear you", role="assistant"))
    items = await memory.dump()
    raw = "user said: I moved to Lisbon in 2021"
    assert [(i.fields["category"], i.content) for i in items] == [
        ("turns", raw),
        ("facts", f"Lives in Lisbon\n\n{SEPARATOR}\n{raw}"),
        ("experiences", f"Move early.\n\n{SEPARATOR}\n{raw}"),
        ("personas", f"Hates heat.\n\n{SEPARATOR}\n{raw}"),
        ("summary", f"They plan a trip.\n\n{SEPARATOR}\n{raw}"),
    ]
    assert {i.event_time for i in items} == {said.event_time}
    (turn,) = await rows(memory, "turns")
    assert "memory_content" not in turn
    sample = turn["col_name"].removesuffix("_turns")
    assert (turn["id"], turn["source_turn_ids"]) == ("t0001", [["t0001"]])
    assert turn["session_id"] == ("s0001" if protocol is Protocol.STRICT else sample)
    (kept,) = await rows(memory, "facts")
    assert kept["memory_content"] == "Lives in Lisbon"
    assert kept["original_turns"] == [raw]
    assert kept["source_turn_ids"] == [["t0001"]]
    assert set(kept["op_ids"][0]) == {"formation", "update"}
    assert kept["turn_time"] == said.event_time.isoformat(timespec="seconds")
    # The published adapter empties both times.
    assert kept["start_time"] == ("2021" if protocol is Protocol.STRICT else "")
    (persona,) = await rows(memory, "personas")
    assert (persona["id"], persona["name"]) == ("User", "User")
    (summary,) = await rows(memory, "summary")
    assert (summary["id"], summary["session_id"]) == ("hmb_session", "hmb_session")
    await memory.close()


async def test_memory_only_dumps_leave_the_sources_out(server: FakeServer) -> None:
    memory = await opened(server, dump_content="memory_only")
    server.script(says(fact("F"), SUMMARY), says(added("F")))
    await memory.write(event("f"))
    assert [i.content for i in await memory.dump()] == ["user said: f", "F", "They plan a trip."]
    await memory.close()


async def test_one_update_a_candidate_and_each_sees_the_last_ones_rows(server: FakeServer) -> None:
    memory = await opened(server)
    server.script(
        says(fact("a b c"), fact("a b d"), "<tool_call> {no json </tool_call>", fact("a x y")),
        says(added("a b c")),
        says(added("a b d")),
        says(added("a x y")),
        says(fact("a b c d")),
        says(call("ignore_item", reason="known")),
    )
    await memory.write(event("one"))
    await memory.write(event("two"))
    updates = asked(server, "add_item")
    assert len(updates) == 4
    assert [[r["document"] for r in told(u, "Related items")] for u in updates[:3]] == [
        [], ["a b c"], ["a b c", "a b d"],
    ]  # fmt: skip
    assert told(updates[1], "New item") == {
        "type": "fact",
        "document": "a b d",
        "turn_time": event("one").event_time.isoformat(),
        "start_time": "",
        "end_time": "",
    }
    assert len(told(updates[3], "Related items")) == 3
    assert [r["memory_content"] for r in await rows(memory, "facts")] == [
        "a b c", "a b d", "a x y",
    ]  # fmt: skip
    await memory.close()


async def test_only_the_nearest_three_are_shown(server: FakeServer) -> None:
    memory = await opened(server, update_topk=2)
    words = ["red", "red blue", "green", "yellow"]
    for word in words:
        server.script(says(fact(word)), says(added(word)))
        await memory.write(event(word))
    shown = told(asked(server, "add_item")[3], "Related items")
    assert len(shown) == 2
    server.script(says(fact("red user said:")), says(added("x")))
    await memory.write(event("more"))
    assert told(asked(server, "add_item")[4], "Related items")[0]["document"] == "red"
    await memory.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_update_merges_sources_and_operations(
    server: FakeServer, protocol: Protocol
) -> None:
    memory = await opened(server, protocol)
    server.script(says(fact("Lives in Porto", "2019")), says(added("Lives in Porto")))
    await memory.write(event("z first"))
    (before,) = await rows(memory, "facts")
    changed = call(
        "update_item", id=before["id"], document="Lives in Lisbon (Porto until 2021)",
        turn_time="never", start_time="2021", end_time="",
    )  # fmt: skip
    server.script(says(fact("Lives in Lisbon")), says(changed))
    await memory.write(event("a second", turn=2))
    (after,) = await rows(memory, "facts")
    assert after["id"] == before["id"]
    assert after["memory_content"] == "Lives in Lisbon (Porto until 2021)"
    assert after["source_turn_ids"] == [["t0001"], ["t0002"]]
    assert len(after["op_ids"]) == 2
    turns = ["user said: z first", "user said: a second"]
    # Under paper the order is lost, here to an alphabetical one.
    assert after["original_turns"] == (turns if protocol is Protocol.STRICT else sorted(turns))
    assert after["content"] == document(after["memory_content"], after["original_turns"])
    assert after["turn_time"] == event("", turn=2).event_time.isoformat()
    assert after["start_time"] == ("2021" if protocol is Protocol.STRICT else "")
    await memory.close()


async def test_all_calls_of_an_update_are_executed(server: FakeServer) -> None:
    memory = await opened(server)
    server.script(says(fact("old")), says(added("old")))
    await memory.write(event("one"))
    (old,) = await rows(memory, "facts")
    server.script(
        says(fact("new")),
        says(
            call("delete_item", id=old["id"]),
            added("new"),
            added("newer"),
            added(""),
            call("delete_item", id="no such id"),
            call("drop_table", id="facts"),
            call("update_item", id="made up", document="under its own id"),
        ),
    )
    await memory.write(event("two"))
    facts = await rows(memory, "facts")
    assert [r["memory_content"] for r in facts] == ["new", "newer", "under its own id"]
    assert facts[2]["id"] == "made up"
    await memory.close()


async def test_summary_and_personas_are_rewritten_and_their_sources_grow(
    server: FakeServer,
) -> None:
    memory = await opened(server)
    for number in (1, 2, 3):
        maya = [call("update_persona", name="Maya", profile="A friend.")] if number == 2 else []
        server.script(
            says(
                call("update_summary", content=f"S{number}"),
                call("update_persona", name="", profile=f"P{number}"),
                *maya,
            )
        )
        await memory.write(event(f"m{number}", turn=number))
    (summary,) = await rows(memory, "summary")
    assert summary["memory_content"] == "S3"
    assert summary["source_turn_ids"] == [["t0001"], ["t0002"], ["t0003"]]
    assert summary["original_turns"] == [f"user said: m{n}" for n in (1, 2, 3)]
    assert summary["updated_time"] == event("", turn=3).event_time.isoformat()
    people = await rows(memory, "personas")
    assert [(p["name"], p["memory_content"]) for p in people] == [
        ("User", "P3"),
        ("Maya", "A friend."),
    ]
    assert people[1]["source_turn_ids"] == [["t0002"]]
    await memory.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("text", ["no call", "<tool_call> {broken", call("fly", to="moon")])
async def test_an_answer_without_a_call_keeps_the_raw_turn_alone(
    server: FakeServer, protocol: Protocol, text: str
) -> None:
    memory = await opened(server, protocol)
    server.script(says(text))
    await memory.write(event("hello"))
    assert [i.content for i in await memory.dump()] == ["user said: hello"]
    await memory.close()


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("truncated", Reason.TRUNCATED),
        ("reasoning_only", Reason.TRUNCATED),
        ("empty", Reason.INVALID_OUTPUT),
        ("content_filter", Reason.REFUSAL),
    ],
)
async def test_what_is_no_whole_answer_is_no_decision(
    server: FakeServer, mode: str, reason: Reason
) -> None:
    memory = await opened(server)
    server.script(says(fact("kept")), says(added("kept")))
    await memory.write(event("one"))
    before = await memory.dump()
    server.script({"mode": mode, "content": f"{fact('b')} {SUMMARY}"})
    with pytest.raises(CallFailed) as failed:
        await memory.write(event("two", turn=2))
    assert failed.value.reason is reason
    assert failed.value.call_id
    assert await memory.dump() == before
    server.script({"mode": mode, "content": call("search_facts", query="one")})
    with pytest.raises(CallFailed) as failed:
        await memory.search("one", 3)
    assert failed.value.reason is reason
    await memory.close()


async def test_as_published_half_an_answer_is_taken_as_it_came(server: FakeServer) -> None:
    memory = await opened(server, Protocol.PAPER)
    server.script({"mode": "content_filter", "content": fact("b")}, {"mode": "empty"})
    await memory.write(event("one"))
    assert [i.content for i in await memory.dump()] == ["user said: one"]
    await memory.close()


async def test_a_lone_surrogate_is_replaced_and_not_the_end(
    server: FakeServer, tmp_path: Path
) -> None:
    memory = await opened(server)
    said = call("create_fact", fact="tea BROKEN", start_time="", end_time="")
    answer = said.replace("BROKEN", r"\ud83d!")
    server.script(says(answer), says(answer.replace("create_fact", "add_item").replace(
        '"fact"', '"document"')))  # fmt: skip
    await memory.write(event("one"))
    assert [r["memory_content"] for r in await rows(memory, "facts")] == ["tea \ufffd!"]
    await memory.save(tmp_path)
    server.script(says(call("finish", answer="")))
    assert await memory.search("lone \ud83d", 3) == []
    await memory.close()


async def test_thinking_is_no_call(server: FakeServer) -> None:
    memory = await opened(server)
    server.script(
        says(f"<think>{fact('a thought')}</think>{fact('a fact')}"), says(added("a fact"))
    )
    await memory.write(event("hello"))
    assert [r["memory_content"] for r in await rows(memory, "facts")] == ["a fact"]
    await memory.close()


FAILED = {"mode": "server_error"}


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_a_failed_call_leaves_the_store_as_it_was(server: FakeServer, failing: int) -> None:
    memory = await opened(server)
    server.script(says(fact("kept")), says(added("kept")))
    await memory.write(event("one"))
    before = await memory.dump()
    plan = [says(fact("b"), fact("c"), SUMMARY), says(added("b")), says(added("c"))]
    server.script(*plan[:failing], FAILED)
    with pytest.raises(CallFailed) as failed:
        await memory.write(event("two", turn=2))
    assert failed.value.reason is Reason.PROVIDER_ERROR
    assert await memory.dump() == before
    server.script(*plan)
    await memory.write(event("two", turn=2))
    whole = await memory.dump()
    other = await opened(server)
    server.script(says(fact("kept")), says(added("kept")), *plan)
    await other.write(event("one"))
    await other.write(event("two", turn=2))
    assert whole == await other.dump()
    await memory.close()
    await other.close()


async def test_under_paper_a_failed_call_is_swallowed(server: FakeServer) -> None:
    memory = await opened(server, Protocol.PAPER)
    server.script(FAILED, says(fact("b"), SUMMARY), FAILED)
    await memory.write(event("one"))
    await memory.write(event("two"))
    assert [i.content.partition("\n")[0] for i in await memory.dump()] == [
        "user said: one", "user said: two", "They plan a trip.",
    ]  # fmt: skip
    await memory.close()


async def test_a_write_that_is_cancelled_leaves_nothing(server: FakeServer) -> None:
    memory = await opened(server)
    server.script(says(fact("b"), SUMMARY), {"mode": "hang"})
    writing = asyncio.create_task(memory.write(event("one")))
    while len(server.chats) < 2:
        await asyncio.wait([writing], timeout=0.01)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await memory.dump() == []
    await memory.close()


async def test_assistant_messages_are_an_option(server: FakeServer) -> None:
    memory = await opened(server, store_assistant=True)
    server.script(NOTHING, NOTHING)
    await memory.write(event("hi"))
    await memory.write(event("hello", role="assistant"))
    assert [i.content for i in await memory.dump()] == ["user said: hi", "assistant said: hello"]
    await memory.close()


async def test_what_is_no_dialogue_is_refused(server: FakeServer) -> None:
    memory = await opened(server)
    paper = DocumentEvent(text="t", author="a", event_time=START, session_id="s")
    for wrong in (event("x", role="system"), paper, event("broken \ud83d")):
        with pytest.raises(UnsupportedEvent):
            await memory.write(wrong)
    assert server.chats == []
    await memory.close()
    with pytest.raises(AdapterError, match="not open"):
        await memory.write(event("late"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_separator_inside_a_memory_cuts_it_under_paper_alone(
    server: FakeServer, protocol: Protocol
) -> None:
    memory = await opened(server, protocol)
    text = f"before\n\n{SEPARATOR}\nafter"
    server.script(says(fact(text)), says(added(text)), says(fact("next")), NOTHING)
    await memory.write(event("one"))
    await memory.write(event("two"))
    (shown,) = told(asked(server, "add_item")[1], "Related items")
    assert shown["document"] == (text if protocol is Protocol.STRICT else "before")
    await memory.close()


async def test_ids_name_the_user_and_not_the_run(server: FakeServer) -> None:
    found = []
    for key in ("a", "b"):
        memory = store(server)
        await memory.open(scope(key))
        await memory.write(event("my code is mk1"))
        found.append([(i.id, i.fields) for i in await memory.dump()])
        await memory.close()
    other = store(server)
    await other.open(scope("a", user="user_002"))
    await other.write(event("my code is mk1"))
    strange = [(i.id, i.fields) for i in await other.dump()]
    await other.close()
    assert found[0] == found[1]
    assert {i for i, _ in strange if i.startswith("facts/")}.isdisjoint({i for i, _ in found[0]})


def test_a_document_splits_at_its_first_separator() -> None:
    tricky = f"said {SEPARATOR} aloud"
    assert split_document(document("memory", [tricky, "b"])) == ("memory", f"{tricky}\nb")
    assert split_document("memory") == ("memory", "")
    assert document("memory", []) == "memory"
