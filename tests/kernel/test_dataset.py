"""Data set files: what is read, what is refused with the file and the field, and the digest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memprobe.dataset import content_digest, load_dataset, load_pool, load_user
from memprobe.errors import DatasetError
from memprobe.types import Category
from tests.support.contexts import LAYOUT, dataset, pool, user


def written(folder: Path, *users: Any, names: tuple[str, ...] = ()) -> Path:
    (folder / "users").mkdir(parents=True)
    (folder / "pool.json").write_text(pool().model_dump_json(), encoding="utf-8")
    for i, made in enumerate(users):
        name = names[i] if names else made.user_id
        path = folder / "users" / f"{name}.json"
        path.write_text(made.model_dump_json(), encoding="utf-8")
    return folder


def test_users_come_in_id_order_whatever_the_files_are_called(tmp_path: Path) -> None:
    users = (user("user_001", 1, 6), user("user_002", 2, 5))
    one = load_dataset(written(tmp_path / "a", *users))
    two = load_dataset(written(tmp_path / "b", *users, names=("z", "a")))
    assert [u.user_id for u in one.users] == [u.user_id for u in two.users]
    assert one.digest == two.digest
    assert one.users == users


def test_a_changed_word_changes_the_digest(tmp_path: Path) -> None:
    made = user("user_001", 1, 6)
    first = load_dataset(written(tmp_path / "a", made)).digest
    task = made.tasks[0].model_copy(update={"rationale": "another"})
    changed = made.model_copy(update={"tasks": (task, *made.tasks[1:])})
    assert load_dataset(written(tmp_path / "b", changed)).digest != first
    folder = written(tmp_path / "c", made)
    raw = json.loads((folder / "pool.json").read_bytes())
    raw["categories"][0]["boundary"] += " More."
    (folder / "pool.json").write_text(json.dumps(raw), encoding="utf-8")
    assert load_dataset(folder).digest != first


def test_digest_parts_cannot_be_shifted() -> None:
    assert (
        len({content_digest(b"ab", b"c"), content_digest(b"a", b"bc"), content_digest(b"abc")}) == 3
    )


def test_a_pool_of_ones_own(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", user("user_001", 1, 6))
    other = tmp_path / "mine.json"
    (folder / "pool.json").rename(other)
    with pytest.raises(DatasetError, match=r"pool\.json: no such file"):
        load_dataset(folder)
    assert load_dataset(folder, other).pool == pool()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "memprobe.recovery.user/2"}, "format"),
        ({"user_id": ""}, "user_id"),
        ({"extra": 1}, "extra"),
        ({"memory_bank": {"skills": []}}, "memory_bank"),
        ({"tasks": [{"task": "x"}]}, "tasks.0.rationale"),
        ({"profile": {}}, "profile.age_info"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "one.json"
    raw = user("user_001", 1, 6).model_dump(mode="json") | change
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(DatasetError, match=message) as caught:
        load_user(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[]", b"null"])
def test_a_file_that_is_no_user_is_a_data_set_error(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(raw)
    for load in (load_user, load_pool):
        with pytest.raises(DatasetError, match=r"one\.json"):
            load(path)


def test_a_missing_folder_and_a_double_id_are_said(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no users/\*\.json"):
        load_dataset(tmp_path)
    twice = written(tmp_path / "a", *[user("user_001", 1, 5)] * 2, names=("x", "y"))
    with pytest.raises(DatasetError, match="ids occur twice: user_001"):
        load_dataset(twice)


def test_targets_come_in_the_order_of_the_categories() -> None:
    made = user("user_001", 1, 6)
    bank = dict(reversed(made.memory_bank.items()))
    turned = made.model_copy(update={"memory_bank": bank})
    assert [(c, e.dimension) for c, e in turned.targets()] == list(LAYOUT)


def test_an_unknown_user_is_said() -> None:
    made = dataset()
    assert made.user("user_002").user_id == "user_002"
    with pytest.raises(DatasetError, match="no user 'user_009' in data set 'made'"):
        made.user("user_009")


def test_a_dimension_is_found_with_its_category() -> None:
    found = pool().find("tide_knowledge")
    assert found is not None
    assert (found[0].name, found[1].name) == (Category.KNOWLEDGE, "tide_knowledge")
    assert pool().find("tide") is None


def test_a_user_that_cannot_be_measured_is_refused_with_the_reason(tmp_path: Path) -> None:
    made = user("user_001", 1, 6)
    (first, entries), (second, others) = list(made.memory_bank.items())[:2]
    double = entries[0].model_copy(update={"short": "another", "explanation": "Another."})
    bank = {**made.memory_bank, second: (double, *others)}
    broken: dict[str, dict[str, Any]] = {
        f"more than one target of dimension {entries[0].dimension}": {"memory_bank": bank},
        "has no target": {"memory_bank": {first: ()}},
        "has no task": {"tasks": ()},
    }
    for number, (message, change) in enumerate(broken.items()):
        folder = written(tmp_path / str(number), made.model_copy(update=change))
        with pytest.raises(DatasetError, match=f"user_001.*{message}"):
            load_dataset(folder)
