"""mem0 takes a session whole: one `add` with both sides, unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mem0", reason="mem0ai is not installed")

from adapters.memory.mem0 import Mem0, Mem0Options
from memprobe import UnsupportedEvent
from memprobe.types import AccessMode, Protocol, SessionEvent, SessionMessage
from tests.adapters.mem0_site import prompts, site
from tests.adapters.support import START, event
from tests.support.fake_server import FakeServer

SAID = (
    ("user", "I moved to Lisbon in May."),
    ("assistant", "Lisbon has seven hills."),
    ("tool_output", "The address is saved."),
    ("user", "My cat is called Tom."),
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
        yield fake


def session(*said: tuple[str, str], label: str = "") -> SessionEvent:
    return SessionEvent(
        messages=tuple(SessionMessage(role=role, text=text) for role, text in said or SAID),
        event_time=START,
        session_id="s0001",
        label=label,
    )


def new_messages(prompt: str) -> str:
    """The part of an extraction prompt that holds what was just said."""
    return prompt.partition("## New Messages\n")[2].partition("\n\n## ")[0].strip()


async def test_a_session_is_one_add_of_both_sides(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        await store.write(session(label="perturbation"))
        (prompt,) = prompts(server)
        assert new_messages(prompt) == (
            "user: I moved to Lisbon in May.\n"
            "assistant: Lisbon has seven hills.\n"
            "assistant: [tool output] The address is saved.\n"
            "user: My cat is called Tom."
        )
        assert "perturbation" not in str([seen.body for seen in server.chats])
        items = await store.dump()
    assert [item.content for item in items] == [
        "I moved to Lisbon in May.",
        "Lisbon has seven hills.",
        "[tool output] The address is saved.",
        "My cat is called Tom.",
    ]
    assert {item.event_time for item in items} == {START}
    assert {item.fields["session_id"] for item in items} == {"s0001"}
    assert all("turn" not in item.fields for item in items)


async def test_the_users_side_alone_on_demand(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store(session_store="user")
        await store.write(session())
        # There is nothing to hand over of a session without the user.
        await store.write(session(("assistant", "Are you there?")))
        (prompt,) = prompts(server)
        assert new_messages(prompt) == (
            "user: I moved to Lisbon in May.\nuser: My cat is called Tom."
        )


async def test_messages_one_by_one_are_kept_as_before(server: FakeServer, tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        store = await here.store()
        await store.write(event("I moved to Lisbon in May."))
        await store.write(event("Lisbon has seven hills.", role="assistant"))
        assert [new_messages(p) for p in prompts(server)] == ["user: I moved to Lisbon in May."]
        (item,) = await store.dump()
        assert item.fields["turn"] == 1


async def test_without_inference_a_sessions_messages_are_kept_as_they_are(
    server: FakeServer, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        store = await here.store(infer=False)
        await store.write(session())
        assert server.chats == []
        assert [i.content for i in await store.dump()][:2] == [SAID[0][1], SAID[1][1]]


@pytest.mark.parametrize("protocol", [Protocol.STRICT, Protocol.PAPER])
async def test_what_cannot_be_kept_is_refused(
    server: FakeServer, tmp_path: Path, protocol: Protocol
) -> None:
    async with site(tmp_path) as here:
        store = await here.store(protocol=protocol)
        for said in (("user", "a \ud83d"), ("system", "x")):
            with pytest.raises(UnsupportedEvent):
                await store.write(session(SAID[0], said))
        assert await store.dump() == []
        assert server.chats == []


def test_the_suite_reads_all_facts() -> None:
    assert Mem0.card.probe_access is AccessMode.DUMP_ALL
    assert Mem0.card.capabilities.sessions
    assert (Mem0Options().store, Mem0Options().session_store) == ("user", "both")
    assert any("session" in note for note in Mem0.card.notes)
