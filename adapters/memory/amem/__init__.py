"""A-MEM, built clean-room: linked notes that a model describes, connects and lets evolve."""

from adapters.memory.amem.system import AMem

__all__ = ["AMem"]
