"""The plan: counted from the data set, held to what the published release measured."""

from dataclasses import dataclass
from typing import Any

import pytest

from adapters.memory.longctx import LongContext
from adapters.memory.nomem import NoMemory
from adapters.memory.rag import Rag
from memprobe.config import RunConfig
from memprobe.dataset import Dataset, load_dataset
from memprobe.errors import UsageError
from memprobe.systems import ModelWork, SystemCard
from memprobe.types import Role
from storage.bundled import recovery_dir
from tasks.plan import estimate
from tasks.plan_sums import Plan

CARDS: dict[str, SystemCard] = {c.card.name: c.card for c in (NoMemory, LongContext, Rag)}


@dataclass(frozen=True)
class Price:
    prompt: float = 1e-6
    cached: float = 1e-7
    completion: float = 4e-6
    date: str = "a test"


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_dataset(recovery_dir())


def planned(
    dataset: Dataset,
    *,
    systems: tuple[str, ...] = ("nomem", "longctx_full"),
    price: Any = lambda model: Price(),
    window: int | None = None,
    cards: list[SystemCard] | None = None,
    **settings: Any,
) -> Plan:
    config = RunConfig(name="plan", systems=systems, **{"model": "openai/m", **settings})
    chosen = cards or [CARDS[name] for name in systems]
    return estimate(config, dataset, chosen, price=price, window=window)


def part(plan: Plan, stage: str, role: str, system: str) -> Any:
    return next(r for r in plan.rows if (r.stage, r.role, r.system) == (stage, role, system))


@pytest.mark.parametrize(
    ("stage", "role", "system", "calls", "prompt_millions"),
    [
        ("rollout", "assistant", "nomem", 3707, 2.7),
        ("rollout", "assistant", "longctx_full", 3885, None),
        ("rollout", "simulator", "nomem", 3707, 25.9),
        ("rollout", "preference", "nomem", 3707, 5.2),
        ("recover", "judge", "longctx_full", 3100, 0.8),
        ("oracle", "oracle", "", 1550, None),
    ],
)
def test_fifty_users_come_near_the_published_pass(
    stage: str, role: str, system: str, calls: int, prompt_millions: float | None, dataset: Dataset
) -> None:
    row = part(planned(dataset, users=50), stage, role, system)
    assert row.calls == pytest.approx(calls, rel=0.05)
    if prompt_millions is not None:
        assert row.prompt_tokens / 1e6 == pytest.approx(prompt_millions, rel=0.35)


def test_users_beyond_the_data_set_are_extrapolated_and_said(dataset: Dataset) -> None:
    have = len(dataset.users)
    small, large = planned(dataset, users=have), planned(dataset, users=10 * have)
    a, b = (part(p, "rollout", "assistant", "longctx_full") for p in (small, large))
    assert b.calls == pytest.approx(10 * a.calls, abs=10)
    assert b.prompt_tokens == pytest.approx(10 * a.prompt_tokens, rel=1e-6)
    assert (large.users, large.users_measured) == (10 * have, have)
    assert any("extrapolated" in note for note in large.notes)
    assert not any("extrapolated" in note for note in small.notes)


def test_money_is_the_sum_of_fresh_cached_and_answered_tokens(dataset: Dataset) -> None:
    plan = planned(dataset, users=2)
    row = part(plan, "recover", "slot_fill", "longctx_full")
    fresh = row.prompt_tokens - row.cached_tokens
    wanted = fresh * 1e-6 + row.cached_tokens * 1e-7 + row.completion_tokens * 4e-6
    assert row.cost_usd == pytest.approx(wanted, rel=1e-3)
    assert plan.cost_usd == pytest.approx(sum(r.cost_usd or 0 for r in plan.rows))
    assert plan.calls == sum(r.calls for r in plan.rows)


