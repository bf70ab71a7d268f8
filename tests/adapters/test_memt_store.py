"""Mem-T's options, prompt sets, snapshots, and stores side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.memt import MemT, Options, promptset
from adapters.memory.registry import Registry
from memprobe.errors import AdapterError, PromptError, SnapshotError, UsageError
from memprobe.types import Protocol
from tests.adapters.support import WordEmbedder, event, scope
from tests.support.fake_memory_memt import call
from tests.support.fake_server import FakeServer
from tests.support.memt import PROTOCOLS, opened, says, store


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def own_set(tmp_path: Path) -> Path:
    """A user's folder with our files, one of them reworded."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in promptset.REQUIRED:
        text = (resources.files("prompts") / f"{name}.md").read_text(encoding="utf-8")
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    path = folder / "memt_formation.md"
    path.write_text(path.read_text(encoding="utf-8").replace("You read one", "MINE: one"))
    return folder


SAID = (
    "My door has the code mk1",
    "日本語 and עברית \U0001f469\u200d\U0001f467",
    "My door has the code mk1",
    "a\u2028b",
)


async def spoken(memory: MemT, said: tuple[str, ...] = SAID) -> None:
    for number, text in enumerate(said, 1):
        await memory.write(event(text, turn=number))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def folder(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.mkdir()
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_equal_stores_are_saved_as_equal_bytes_and_restored_without_encoding(
    server: FakeServer, tmp_path: Path, protocol: Protocol
) -> None:
    saved = []
    for name in ("one", "two"):
        memory = await opened(server, protocol)
        await memory.search("nothing yet", 3)
        await spoken(memory)
        await memory.save(folder(tmp_path, name))
        dumped = await memory.dump()
        await memory.close()
        saved.append(files(tmp_path / name))
    assert saved[0] == saved[1]
    embedder = WordEmbedder()
    again = await opened(server, protocol, embedder)
    await again.restore(tmp_path / "one")
    assert await again.dump() == dumped
    await again.save(folder(tmp_path, "three"))
    assert embedder.encoded == []
    assert files(tmp_path / "three") == saved[0]
    await again.close()


async def test_a_restored_store_goes_on_as_the_saved_one(
    server: FakeServer, tmp_path: Path
) -> None:
    whole, part = await opened(server), await opened(server)
    for number, text in enumerate(SAID, 1):
        await whole.write(event(text, turn=number))
        if number <= 2:
            await part.write(event(text, turn=number))
    await part.save(folder(tmp_path, "s"))
    await part.close()
    asked = server.counts()
    back = await opened(server)
    await back.restore(tmp_path / "s")
    for number, text in list(enumerate(SAID, 1))[2:]:
        await back.write(event(text, turn=number))
    assert await back.dump() == await whole.dump()
    # The same prompts to the last letter: a run that replays them makes no new call.
    assert set(server.counts()) == set(asked)
    assert [i.id for i in await back.search("my door code", 5)] == [
        i.id for i in await whole.search("my door code", 5)
    ]
    await back.close()
    await whole.close()


@pytest.mark.parametrize(
    "name", ["state.json", "facts.rows.jsonl", "turns.vectors.npy", "snapshot.json"]
)
async def test_a_damaged_snapshot_is_named(server: FakeServer, tmp_path: Path, name: str) -> None:
    memory = await opened(server)
    await spoken(memory)
    home = folder(tmp_path, "s")
    await memory.save(home)
    with pytest.raises(SnapshotError, match="only an empty store"):
        await memory.restore(home)
    await memory.close()
    (home / name).write_bytes((home / name).read_bytes()[:-3])
    again = await opened(server)
    with pytest.raises(SnapshotError, match=name.replace(".", r"\.")):
        await again.restore(home)
    (home / name).unlink()
    with pytest.raises(SnapshotError, match=name.replace(".", r"\.")):
        await again.restore(home)
    assert await again.dump() == []
    await again.close()


async def test_stores_side_by_side_keep_apart(server: FakeServer) -> None:
    server.latency = 0.002
    stores = [store(server) for _ in range(3)]
    for number, memory in enumerate(stores):
        await memory.open(scope(f"s{number}"))

    async def fill(number: int, memory: MemT) -> None:
        for i in range(5):
            await memory.write(event(f"cupboard {i} of mk{number}x", turn=i))

    await asyncio.gather(*(fill(n, memory) for n, memory in enumerate(stores)))
    for number, memory in enumerate(stores):
        text = json.dumps([[i.content, i.fields] for i in await memory.dump()])
        assert [f"mk{n}x" in text for n in range(3)] == [n == number for n in range(3)]
    for memory in stores:
        await memory.close()
        await memory.close()


async def test_writes_of_one_store_keep_their_order(server: FakeServer) -> None:
    server.latency = 0.002
    memory = await opened(server)
    await asyncio.gather(*(memory.write(event(f"m{i}", turn=i)) for i in range(6)))
    turns = [i for i in await memory.dump() if i.fields["category"] == "turns"]
    assert [i.content for i in turns] == [f"user said: m{i}" for i in range(6)]
    assert len({i.id for i in await memory.dump()}) == len(await memory.dump())
    await memory.close()


TRAINING = {"max_tokens", "min_p", "chat_template_kwargs"}


@pytest.mark.parametrize(
    ("protocol", "options", "sent"),
    [
        (Protocol.STRICT, {}, TRAINING),
        (Protocol.PAPER, {}, set()),
        (Protocol.STRICT, {"profile": "release", "temperature": 0}, set()),
    ],
)
async def test_a_profile_decides_what_is_sent(
    server: FakeServer, protocol: Protocol, options: dict[str, Any], sent: set[str]
) -> None:
    memory = await opened(server, protocol, **options)
    await memory.write(event("hello"))
    for seen in server.chats:
        assert TRAINING & set(seen.body) == sent
        assert seen.body["temperature"] == options.get("temperature", 0.7)
    if sent:
        body = server.chats[0].body
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        assert (body["max_tokens"], body["min_p"]) == (1024, 0.05)
    await memory.close()


async def test_a_prompt_set_of_ones_own_is_used_and_recorded(
    server: FakeServer, tmp_path: Path, own_set: Path
) -> None:
    memory = await opened(server, prompts=str(own_set))
    await memory.write(event("hello"))
    assert server.chats[0].body["messages"][0]["content"].startswith("MINE: one")
    await memory.save(folder(tmp_path, "s"))
    await memory.close()
    kept = json.loads((tmp_path / "s" / "state.json").read_text(encoding="utf-8"))["prompts"]
    assert kept == memory.options.prompt_set
    assert kept.startswith("own:")
    assert Options().prompt_set.startswith("memprobe:")


async def test_a_set_that_changes_under_a_run_is_noticed(server: FakeServer, own_set: Path) -> None:
    memory = store(server, prompts=str(own_set))
    path = own_set / "memt_update.md"
    path.write_text(path.read_text(encoding="utf-8") + "\nOne more line.\n", encoding="utf-8")
    with pytest.raises(AdapterError, match="changed while the run"):
        await memory.open(scope())
    assert Options(prompts=str(own_set)).prompt_set != memory.options.prompt_set


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("memt_update", "{{ related | json(2) }}", "", r"update\.md does not use \{\{ related"),
        ("memt_formation", "{{ turn | json }}", "{{ trun }}", r"formation\.md does not use .*turn"),
        ("memt_retrieval", "{{ query | json }}", "{{ query }}{{ wish }}", r"val\.md uses wish"),
        ("memt_observation", "{{ observation }}", "{{ observation", r"memt_observation"),
        ("memt_answer", "version: 1", "version: one", r"memt_answer\.md"),
    ],
)  # fmt: skip
def test_a_set_that_cannot_be_used_is_refused_by_file_and_variable(
    own_set: Path, name: str, old: str, new: str, said: str
) -> None:
    path = own_set / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(PromptError, match=said):
        Options(prompts=str(own_set))


