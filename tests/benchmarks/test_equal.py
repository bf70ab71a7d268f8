"""What was made faster gives the same as what it replaced."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from adapters.memory.rag import bm25_scores
from prompts import _json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner) | st.tuples(inner)
    ),
    max_leaves=20,
)


@example(value={"a": ["</memory>", {}, [], ()], "b": {"c": None}}, indent=1)
@given(value=VALUES, indent=st.sampled_from([None, 1, 2]))
def test_json_in_prompts_is_that_of_the_standard_library(value: object, indent: int | None) -> None:
    plain = json.dumps(value, ensure_ascii=False, indent=indent)
    assert _json(value, indent) == plain.replace("</", "<\\/")


def test_scores_do_not_depend_on_what_was_asked_before() -> None:
    texts = ["the ferry left at dawn", "a knot for the ferry", "soup"]
    first = bm25_scores("ferry knot", texts).tolist()
    bm25_scores("soup", [*texts, "soup again"])
    assert bm25_scores("ferry knot", texts).tolist() == first
    assert first[1] > first[0] > first[2] == 0
