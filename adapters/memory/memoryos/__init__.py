"""MemoryOS, built clean-room: turn pairs that move from a short to a middle to a long memory."""

from adapters.memory.memoryos.options import Options
from adapters.memory.memoryos.system import MemoryOS

__all__ = ["MemoryOS", "Options"]
