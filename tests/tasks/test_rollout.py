"""Rollout: the order of a turn, what reaches the memory, failures, and the preference judge."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memprobe.chat import ChatRequest
from memprobe.errors import AdapterError, BudgetExceeded, SnapshotError
from memprobe.outcomes import Reason
from memprobe.types import Category, Event, MemoryItem, MessageEvent, Role
from tasks.rollout import REPLY_K, rollout_fingerprint, rollout_unit, rollout_user
from tests.support.chat_double import ChatDouble, where
from tests.support.contexts import LAYOUT, Bench, bench, dataset, user

TABLES = ("episodes", "turns", "preference_scores", "memory_items")
FIRST = "Help user 1 with errand 1 please."
SECOND = "Help user 1 with errand 2 please."


@pytest.fixture
def b(tmp_path: Path) -> Bench:
    return bench(tmp_path / "run")


def tables(b: Bench) -> dict[str, list[dict[str, Any]]]:
    return {table: b.rows(table) for table in TABLES}


def steps(b: Bench, *kinds: str) -> list[tuple[str, ...]]:
    return [entry for entry in b.journal if entry[0] in kinds]


async def test_a_turn_reads_then_replies_then_writes_what_was_answered(b: Bench) -> None:
    await rollout_user(b.context, "rag", "user_001")
    first = [
        entry
        for entry in b.journal[: b.journal.index(("save",))]
        if entry[0] in ("search", "write") or entry[:2] == ("answered", "assistant")
    ]
    said = ["Advice 1 on: " + FIRST, "Advice 2 on: " + FIRST]
    heard = [FIRST, "Reaction 1 to: " + FIRST, "Reaction 2 to: " + FIRST]
    assert first == [
        ("search", heard[0]),
        ("answered", "assistant", "e1/episode1/turn1"),
        ("write", "user", heard[0]),
        ("write", "assistant", said[0]),
        ("search", heard[1]),
        ("answered", "assistant", "e1/episode1/turn2"),
        ("write", "user", heard[1]),
        ("write", "assistant", said[1]),
        ("write", "user", heard[2]),
    ]


async def test_write_and_preference_judge_run_beside_the_simulator(b: Bench) -> None:
    """Each of the three ends only when the other two have begun."""
    begun = {name: asyncio.Event() for name in ("write", "preference", "simulator")}

    async def meet(name: str) -> None:
        begun[name].set()
        await asyncio.wait_for(asyncio.gather(*(e.wait() for e in begun.values())), 20)

    async def ask(request: ChatRequest) -> None:
        if request.role is Role.ASSISTANT:
            for event in begun.values():
                event.clear()
        elif request.variables["task"] == FIRST:
            await meet(request.role.value)

    async def write(event: Event) -> None:
        if event.role == "assistant" and event.episode == 1:  # type: ignore[union-attr]
            await meet("write")

    b.chat.before = ask
    b.systems.pause = write
    await rollout_user(b.context, "nomem", "user_001")
    assert {row["end_reason"] for row in b.rows("episodes")} == {"satisfied"}


@pytest.mark.parametrize("system", ["nomem", "longctx_full", "rag"])
async def test_every_message_is_written_exactly_once(b: Bench, system: str) -> None:
    await rollout_user(b.context, system, "user_001")
    written = [entry[1:] for entry in steps(b, "write")]
    expected: list[tuple[str, str]] = []
    for task in b.context.user("user_001").tasks:
        expected.append(("user", task.task))
        for row in b.rows("turns"):
            if row["assistant_text"].endswith(task.task):
                expected += [("assistant", row["assistant_text"]), ("user", row["user_text"])]
    assert written == expected
    assert len(set(written)) == len(written) == 6 * 5


async def test_an_episode_without_satisfaction_ends_at_max_turns(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", max_turns=3)
    b.chat.answer(
        Role.SIMULATOR,
        lambda r: {"feedback_type": "followup", "text": f"more {r.variables['turn']}"},
    )
    await rollout_user(b.context, "nomem", "user_001")
    ends = {(r["end_reason"], r["n_turns"], r["status"]) for r in b.rows("episodes")}
    assert ends == {("max_turns", 3, "scored")}
    last = [e for e in b.systems.events if e.text == "more 3"]
    assert [(e.episode, e.turn, e.role) for e in last] == [(n, 4, "user") for n in range(1, 7)]


async def test_satisfaction_at_the_last_turn_is_satisfaction(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", max_turns=2)
    await rollout_user(b.context, "nomem", "user_001")
    assert {(r["end_reason"], r["n_turns"]) for r in b.rows("episodes")} == {("satisfied", 2)}


@pytest.mark.parametrize(
    ("system", "reads"), [("nomem", None), ("rag", "search"), ("longctx_full", "dump")]
)
async def test_reply_access_decides_what_the_assistant_reads(
    b: Bench, system: str, reads: str | None
) -> None:
    await rollout_user(b.context, system, "user_001")
    asked = b.chat.of(Role.ASSISTANT)
    final_dump = 1
    counts = {kind: len(steps(b, kind)) for kind in ("search", "dump")}
    assert counts["search"] == (len(asked) if reads == "search" else 0)
    assert counts["dump"] == final_dump + (len(asked) if reads == "dump" else 0)
    sizes = [len(r.variables["memories"]) for r in asked]  # type: ignore[arg-type]
    if reads is None:
        assert set(sizes) == {0}
    elif reads == "search":
        assert sizes == [min(REPLY_K, n) for n in (0, 2, *([REPLY_K] * 10))]
        assert {k for _, k in b.systems.queries} == {REPLY_K}
    else:
        assert sizes == [5 * (n // 2) + 2 * (n % 2) for n in range(12)]
    kept = [json.loads(row["retrieved_json"]) for row in b.rows("turns")]
    assert [len(k) for k in kept] == (sizes if reads == "search" else [0] * 12)


async def test_scaffold_is_the_same_for_every_system_without_memories(tmp_path: Path) -> None:
    texts = []
    for system in ("nomem", "longctx_full", "rag"):
        b = bench(tmp_path / system)
        await rollout_user(b.context, system, "user_001")
        texts.append(b.chat.of(Role.ASSISTANT)[0].messages)
    assert texts[0] == texts[1] == texts[2]


async def test_event_times_rise_and_come_from_the_calendar(b: Bench) -> None:
    """Case timestamps-now: no event is of today, whatever the system or the reply."""
    await rollout_user(b.context, "longctx_full", "user_001")
    times = [event.event_time for event in b.systems.events]
    assert all(t.tzinfo is not None and t.utcoffset() == timedelta(0) for t in times)
    assert all(a < z for a, z in itertools.pairwise(times))
    assert max(times) < datetime.now(UTC) - timedelta(days=30)
    again = bench(b.context.store.path.parent / "other")  # type: ignore[union-attr]
    await rollout_user(again.context, "longctx_full", "user_001")
    assert [e.event_time for e in again.systems.events] == times
    replies = [e.event_time.isoformat() for e in b.systems.events if e.role == "assistant"]
    assert [row["event_time"] for row in b.rows("turns")] == replies
    starts = [
        e.event_time.isoformat() for e in b.systems.events if e.turn == 1 and e.role == "user"
    ]
    assert [row["event_time"] for row in b.rows("episodes")] == starts


async def test_nothing_of_the_target_reaches_the_memory(b: Bench) -> None:
    """Case label-leak-into-store: no event or query names category, dimension or truth."""
    await rollout_user(b.context, "rag", "user_001")
    owner = b.context.user("user_001")
    secrets = {c.value for c in Category} | {d for _, d in LAYOUT}
    for category, entry in owner.targets():
        secrets |= {entry.short, entry.explanation, category.value.replace("_", " ")}
        secrets |= {word for word in entry.explanation.split() if any(c.isdigit() for c in word)}
    secrets |= {task.rationale for task in owner.tasks}
    seen = [event.model_dump_json() for event in b.systems.events]
    seen += [query for query, _ in b.systems.queries]
    assert len(seen) == 30 + 12
    assert [s for s in secrets for text in seen if s in text] == []
    assert set(MessageEvent.model_fields) == {
        *("role", "text", "event_time", "session_id", "episode", "turn")
    }
    for request in b.chat.of(Role.ASSISTANT):
        said = "\n".join(message.content for message in request.messages)
        assert [s for s in secrets if s in said] == []


async def test_role_play_is_sampled_again_and_the_usable_one_is_kept(b: Bench) -> None:
    b.chat.fail(where(Role.SIMULATOR, task=FIRST, turn=1), Reason.INVALID_OUTPUT, times=2)
    await rollout_user(b.context, "nomem", "user_001")
    asked = [r.replicate for r in b.chat.requests if where(Role.SIMULATOR, task=FIRST, turn=1)(r)]
    assert asked == [0, 1, 2]
    assert {r["status"] for r in b.rows("episodes")} == {"scored"}


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "\n"])
async def test_unusable_role_play_is_never_invented(b: Bench, text: str) -> None:
    """Three samples, then the episode is unscored; nothing is said in the user's place."""
    b.chat.say(
        where(Role.SIMULATOR, task=FIRST, turn=2), {"feedback_type": "followup", "text": text}
    )
    await rollout_user(b.context, "longctx_full", "user_001")
    asked = [r for r in b.chat.requests if where(Role.SIMULATOR, task=FIRST, turn=2)(r)]
    assert [r.replicate for r in asked] == [0, 1, 2]
    first, *later = b.rows("episodes")
    assert (first["status"], first["reason"], first["end_reason"]) == (
        "unscored",
        "invalid_output",
        None,
    )
    assert {r["status"] for r in later} == {"scored"}
    assert [r["turn"] for r in b.rows("turns", episode=1)] == [1]
    users = [e.text for e in b.systems.events if e.episode == 1 and e.role == "user"]
    assert users == [FIRST, "Reaction 1 to: " + FIRST]
    assert {r["turn"] for r in b.rows("preference_scores", episode=1)} == {1}


