"""What a part of a run leaves for the process that conducts the run: one small file.

A part runs in another process, on another machine as well. Its results are in the
run's artifacts and its calls in the ledger; what neither of them tells is here.
"""

from __future__ import annotations

from pydantic import Field, ValidationError

from memprobe.types import Frozen
from storage.runs import RunStore


class Account(Frozen):
    """How a part ended.

    `failures` are lines of the run's result. `broken` are the units that failed
    in the part, which left rows that say why. `stopped` is the cost limit's
    message; `failed` says why the part did not come to its end, None when it
    did. `dropped` are the parameters that models rejected. `token` names the
    flow run that wrote it.
    """

    token: str = ""
    failures: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    stopped: str | None = None
    failed: str | None = None
    dropped: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def write_account(store: RunStore, system: str, account: Account) -> None:
    """Leave a part's account, in place of an earlier one."""
    store.files.write(store.part_file(system, "json"), account.model_dump_json().encode())


def read_account(store: RunStore, system: str, token: str) -> Account | None:
    """The account that the flow run `token` left; None when it left none."""
    try:
        found = Account.model_validate_json(store.files.read(store.part_file(system, "json")))
    except (FileNotFoundError, ValidationError):
        return None
    return found if found.token == token else None
