"""What a reader is shown and a search is asked: published leaks under `paper` and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adapters.memory.sessions import BASELINES, NaiveRag, keywords
from memprobe.errors import AdapterError
from memprobe.paradigms.mentions import labels
from memprobe.paradigms.spec import Episode, SessionType
from memprobe.paradigms.suite import load_suite
from memprobe.ports import Capabilities
from memprobe.systems import SystemCard
from memprobe.types import MemoryItem, Protocol, Scope, SessionEvent, SessionMessage
from storage.bundled import paradigms_dir
from tasks.paradigms.inputs import session_id
from tasks.paradigms.view import entries_of, oracle_items, query_of

ROOT = Path(__file__).parents[2]
STRICT, PAPER = Protocol.STRICT, Protocol.PAPER
OTHER = SystemCard(
    name="facts", title="t", summary="s", licence="l", capabilities=Capabilities()
)  # fmt: skip


@pytest.fixture(scope="module")
def suite() -> dict[str, Episode]:
    return {e.id: e for e in load_suite(paradigms_dir()).episodes}


async def kept(episode: Episode, name: str, query: str | None = None) -> list[MemoryItem]:
    """What a baseline holds of an episode, or finds in it for a query."""
    store = BASELINES[name]()
    await store.open(Scope(run="r", system=name, user=episode.id, key="k"))
    for place, session in enumerate(episode.sessions, 1):
        said = tuple(SessionMessage(role=t.role, text=t.content) for t in session.dialogue)
        await store.write(
            SessionEvent(
                messages=said,
                event_time=session.time,
                session_id=session_id(place),
                label=session.session_type.value,
            )
        )
    return await (store.dump() if query is None else store.search(query, 5))


async def test_no_entry_tells_a_type_under_strict(suite: dict[str, Episode]) -> None:
    shown = 0
    for episode in suite.values():
        for name in BASELINES:
            items = await kept(episode, name)
            entries = entries_of(BASELINES[name].card, items, episode, STRICT)
            for place, (entry, session) in enumerate(
                zip(entries, episode.sessions, strict=True), 1
            ):
                number = f"{place} of {len(entries)}" if BASELINES[name].true_index else place
                assert entry["header"] == f"Session {number}, {session.time.date()}"
                assert entry.keys() == {"header", "text"}
                assert labels(f"{entry['header']}\n{entry['text']}")[0] == []
                for turn in session.dialogue:
                    assert turn.content in entry["text"]
                shown += 1
    assert shown == 1246 * len(BASELINES)


async def test_the_grep_would_find_a_type(suite: dict[str, Episode]) -> None:
    episode = suite["int_01a"]
    entries = entries_of(
        BASELINES["full_context"].card, await kept(episode, "full_context"), episode, PAPER
    )
    found = {label for entry in entries for label in labels(entry["header"])[0]}
    assert found >= {"filler_near_miss", "filler_decoy_nonupdate"}


@pytest.mark.parametrize("name", ["full_context", "naive_rag", "time_aware_rag", "oracle_rag"])
async def test_paper_heads_a_session_with_its_type_unless_that_is_hidden(
    name: str, suite: dict[str, Episode]
) -> None:
    for episode in suite.values():
        card, items = BASELINES[name].card, await kept(episode, name)
        open_ = entries_of(card, items, episode, PAPER)
        kinds = [re.fullmatch(r".* \((\w+)\)", entry["header"]) for entry in open_]
        assert [m[1] for m in kinds if m] == [s.session_type.value for s in episode.sessions]
        hidden = entries_of(card, items, episode, PAPER, hide_session_type=True)
        assert hidden == entries_of(card, items, episode, STRICT)
        assert [entry["text"] for entry in hidden] == [entry["text"] for entry in open_]


async def test_found_sessions_stand_in_time_order_with_their_number_or_a_new_one(
    suite: dict[str, Episode],
) -> None:
    episode = suite["int_01a"]
    query = f"{episode.spec.new_value} or {episode.spec.initial_value}?"
    items = await kept(episode, "naive_rag", query)
    places = [int(item.id[1:]) for item in items]
    assert places != sorted(places)
    new = entries_of(BASELINES["naive_rag"].card, items, episode, STRICT)
    true = entries_of(BASELINES["time_aware_rag"].card, items, episode, STRICT)
    days = [episode.sessions[place - 1].time.date() for place in sorted(places)]
    total = len(episode.sessions)
    assert [e["header"] for e in new] == [f"Session {n}, {d}" for n, d in enumerate(days, 1)]
    assert [e["header"] for e in true] == [
        f"Session {n} of {total}, {d}" for n, d in zip(sorted(places), days, strict=True)
    ]
    assert [e["text"] for e in new] == [e["text"] for e in true]
    last = entries_of(
        BASELINES["recency"].card, await kept(episode, "recency", query), episode, STRICT
    )
    assert [e["text"] for e in last] == [i.content for i in (await kept(episode, "recency"))[-5:]]


async def test_the_oracle_sees_encodings_and_perturbations_at_their_place(
    suite: dict[str, Episode],
) -> None:
    seen = 0
    for episode in suite.values():
        items = oracle_items(episode, await kept(episode, "oracle_rag"))
        wanted = [
            place
            for place, session in enumerate(episode.sessions, 1)
            if session.session_type is SessionType.ENCODING or session.session_type.perturbs
        ]
        entries = entries_of(BASELINES["oracle_rag"].card, items, episode, STRICT)
        places = [int(entry["header"].split()[1]) for entry in entries]
        assert places == wanted
        seen += len(wanted)
    assert seen == 161 + 68


def test_other_systems_keep_their_order_and_the_times_they_have(
    suite: dict[str, Episode],
) -> None:
    episode = suite["int_01a"]
    when = episode.sessions[4].time
    items = [
        MemoryItem(id="b", content="swims at dawn", event_time=when, fields={"session_id": "x"}),
        MemoryItem(id="a", content="has a car"),
    ]
    for protocol in Protocol:
        assert entries_of(OTHER, items, episode, protocol) == [
            {"header": f"Memory 1, {when:%Y-%m-%d %H:%M}", "text": "swims at dawn"},
            {"header": "Memory 2", "text": "has a car"},
        ]
        assert entries_of(OTHER, [], episode, protocol) == []


@pytest.mark.parametrize("fields", [{}, {"session_id": "s0000"}, {"session_id": "s9999"}])
def test_a_session_of_nowhere_is_an_error(
    fields: dict[str, str], suite: dict[str, Episode]
) -> None:
    item = MemoryItem(id="s0001", content="User: x", fields=dict(fields))
    with pytest.raises(AdapterError, match="of no session of episode int_01a"):
        entries_of(NaiveRag.card, [item], suite["int_01a"], STRICT)
    with pytest.raises(AdapterError, match="of no session of episode int_01a"):
        oracle_items(suite["int_01a"], [item])


def test_gold_is_asked_for_under_paper_and_by_the_keyword_baselines_alone(
    suite: dict[str, Episode],
) -> None:
    helped = {"naive_rag", "time_aware_rag"}
    cards = [*(cls.card for cls in BASELINES.values()), OTHER]
    for episode in suite.values():
        spec = episode.spec
        gold = (spec.initial_value, spec.new_value, *spec.distractor_values, spec.fact_type)
        for probe in episode.probes:
            for card in cards:
                assert query_of(episode, probe, STRICT, card) == probe.question
                asked = query_of(episode, probe, PAPER, card)
                if card.name in helped:
                    words = keywords(probe.question).union(*map(keywords, gold))
                    assert keywords(asked) == words
                else:
                    assert asked == probe.question


async def test_the_gold_in_the_query_draws_in_the_sessions_of_the_distractors(
    suite: dict[str, Episode],
) -> None:
    """What the page on the baselines says of the published leak, on the bundled suite."""
    found = {STRICT: 0, PAPER: 0}
    for episode in suite.values():
        for probe in episode.probes:
            for protocol in found:
                query = query_of(episode, probe, protocol, NaiveRag.card)
                items = await kept(episode, "naive_rag", query)
                found[protocol] += len(oracle_items(episode, items))
    whole = sum(
        len(e.probes) * sum(not s.session_type.filler for s in e.sessions) for e in suite.values()
    )
    assert (found[STRICT], found[PAPER], whole) == (594, 489, 916)
    page = " ".join((ROOT / "docs/systems/baselines.md").read_text(encoding="utf-8").split())
    assert "594 of the 916 sessions that state or challenge a fact" in page
    assert "489 with the gold" in page