@pytest.mark.parametrize("role", [Role.ASSISTANT, Role.SIMULATOR])
@pytest.mark.parametrize("reason", [Reason.PROVIDER_ERROR, Reason.TIMEOUT, Reason.REFUSAL])
async def test_a_failed_speaker_costs_its_episode_with_the_reason(
    b: Bench, role: Role, reason: Reason
) -> None:
    b.chat.fail(where(role, task=SECOND), reason)
    await rollout_user(b.context, "nomem", "user_001")
    found = [(r["status"], r["reason"]) for r in b.rows("episodes")]
    assert found == [("scored", None), ("unscored", reason.value), *[("scored", None)] * 4]
    assert len([r for r in b.chat.requests if where(role, task=SECOND)(r)]) == 1


@pytest.mark.parametrize(
    ("call", "system"), [("write", "rag"), ("search", "rag"), ("dump", "longctx_full")]
)
async def test_a_failing_memory_costs_its_episode_only(b: Bench, call: str, system: str) -> None:
    dumps = iter(range(100))

    def fault(name: str, detail: Any) -> None:
        text = detail.text if isinstance(detail, MessageEvent) else detail
        # A dump has no argument; the third one opens the second episode.
        if name == call and (next(dumps) == 2 if call == "dump" else text == SECOND):
            raise ConnectionError("no database")

    b.systems.fault = fault
    await rollout_user(b.context, system, "user_001")
    episodes = b.rows("episodes")
    assert [r["status"] for r in episodes] == ["scored", "unscored", *["scored"] * 4]
    assert episodes[1]["reason"] == "adapter_error"
    assert f"{call} failed: ConnectionError: no database" in episodes[1]["detail"]
    assert episodes[1]["pref_mean"] is None
    assert b.rows("preference_scores", episode=2) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "not NoneType"),
        ({"results": []}, "not dict"),
        (["text"], "a list of MemoryItem"),
        ([MemoryItem(id=str(i), content="x") for i in range(6)], "6 items for k=5"),
    ],
)
async def test_an_answer_of_another_shape_is_an_adapter_error(
    b: Bench, answer: Any, message: str
) -> None:
    """Cases search-shape-changes and topk-ignored: never an empty memory, never cut in silence."""
    b.systems.twist = lambda name, found: answer if name == "search" else found
    await rollout_user(b.context, "rag", "user_001")
    assert {(r["status"], r["reason"]) for r in b.rows("episodes")} == {
        ("unscored", "adapter_error")
    }
    assert message in b.rows("episodes")[0]["detail"]


