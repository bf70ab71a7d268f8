"""Files whose content is nothing of the layout, and users that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.importers.rebuild import rebuild
from tests.importers.release import make_release
from tests.importers.support import assert_nothing_lost, imported, problems, rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_release(tmp_path)


@pytest.mark.parametrize("text", ["true", "17", '"text"', "[1]", "[[]]", '{"details": 5}'])
def test_verdicts_that_are_no_object_come_out_as_they_were(
    root: Path, tmp_path: Path, text: str
) -> None:
    """A loss on the way in, and no error on the way out."""
    path = "output/amem_pooled_50/recon_judge/user_001.json"
    (root / path).write_text(text, encoding="utf-8")
    run, found = imported(tmp_path, tmp_path / "pub")
    assert f"{path} | details | no list" in problems(found, "lost")
    assert_nothing_lost(run, root)


@pytest.mark.parametrize(
    "folder", ["benchmark_data/CustomTasksPooledFinal", "output/_task_design_oracle"]
)
def test_a_file_of_a_user_whom_nothing_else_names_is_reported_and_kept(
    root: Path, tmp_path: Path, folder: str
) -> None:
    path = root / folder / "user_001.json"
    stranger = path.with_name("..%2f..:stranger x.json")
    stranger.write_bytes(path.read_bytes().replace(b'"user_001"', b'"..%2f..:stranger x"'))
    run, found = imported(tmp_path, tmp_path / "pub")
    (line,) = problems(found, "lost")
    assert "neither in the bank nor in the records of a system" in line
    assert found.lost == 1
    assert_nothing_lost(run, root)
    # A choice of users is no loss of the others.
    assert imported(tmp_path, tmp_path / "one", ("user_002",))[1].lost == 1


def test_half_a_surrogate_pair_in_an_id_of_the_bank(root: Path, tmp_path: Path) -> None:
    path = "Deeppersona/data/user_memory_banks_pooled_final.json"
    before = (root / path).read_bytes()
    (root / path).write_bytes(before.replace(b'"user_001"', rb'"\ud800user"', 1))
    run, found = imported(tmp_path, tmp_path / "pub")
    assert f"{path} | users[0].user_id | holds half a surrogate pair" in problems(found, "lost")
    assert {row["status"] for row in rows(run, "verdicts", user_id="user_001")} == {"unscored"}
    back = next(file for file in rebuild(run) if file.path == path)
    assert back.data is not None
    again = json.loads(back.data.decode("utf-8", "surrogatepass"))
    assert again == json.loads((root / path).read_bytes())


@pytest.mark.parametrize("said", ['{"a": 1}', "[1]", "5", "null", '""'])
def test_an_id_in_the_bank_that_is_no_text(root: Path, tmp_path: Path, said: str) -> None:
    path = root / "Deeppersona/data/user_memory_banks_pooled_final.json"
    path.write_bytes(path.read_bytes().replace(b'"user_001"', said.encode(), 1))
    _, found = imported(tmp_path, tmp_path / "pub")
    assert any("users[0].user_id | no user id" in line for line in problems(found, "lost"))
    assert sorted(found.users) == ["user_001", "user_002"]


@pytest.mark.parametrize("mode", ["", "_retrieve"])
def test_half_a_surrogate_pair_in_the_name_of_a_record(
    root: Path, tmp_path: Path, mode: str
) -> None:
    for kind in ("recon_judge", "attribution"):
        path = root / f"output/amem_pooled_50{mode}/{kind}/user_001.json"
        before = path.read_bytes()
        path.write_bytes(before.replace(b'"dimension": "', b'"dimension": "\xed\xa0\x80', 1))
    run, found = imported(tmp_path, tmp_path / "pub")
    assert found.lost
    assert_nothing_lost(run, root)
