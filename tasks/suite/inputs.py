"""What an author gives: mini-specs and the configuration of their domain, read and checked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memprobe.dataset import explain
from memprobe.errors import DatasetError
from memprobe.paradigms.expand import Blueprint, DomainConfig, MiniSpec, expand

MAX_BYTES = 16 << 20


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DatasetError(f"{path}: more than {MAX_BYTES:,} bytes")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not valid JSON ({error})") from error


def read_domain(path: Path) -> DomainConfig:
    """A domain's configuration; raises `DatasetError` naming the file and each wrong field."""
    try:
        return DomainConfig.model_validate(_json(path))
    except ValidationError as error:
        raise DatasetError(f"{path}: {explain(error)}") from error


def read_minispecs(path: Path) -> list[MiniSpec]:
    """The mini-specs of a file: a list, or an object with a list `minispecs`.

    Raises `DatasetError` naming the file, the place in the list and each wrong
    field, for all of them at once.
    """
    found = _json(path)
    listed = found.get("minispecs") if isinstance(found, dict) else found
    if not isinstance(listed, list) or not listed:
        raise DatasetError(f"{path}: a list of mini-specs is needed, or an object with `minispecs`")
    minis: list[MiniSpec] = []
    wrong: list[str] = []
    for place, entry in enumerate(listed):
        try:
            minis.append(MiniSpec.model_validate(entry))
        except ValidationError as error:
            wrong.append(f"{path}: [{place}]: {explain(error)}")
    twice = [name for name, n in Counter(m.episode_id for m in minis).items() if n > 1]
    wrong += [f"{path}: {name}: more than one mini-spec has this episode_id" for name in twice]
    if wrong:
        raise DatasetError("\n  ".join(wrong))
    return minis


def expand_all(minis: list[MiniSpec], domain: DomainConfig) -> list[Blueprint]:
    """All blueprints in the order of their ids; raises `DatasetError` with all that is wrong."""
    made: list[Blueprint] = []
    wrong: list[str] = []
    for mini in sorted(minis, key=lambda m: m.episode_id):
        try:
            made.append(expand(mini, domain))
        except DatasetError as error:
            wrong.append(str(error))
    if wrong:
        raise DatasetError("\n  ".join(wrong))
    return made
