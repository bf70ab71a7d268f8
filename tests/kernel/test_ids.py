"""Slugs: safe everywhere, distinct for distinct names, unchanged when they are safe."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprobe.ids import slug

SAFE = re.compile(r"[a-z0-9][a-z0-9_]{0,63}")


@given(st.text(max_size=200))
def test_any_name_becomes_safe(raw: str) -> None:
    found = slug(raw)
    assert SAFE.fullmatch(found)
    assert slug(found) == found


@given(st.text(max_size=40), st.text(max_size=40))
def test_distinct_names_stay_distinct(a: str, b: str) -> None:
    assert (slug(a) == slug(b)) is (a == b)


@pytest.mark.parametrize(
    "raw",
    [
        "00000000-0000-0000-0000-000000000001",
        "2026-01-01T10:00:00_task",
        "../../etc/passwd",
        "D:\\logs",
        "Ana Li",
        "ana li",
        "user/1",
        "user_1\n",
        "אני",
        "\ud83d",
        "",
        "x" * 65,
        "_x",
        "CON",
    ],
)
def test_awkward_names(raw: str) -> None:
    """Cases userid-hyphen-uuid, windows-path-sep: no hyphen, colon, separator or case."""
    found = slug(raw)
    assert SAFE.fullmatch(found)
    assert found != raw


def test_equal_stems_do_not_collide() -> None:
    """Case userid-name-collision: names that read alike have their own slugs."""
    alike = ["Ana Li", "ana li", "ana_li", "ana-li", "Ana  Li", "ana.li", "ANA LI"]
    assert len({slug(name) for name in alike}) == len(alike)
    assert slug("ana_li") == "ana_li"
