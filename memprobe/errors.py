"""Everything MemProbe raises on purpose.

MemProbeError
├── UsageError            a wrong option, name or value; exit code 2
│   ├── SettingsError     a configuration value; says where it was looked for
│   └── PromptError       a prompt template or its variables
├── MissingPrerequisite   something is not installed or not running; exit code 2
├── DatasetError          a user, bank, task or pool file
├── AdapterError          a memory system failed or broke its contract
│   ├── AdapterContractError
│   ├── SnapshotError     a checkpoint's store is missing or is not the one it names
│   └── UnsupportedEvent  the system cannot take this event
├── CallFailed            a model call ended without a usable answer; has `reason`
│   └── BudgetExceeded    the next call would pass `--max-cost`; the run stays resumable
└── StorageError          an artifact, the catalog or the ledger
"""

from __future__ import annotations

from collections.abc import Callable

from memprobe.outcomes import Reason


class MemProbeError(Exception):
    """Base of all errors that MemProbe raises on purpose."""


class UsageError(MemProbeError):
    """A wrong option, name or value."""


class SettingsError(UsageError):
    """A configuration value that cannot be used."""


class PromptError(UsageError):
    """A prompt template that is missing, broken or given the wrong variables."""


class MissingPrerequisite(MemProbeError):
    """Something is not installed or not running; the message holds the command that helps."""


class DatasetError(MemProbeError):
    """A data set file is missing, malformed or inconsistent."""


class AdapterError(MemProbeError):
    """A memory system failed."""


class AdapterContractError(AdapterError):
    """A memory system answered in a way its contract does not allow."""


class SnapshotError(AdapterError):
    """A store snapshot is missing or does not match its checkpoint."""


class UnsupportedEvent(AdapterError):
    """A memory system cannot take this kind of event or text."""


class CallFailed(MemProbeError):
    """A model call ended without a usable answer.

    `reason` is why the item it belongs to is unscored; `call_id` leads to the
    record of the attempt in the ledger, when one was stored.
    """

    def __init__(self, reason: Reason, detail: str, call_id: str | None = None) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
        self.call_id = call_id

    def __reduce__(self) -> tuple[Callable[..., CallFailed], tuple[object, ...]]:
        """As an exception of a task that ran in another process comes back."""
        return type(self), (self.reason, self.detail, self.call_id)


class BudgetExceeded(CallFailed):
    """The next call would pass `--max-cost`; nothing was sent."""

    def __init__(self, detail: str) -> None:
        super().__init__(Reason.PROVIDER_ERROR, detail)
        # No provider failed: the text is the limit's own.
        self.args = (detail,)

    def __reduce__(self) -> tuple[Callable[..., CallFailed], tuple[object, ...]]:
        return type(self), (self.detail,)


class StorageError(MemProbeError):
    """An artifact, the catalog or the ledger could not be read or written."""
