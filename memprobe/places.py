"""Where a run and its ledger lie, as it is told to other processes: without passwords.

What a flow run is started with is stored by its Prefect server and shown on its
pages, so a URL goes there with its password hidden. The process that works has
the whole URL among its own settings (`MEMPROBE_LEDGER`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from memprobe.errors import UsageError
from memprobe.settings import BY_NAME, Settings, redact


def public(places: Mapping[str, str]) -> dict[str, str]:
    """The places as they may be stored and shown."""
    return {name: redact(value) for name, value in places.items()}


def settled(settings: Settings, places: Mapping[str, Any]) -> Settings:
    """The settings at these places; a hidden password is that of the settings' own URL.

    Raises `UsageError` when the settings have another URL, as a password is never sent.
    """
    fields = dict(places)
    for name, value in places.items():
        own = str(getattr(settings, name, None) or "")
        if isinstance(value, str) and value == redact(own):
            fields[name] = own
        elif isinstance(value, str) and "***" in value and value == redact(value):
            raise UsageError(
                f"{name} is at {value}, whose password is not sent along: set "
                f"{BY_NAME[name].variable} to the whole URL where the run is worked on"
            )
    return settings.model_copy(update=fields)


@contextlib.contextmanager
def exported(settings: Settings) -> Iterator[None]:
    """The ledger's URL in this process's environment, for flows and the processes they start."""
    variable = BY_NAME["ledger"].variable
    before = os.environ.get(variable)
    os.environ[variable] = settings.ledger
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before
