"""litellm, imported when it is first needed, and kept quiet and off the network.

Measured with litellm 1.10x: nearly half the processor time of a call goes into pricing
the response three times and building a log record for callbacks. The gateway has its own
prices and ledger, so our calls (and only ours) are made without both.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adapters.models.loading import LOADING
from memprobe.errors import MissingPrerequisite

_OURS: ContextVar[bool] = ContextVar("memprobe_call", default=False)


@cache
def load_litellm() -> Any:
    """The module: no telemetry, no price table or vocabulary over the network, no retries."""
    # Read at import: otherwise litellm fetches a newer table and falls back after a time-out.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    folder = tokenizer_folder()
    if folder is not None:
        os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder))
    # litellm loads parts of itself later on, so this cannot be limited to the import.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier", category=UserWarning)
    # litellm makes its coroutine on another thread; a call that is cancelled there, e.g. at the
    # cost limit, was not sent, and nothing of it is left to await.
    warnings.filterwarnings(
        "ignore", message=r"coroutine '.*acompletion' was never awaited", category=RuntimeWarning
    )
    try:
        with LOADING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm
    except ImportError as error:
        raise MissingPrerequisite(
            f"remote models need litellm ({error}); pip install 'litellm>=1.106.12,!=1.107.0'"
        ) from error
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    litellm.num_retries = 0
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "litellm", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _leave_prices_to_us()
    return litellm


def _leave_prices_to_us() -> None:
    """Spare our calls litellm's price look-up; a version without that method keeps its ways."""
    from litellm.litellm_core_utils.litellm_logging import Logging

    log: Any = Logging
    priced = getattr(log, "response_cost_calculator", None)
    if priced is None:
        return

    def unless_ours(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _OURS.get() else priced(self, *args, **kwargs)

    log.response_cost_calculator = unless_ours


@cache
def _internal() -> Any:
    """litellm's own mark of a call that no callback shall hear of."""
    try:
        from litellm._internal_context import is_internal_call
    except ImportError:
        return None
    return is_internal_call


@contextmanager
def unaccounted() -> Iterator[None]:
    """Calls made in this block are neither priced nor logged by litellm."""
    mark = _internal()
    ours = _OURS.set(True)
    quiet = mark.set(True) if mark is not None else None
    try:
        yield
    finally:
        _OURS.reset(ours)
        if quiet is not None:
            mark.reset(quiet)


def tokenizer_folder() -> Path | None:
    """Where litellm carries tiktoken's vocabularies, found without importing it."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    return folder if folder.is_dir() else None
