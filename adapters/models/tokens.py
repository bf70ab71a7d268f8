"""Token counts by tiktoken's vocabularies that litellm carries: no network, the same everywhere.

A count is only as good as the name it comes with, so the name goes wherever the count goes.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

from adapters.models.litellm_loader import tokenizer_folder

BY_LENGTH = "4 characters a token"
"""The name of the count that is made where no vocabulary is installed."""
PIECE = 65_536
"""Characters encoded at once: tiktoken ends the process over a million spaces in one text."""


def tokenizer_of(model: str) -> str:
    """The tokenizer that counts for a model: the nearest bundled vocabulary's name."""
    wanted = vocabulary(model.rpartition("/")[2])
    for name in (wanted, "cl100k_base"):
        if _encoder(name) is not None:
            return name
    return BY_LENGTH


def vocabulary(bare: str) -> str:
    """The vocabulary of a model's bare name; the newest one for what is not known."""
    old = ("gpt-4-", "gpt-3.5", "text-embedding")
    return "cl100k_base" if bare == "gpt-4" or bare.startswith(old) else "o200k_base"


def count_tokens(tokenizer: str, text: str) -> int:
    """Tokens of a text by a tokenizer's name; each 65,536 characters are encoded apart."""
    encoder = None if tokenizer == BY_LENGTH else _encoder(tokenizer)
    if encoder is None:
        return (len(text) + 3) // 4
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return sum(len(encoder.encode_ordinary(piece)) for piece in pieces)


@cache
def _encoder(name: str) -> Any:
    folder = tokenizer_folder()
    if folder is None:
        return None
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder))
    if not _is_bundled(name):
        return None
    try:
        import tiktoken

        return tiktoken.get_encoding(name)
    except Exception:
        # A vocabulary that cannot be read is as good as none; the count says how it was made.
        return None


def _is_bundled(name: str) -> bool:
    """tiktoken downloads what its cache folder lacks; that must never happen here."""
    folder = Path(os.environ.get("TIKTOKEN_CACHE_DIR", ""))
    url = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    return (folder / hashlib.sha1(url.encode()).hexdigest()).is_file()