async def test_a_dump_that_fails_at_the_end_fails_the_unit(b: Bench) -> None:
    def fault(name: str, detail: Any) -> None:
        if name == "dump":
            raise ConnectionError("no database")

    b.systems.fault = fault
    with pytest.raises(AdapterError, match="dump failed: ConnectionError"):
        await rollout_user(b.context, "rag", "user_001")
    assert b.rows("memory_items") == []


@pytest.mark.parametrize("role", [Role.ASSISTANT, Role.SIMULATOR])
async def test_budget_stops_the_rollout_and_keeps_the_checkpoint(
    tmp_path: Path, role: Role
) -> None:
    b = bench(tmp_path / "run")
    pay = b.chat.exhaust_budget(where(role, task="Help user 1 with errand 4 please."))
    with pytest.raises(BudgetExceeded):
        await rollout_user(b.context, "longctx_full", "user_001")
    assert b.rows("episodes") == []
    before = len(b.chat.requests)
    pay()
    await rollout_user(b.context, "longctx_full", "user_001")
    again = b.chat.requests[before:]
    replayed = {r.variables["task"] for r in again if r.role is Role.ASSISTANT}
    assert replayed == {f"Help user 1 with errand {n} please." for n in (4, 5, 6)}
    whole = bench(tmp_path / "whole")
    await rollout_user(whole.context, "longctx_full", "user_001")
    assert tables(b) == tables(whole)