def test_a_set_that_is_not_whole_is_refused(tmp_path: Path, own_set: Path) -> None:
    (own_set / "memt_reminder.md").unlink()
    with pytest.raises(PromptError, match=r"lacks memt_reminder\.md"):
        Options(prompts=str(own_set))
    with pytest.raises(PromptError, match="no folder"):
        Options(prompts=str(tmp_path / "none"))
    (own_set / "memt_reminder.md").write_bytes(b"\xff\xfe")
    with pytest.raises(PromptError, match=r"memt_reminder\.md cannot be read"):
        Options(prompts=str(own_set))


def test_the_registry_records_the_options_on_the_card(own_set: Path) -> None:
    options = {"memt": {"prompts": str(own_set), "max_steps": 3}}
    card = Registry(WordEmbedder(), Protocol.PAPER, options=options).card("memt")
    assert (card.pool, card.capabilities.needs_llm) == ("gpu", True)
    assert card.options["max_steps"] == 3
    assert card.options["profile"] == "release"
    assert str(card.options["prompt_set"]).startswith("own:")
    with pytest.raises(UsageError, match="max_steps"):
        Registry(WordEmbedder(), options={"memt": {"max_steps": 0}}).card("memt")
    assert any("out of its distribution" in note for note in card.notes)


async def test_a_store_larger_than_a_window_is_dumped_whole(server: FakeServer) -> None:
    memory = await opened(server)
    page = "All the words of a long letter. " * 300
    for number in range(40):
        server.script(
            says(call("update_summary", content="letters"), call("create_dream", x=1)),
        )
        await memory.write(event(f"mk{number:03d} {page}", turn=number))
    items = await memory.dump()
    text = "\n".join(i.content for i in items)
    assert all(f"mk{n:03d}" in text for n in range(40))
    # Raw turns once, and once more as the growing source of the summary.
    assert len(text) > 2 * 40 * len(page)
    await memory.close()