def test_an_unknown_price_is_unknown_and_not_nothing(dataset: Dataset) -> None:
    plan = planned(
        dataset,
        users=1,
        model_roles={Role.JUDGE: "openai/new"},
        price=lambda model: None if model == "openai/new" else Price(),
    )
    assert plan.cost_usd is None
    assert plan.unknown_prices == ("openai/new",)
    assert part(plan, "recover", "judge", "longctx_full").cost_usd is None
    assert part(plan, "rollout", "assistant", "nomem").cost_usd > 0


def test_the_memory_of_a_full_dump_is_read_from_the_cache_but_once(dataset: Dataset) -> None:
    row = part(
        planned(dataset, users=2, access=("dump_all",)), "recover", "slot_fill", "longctx_full"
    )
    assert row.calls == 62
    assert row.cached_tokens / row.prompt_tokens == pytest.approx(30 / 31, abs=0.02)


def test_a_store_that_no_window_holds_costs_no_call_and_is_named(dataset: Dataset) -> None:
    plan = planned(dataset, users=1, access=("dump_all",), window=8000)
    assert not [r for r in plan.rows if (r.stage, r.role) == ("recover", "judge")]
    assert any("store_overflow" in note and "longctx_full" in note for note in plan.notes)


def test_an_empty_memory_is_asked_once_a_dimension_and_never_judged(dataset: Dataset) -> None:
    plan = planned(dataset, users=3)
    users = dataset.users[:3]
    dimensions = {(c, e.dimension) for u in users for c, e in u.targets()}
    assert part(plan, "recover", "slot_fill", "nomem").calls == len(dimensions) < 93
    assert not [r for r in plan.rows if (r.role, r.system) == ("judge", "nomem")]
    large = planned(dataset, users=100_000)
    assert part(large, "recover", "slot_fill", "nomem").calls == 141


@pytest.mark.parametrize(
    ("changes", "factor"),
    [({"epochs": 2}, 2.0), ({"k": (1, 3, 5)}, 2.0), ({"access": ("retrieve",)}, 0.5)],
)
def test_settings_multiply_the_verdicts(
    changes: dict[str, Any], factor: float, dataset: Dataset
) -> None:
    before = part(planned(dataset, users=2), "recover", "judge", "longctx_full").calls
    after = part(planned(dataset, users=2, **changes), "recover", "judge", "longctx_full").calls
    assert after == pytest.approx(factor * before)


def test_a_limit_bounds_tasks_and_a_full_transcript_grows_with_their_square(
    dataset: Dataset,
) -> None:
    few = part(planned(dataset, users=2, limit=10), "rollout", "assistant", "longctx_full")
    many = part(planned(dataset, users=2, limit=30), "rollout", "assistant", "longctx_full")
    assert many.calls == pytest.approx(3 * few.calls, abs=2)
    assert 6 < many.prompt_tokens / few.prompt_tokens < 9.5


def test_one_turn_reads_no_earlier_turn(dataset: Dataset) -> None:
    one = part(planned(dataset, users=1, max_turns=1), "rollout", "assistant", "nomem")
    assert one.calls == 31
    assert one.prompt_tokens / one.calls < 150


def test_time_is_bound_by_the_chain_or_by_the_connections(dataset: Dataset) -> None:
    wide = planned(dataset, users=2, max_connections=10_000)
    narrow = planned(dataset, users=2, max_connections=1)
    assert wide.wall_s == wide.critical_path_s == narrow.critical_path_s
    assert narrow.wall_s > 3 * narrow.critical_path_s
    assert wide.critical_path_s == pytest.approx(31 * 2.45 * 10.3, rel=0.1)


def test_embedded_models_are_free_and_quick(dataset: Dataset) -> None:
    zero = Price(0.0, 0.0, 0.0, "embedded")
    plan = planned(dataset, users=2, model="embedded/default", price=lambda model: zero)
    assert plan.cost_usd == 0.0
    assert plan.wall_s < 60
    assert not [r for r in plan.rows if r.role == "preference"]