async def test_budget_spent_on_the_preference_judge_stops_the_rollout(b: Bench) -> None:
    b.chat.exhaust_budget(where(Role.PREFERENCE))
    with pytest.raises(BudgetExceeded):
        await rollout_user(b.context, "nomem", "user_001")
    assert b.rows("preference_scores") == []


@pytest.mark.parametrize("system", ["nomem", "longctx_full", "rag"])
@pytest.mark.parametrize("stop", [2, 6])
async def test_resumed_equals_uninterrupted(tmp_path: Path, system: str, stop: int) -> None:
    """Case resume-in-memory-store: a new process restores the store and goes on from it.

    One episode fails for good before the stop, so its rows have to survive as well.
    """

    def chat() -> ChatDouble:
        double = ChatDouble()
        double.fail(where(Role.SIMULATOR, task=FIRST, turn=2), Reason.REFUSAL)
        return double

    whole = bench(tmp_path / "whole", chat())
    await rollout_user(whole.context, system, "user_001")
    first = bench(tmp_path / "cut", chat())
    first.chat.exhaust_budget(where(Role.ASSISTANT, task=f"Help user 1 with errand {stop} please."))
    with pytest.raises(BudgetExceeded):
        await rollout_user(first.context, system, "user_001")
    second = bench(tmp_path / "cut", chat())
    await rollout_user(second.context, system, "user_001")
    assert ("restore",) in second.journal
    assert tables(second) == tables(whole)
    assert len(second.rows("preference_scores")) == (1 + 2 * 5) * 2


