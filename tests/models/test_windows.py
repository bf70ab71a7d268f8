"""Windows and token counts come from installed tables, and what is not in them is unknown."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adapters.models.tokens import BY_LENGTH, PIECE, count_tokens, tokenizer_of
from adapters.models.windows import Window, asked_window, well_known, window_of
from memprobe.errors import UsageError


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("openai/gpt-4o", 128000),
        ("gpt-4o", 128000),
        ("azure_unheard_of/gpt-4o", None),  # another provider may serve another window
        ("embedded/default", None),
        ("no/such-model", None),
        ("", None),
    ],
)
def test_a_window_is_the_tables_or_unknown(model: str, tokens: int | None) -> None:
    assert window_of(model) == tokens


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("openai/gpt-4o", Window("openai/gpt-4o", 128000, "asked for")),
        ("32768", Window("32,768 tokens", 32768, "asked for")),
        ("32_768", Window("32,768 tokens", 32768, "asked for")),
        ("my/model=8,192", Window("my/model", 8192, "asked for")),
    ],
)
def test_a_window_can_be_named_in_three_ways(text: str, window: Window) -> None:
    assert asked_window(text) == window


@pytest.mark.parametrize("text", ["no/such-model", "", "0", "m=0", "m=-5", "m=", "m=many", "1.5"])
def test_a_window_that_nobody_knows_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"window"):
        asked_window(text)


def test_the_well_known_windows_are_there_and_sorted() -> None:
    tokens = [window.tokens for window in well_known()]
    assert len(tokens) >= 3
    assert tokens == sorted(tokens)


def test_neither_windows_nor_counts_import_litellm() -> None:
    code = (
        "import sys; from adapters.models.windows import well_known;"
        "from adapters.models.tokens import count_tokens, tokenizer_of;"
        "well_known(); count_tokens(tokenizer_of('openai/gpt-4o'), 'text');"
        "sys.exit('litellm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_that_would_end_the_process_is_counted() -> None:
    assert 0 < count_tokens("o200k_base", " " * 1_000_000) < 1_000_000


def test_pieces_change_a_count_by_next_to_nothing() -> None:
    import tiktoken

    text = "The user likes green tea and walks by the harbour. " * 8000
    assert len(text) > 4 * PIECE
    whole = len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))
    assert abs(count_tokens("o200k_base", text) - whole) <= 2 * (len(text) // PIECE)


def test_the_tokenizer_is_named_by_the_model() -> None:
    assert tokenizer_of("openai/gpt-4") == "cl100k_base"
    assert tokenizer_of("embedded/default") == "o200k_base"
    assert count_tokens(BY_LENGTH, "12345") == 2
