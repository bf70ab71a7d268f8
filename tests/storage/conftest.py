"""Servers that storage is tested against."""

from tests.support.postgres import postgres

__all__ = ["postgres"]
