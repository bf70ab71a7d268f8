"""Context windows of named models, from the table that comes with litellm.

The table is read as a file: a report needs a number of it, and litellm takes seconds to import.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adapters.models.prices import lookup
from memprobe.errors import UsageError

TABLE = "model_prices_and_context_window_backup.json"
WELL_KNOWN = (
    "openai/gpt-4o",
    "anthropic/claude-sonnet-4-5",
    "openai/gpt-5.4-mini",
    "gemini/gemini-2.5-pro",
)
"""Readers that people have in mind: windows from 128,000 tokens to a million."""


@dataclass(frozen=True, slots=True)
class Window:
    """How many tokens a named reader takes in. `source` tells why it is looked at."""

    name: str
    tokens: int
    source: str


@cache
def _table() -> dict[str, Any]:
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return {}
    try:
        found = json.loads((Path(spec.origin).parent / TABLE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def window_of(model: str) -> int | None:
    """A model's input window in tokens; None for an embedded or an unknown model."""
    row = lookup(_table(), model)
    window = row.get("max_input_tokens") if row is not None else None
    return int(window) if isinstance(window, int | float) and window > 0 else None


def asked_window(text: str) -> Window:
    """A window as a user names it: a model, a number of tokens, or NAME=TOKENS.

    Raises `UsageError` for a model that the table does not know and for what is no
    positive number.
    """
    name, equals, given = text.strip().rpartition("=")
    if not equals and not given.replace(",", "").replace("_", "").isdigit():
        tokens = window_of(given)
        if tokens is None:
            raise UsageError(
                f"no window is known of {text!r}: write it as in --model, or give its tokens, "
                f"e.g. --window-of {given or 'MODEL'}=32768"
            )
        return Window(given, tokens, "asked for")
    number = given.replace(",", "").replace("_", "")
    if not number.isdigit() or int(number) == 0:
        raise UsageError(f"--window-of {text}: {given!r} is no number of tokens")
    return Window(name or f"{int(number):,} tokens", int(number), "asked for")


def well_known() -> list[Window]:
    """The well-known windows that the installed table has, the smallest first."""
    found = [(model, window_of(model)) for model in WELL_KNOWN]
    known = [Window(model, tokens, "well known") for model, tokens in found if tokens]
    return sorted(known, key=lambda window: window.tokens)