def test_calls_a_system_makes_itself_are_said_to_be_missing(dataset: Dataset) -> None:
    mine = CARDS["rag"].model_copy(
        update={
            "name": "mine",
            "capabilities": CARDS["rag"].capabilities.model_copy(
                update={"needs_llm": True, "verbatim": False}
            ),
        }
    )
    plan = planned(dataset, users=1, systems=("mine",), cards=[mine])
    assert any("mine asks a model on its own (openai/m)" in note for note in plan.notes)


def test_explicit_users_must_exist(dataset: Dataset) -> None:
    first = dataset.users[0].user_id
    assert planned(dataset, users=(first,)).users == 1
    with pytest.raises(UsageError, match="nobody"):
        planned(dataset, users=(first, "nobody"))


def test_a_store_read_in_parts_costs_a_call_a_part_and_one_to_merge(dataset: Dataset) -> None:
    given = {"users": 1, "access": ("dump_all",), "window": 8000}
    plan = planned(dataset, dump_reader="chunked", **given)
    fits = planned(dataset, dump_reader="chunked", users=1, access=("dump_all",))
    whole = planned(dataset, users=1, access=("dump_all",))
    assert (fits.rows, fits.calls) == (whole.rows, whole.calls)
    row = part(plan, "recover", "slot_fill", "longctx_full")
    single = part(whole, "recover", "slot_fill", "longctx_full")
    parts = row.calls // 31 - 1
    assert row.calls == 31 * (parts + 1)
    assert parts == -(-single.prompt_tokens // 31 // 7000)
    assert part(plan, "recover", "judge", "longctx_full").calls == 31
    assert row.cached_tokens / row.prompt_tokens > 0.8
    assert any(f"about {parts} parts" in note for note in plan.notes)
    none = planned(dataset, dump_reader="chunked", users=1, access=("dump_all",), window=1100)
    assert not [r for r in none.rows if (r.stage, r.role) == ("recover", "judge")]


def test_a_systems_own_calls_are_planned(dataset: Dataset) -> None:
    work = ModelWork(calls=2.0, prompt_tokens=500, completion_tokens=100)
    own = {"needs_llm": True}
    asking = CARDS["rag"].model_copy(
        update={
            "capabilities": CARDS["rag"].capabilities.model_copy(update=own),
            "per_message": work,
            "per_search": work.model_copy(update={"calls": 3.0}),
        }
    )
    plain = planned(dataset, systems=("rag",), users=2)
    plan = planned(dataset, systems=("rag",), cards=[asking], users=2)
    said = part(plan, "rollout", "simulator", "rag").calls
    written = part(plan, "rollout", "memory", "rag")
    tasks = sum(len(user.tasks) for user in dataset.users[:2])
    assert written.calls == pytest.approx(2 * (said + tasks) + 3 * said, abs=2)
    assert written.prompt_tokens == pytest.approx(500 * written.calls, rel=0.01)
    found = part(plan, "recover", "memory", "rag")
    targets = sum(len(user.targets()) for user in dataset.users[:2])
    assert found.calls == 3 * targets
    assert plan.calls == plain.calls + written.calls + found.calls
    assert plan.critical_path_s > plain.critical_path_s
    assert not any("not in the estimate" in note for note in plan.notes)
    unknown = asking.model_copy(update={"per_message": None})
    guessed = planned(dataset, systems=("rag",), cards=[unknown], users=2)
    assert any("not in the estimate" in note for note in guessed.notes)


def test_calls_of_a_system_that_can_do_without_are_planned_where_there_is_a_model(
    dataset: Dataset,
) -> None:
    card = CARDS["rag"].model_copy(
        update={
            "capabilities": CARDS["rag"].capabilities.model_copy(update={"uses_llm": True}),
            "per_message": ModelWork(calls=2.0, prompt_tokens=500, completion_tokens=100),
        }
    )
    given = {"systems": ("rag",), "cards": [card], "users": 1}
    assert part(planned(dataset, **given), "rollout", "memory", "rag").calls > 0
    plan = planned(dataset, model="embedded/default", **given)
    assert not [row for row in plan.rows if row.role == "memory"]
