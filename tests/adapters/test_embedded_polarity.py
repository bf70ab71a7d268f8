"""Where texts stand on axes: the rules for denial, and the data file of the ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.models.embedded.polarity import MARGIN, Reading, opposition, position, positions, read
from adapters.models.embedded.rubric import axes
from adapters.models.minilm import MiniLM
from memprobe.dataset import load_dataset
from memprobe.errors import DatasetError
from memprobe.polarity import FORMAT, Axis, load_axes
from memprobe.types import Category
from storage.bundled import recovery_dir

PRIDE = Axis(first="sees themselves as modest and humble", second="sees themselves as proud")


@pytest.fixture(scope="module")
def embedder() -> MiniLM:
    return MiniLM()


@pytest.mark.parametrize(
    ("text", "said", "denied"),
    [
        ("Sees himself as proud and not modest", "Sees himself as proud and", ("modest",)),
        ("Principled, not pliable", "Principled", ("pliable",)),
        ("doesn't avoid math, even under stress", "even under stress", ("avoid math",)),
        ("wants no humor", "", ("humor",)),
        ("plain facts rather than comfort", "plain facts", ("comfort",)),
        ("Blunt answers over soft hedging", "Blunt answers", ("soft hedging",)),
        ("low tolerance for pushback; wants facts", "wants facts", ("pushback",)),
        ("low pushback tolerance", "", ("pushback tolerance",)),
        ("wants no-fluff, no-nonsense answers", "wants no-fluff, no-nonsense answers", ()),
        ("not only fast but careful", "not only fast but careful", ()),
        ("improves over time", "improves over time", ()),
        ("patient and calm", "patient and calm", ()),
        ("", "", ()),
    ],
)
def test_what_a_text_denies_is_cut_out(text: str, said: str, denied: tuple[str, ...]) -> None:
    assert read(text) == Reading(said, denied)


async def test_a_denial_turns_the_side(embedder: MiniLM) -> None:
    proud, modest, denied, off = await positions(
        embedder,
        ["proud of his work", "a modest, humble man", "not modest or humble", "printed on paper"],
        PRIDE,
    )
    assert proud < -MARGIN < MARGIN < modest
    assert denied < -MARGIN
    assert abs(off) < MARGIN
    assert await position(embedder, "proud of his work", PRIDE) == proud


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(0.3, -0.2, 0.2), (-0.1, 0.4, 0.1), (0.3, 0.2, 0.0), (0.0, -0.5, 0.0)],
)
def test_opposition_is_the_smaller_distance(first: float, second: float, found: float) -> None:
    assert opposition(first, second) == found


def test_every_dimension_is_directional_or_says_why_not() -> None:
    pool = load_dataset(recovery_dir()).pool
    names = {d.name: c.name for c in pool.categories for d in c.dimensions}
    assert set(axes().dimensions) <= set(names)
    rest = set(names) - set(axes().dimensions)
    episodic = {n for n, category in names.items() if category is Category.EPISODIC}
    assert episodic <= rest
    assert rest - episodic == set(axes().not_directional) - {Category.EPISODIC.value}
    assert len(axes().dimensions) == 104
    assert axes().find("no_such_dimension") is None


async def test_the_ends_lie_on_their_own_sides(embedder: MiniLM) -> None:
    """An end that is read as its opposite would flag every right label."""
    for name, (first, second) in axes().dimensions.items():
        assert not read(first).denied + read(second).denied, name
        at = await positions(embedder, [first, second], Axis(first=first, second=second))
        assert at[0] > 0 > at[1], name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dimensions": {"d": ["a", "a"]}}, "two different ends"),
        ({"dimensions": {"d": ["a"]}}, "two different ends"),
        ({"dimensions": {}}, "dimensions"),
        ({"format": "other/1"}, "format 'other/1'"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    body = {
        "format": FORMAT,
        "origin": "o",
        "version": 1,
        "not_directional": {},
        "dimensions": {"d": ["a", "b"]},
    }
    path = tmp_path / "ends.json"
    path.write_text(json.dumps(body | change), encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        load_axes(path)
