"""Known ways in which a harness and a memory library misunderstand each other, by case id."""

from pathlib import PureWindowsPath

import pytest

from adapters.memory.shapes import normalise
from memprobe import AdapterContractError
from memprobe.ids import slug
from memprobe.text import flatten_content
from memprobe.types import Scope
from tests.adapters.support import event, opened

SHAPES = [
    ({"results": [{"memory": "x"}]}, ["x"]),
    ([{"memory": "x"}], ["x"]),
    (None, []),
    ({"results": None}, []),
    ({"results": [{"content": "x"}]}, ["x"]),
    ({"memories": [{"text": "x"}]}, ["x"]),
    (["x", "y"], ["x", "y"]),
    ((), []),
]


@pytest.mark.parametrize(("answer", "texts"), SHAPES)
def test_search_shape_changes(answer: object, texts: list[str]) -> None:
    assert [item.content for item in normalise(answer, origin="search").items] == texts


@pytest.mark.parametrize(
    "answer",
    [
        "x",
        3,
        {"hits": []},
        {"results": 3},
        {"results": [3]},
        [{"id": "1"}],
        [{"memory": 3}],
        [{"memory": "x", "score": "high"}],
    ],
)
def test_search_shape_changes_unknown_is_an_error(answer: object) -> None:
    with pytest.raises(AdapterContractError, match=r"lib\.search"):
        normalise(answer, origin="lib.search")


def test_search_shape_keeps_id_score_and_the_rest() -> None:
    answer = {"results": [{"id": 7, "memory": "x", "score": 0.5, "created_at": "2023-05-07"}]}
    (item,) = normalise(answer, origin="search").items
    assert (item.id, item.score, item.fields) == ("7", 0.5, {"created_at": "2023-05-07"})


def test_none_content() -> None:
    found = normalise([{"memory": None}, {"memory": "ok"}], origin="search")
    assert [item.content for item in found.items] == ["ok"]
    assert found.without_text == 1
    assert flatten_content(None) == (None, 0)


def test_content_list() -> None:
    parts = ["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert flatten_content(parts) == ("a\nb", 1)
    (item,) = normalise([{"content": parts}], origin="search").items
    assert item.content == "a\nb"


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_userid_name_collision(name: str) -> None:
    first, second = await opened(name), await opened(name)
    await first.close()
    await second.close()
    for store, key in ((first, "a"), (second, "b")):
        await store.open(Scope(run="r", system=name, user="Ana Li", key=key))
    await first.write(event("my cat is Pixel"))
    assert await second.dump() == []
    assert len(await first.dump()) == 1


@pytest.mark.parametrize(
    "raw",
    ["00000000-0000-0000-0000-000000000001", "Ana Li", "../../etc", "a/b", "a:b", "D:\\logs", ""],
)
def test_userid_hyphen_uuid(raw: str) -> None:
    safe = slug(raw)
    assert safe.replace("_", "").isalnum()
    assert safe == safe.lower()
    assert slug(safe) == safe
    assert slug(raw + "x") != safe


def test_windows_path_sep() -> None:
    safe = slug("D:\\logs\\2026-01-01T10:00:00_task")
    path = PureWindowsPath("F:\\runs") / safe
    assert path.parent == PureWindowsPath("F:\\runs")
    assert path.drive == "F:"
    assert ":" not in safe


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_duplicates(name: str) -> None:
    store = await opened(name)
    for turn in range(30):
        await store.write(event("likes tea", episode=0, turn=turn))
    await store.write(event("has a cat", episode=0, turn=30))
    items = await store.dump()
    assert len(items) == 31
    assert len({item.id for item in items}) == 31
    assert any("cat" in item.content for item in await store.search("which cat has a name", 3))


@pytest.mark.parametrize("name", ["nomem", "longctx_full", "rag"])
async def test_reset_missing_user(name: str) -> None:
    store = await opened(name)
    await store.close()
    await store.open(Scope(run="r", system=name, user="never seen", key="never_seen"))
    assert await store.dump() == []


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_topk_ignored(name: str) -> None:
    store = await opened(name)
    for turn in range(30):
        await store.write(event(f"fact {turn}", episode=0, turn=turn))
    for k in (1, 3, 5, 10, 100):
        assert len(await store.search("fact", k)) == min(k, 30)


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_full_dump_silently_capped(name: str) -> None:
    store = await opened(name)
    for turn in range(101):
        await store.write(event(f"fact number {turn}", episode=0, turn=turn))
    assert len(await store.dump()) == 101


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_timestamps_now(name: str) -> None:
    store = await opened(name)
    sent = event("went to the support group")
    await store.write(sent)
    assert [item.event_time for item in await store.dump()] == [sent.event_time]
    assert [item.event_time for item in await store.search("group", 1)] == [sent.event_time]


@pytest.mark.parametrize("name", ["longctx_full", "rag"])
async def test_label_leak_into_store(name: str) -> None:
    store = await opened(name)
    await store.write(event("hi").model_copy(update={"session_id": "perturbation"}))
    assert "perturbation" not in str([item.model_dump() for item in await store.dump()])