async def test_a_changed_or_missing_store_is_never_measured(tmp_path: Path) -> None:
    """Case resume-in-memory-store: the snapshot is held to its hash before it is used."""
    b = bench(tmp_path / "run")
    pay = b.chat.exhaust_budget(where(Role.ASSISTANT, task=SECOND))
    with pytest.raises(BudgetExceeded):
        await rollout_user(b.context, "longctx_full", "user_001")
    pay()
    folder = b.context.store.work_dir(rollout_unit("longctx_full", "user_001"))
    notes = next(folder.rglob("notes.jsonl"))
    raw = notes.read_bytes()
    notes.write_bytes(raw[:-1])
    with pytest.raises(SnapshotError, match="does not match"):
        await rollout_user(b.context, "longctx_full", "user_001")
    notes.unlink()
    with pytest.raises(SnapshotError):
        await rollout_user(b.context, "longctx_full", "user_001")
    notes.write_bytes(raw)
    await rollout_user(b.context, "longctx_full", "user_001")
    assert len(b.rows("memory_items")) == 30


async def test_checkpoint_of_other_settings_starts_anew(tmp_path: Path) -> None:
    b = bench(tmp_path / "run")
    b.chat.exhaust_budget(where(Role.ASSISTANT, task=SECOND))
    with pytest.raises(BudgetExceeded):
        await rollout_user(b.context, "longctx_full", "user_001")
    other = bench(tmp_path / "run", seed=8)
    await rollout_user(other.context, "longctx_full", "user_001")
    assert ("restore",) not in other.journal
    assert len(other.rows("turns")) == 12


async def test_a_finished_rollout_asks_nothing(b: Bench) -> None:
    """Case resume-all-cached: everything is there, and nothing is opened or asked."""
    await rollout_user(b.context, "longctx_full", "user_001")
    before = list(b.journal)
    await rollout_user(b.context, "longctx_full", "user_001")
    assert b.journal == before


async def test_an_outage_is_tried_again_and_a_refusal_is_not(tmp_path: Path) -> None:
    whole = bench(tmp_path / "whole")
    await rollout_user(whole.context, "longctx_full", "user_001")
    b = bench(tmp_path / "run")
    b.chat.fail(where(Role.ASSISTANT, task=SECOND), Reason.PROVIDER_ERROR, times=1)
    await rollout_user(b.context, "longctx_full", "user_001")
    assert [r["reason"] for r in b.rows("episodes")].count("provider_error") == 1
    await rollout_user(b.context, "longctx_full", "user_001")
    assert tables(b) == tables(whole)
    refused = bench(tmp_path / "refused")
    refused.chat.fail(where(Role.ASSISTANT, task=SECOND), Reason.REFUSAL, times=1)
    await rollout_user(refused.context, "longctx_full", "user_001")
    asked = len(refused.chat.requests)
    await rollout_user(refused.context, "longctx_full", "user_001")
    assert len(refused.chat.requests) == asked


async def test_na_is_kept_apart_and_the_means_are_over_rated_turns(b: Bench) -> None:
    """D: `na` is scored without a value; an episode's mean is the mean of its turns' means."""

    def rate(request: ChatRequest) -> dict[str, Any]:
        score: Any = 5 if "Advice 1" in str(request.variables["reply"]) else "na"
        rated = [{"idx": 1, "score": 2}, {"idx": 2, "score": score}]
        return {"per_pref": rated}

    b.chat.answer(Role.PREFERENCE, rate)
    await rollout_user(b.context, "nomem", "user_001")
    rows = b.rows("preference_scores", episode=1)
    assert [(r["turn"], r["idx"], r["score"], r["status"], r["reason"]) for r in rows] == [
        (1, 1, 2, "scored", None),
        (1, 2, 5, "scored", None),
        (2, 1, 2, "scored", None),
        (2, 2, None, "scored", None),
    ]
    assert b.rows("episodes")[0]["pref_mean"] == pytest.approx((3.5 + 2) / 2)


