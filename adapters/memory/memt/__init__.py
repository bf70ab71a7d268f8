"""Mem-T: a trained memory policy over five collections (`adapters.memory.memt:MemT`)."""

from adapters.memory.memt.options import Options
from adapters.memory.memt.system import MemT

__all__ = ["MemT", "Options"]
