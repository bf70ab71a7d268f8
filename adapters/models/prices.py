"""What a call costs, by the price table that comes with litellm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from adapters.models.litellm_loader import load_litellm
from memprobe.types import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars a token. `cached` falls back to `prompt` where the table has none."""

    prompt: float
    cached: float
    completion: float
    date: str

    def cost(self, usage: Usage) -> float | None:
        """Dollars of a call; None when the provider did not report its tokens.

        Cached tokens are part of the prompt tokens and are billed at their own
        price only; reasoning tokens are part of the completion tokens.
        """
        if self.prompt == self.cached == self.completion == 0:
            return 0.0
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        return (
            fresh * self.prompt + cached * self.cached + usage.completion_tokens * self.completion
        )

    def estimate(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars of a call that has not been made, nothing of it cached."""
        return prompt_tokens * self.prompt + completion_tokens * self.completion


FREE = Price(0.0, 0.0, 0.0, "embedded")


def price_of(model: str) -> Price | None:
    """The price of a model; None when the table does not know it. Embedded models are free."""
    if model.startswith("embedded/"):
        return FREE
    return _bundled(model)


@cache
def _bundled(model: str) -> Price | None:
    row = table_row(model)
    if row is None:
        return None
    prompt, completion = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    if prompt is None or completion is None:
        return None
    cached = row.get("cache_read_input_token_cost")
    from importlib.metadata import version

    return Price(
        float(prompt),
        float(prompt if cached is None else cached),
        float(completion),
        f"litellm {version('litellm')}",
    )


def table_row(model: str) -> dict[str, Any] | None:
    """litellm's row of a model, looked up with and without the provider prefix."""
    return lookup(load_litellm().model_cost, model)


def lookup(table: Mapping[str, Any], model: str) -> dict[str, Any] | None:
    """A model's row in a table of litellm's form; None when it has none."""
    # The bare name counts only when the prefix is the row's own provider: a model of the
    # same name behind another provider has another price.
    prefix, _, bare = model.partition("/")
    row = table.get(model)
    if row is None and bare:
        row = table.get(bare)
        if row is not None and row.get("litellm_provider") != prefix:
            row = None
    return dict(row) if row is not None else None
