"""Places are told without passwords, and only a process that has the password uses them."""

from __future__ import annotations

import os

import pytest

from memprobe.errors import UsageError
from memprobe.places import exported, public, settled
from memprobe.settings import Settings

WHOLE = "postgresql+psycopg://u:hunter2@h/d"
SHOWN = "postgresql+psycopg://u:***@h/d"


def test_a_password_stays_where_it_is_set() -> None:
    told = public({"runs": "s3://b/p", "ledger": WHOLE})
    assert told == {"runs": "s3://b/p", "ledger": SHOWN}
    here = settled(Settings(ledger=WHOLE), told)
    assert (here.runs, here.ledger) == ("s3://b/p", WHOLE)


@pytest.mark.parametrize("own", ["", "sqlite:///l", "postgresql+psycopg://u:pw@elsewhere/d"])
def test_who_lacks_the_password_is_told_which_variable_to_set(own: str) -> None:
    with pytest.raises(UsageError, match=r"MEMPROBE_LEDGER") as caught:
        settled(Settings(ledger=own), {"ledger": SHOWN})
    assert "pw" not in str(caught.value).replace("password", "")


def test_places_without_a_password_are_taken_as_they_are() -> None:
    settings = Settings(ledger=WHOLE)
    for url in ("sqlite:////a/l.sqlite", "postgresql+psycopg://u@h/d"):
        assert settled(settings, {"ledger": url}).ledger == url
    assert settled(settings, {}) == settings


def test_the_variable_is_set_for_the_time_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPROBE_LEDGER", "before")
    with exported(Settings(ledger=WHOLE)):
        assert os.environ["MEMPROBE_LEDGER"] == WHOLE
    assert os.environ["MEMPROBE_LEDGER"] == "before"
    monkeypatch.delenv("MEMPROBE_LEDGER")
    with exported(Settings(ledger=WHOLE)):
        pass
    assert "MEMPROBE_LEDGER" not in os.environ
