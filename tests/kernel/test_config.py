"""What may change when a run is started again."""

from typing import Any

import pytest

from memprobe.config import RunConfig, merge_config
from memprobe.errors import UsageError
from memprobe.types import AccessMode, Role

OLD = RunConfig(name="t1", systems=("nomem", "rag"), users=2, k=(5,), access=(AccessMode.RETRIEVE,))


def again(**changes: Any) -> RunConfig:
    return OLD.model_copy(update=changes)


def test_the_same_settings_change_nothing() -> None:
    assert merge_config(OLD, again()) == OLD


def test_what_is_measured_is_extended_and_limits_are_replaced() -> None:
    new = again(
        systems=("longctx_full", "nomem"),
        users=5,
        k=(1, 3),
        access=(AccessMode.DUMP_ALL,),
        max_connections=3,
        max_cost=2.0,
        call_timeout=9.0,
        coverage_threshold=0.5,
        error_threshold=0.5,
    )
    merged = merge_config(OLD, new)
    assert merged.systems == ("nomem", "rag", "longctx_full")
    assert merged.users == 5
    assert merged.k == (1, 3, 5)
    assert merged.access == (AccessMode.DUMP_ALL, AccessMode.RETRIEVE)
    assert (merged.max_connections, merged.max_cost, merged.call_timeout) == (3, 2.0, 9.0)
    assert (merged.coverage_threshold, merged.error_threshold) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": "a/b"}, "model: embedded/default in the run, a/b now"),
        ({"model_roles": {Role.JUDGE: "a/b"}}, "model of judge: embedded/default in the run"),
        ({"protocol": "paper"}, "protocol: strict in the run, paper now"),
        ({"seed": 8}, "seed: 7 in the run, 8 now"),
        ({"dataset": "d"}, "dataset: none in the run, d now"),
        ({"limit": 3}, "limit: none in the run, 3 now"),
        ({"epochs": 2}, "epochs: 1 in the run, 2 now"),
        ({"max_turns": 9}, "max_turns: 25 in the run, 9 now"),
        ({"independent": True}, "independent: False in the run, True now"),
        ({"context_window": 1000}, "context_window: none in the run, 1000 now"),
    ],
)
def test_a_change_of_a_figure_is_refused_with_both_values(
    changes: dict[str, Any], line: str
) -> None:
    new = RunConfig.model_validate({**OLD.model_dump(), **changes})
    with pytest.raises(UsageError) as caught:
        merge_config(OLD, new)
    assert line in str(caught.value)
    assert "memprobe resume t1" in str(caught.value)
    assert str(caught.value).count(" in the run, ") == 1


def test_every_difference_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        merge_config(OLD, again(seed=1, limit=2))
    assert "seed:" in str(caught.value)
    assert "limit:" in str(caught.value)


def test_every_field_is_either_fixed_or_handled() -> None:
    """A field added later must be sorted into one of the groups on purpose."""
    from memprobe.config import RESULT_FIELDS

    extended = {"systems", "users", "k", "access", "dump_reader", "system_options"}
    replaced = {
        "max_connections",
        "max_cost",
        "call_timeout",
        "coverage_threshold",
        "error_threshold",
    }
    models = {"name", "model", "model_roles"}
    assert set(RESULT_FIELDS) | extended | replaced | models == set(RunConfig.model_fields)


def test_a_role_spelt_out_as_the_model_itself_is_no_change() -> None:
    assert merge_config(OLD, again(model_roles={Role.JUDGE: OLD.model})).users == 2


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        (2, None, None),
        (None, 2, None),
        (3, 2, 3),
        (("b",), ("a", "b"), ("b", "a")),
        (2, ("d",), ("a", "b", "d")),
        (("d",), 1, ("a", "d")),
    ],
)
def test_users_are_joined(old: Any, new: Any, merged: Any) -> None:
    found = merge_config(again(users=old), again(users=new), known=("a", "b", "c", "d"))
    assert found.users == merged


def test_a_count_and_ids_need_the_data_set() -> None:
    with pytest.raises(UsageError, match="both as ids"):
        merge_config(OLD, again(users=("a",)))


def test_options_come_with_a_new_system_and_stay_with_an_old_one() -> None:
    old = again(systems=("amem",), system_options={"amem": {"evo_threshold": 50}})
    new = again(
        systems=("amem", "memt"),
        system_options={"amem": {"evo_threshold": 50}, "memt": {"max_steps": 3}},
    )
    assert merge_config(old, new).system_options == new.system_options
    changed = again(systems=("amem",), system_options={"amem": {"evo_threshold": 10}})
    with pytest.raises(UsageError, match="options of amem"):
        merge_config(old, changed)


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        ("whole", "whole", "whole"),
        ("whole", "chunked", "chunked"),
        ("chunked", "whole", "chunked"),
        ("chunked", "chunked", "chunked"),
    ],
)
def test_reading_in_parts_is_added_and_stays(old: str, new: str, merged: str) -> None:
    first = OLD.model_copy(update={"dump_reader": old})
    assert merge_config(first, again(dump_reader=new)).dump_reader == merged
