"""How A-MEM's notes change each other: the rules, and what `strict` does otherwise than `paper`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from adapters.memory.amem import AMem
from adapters.memory.amem.note import as_read, note_id
from memprobe.types import MemoryItem, Protocol
from tests.adapters.support import WordEmbedder, event
from tests.support.amem import (
    PAPER,
    STRICT,
    AmemBench,
    amem_bench,
    analysis,
    evolution,
    lines,
    new,
    tags,
)

BOTH = pytest.mark.parametrize("protocol", [STRICT, PAPER])
FIRST, SECOND, THIRD = (note_id(n) for n in (1, 2, 3))


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AmemBench]:
    async with amem_bench(tmp_path, monkeypatch) as made:
        yield made


async def pair(bench: AmemBench, store: AMem, decision: str) -> tuple[MemoryItem, MemoryItem]:
    """Two notes, the second with this decision."""
    bench.say(analysis(["a"], "First.", ["old"]), analysis(["b"], "Second.", ["own"]), decision)
    await store.write(event("rope"))
    await store.write(event("sail", turn=2))
    first, second = await store.dump()
    return first, second


@BOTH
async def test_no_evolution_changes_nothing(bench: AmemBench, protocol: Protocol) -> None:
    store = await bench.store(protocol)
    decision = evolution(
        should_evolve=False,
        actions=["strengthen", "update_neighbor"],
        suggested_connections=[FIRST],
        tags_to_update=["new"],
        new_context_neighborhood=["New."],
        new_tags_neighborhood=[["new"]],
    )
    first, second = await pair(bench, store, decision)
    assert (first.fields["tags"], first.fields["context"]) == (["old"], "First.")
    assert (second.fields["tags"], second.fields["links"]) == (["own"], [])
    assert second.fields["evolution"] is None
    assert first.fields["evolved_by"] == []


@BOTH
async def test_strengthen_links_and_retags_the_new_note(
    bench: AmemBench, protocol: Protocol
) -> None:
    embedder = WordEmbedder()
    store = await bench.store(protocol, embedder=embedder)
    decision = evolution("strengthen", suggested_connections=[FIRST], tags_to_update=["x", "y"])
    first, second = await pair(bench, store, decision)
    assert second.fields["links"] == [FIRST]
    assert second.fields["tags"] == ["x", "y"]
    # One way only, and the neighbour stays as it was.
    assert (first.fields["links"], first.fields["tags"]) == ([], ["old"])
    # The new note goes into the index after it has evolved.
    assert embedder.encoded[-1] == "sail context: Second. keywords: b tags: x, y"


@BOTH
async def test_update_rewrites_the_neighbour_and_not_the_new_note(
    bench: AmemBench, protocol: Protocol
) -> None:
    store = await bench.store(protocol)
    decision = evolution(
        "update_neighbor",
        suggested_connections=[FIRST],
        tags_to_update=["unused"],
        new_context_neighborhood=["New."],
        new_tags_neighborhood=[["n1", "n2"]],
    )
    first, second = await pair(bench, store, decision)
    assert (first.fields["tags"], first.fields["context"]) == (["n1", "n2"], "New.")
    assert (first.content, first.fields["keywords"]) == ("rope", ["a"])
    assert (second.fields["tags"], second.fields["links"]) == (["own"], [])
    assert first.fields["evolved_by"] == [second.id]


@BOTH
async def test_unknown_actions_do_nothing_but_count(bench: AmemBench, protocol: Protocol) -> None:
    store = await bench.store(protocol)
    decision = evolution("merge", tags_to_update=["x"], new_tags_neighborhood=[["x"]])
    first, second = await pair(bench, store, decision)
    assert tags([first, second]) == [["old"], ["own"]]
    mark = second.fields["evolution"]
    assert isinstance(mark, dict)
    assert (mark["number"], mark["actions"]) == (1, ["merge"])


async def test_strict_links_only_what_was_shown_and_once(bench: AmemBench) -> None:
    store = await bench.store()
    named = [FIRST, "made-up", FIRST, f" {FIRST} ", SECOND, "made-up"]
    decision = evolution("strengthen", suggested_connections=named, tags_to_update=["t"])
    _, second = await pair(bench, store, decision)
    assert second.fields["links"] == [FIRST]
    mark = second.fields["evolution"]
    assert isinstance(mark, dict)
    # Its own id was not shown to it either.
    assert mark["unknown_links"] == ["made-up", SECOND]
    assert mark["neighbours"] == [FIRST]


async def test_paper_links_whatever_is_named(bench: AmemBench) -> None:
    store = await bench.store(PAPER)
    named = [FIRST, "made-up", FIRST]
    _, second = await pair(bench, store, evolution("strengthen", suggested_connections=named))
    assert second.fields["links"] == named


@pytest.mark.parametrize(
    ("protocol", "neighbour", "own"),
    [(STRICT, (["old"], "First."), ["own"]), (PAPER, ([], ""), [])],
)
async def test_what_is_empty_replaces_under_paper_only(
    bench: AmemBench, protocol: Protocol, neighbour: Any, own: list[str]
) -> None:
    store = await bench.store(protocol)
    decision = evolution(
        "strengthen",
        "update_neighbor",
        new_context_neighborhood=[""],
        new_tags_neighborhood=[[]],
    )
    first, second = await pair(bench, store, decision)
    assert (first.fields["tags"], first.fields["context"]) == neighbour
    assert second.fields["tags"] == own


@pytest.mark.parametrize(
    ("contexts", "new_tags", "wanted"),
    [
        ([], [["n"]], [("First.", ["n"]), ("Second.", ["own"])]),
        (["N."], [["n"], ["m"]], [("N.", ["n"]), ("Second.", ["m"])]),
        (["N.", "M."], [["n"]], [("N.", ["n"]), ("Second.", ["own"])]),
        (["N.", "M."], [], [("First.", ["old"]), ("Second.", ["own"])]),
        (["N.", "M.", "L."], [["n"], ["m"], ["l"]], [("N.", ["n"]), ("M.", ["m"])]),
    ],
)
@BOTH
async def test_lists_of_another_length_than_the_neighbours(
    bench: AmemBench, protocol: Protocol, contexts: Any, new_tags: Any, wanted: Any
) -> None:
    store = await bench.store(protocol)
    await pair(bench, store, evolution())
    decision = evolution(
        "update_neighbor", new_context_neighborhood=contexts, new_tags_neighborhood=new_tags
    )
    bench.say(analysis(["c"], "Third.", ["t"]), decision)
    # Its words make the first note the nearer one, so that the lists begin with it.
    await store.write(event("rope rope", turn=3))
    assert [line["id"] for line in lines(bench.asked())] == [FIRST, SECOND]
    first, second, third = await store.dump()
    assert [(n.fields["context"], n.fields["tags"]) for n in (first, second)] == wanted
    mark = third.fields["evolution"]
    assert isinstance(mark, dict)
    assert (mark["contexts"], mark["tags"]) == (len(contexts), len(new_tags))


async def evolved(bench: AmemBench, protocol: Protocol, **options: JsonValue) -> AMem:
    """A store whose first note got the tag `harbour` from the second."""
    store = await bench.store(protocol, **options)
    decision = evolution(
        "update_neighbor", new_context_neighborhood=["First."], new_tags_neighborhood=[["harbour"]]
    )
    await pair(bench, store, decision)
    return store


async def test_an_evolution_reaches_the_index_under_strict_alone(bench: AmemBench) -> None:
    """The point of it: a neighbour is found by its new tags."""
    scores = {}
    for protocol in (STRICT, PAPER):
        store = await evolved(bench, protocol)
        found = await store.search("harbour", 2)
        # Under both, what a search shows of a note is the evolved note.
        assert next(i for i in found if i.id == FIRST).fields["tags"] == ["harbour"]
        scores[protocol] = next(i.score for i in found if i.id == FIRST)
        if protocol is STRICT:
            assert found[0].id == FIRST
    first, second = scores[STRICT], scores[PAPER]
    assert first is not None
    assert second is not None
    assert first > second + 0.2
    # As if it had never evolved: the text of the first insertion.
    bench.say(analysis(["a"], "First.", ["old"]))
    untouched = await bench.store(PAPER)
    await untouched.write(event("rope"))
    assert (await untouched.search("harbour", 1))[0].score == second


@pytest.mark.parametrize(
    ("protocol", "options", "shown"),
    [
        (STRICT, {}, ["harbour"]),
        (PAPER, {}, ["old"]),
        (STRICT, {"reindex_on_evolve": False}, ["old"]),
        (PAPER, {"reindex_on_evolve": True}, ["harbour"]),
    ],
)
async def test_neighbour_lines_show_what_the_index_holds(
    bench: AmemBench, protocol: Protocol, options: dict[str, JsonValue], shown: list[str]
) -> None:
    store = await evolved(bench, protocol, **options)
    await store.write(event("rope", turn=3))
    line = next(line for line in lines(bench.asked()) if line["id"] == FIRST)
    assert line["tags"] == shown


@pytest.mark.parametrize(
    ("protocol", "again"),
    [(STRICT, ["rope context: First. keywords: a tags: harbour"]), (PAPER, [])],
)
async def test_a_text_is_embedded_once(
    bench: AmemBench, protocol: Protocol, again: list[str]
) -> None:
    embedder = WordEmbedder()
    store = await bench.store(protocol, embedder=embedder)
    decision = evolution(
        "update_neighbor", new_context_neighborhood=["First."], new_tags_neighborhood=[["harbour"]]
    )
    await pair(bench, store, decision)
    first = "rope context: First. keywords: a tags: old"
    second = "sail context: Second. keywords: b tags: own"
    assert embedder.encoded == [first, "sail", *again, second]
    # Repeating what a neighbour has changes nothing, and costs nothing.
    embedder.encoded.clear()
    same = evolution(
        "update_neighbor",
        new_context_neighborhood=["First.", "Second."],
        new_tags_neighborhood=[["harbour"], ["own"]],
    )
    bench.say(analysis(["c"], "Third.", ["t"]), same)
    await store.write(event("rope rope", turn=3))
    assert embedder.encoded == ["rope rope", "rope rope context: Third. keywords: c tags: t"]
    assert (await store.dump())[0].fields["evolved_by"] == [SECOND]


def marks(items: list[MemoryItem]) -> list[Any]:
    found = [item.fields["evolution"] for item in items]
    return [(m["number"], m["consolidated"]) if isinstance(m, dict) else None for m in found]


@BOTH
async def test_every_so_many_evolutions_are_consolidated(
    bench: AmemBench, protocol: Protocol
) -> None:
    embedder = WordEmbedder()
    store = await bench.store(protocol, embedder=embedder, evo_threshold=2)
    steps = [None, evolution("other"), evolution(), evolution("other"), evolution("other")]
    for turn, decision in enumerate(steps, 1):
        bench.say(analysis(), *([decision] if decision else []))
        await store.write(event(f"note {turn}", turn=turn))
    wanted = [None, (1, False), None, (2, True), (3, False)]
    assert marks(await store.dump()) == wanted
    # Nothing was stale, so a consolidation encodes nothing again.
    assert len(embedder.encoded) == len(set(embedder.encoded)) == 9


async def test_the_published_consolidation_never_reaches_the_index(bench: AmemBench) -> None:
    store = await evolved(bench, PAPER, evo_threshold=1)
    assert marks(await store.dump()) == [None, (1, True)]
    await store.write(event("rope", turn=3))
    line = next(line for line in lines(bench.asked()) if line["id"] == FIRST)
    assert line["tags"] == ["old"]


@pytest.mark.parametrize("reindex", [True, False])
async def test_a_consolidation_indexes_what_is_behind(
    bench: AmemBench, tmp_path: Path, reindex: bool
) -> None:
    """A store whose index never saw an evolution catches up where that is wanted."""
    old = await evolved(bench, STRICT, reindex_on_evolve=False)
    await old.save(new(tmp_path / "old"))
    embedder = WordEmbedder()
    store = await bench.store(
        embedder=embedder, name="b", evo_threshold=1, reindex_on_evolve=reindex
    )
    await store.restore(tmp_path / "old")
    bench.say(analysis(["c"], "Third.", ["t"]), evolution("other"))
    await store.write(event("anchor", turn=3))
    caught_up = "rope context: First. keywords: a tags: harbour" in embedder.encoded
    assert caught_up is reindex
    await store.write(event("rope rope", turn=4))
    line = next(line for line in lines(bench.asked()) if line["id"] == FIRST)
    assert line["tags"] == (["harbour"] if reindex else ["old"])


async def test_the_threshold_is_a_hundred(bench: AmemBench) -> None:
    for protocol in (STRICT, PAPER):
        assert (await bench.store(protocol)).options.evo_threshold == 100


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0042", 42),
        ('{"a": [1]}', {"a": [1]}),
        ("[1, 2]", [1, 2]),
        ("[not json", "[not json"),
        ("4.5", "4.5"),
        ("-3", "-3"),
        ("²", "²"),
        ("", ""),
        ("plain", "plain"),
        ("[" * 100_000, "[" * 100_000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_what_the_published_index_reads_back(text: str, read: JsonValue) -> None:
    assert as_read(text) == read


@pytest.mark.parametrize(("protocol", "shown"), [(STRICT, "0042"), (PAPER, 42)])
async def test_digits_become_a_number_in_the_published_lines(
    bench: AmemBench, protocol: Protocol, shown: JsonValue
) -> None:
    store = await bench.store(protocol)
    await store.write(event("0042"))
    await store.write(event("next", turn=2))
    (line,) = lines(bench.asked())
    assert line["content"] == shown
    assert line["id"] == FIRST
    # What is stored is the text.
    assert (await store.dump())[0].content == "0042"
