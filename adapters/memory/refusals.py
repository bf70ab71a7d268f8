"""What adapters refuse and pass over alike: odd texts, missing libraries, published faults."""

from __future__ import annotations

import logging

from memprobe.errors import (
    BudgetExceeded,
    MemProbeError,
    MissingPrerequisite,
    UnsupportedEvent,
)
from memprobe.systems import ModelAccess, Services

_log = logging.getLogger("adapters.memory")


def check_text(name: str, text: str) -> None:
    """Raises `UnsupportedEvent` for text that is not valid Unicode: no store could keep it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UnsupportedEvent(
            f"{name}: the text has a lone surrogate at position {error.start}"
        ) from error


def models_for(name: str, services: Services, *, installed: bool, install: str) -> ModelAccess:
    """The model of a system that works through a library; raises `MissingPrerequisite`."""
    if not installed:
        raise MissingPrerequisite(f"{name} needs its library: {install}")
    if services.models is None:
        raise MissingPrerequisite(f"{name} needs a language model: pass --model")
    return services.models


def pass_over(name: str, doing: str, error: MemProbeError, *, strict: bool) -> None:
    """Raise a failure, but forget it where the published procedure did; never the cost limit."""
    if strict or isinstance(error, BudgetExceeded):
        raise error
    _log.warning("%s: %s failed, as published nothing is made of it: %s", name, doing, error)
