"""MemProbe: audit the memory that an LLM agent leaves behind.

What a memory system's author needs is here: the `MemorySystem` port with its
`Capabilities`, the events and items that pass through it, and the errors it may
raise. Everything else is reached through the `memprobe` command.
"""

from memprobe.errors import (
    AdapterContractError,
    AdapterError,
    MemProbeError,
    SnapshotError,
    UnsupportedEvent,
)
from memprobe.outcomes import Reason, Scored, Unscored
from memprobe.ports import Capabilities, Embedder, MemorySystem
from memprobe.types import (
    AccessMode,
    Category,
    DocumentEvent,
    Event,
    MemoryItem,
    MessageEvent,
    Scope,
    SessionEvent,
    SessionMessage,
)

__version__ = "0.1.0"

__all__ = [
    "AccessMode",
    "AdapterContractError",
    "AdapterError",
    "Capabilities",
    "Category",
    "DocumentEvent",
    "Embedder",
    "Event",
    "MemProbeError",
    "MemoryItem",
    "MemorySystem",
    "MessageEvent",
    "Reason",
    "Scope",
    "Scored",
    "SessionEvent",
    "SessionMessage",
    "SnapshotError",
    "Unscored",
    "UnsupportedEvent",
    "__version__",
]
