"""Ingest and answer: what reaches a system and a reader, failures, resuming, other readers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import AdapterError, BudgetExceeded
from memprobe.outcomes import Reason, Unscored
from memprobe.paradigms.spec import Episode, SessionType
from memprobe.types import AccessMode, Protocol, Role, SessionEvent
from tasks.paradigms import ingest
from tasks.paradigms.answer import (
    Asking,
    Given,
    Seen,
    answer_episode,
    answer_unit,
    give_up_episode,
)
from tasks.paradigms.context import Reading, readings
from tasks.paradigms.ingest import ingest_episode
from tasks.paradigms.inputs import stored_suite
from tasks.paradigms.reread import Rereading, reread_episode
from tasks.paradigms.score import score_paradigms
from tests.support.chat_double import ChatDouble, where
from tests.support.paradigms_bench import KNOWN, ProbeBench, probe_bench, small_suite

TABLES = ("ingests", "answers", "probe_verdicts", "probe_failures", "memory_items", "retrievals")
SUITE = small_suite()
UPDATE = next(e for e in SUITE.episodes if e.spec.updates)
PRESERVE = next(e for e in SUITE.episodes if not e.spec.updates)
TYPES = tuple(kind.value for kind in SessionType)


@pytest.fixture
def b(tmp_path: Path) -> ProbeBench:
    return probe_bench(tmp_path / "run")


async def measured(b: ProbeBench, system: str, episode: Episode = UPDATE) -> None:
    await ingest_episode(b.context, system, episode.id)
    await answer_episode(b.context, system, episode.id)


def tables(b: ProbeBench) -> dict[str, list[dict[str, Any]]]:
    return {table: b.rows(table) for table in TABLES}


async def test_a_system_gets_sessions_with_their_times_and_nothing_of_the_design(
    b: ProbeBench,
) -> None:
    await measured(b, "full_context")
    events = [e for e in b.systems.events if isinstance(e, SessionEvent)]
    assert [e.event_time for e in events] == [s.time for s in UPDATE.sessions]
    assert [e.session_id for e in events] == [
        f"s{i:04d}" for i in range(1, len(UPDATE.sessions) + 1)
    ]
    for event, session in zip(events, UPDATE.sessions, strict=True):
        assert [m.text for m in event.messages] == [t.content for t in session.dialogue]
        assert event.label == ""
    told = json.dumps([e.model_dump(mode="json") for e in events])
    assert not [name for name in TYPES if name in told]


async def test_a_reader_sees_the_question_and_the_memory_and_nothing_else(b: ProbeBench) -> None:
    await measured(b, "full_context")
    asked = b.chat.of(Role.READER)
    assert [r.variables["question"] for r in asked] == [p.question for p in UPDATE.probes]
    for request in asked:
        assert set(request.variables) == {"question", "probe_type", "entries"}
        shown = request.messages[-1].content + request.messages[0].content
        assert not [name for name in TYPES if name in shown]
        assert len(request.variables["entries"]) == len(UPDATE.sessions)


async def test_the_published_leak_is_there_under_paper_unless_it_is_hidden(tmp_path: Path) -> None:
    seen = {}
    for hide in (False, True):
        b = probe_bench(
            tmp_path / str(hide),
            protocol="paper",
            hide_session_type=hide,
            systems=("full_context",),
        )
        await measured(b, "full_context")
        shown = json.dumps(b.chat.of(Role.READER)[0].variables["entries"])
        labels = {e.label for e in b.systems.events if isinstance(e, SessionEvent)}
        seen[hide] = ("perturbation" in shown, labels != {""})
    assert seen == {False: (True, True), True: (False, False)}


async def test_every_answer_is_scored_by_both_scorers_and_each_failure_is_told(
    b: ProbeBench,
) -> None:
    await measured(b, "full_context")
    verdicts = b.rows("probe_verdicts")
    assert len(verdicts) == 2 * len(UPDATE.probes)
    strict = [row for row in verdicts if row["scorer"] == "strict"]
    assert {row["match"] for row in strict} == {"incorrect"}
    assert len(b.rows("probe_failures", scorer="strict")) == len(strict)
    assert {row["side"] for row in b.rows("probe_failures", scorer="strict")} == {"readout"}


async def test_a_reference_that_is_told_the_values_asks_no_reader(b: ProbeBench) -> None:
    await measured(b, "always_update")
    assert b.chat.of(Role.READER) == []
    current = b.rows("answers", probe_type="current_value")[0]
    assert json.loads(current["answer_json"])["answer"] == UPDATE.spec.new_value
    assert {r["match"] for r in b.rows("probe_verdicts", probe_type="current_value")} == {"correct"}


async def test_a_reference_that_is_told_the_sessions_shows_those_alone(b: ProbeBench) -> None:
    await measured(b, "oracle_rag")
    kept = [s for s in UPDATE.sessions if not s.session_type.filler]
    for request in b.chat.of(Role.READER):
        assert len(request.variables["entries"]) == len(kept)


async def test_a_search_is_recorded_and_cut_to_its_k(tmp_path: Path) -> None:
    b = probe_bench(tmp_path / "run", access=("dump_all", "retrieve"), k=(1, 3))
    await measured(b, "naive_rag")
    ways = {(row["access_mode"], row["k"], row["n_items"]) for row in b.rows("answers")}
    whole = len(UPDATE.sessions)
    assert ways == {("dump_all", None, whole), ("retrieve", 1, 1), ("retrieve", 3, 3)}
    found = b.rows("retrievals", dimension="current_value")
    assert [row["rank"] for row in found] == [1, 2, 3]
    assert {row["query"] for row in found} == {UPDATE.probes[0].question}


async def test_a_session_that_never_went_in_leaves_no_score(b: ProbeBench) -> None:
    def fault(call: str, detail: Any) -> None:
        if call == "write" and detail.session_id == "s0003":
            raise AdapterError("the disk is full")

    b.systems.fault = fault
    await measured(b, "full_context")
    assert b.chat.of(Role.READER) == []
    assert [r["session_index"] for r in b.rows("ingests", status="unscored")] == [3]
    for table in ("answers", "probe_verdicts"):
        assert {r["status"] for r in b.rows(table)} == {"unscored"}
        assert {r["reason"] for r in b.rows(table)} == {"adapter_error"}
        assert all("session 3" in r["detail"] for r in b.rows(table))


async def test_a_store_that_cannot_be_made_again_is_no_score(b: ProbeBench, tmp_path: Path) -> None:
    await ingest_episode(b.context, "naive_rag", UPDATE.id)
    for unit in b.context.store.units():
        shutil.rmtree(b.context.store.work_dir(unit.unit), ignore_errors=True)

    def fault(call: str, detail: Any) -> None:
        if call == "write" and detail.session_id == "s0003":
            raise AdapterError("the disk is full")

    b.systems.fault = fault
    await answer_episode(b.context, "naive_rag", UPDATE.id)
    assert {r["reason"] for r in b.rows("answers")} == {"adapter_error"}
    assert {r["match"] for r in b.rows("probe_verdicts")} == {None}


async def test_a_system_is_not_told_which_episode_it_is(b: ProbeBench) -> None:
    scope = ingest.scope_of(b.context, "rag", UPDATE.id, 1)
    assert UPDATE.id not in f"{scope.user} {scope.key}"
    assert scope.user != ingest.scope_of(b.context, "rag", PRESERVE.id, 1).user


async def test_of_a_store_that_cannot_be_read_whole_no_loss_is_claimed(b: ProbeBench) -> None:
    card = b.systems.card("full_context")
    asking = Asking(b.context, "full_context", UPDATE, 1)
    blind = card.model_copy(
        update={"capabilities": card.capabilities.model_copy(update={"full_dump": False})}
    )
    for asked, side in ((card, "storage"), (blind, None)):
        asking.card = asked
        given = Given(json.dumps(KNOWN["current_value"]))
        _, failure = asking.verdict(Protocol.STRICT, UPDATE.probes[0], given, Seen(), ())
        assert failure is not None
        assert failure["side"] == side


async def test_the_published_procedure_goes_on_without_the_session(tmp_path: Path) -> None:
    b = probe_bench(tmp_path / "run", protocol="paper")

    def fault(call: str, detail: Any) -> None:
        if call == "write" and detail.session_id == "s0003":
            raise AdapterError("the disk is full")

    b.systems.fault = fault
    await measured(b, "full_context")
    assert {r["status"] for r in b.rows("answers")} == {"scored"}
    assert {r["n_items"] for r in b.rows("answers")} == {len(UPDATE.sessions) - 1}


async def test_what_failed_for_a_passing_reason_is_made_again(tmp_path: Path) -> None:
    b = probe_bench(tmp_path / "run")
    b.chat.fail(where(Role.READER, probe_type="change"), Reason.PROVIDER_ERROR, times=1)
    await measured(b, "full_context")
    failed = b.rows("answers", status="unscored")
    assert [r["probe_type"] for r in failed] == ["change"]
    again = probe_bench(tmp_path / "run")
    await measured(again, "full_context")
    assert again.rows("answers", status="unscored") == []
    clean = probe_bench(tmp_path / "clean")
    await measured(clean, "full_context")
    assert tables(again) == tables(clean)


@pytest.mark.parametrize(("every", "first"), [(4, "s0005"), (None, "s0001")])
async def test_a_run_that_was_cut_off_ends_as_one_that_was_not(
    every: int | None, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if every:
        # As for a system whose writes cost calls.
        monkeypatch.setattr(ingest, "saves_at", lambda _, i, last: i % every == 0 or i == last)
    b = probe_bench(tmp_path / "run")

    def fault(call: str, detail: Any) -> None:
        if call == "write" and detail.session_id == "s0007":
            raise BudgetExceeded("the next call would pass --max-cost")

    b.systems.fault = fault
    with pytest.raises(BudgetExceeded):
        await ingest_episode(b.context, "naive_rag", UPDATE.id)
    resumed = probe_bench(tmp_path / "run")
    await measured(resumed, "naive_rag")
    written = [e.session_id for e in resumed.systems.events]
    assert written[0] == first, "the last checkpoint is gone on from"
    whole = probe_bench(tmp_path / "whole")
    await measured(whole, "naive_rag")
    assert tables(resumed) == tables(whole)


async def test_a_search_that_fails_leaves_its_probe_unscored_and_no_other(b: ProbeBench) -> None:
    def fault(call: str, detail: Any) -> None:
        if call == "search" and detail == UPDATE.probes[1].question:
            raise AdapterError("no index")

    b.systems.fault = fault
    await measured(b, "naive_rag")
    failed = b.rows("answers", status="unscored")
    assert [(r["probe_type"], r["reason"]) for r in failed] == [
        (UPDATE.probes[1].probe_type.value, "adapter_error")
    ]


async def test_a_prompt_that_does_not_fit_the_window_is_an_overflow(tmp_path: Path) -> None:
    b = probe_bench(tmp_path / "run", ChatDouble(window=2000))
    await measured(b, "full_context")
    assert {r["reason"] for r in b.rows("answers")} == {"store_overflow"}
    assert b.chat.of(Role.READER) == []


async def test_a_chain_that_broke_off_leaves_rows_and_is_not_done(b: ProbeBench) -> None:
    await give_up_episode(
        b.context, "full_context", UPDATE.id, 1, Unscored(Reason.ADAPTER_ERROR, "gone")
    )
    assert {r["reason"] for r in b.rows("answers")} == {"adapter_error"}
    await measured(b, "full_context")
    assert {r["status"] for r in b.rows("answers")} == {"scored"}


async def test_another_reader_asks_what_is_stored_and_nothing_else(tmp_path: Path) -> None:
    b = probe_bench(tmp_path / "run")
    for system in ("full_context", "naive_rag", "oracle_rag"):
        await measured(b, system, PRESERVE)
    first = [r.variables for r in b.chat.of(Role.READER)]
    chat = ChatDouble(model="openai/other")
    other = probe_bench(tmp_path / "run", chat)
    for system in ("full_context", "naive_rag", "oracle_rag"):
        await reread_episode(other.context, system, PRESERVE.id, Rereading("second"))
    assert [r.variables for r in chat.of(Role.READER)] == first
    assert other.systems.journal == [e for e in other.systems.journal if e[0] != "open"]
    layers = {r["layer"]: 0 for r in other.rows("answers")}
    assert set(layers) == {"base", "second"}


async def test_what_was_not_recorded_is_no_score_and_lowers_the_coverage(b: ProbeBench) -> None:
    def fault(call: str, detail: Any) -> None:
        if call == "write" and detail.session_id == "s0003":
            raise AdapterError("the disk is full")

    b.systems.fault = fault
    await measured(b, "naive_rag")
    b.systems.fault = lambda call, detail: None
    await measured(b, "naive_rag", PRESERVE)
    for episode in SUITE.episodes:
        await reread_episode(b.context, "naive_rag", episode.id, Rereading("second"))
    assert {r["status"] for r in b.rows("answers", layer="second", user_id=UPDATE.id)} == {
        "unscored"
    }
    result = score_paradigms(b.context.store, "second")
    assert (result.n_scored, result.n_total) == (4, 8)


async def test_a_smaller_k_is_read_from_the_recorded_search(tmp_path: Path) -> None:
    b = probe_bench(tmp_path / "run")
    await measured(b, "naive_rag")
    await reread_episode(b.context, "naive_rag", UPDATE.id, Rereading("small", k=(2,)))
    assert {(r["k"], r["n_items"]) for r in b.rows("answers", layer="small")} == {(2, 2)}


def test_a_suite_comes_back_from_the_tables(b: ProbeBench) -> None:
    assert stored_suite(b.context.store) == b.context.suite


@pytest.mark.parametrize(
    ("system", "settings", "expected"),
    [
        ("full_context", {}, [Reading(AccessMode.DUMP_ALL, None)]),
        ("naive_rag", {}, [Reading(AccessMode.RETRIEVE, 5)]),
        ("naive_rag", {"access": ("dump_all",)}, [Reading(AccessMode.DUMP_ALL, None)]),
        ("naive_rag", {"k": (2, 4)}, [Reading(AccessMode.RETRIEVE, k) for k in (2, 4)]),
        ("oracle_rag", {"access": ("retrieve",)}, [Reading(AccessMode.DUMP_ALL, None)]),
    ],
)
def test_a_system_is_read_as_its_card_or_the_run_says(
    system: str, settings: dict[str, Any], expected: list[Reading], tmp_path: Path
) -> None:
    b = probe_bench(tmp_path / "run", **settings)
    assert readings(b.context.config, b.systems.card(system)) == expected


def test_the_unit_of_another_epoch_is_another_one() -> None:
    assert answer_unit("s", "e", 2) != answer_unit("s", "e")


def test_a_reader_that_finds_nothing_has_an_answer_to_every_kind_of_probe() -> None:
    asked = {p.probe_type.value for e in small_suite(8).episodes for p in e.probes}
    assert asked <= set(KNOWN)