@pytest.mark.parametrize(
    "given",
    [[1], [1, 2, 3], [1, 1], [1, 2, 2], [0, 1], []],
    ids=["fewer", "more", "twice", "one twice", "from zero", "none"],
)
async def test_a_wrong_number_of_ratings_is_invalid(b: Bench, given: list[int]) -> None:
    b.chat.answer(Role.PREFERENCE, lambda _: {"per_pref": [{"idx": i, "score": 5} for i in given]})
    await rollout_user(b.context, "nomem", "user_001")
    rows = b.rows("preference_scores")
    assert len(rows) == 24
    assert {(r["status"], r["reason"], r["score"]) for r in rows} == {
        ("unscored", "invalid_output", None)
    }
    assert {r["pref_mean"] for r in b.rows("episodes")} == {None}
    assert {r["status"] for r in b.rows("episodes")} == {"scored"}


@pytest.mark.parametrize("reason", [Reason.PROVIDER_ERROR, Reason.REFUSAL, Reason.NOT_JUDGED])
async def test_a_failed_preference_judge_is_a_reason(b: Bench, reason: Reason) -> None:
    """Case judge-down-counted-wrong, for preferences: the turn stays out of the mean."""
    reply = "Advice 1 on: " + FIRST
    b.chat.fail(where(Role.PREFERENCE, reply=reply), reason)
    await rollout_user(b.context, "nomem", "user_001")
    rows = b.rows("preference_scores", episode=1)
    assert [(r["turn"], r["status"], r["reason"], r["score"]) for r in rows] == [
        (1, "unscored", reason.value, None),
        (1, "unscored", reason.value, None),
        (2, "scored", None, 4),
        (2, "scored", None, 4),
    ]
    assert b.rows("episodes")[0]["pref_mean"] == 4


async def test_a_user_without_preferences_has_no_rows(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", data=dataset(user("user_001", 1, 4)))
    await rollout_user(b.context, "nomem", "user_001")
    assert b.rows("preference_scores") == []
    assert b.chat.of(Role.PREFERENCE) == []


async def test_preference_judge_sees_the_request_and_one_reply(b: Bench) -> None:
    await rollout_user(b.context, "longctx_full", "user_001")
    request = b.chat.of(Role.PREFERENCE)[1]
    assert set(request.variables) == {"preferences", "task", "reply"}
    assert request.temperature == 0


async def test_simulator_knows_the_bank_and_its_own_last_messages(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", max_turns=5)
    b.chat.answer(
        Role.SIMULATOR,
        lambda r: {"feedback_type": "followup", "text": f"more {r.variables['turn']}"},
    )
    await rollout_user(b.context, "nomem", "user_001")
    last = next(r for r in b.chat.of(Role.SIMULATOR) if r.variables["turn"] == 5)
    assert last.variables["own_recent"] == ["more 2", "more 3", "more 4"]
    assert "gold1x6short" in last.messages[0].content
    assert "gold2x" not in last.messages[0].content


async def test_epochs_are_other_samples_in_parts_of_their_own(tmp_path: Path) -> None:
    b = bench(tmp_path / "run", epochs=2)
    for epoch in (1, 2):
        await rollout_user(b.context, "nomem", "user_001", epoch)
    roles = (Role.ASSISTANT, Role.SIMULATOR, Role.PREFERENCE)
    assert {r.replicate for r in b.chat.of(*roles)} == {0, 100}
    assert len(b.rows("turns", epoch=1)) == len(b.rows("turns", epoch=2)) == 12
    marks = [rollout_fingerprint(b.context, "nomem", "user_001", e) for e in (1, 2)]
    assert marks[0] != marks[1]


async def test_the_memory_is_what_the_store_says_in_order(b: Bench) -> None:
    await rollout_user(b.context, "longctx_full", "user_001")
    items = b.rows("memory_items")
    assert [r["seq"] for r in items] == list(range(30))
    assert items[0]["content"] == f"[Task 1] {FIRST}"
    assert [r["content"].split(": ", 1)[1] for r in items if r["content"].startswith("Agent")] == [
        row["assistant_text"] for row in b.rows("turns")
    ]
    assert all(r["chars"] == len(r["content"]) for r in items)
    phases = [r["phase"] for r in b.rows("operations")]
    assert {p: phases.count(p) for p in set(phases)} == {"write": 30, "dump": 13, "save": 6}
