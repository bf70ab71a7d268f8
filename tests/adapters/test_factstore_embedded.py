"""The fact store without a model: which sentences are kept, and what becomes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapters.memory.factstore.cues import drafts, missing
from adapters.memory.factstore.relations import Relation, relation
from adapters.memory.factstore.system import FactStore
from adapters.memory.factstore.texts import Part
from adapters.memory.registry import Registry
from adapters.models.minilm import MiniLM
from memprobe.errors import AdapterError, MissingPrerequisite, SnapshotError, UnsupportedEvent
from memprobe.systems import ModelAccess, Services
from memprobe.types import DocumentEvent
from tests.adapters.support import FixedLine, WordEmbedder, event, scope
from tests.support.factstore import changes, document, embedded, fact

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANA, IVO, MAE = "Ana Brandt", "Ivo Lang", "Mae Quist"
SPRUCE = "The knot model grades spruce boards."
PORTO = "My bike is kept in Porto."
BOX = "My box 3 has the code AB1."
HOLD = "The tablets of Eastmere Blood Service hold unsent records for 72 hours."


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def minilm() -> AsyncIterator[MiniLM]:
    model = MiniLM()
    yield model
    await model.close()


async def done(store: FactStore, *documents: DocumentEvent) -> list[list[str]]:
    """The actions of each document."""
    found = []
    for one in documents:
        before = len(store.operations())
        await store.write(one)
        found.append([o.action.value for o in store.operations()[before:]])
    return found


async def test_linear_evolution(minilm: MiniLM) -> None:
    store = await embedded(minilm)
    first = "Harrowgill Opticians splits its AWS bill among the teams by headcount."
    second = "Since 1 April 2023 Harrowgill Opticians splits its AWS bill among the teams by tag."
    days = ("2022-11-08", "2023-04-04", "2023-07-11")
    actions = await done(
        store,
        document(first, days[0]),
        document(second, days[1], IVO),
        document(f"Budget notes\nAs before: {second}", days[2], MAE),
    )
    assert actions == [["create"], ["supersede"], ["reinforce"]]
    dump = await store.dump()
    old, new = fact(dump, "f00001"), fact(dump, "f00002")
    assert changes(old) == [("create", 0.9, days[0]), ("supersede", 0.9, days[1])]
    assert (old["status"], old["superseded_by"]) == ("superseded", "f00002")
    assert changes(new) == [("supersede", 0.9, days[1]), ("reinforce", 1.0, days[2])]
    assert (new["statement"], new["author_count"]) == (second, 2)


@pytest.mark.parametrize("guard", ["strict", "enrich"])
async def test_out_of_order_arrival(minilm: MiniLM, guard: str) -> None:
    store = await embedded(minilm, guard=guard)
    now = "The knot model of Osterlund Sawmills grades spruce boards on line 2."
    detail = "The knot model of Osterlund Sawmills also grades pine boards on line 2."
    was = "The tile renderer of Hadleigh Maps keeps 4 replicas."
    other = "The tile renderer of Hadleigh Maps keeps 6 replicas."
    await store.write(document(f"{now} {other}", "2025-03-10"))
    actions = await done(store, document(detail, "2025-01-20", IVO), document(was, "2025-01-21"))
    enriched = guard == "enrich"
    assert actions == [["update" if enriched else "reinforce"], ["reinforce"]]
    dump = await store.dump()
    assert [i.content for i in dump] == [f"{now} {detail}" if enriched else now, other]
    assert [i.fields["confidence"] for i in dump] == [0.9 if enriched else 1.0, 1.0]
    assert [o.decided.value for o in store.operations()[2:]] == ["update", "supersede"]
    assert {i.event_time for i in dump} == {document("x", "2025-03-10").event_time}


@pytest.mark.parametrize(
    ("author", "day", "action"),
    [
        (IVO, "2025-01-30", "conflict"),  # soon after, by another
        (ANA, "2025-01-30", "supersede"),  # she corrects herself
        (IVO, "2025-06-30", "supersede"),  # the world has moved on
    ],
)
async def test_who_contradicts_whom_and_when(
    minilm: MiniLM, author: str, day: str, action: str
) -> None:
    store = await embedded(minilm)
    less = HOLD.replace("72", "48")
    assert await done(store, document(HOLD, "2025-01-20"), document(less, day, author)) == [
        ["create"],
        [action],
    ]
    active = [i.content for i in await store.dump() if i.fields["status"] == "active"]
    assert active == ([HOLD, less] if action == "conflict" else [less])


async def test_a_decision_settles_a_conflict(minilm: MiniLM) -> None:
    store = await embedded(minilm)
    less = HOLD.replace("72", "48")
    final = f"Decided: {less}"
    actions = await done(
        store,
        document(HOLD, "2025-01-20"),
        document(less, "2025-01-25", IVO),
        document(final, "2025-02-20", MAE),
    )
    assert actions == [["create"], ["conflict"], ["supersede"]]
    dump = await store.dump()
    assert [(i.fields["status"], i.fields["in_conflict"]) for i in dump] == [
        ("superseded", False),
        ("active", False),
    ]
    assert fact(dump, "f00002")["authors"] == [IVO, MAE]
    unable = await embedded(minilm, conflict=False)
    await done(unable, document(HOLD, "2025-01-20"), document(less, "2025-01-25", IVO))
    assert [o.action.value for o in unable.operations()] == ["create", "supersede"]


async def test_what_a_supersede_does_not_touch_lives_on(minilm: MiniLM) -> None:
    store = await embedded(minilm)
    also = "The tablets of Eastmere Blood Service also hold unsent records of its mobile units."
    await done(store, document(HOLD, "2025-01-20"), document(also, "2025-01-21"))
    (merged,) = await store.dump()
    assert merged.content == f"{HOLD} {also}"
    less = HOLD.replace("72", "48")
    await done(store, document(less, "2025-05-20", IVO))
    heir = (await store.dump())[-1]
    assert heir.content == f"{also} {less}"
    assert (heir.fields["supersedes"], heir.fields["status"]) == (["f00001"], "active")


@pytest.mark.parametrize(
    ("old", "new", "cosine", "changed", "expected"),
    [
        (HOLD, HOLD, 1.0, False, Relation.SAME),
        (HOLD, HOLD.replace("hold unsent", "still hold"), 0.9, False, Relation.SAME),
        (HOLD, HOLD.replace("72", "48"), 0.9, False, Relation.CONTRADICTS),
        (HOLD, HOLD.replace("hold", "do not hold"), 0.9, False, Relation.CONTRADICTS),
        (PORTO, PORTO.replace("Porto", "Lisbon"), 0.8, False, Relation.CONTRADICTS),
        (BOX, BOX.replace("3", "4").replace("AB1", "CD2"), 0.9, False, Relation.UNRELATED),
        (SPRUCE, SPRUCE.replace("knot", "bark"), 0.9, False, Relation.UNRELATED),
        (SPRUCE, SPRUCE.replace("spruce", "pine"), 0.9, False, Relation.ADDS),
        (SPRUCE, SPRUCE.replace("spruce", "pine"), 0.9, True, Relation.CONTRADICTS),
        (SPRUCE, SPRUCE.replace("spruce", "pine"), 0.5, True, Relation.UNRELATED),
    ],
)
async def test_relations(
    old: str, new: str, cosine: float, changed: bool, expected: Relation
) -> None:
    assert relation(old, new, cosine, changes=changed) == expected


async def test_which_sentences_of_a_document_are_kept() -> None:
    text = (
        "To: all leads\nSubject: the bill of Harrowgill\n\nHi everyone,\n"
        "Review of the Harrowgill bill\n"
        "1. Agreed: Harrowgill splits the bill by tag, because heads tell nothing.\n"
        "- The lease in Porto may end on 3 May 2025.\n"
        "Nobody called it elegant. Is Harrowgill late? I suspect that Ivo Lang pays the fee."
    )
    kept = drafts(Part(ANA, text), document=True)
    assert [(d.what, d.label, d.category) for d in kept] == [
        ("Harrowgill splits the bill by tag, because heads tell nothing.", "High", "decision"),
        ("The lease in Porto may end on 3 May 2025.", "Medium", "state"),
        ("I suspect that Ivo Lang pays the fee.", "Low", "state"),
    ]
    assert (kept[0].why, kept[1].when, kept[1].where) == (
        "heads tell nothing",
        "3 May 2025",
        "Porto",
    )
    assert ("Ivo Lang" in kept[2].entities, kept[2].who) == (True, ANA)


async def test_which_sentences_of_a_dialogue_are_kept() -> None:
    said = "Thanks a lot! I hate heat. Could you plan a trip to Lisbon for me? Why?"
    kept = drafts(Part("user", said), document=False)
    assert [(d.what, d.category) for d in kept] == [
        ("Thanks a lot!", "state"),
        ("I hate heat.", "preference"),
        ("Could you plan a trip to Lisbon for me?", "request"),
    ]
    assert drafts(Part("assistant", "Could you plan a trip to Lisbon?"), document=False) == []


async def test_a_detail_is_missing_when_its_name_or_number_is() -> None:
    old = "In May Prometheus at Skelmer keeps 1,300 metrics for 13 months."
    assert missing(old, "Skelmer has 1300 metrics in Prometheus, 13 months long, in May.") == []
    assert missing(old, "Prometheus keeps metrics.") == ["13", "1300", "skelmer"]


async def test_a_snapshot_is_the_store_and_nothing_else(minilm: MiniLM, tmp_path: Path) -> None:
    store = await embedded(minilm, observations=True)
    await done(store, document(HOLD, "2025-01-20"), document(HOLD, "2025-01-25", IVO))
    await store.save(tmp_path)
    again = await embedded(minilm, observations=True)
    await again.restore(tmp_path)
    assert await again.dump() == await store.dump()
    assert await again.search("tablets", 5) == await store.search("tablets", 5)
    with pytest.raises(SnapshotError, match="only an empty store"):
        await again.restore(tmp_path)
    state = tmp_path / "state.json"
    state.write_text(state.read_text().replace("72 hours", "27 hours"))
    with pytest.raises(SnapshotError, match="does not match the hash"):
        await (await embedded(minilm)).restore(tmp_path)


async def test_a_closed_store_says_so(minilm: MiniLM) -> None:
    store = await embedded(minilm)
    with pytest.raises(AdapterError, match="open already"):
        await store.open(scope())
    with pytest.raises(UnsupportedEvent, match="surrogate"):
        await store.write(event("broken \ud83d tail"))
    await store.close()
    await store.close()
    for call in (store.write(event("x")), store.dump(), store.search("x", 1)):
        with pytest.raises(AdapterError, match="not open"):
            await call


def registry(model: bool, engine: str) -> tuple[Registry, list[str]]:
    """A registry with or without lines, and the systems that were given one."""
    given: list[str] = []

    def lines(system: str, user: str, stage: str, epoch: int) -> FixedLine:
        given.append(system)
        return FixedLine(ModelAccess("http://127.0.0.1:9/v1", "key", "m", "e"))

    options = {"factstore": {"engine": engine}}
    made = Registry(WordEmbedder(), lines=lines if model else None, options=options)
    return made, given


@pytest.mark.parametrize(
    ("model", "engine", "lined"),
    [
        (True, "auto", True),
        (True, "model", True),
        (True, "embedded", False),
        (False, "auto", False),
        (False, "embedded", False),
    ],
)
async def test_a_run_with_a_model_gives_it_to_those_who_use_one(
    model: bool, engine: str, lined: bool
) -> None:
    systems, given = registry(model, engine)
    store = systems.create("factstore", "u")
    assert (given == ["factstore"]) is lined
    systems.create("rag", "u")
    assert "rag" not in given
    await store.open(scope())
    await store.close()


async def test_who_insists_on_a_model_needs_one() -> None:
    systems, _ = registry(False, "model")
    with pytest.raises(MissingPrerequisite, match="pass --model"):
        systems.create("factstore", "u")
    options = FactStore.Options(engine="model")
    with pytest.raises(MissingPrerequisite, match="engine=model"):
        await FactStore(Services(WordEmbedder(), options=options)).open(scope())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "It is late because " + "!" * 100_000 + "a",
        "A: " * 30_000,
        "Ab " * 30_000,
        "1.2" * 30_000,
        "not " * 25_000 + ".",
        "x" * 100_000,
    ],
)
async def test_a_long_text_of_any_kind_is_taken_in(text: str) -> None:
    store = await embedded()
    await store.write(event(f"Vela has 3 docks. {text}"))
    await store.write(event(f"Vela has 4 docks. {text}"))
    assert "Vela has 4 docks." in "\n".join(i.content for i in await store.dump())
