"""litellm, imported when it is first needed, and kept quiet and off the network."""

from __future__ import annotations

import logging
import os
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memprobe.errors import MissingPrerequisite


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
    try:
        with warnings.catch_warnings():
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
    return litellm


def tokenizer_folder() -> Path | None:
    """Where litellm carries tiktoken's vocabularies, found without importing it."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    return folder if folder.is_dir() else None
