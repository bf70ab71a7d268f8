from __future__ import annotations

import pytest

from adapters.models.prices import Price, price_of
from memprobe.types import Usage


def test_cost_cached_tokens() -> None:
    price = Price(1.25e-6, 0.625e-6, 10e-6, "given")
    usage = Usage(prompt_tokens=262960, cached_tokens=257955, completion_tokens=1744)
    assert price.cost(usage) == pytest.approx(0.184918, abs=1e-6)


def test_cost_of_an_unknown_model_is_unknown_not_zero() -> None:
    assert price_of("openai/mock") is None
    assert price_of("hosted_vllm/my-own-model") is None


def test_unreported_tokens_have_no_cost() -> None:
    assert Price(1e-6, 1e-6, 1e-6, "given").cost(Usage(prompt_tokens=5)) is None


def test_embedded_models_cost_nothing() -> None:
    price = price_of("embedded/default")
    assert price is not None
    assert price.cost(Usage(prompt_tokens=9, completion_tokens=9)) == 0.0


def test_a_known_model_has_a_dated_price_with_cheaper_cached_tokens() -> None:
    price = price_of("openai/gpt-4o-mini")
    assert price is not None
    assert 0 < price.cached < price.prompt < price.completion
    assert price.date.startswith("litellm ")


def test_a_name_behind_another_provider_does_not_borrow_a_price() -> None:
    assert price_of("hosted_vllm/gpt-4o-mini") is None
