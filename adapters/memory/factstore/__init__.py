"""A fact store, built from a description: observations that become facts with a history."""

from adapters.memory.factstore.system import FactStore

__all__ = ["FactStore"]
